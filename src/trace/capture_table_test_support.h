// SPDX-License-Identifier: Apache-2.0
//
// Tables of kernels for tests: written as lists of their times, and what holds for all that are
// read.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

struct TestKernel {
  int64_t start_ns;
  int64_t duration_ns;
  int32_t stream = 7;
  KernelKind kind = KernelKind::kCompute;
  int32_t device = 0;
  const char* type = "MatMulV2";
};

inline CaptureTable table_of(const std::vector<TestKernel>& rows) {
  CaptureTable table;
  table.format = "test";
  for (const TestKernel& row : rows) {
    const uint32_t type = table.names.intern(row.type);
    table.append({.start_ns = row.start_ns,
                  .duration_ns = row.duration_ns,
                  .device = row.device,
                  .stream = row.stream,
                  .name = table.names.intern("aclnnMatmul_MatMulV2_" + std::string(row.type)),
                  .type = type,
                  .kind = row.kind});
  }
  return table;
}

// Of the first finding of this code; empty: there is none.
inline std::string finding_text(const CaptureTable& table, std::string_view code) {
  for (const Finding& finding : table.findings) {
    if (finding.code == code) return finding.text;
  }
  return "";
}

// Of the property; empty: there is none.
inline std::string property_of(const CaptureTable& table, std::string_view key) {
  for (const Property& property : table.properties) {
    if (property.key == key) return property.value;
  }
  return "";
}

// What holds for every table that a reader makes, whatever was in the file.
inline void expect_sound(const CaptureTable& table) {
  uint64_t row_count = 0;
  for (const KernelSource& source : table.sources) row_count += source.row_count;
  EXPECT_EQ(row_count, table.size() + table.dropped_count);
  for_each_kernel_column(table, [&table](const auto& column) {
    EXPECT_TRUE(column.empty() || column.size() == table.size());
  });
  for (size_t row = 0; row < table.size(); ++row) {
    ASSERT_GE(table.duration_ns[row], 0);
    ASSERT_LT(table.name[row], table.names.size());
    ASSERT_TRUE(table.type[row] == kNoIndex || table.type[row] < table.names.size());
    ASSERT_LT(table.source[row], table.sources.size());
    if (row == 0 || table.device[row] != table.device[row - 1]) continue;
    ASSERT_LE(table.start_ns[row - 1], table.start_ns[row]);
  }
}

// A table that was read, and is sound.
inline CaptureTable sound_table(Result<CaptureTable> table) {
  EXPECT_TRUE(table.has_value()) << table.error().message;
  if (!table) return {};
  expect_sound(*table);
  return std::move(*table);
}

}  // namespace gapless
