// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_file_order.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// Rows of `count` a device; every third starts together with the one before it.
CaptureTable table_of(uint32_t count, const std::vector<int32_t>& devices) {
  CaptureTable table;
  const uint32_t name = table.names.intern("kernel");
  for (const int32_t device : devices) {
    for (uint32_t row = 0; row < count; ++row) {
      const int64_t start_ns = 1000 * static_cast<int64_t>(row - (row % 3 == 2 ? 1 : 0));
      table.append({.start_ns = start_ns, .duration_ns = 10, .device = device, .name = name});
    }
  }
  return table;
}

uint32_t order_breaks(const CaptureTable& table, const std::vector<uint32_t>& rows) {
  uint32_t breaks = 0;
  for (size_t at = 1; at < rows.size(); ++at) {
    if (table.device[rows[at]] != table.device[rows[at - 1]]) continue;
    breaks += table.start_ns[rows[at]] < table.start_ns[rows[at - 1]] ? 1 : 0;
  }
  return breaks;
}

// Sorted by device and start, with rows that tie as the file has them, and rows that came before
// left out: what a reader does.
std::vector<uint32_t> read_back(const CaptureTable& table, std::vector<uint32_t> rows) {
  std::vector<bool> seen(table.size());
  std::erase_if(rows, [&](uint32_t row) {
    const bool was_seen = seen[row];
    seen[row] = true;
    return was_seen;
  });
  std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
    if (table.device[a] != table.device[b]) return table.device[a] < table.device[b];
    return table.start_ns[a] < table.start_ns[b];
  });
  return rows;
}

std::vector<uint32_t> all_of(const CaptureTable& table) {
  std::vector<uint32_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), uint32_t{0});
  return rows;
}

TEST(CaptureFileOrder, IsThatOfTheTableWithoutOptions) {
  const CaptureTable table = table_of(100, {0});
  const FileOrder order = make_file_order(table, {});
  EXPECT_EQ(order.rows, all_of(table));
  EXPECT_TRUE(order.headers_before.empty());
}

TEST(CaptureFileOrder, HasAsManyBreaksAsWanted) {
  const CaptureTable table = table_of(3000, {0});
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const FileOrder order = make_file_order(table, {.seed = seed, .order_break_count = 5});
    EXPECT_EQ(order_breaks(table, order.rows), 5u);
    EXPECT_EQ(read_back(table, order.rows), all_of(table));
  }
}

TEST(CaptureFileOrder, ListsDevicesByTheirNumbersAsText) {
  const CaptureTable table = table_of(4, {2, 10});
  EXPECT_EQ(make_file_order(table, {}).rows, (std::vector<uint32_t>{4, 5, 6, 7, 0, 1, 2, 3}));
}

TEST(CaptureFileOrder, CanAlwaysBeSortedBack) {
  const CaptureTable table = table_of(2000, {0, 1, 2});
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const FileOrder order = make_file_order(table, {.seed = seed,
                                                    .block_rows = 500,
                                                    .order_break_count = 7,
                                                    .duplicate_count = 30,
                                                    .repeated_header_count = 4});
    EXPECT_EQ(order.rows.size(), table.size() + 30);
    EXPECT_EQ(read_back(table, order.rows), all_of(table));
    EXPECT_EQ(order.headers_before.size(), 4u);
    EXPECT_TRUE(std::is_sorted(order.headers_before.begin(), order.headers_before.end()));
  }
}

TEST(CaptureFileOrder, HandlesTablesThatAreTooSmall) {
  const FileOrderOptions options = {
      .block_rows = 1, .order_break_count = 3, .duplicate_count = 9, .repeated_header_count = 2};
  EXPECT_TRUE(make_file_order(CaptureTable{}, options).rows.empty());
  const CaptureTable one = table_of(1, {0});
  EXPECT_EQ(make_file_order(one, options).rows, (std::vector<uint32_t>{0, 0}));
}

}  // namespace
}  // namespace gapless
