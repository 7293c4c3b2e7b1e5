// SPDX-License-Identifier: Apache-2.0

#include "cli/plan_text.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"

namespace gapless {
namespace {

// Sizes of items beyond this are counted, not listed: the plan stays on one screen.
constexpr size_t kSizesShown = 8;
// Items or tiles that are listed one by one.
constexpr size_t kMaxListed = size_t{1} << 20;

}  // namespace

std::string size_text(int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

std::string exact_size_text(int64_t bytes) {
  return fmt::format("{} ({} bytes)", size_text(bytes), bytes);
}

std::string balance_text(double balance, double mean_cost, int64_t largest_cost,
                         std::string_view unit) {
  return fmt::format("{} (a core has {:.1f} {} in the mean, {} at most)", format_share(balance),
                     mean_cost, unit, largest_cost);
}

std::string runs_text(const std::vector<SizeRun>& runs, const TableRow& header) {
  std::vector<TableRow> rows = {header};
  for (size_t i = 0; i < std::min(runs.size(), kSizesShown); ++i) {
    rows.push_back({std::to_string(runs[i].count)});
    rows.back().insert(rows.back().end(), runs[i].cells.begin(), runs[i].cells.end());
  }
  std::string text = align_columns(rows, std::string(header.size(), 'r'), "  ");
  if (runs.size() <= kSizesShown) return text;
  int64_t left = 0;
  for (size_t i = kSizesShown; i < runs.size(); ++i) left += runs[i].count;
  return text +
         fmt::format("  and {} more of {}\n", left,
                     counted(static_cast<int64_t>(runs.size() - kSizesShown), "smaller size"));
}

void add_to_runs(std::vector<SizeRun>& runs, TableRow cells) {
  if (runs.empty() || runs.back().cells != cells) runs.push_back({0, std::move(cells)});
  ++runs.back().count;
}

Result<void> check_listed(size_t count, std::string_view what) {
  if (count <= kMaxListed) return {};
  return fail(ErrorCode::kInvalidInput, "{} {} are too many to list; at most {}", count, what,
              kMaxListed);
}

}  // namespace gapless
