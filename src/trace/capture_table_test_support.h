// SPDX-License-Identifier: Apache-2.0
//
// Tables of kernels written as lists of their times, for tests.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace gapless
