// SPDX-License-Identifier: Apache-2.0
//
// Pieces of text that the plans of all kernels have: sizes, balance, and runs of equal items.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/text_table.h"

namespace gapless {

// "2.6 MiB"
std::string size_text(int64_t bytes);
// "2.6 MiB (2686976 bytes)"
std::string exact_size_text(int64_t bytes);
std::string balance_text(double balance, double mean_cost, int64_t largest_cost,
                         std::string_view unit);

// How many equal items in a row there are.
struct SizeRun {
  int64_t count = 0;
  TableRow cells;
};

// A table of the runs, the first few of them; `header` begins with the name of what is counted.
std::string runs_text(const std::vector<SizeRun>& runs, const TableRow& header);
void add_to_runs(std::vector<SizeRun>& runs, TableRow cells);

// What --items and --tiles print must fit memory and patience.
Result<void> check_listed(size_t count, std::string_view what);

}  // namespace gapless
