// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_file_order.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "analysis/capture_draws.h"

namespace gapless {
namespace {

// Runs that change places have up to so many rows.
constexpr uint64_t kMaxRunRows = 40;

// Whether a file may be cut before place `at`: rows that start together are not torn apart.
bool can_cut(const CaptureTable& table, const std::vector<uint32_t>& rows, size_t at) {
  if (at == 0 || at == rows.size()) return true;
  return table.device[rows[at]] != table.device[rows[at - 1]] ||
         table.start_ns[rows[at]] > table.start_ns[rows[at - 1]];
}

size_t next_cut(const CaptureTable& table, const std::vector<uint32_t>& rows, size_t at) {
  while (!can_cut(table, rows, at)) ++at;
  return at;
}

void order_devices_as_text(const CaptureTable& table, std::vector<uint32_t>& rows) {
  std::vector<int32_t> devices(table.device);
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  if (devices.size() < 2) return;
  std::sort(devices.begin(), devices.end(),
            [](int32_t a, int32_t b) { return std::to_string(a) < std::to_string(b); });
  std::vector<uint32_t> ordered;
  ordered.reserve(rows.size());
  for (const int32_t device : devices) {
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(ordered),
                 [&](uint32_t row) { return table.device[row] == device; });
  }
  rows = std::move(ordered);
}

void shuffle_blocks(const CaptureTable& table, uint32_t block_rows, CaptureDraws& draws,
                    std::vector<uint32_t>& rows) {
  std::vector<size_t> begins;
  for (size_t at = 0; at < rows.size();
       at = next_cut(table, rows, std::min(at + block_rows, rows.size()))) {
    begins.push_back(at);
  }
  std::vector<size_t> order(begins.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[draws.below(left)]);
  }
  std::vector<uint32_t> shuffled;
  shuffled.reserve(rows.size());
  for (const size_t block : order) {
    const size_t end = block + 1 < begins.size() ? begins[block + 1] : rows.size();
    shuffled.insert(shuffled.end(), rows.begin() + static_cast<ptrdiff_t>(begins[block]),
                    rows.begin() + static_cast<ptrdiff_t>(end));
  }
  rows = std::move(shuffled);
}

// One exchange in each of `count` equal stretches, so that none undoes another. A stretch that is
// too short, or that has a break already, is left alone.
void exchange_runs(const CaptureTable& table, uint32_t count, CaptureDraws& draws,
                   std::vector<uint32_t>& rows) {
  for (uint32_t i = 0; i < count; ++i) {
    const size_t begin = rows.size() * i / count;
    const size_t end = rows.size() * (i + 1) / count;
    if (end - begin < 8) continue;
    const uint64_t longest = std::min<uint64_t>(kMaxRunRows, (end - begin) / 4);
    const size_t spare = end - begin - 2 * longest;
    const size_t first = next_cut(table, rows, begin + draws.below(spare));
    const size_t middle = next_cut(table, rows, first + 1 + draws.below(longest));
    const size_t last = next_cut(table, rows, std::min(middle + 1 + draws.below(longest), end));
    const auto at = [&](size_t place) { return rows.begin() + static_cast<ptrdiff_t>(place); };
    const bool is_sorted = std::is_sorted(at(first), at(last));
    if (middle >= last || last > end || !is_sorted) continue;
    if (table.device[rows[first]] != table.device[rows[last - 1]]) continue;
    std::rotate(at(first), at(middle), at(last));
  }
}

}  // namespace

FileOrder make_file_order(const CaptureTable& table, const FileOrderOptions& options) {
  CaptureDraws draws(options.seed, 1, 1000);
  FileOrder order;
  order.rows.resize(table.size());
  std::iota(order.rows.begin(), order.rows.end(), uint32_t{0});
  order_devices_as_text(table, order.rows);
  if (options.block_rows > 0) shuffle_blocks(table, options.block_rows, draws, order.rows);
  exchange_runs(table, options.order_break_count, draws, order.rows);

  const size_t row_count = order.rows.size();
  const size_t duplicates = std::min<size_t>(options.duplicate_count, row_count);
  for (size_t i = 0; i < duplicates; ++i) {
    const size_t begin = row_count * i / duplicates;
    const size_t end = row_count * (i + 1) / duplicates;
    order.rows.push_back(order.rows[begin + draws.below(end - begin)]);
  }
  for (uint32_t i = 0; i < options.repeated_header_count && row_count > 1; ++i) {
    order.headers_before.push_back(static_cast<uint32_t>(1 + draws.below(order.rows.size() - 1)));
  }
  std::sort(order.headers_before.begin(), order.headers_before.end());
  return order;
}

}  // namespace gapless
