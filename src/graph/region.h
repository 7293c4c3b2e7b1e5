// SPDX-License-Identifier: Apache-2.0
//
// Region: the bytes of a buffer that a view covers, as runs that repeat at strides.
//
// A view is brought to one form: dimensions of one element and broadcast dimensions dropped,
// negative strides turned round, dimensions sorted and merged where they are dense. A row block
// becomes one run, a tile becomes a run that repeats at the row pitch. Two regions are compared
// level by level; where strides are equal or divide each other, which is how rectangles of one
// buffer meet, a level leaves at most two cases, so the answer is exact and costs a few
// nanoseconds. Other strides are compared by enumeration up to a limit; past it the answer is the
// safe one.

#pragma once

#include <array>
#include <cstdint>

#include "graph/view.h"

namespace gapless {

struct RegionLevel {
  int64_t stride = 0;  // bytes, at least the extent of what is inside
  int64_t count = 0;   // at least 2
  bool operator==(const RegionLevel&) const = default;
};

struct Region {
  int64_t begin = 0;  // first byte
  int64_t end = 0;    // one past the last byte; begin == end: nothing is touched
  int64_t run = 0;    // bytes at the innermost
  int32_t level_count = 0;
  bool exact = true;                              // false: the hull of a view that overlaps itself
  std::array<RegionLevel, kMaxRank> levels = {};  // outermost first
  bool operator==(const Region&) const = default;
};

Region region_of(const View& view);
int64_t byte_count(const Region& region);

// True when some byte is in both; also true when that could not be decided in bounded time.
bool overlaps(const Region& a, const Region& b);
// True when every byte of `inner` is in `outer`; false also when that could not be decided.
bool covers(const Region& outer, const Region& inner);

}  // namespace gapless
