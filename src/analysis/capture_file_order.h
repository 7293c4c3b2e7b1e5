// SPDX-License-Identifier: Apache-2.0
//
// The order in which a file may list the rows of a capture: blocks, order breaks, rows that are
// there twice, headers on the way.

#pragma once

#include <cstdint>
#include <vector>

#include "trace/capture_table.h"

namespace gapless {

struct FileOrderOptions {
  uint64_t seed = 1;
  // Sorted blocks in random order, as the profiler joins its slices; 0: one block.
  uint32_t block_rows = 0;
  // Two runs of rows that have changed places; each is one row that starts before the one above it.
  uint32_t order_break_count = 0;
  // Rows that are there again at the end.
  uint32_t duplicate_count = 0;
  uint32_t repeated_header_count = 0;
};

struct FileOrder {
  std::vector<uint32_t> rows;            // of the table
  std::vector<uint32_t> headers_before;  // places in `rows` before which the header is repeated
};

// Devices are in the order of their numbers as text. Rows that start together stay in their order,
// so that sorting gives back the table.
FileOrder make_file_order(const CaptureTable& table, const FileOrderOptions& options);

}  // namespace gapless
