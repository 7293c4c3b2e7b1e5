// SPDX-License-Identifier: Apache-2.0
//
// sort_by_time: a stable sort of rows by a time, a digit after another from the lowest.
//
// Times of one step differ in some 30 bits, so that three passes do it: several times as quick as
// comparing rows, and as quick for any order. Costs a second copy of the rows.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gapless {

// `time_of(row)` is an int64_t. Rows with equal times stay in their order.
template <typename Row, typename TimeOf>
void sort_by_time(std::vector<Row>& rows, TimeOf time_of) {
  constexpr int kDigitBits = 11;
  constexpr size_t kDigits = size_t{1} << kDigitBits;
  if (rows.size() < 2) return;
  int64_t first_ns = time_of(rows.front());
  int64_t last_ns = first_ns;
  bool is_sorted = true;
  int64_t before_ns = first_ns;
  for (const Row& row : rows) {
    const int64_t time_ns = time_of(row);
    is_sorted = is_sorted && before_ns <= time_ns;
    before_ns = time_ns;
    first_ns = std::min(first_ns, time_ns);
    last_ns = std::max(last_ns, time_ns);
  }
  if (is_sorted) return;
  // As unsigned numbers, the difference of any two times fits.
  const uint64_t base = static_cast<uint64_t>(first_ns);
  const int bit_count = static_cast<int>(std::bit_width(static_cast<uint64_t>(last_ns) - base));
  std::vector<Row> sorted(rows.size());
  for (int shift = 0; shift < bit_count; shift += kDigitBits) {
    const auto digit_of = [&time_of, base, shift](const Row& row) {
      return static_cast<size_t>((static_cast<uint64_t>(time_of(row)) - base) >> shift) &
             (kDigits - 1);
    };
    std::array<size_t, kDigits + 1> begins = {};
    for (const Row& row : rows) ++begins[digit_of(row) + 1];
    for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
    for (const Row& row : rows) sorted[begins[digit_of(row)]++] = row;
    std::swap(rows, sorted);
  }
}

}  // namespace gapless
