// SPDX-License-Identifier: Apache-2.0

#include "graph/region.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace gapless {
namespace {

// Pairs of parts that one question may look at. Tiles, rows and columns of one buffer need fewer
// than twenty.
constexpr int kStepLimit = 512;

// A region from some level inwards, wherever it begins.
struct Part {
  const RegionLevel* levels = nullptr;
  int level_count = 0;
  int64_t run = 0;
  int64_t extent = 0;  // from the first byte to one past the last
};

int64_t floor_divide(int64_t value, int64_t divisor) {
  GAPLESS_CHECK(divisor > 0);
  const int64_t quotient = value / divisor;
  return value % divisor < 0 ? quotient - 1 : quotient;
}

Part whole_of(const Region& region) {
  return {region.levels.data(), region.level_count, region.run, region.end - region.begin};
}

// What the outermost level repeats.
Part block_of(const Part& part) {
  const RegionLevel& outer = part.levels[0];
  return {part.levels + 1, part.level_count - 1, part.run,
          part.extent - outer.stride * (outer.count - 1)};
}

int64_t outer_stride(const Part& part) { return part.level_count == 0 ? 0 : part.levels[0].stride; }

bool parts_meet(const Part& a, const Part& b, int64_t delta, int& steps_left);

// Block i of `a` and block j of `b` can meet only where j - i brings their begins within one
// stride: two values at most.
bool meet_at_equal_strides(const Part& a, const Part& b, int64_t delta, int& steps_left) {
  const int64_t stride = a.levels[0].stride;
  const Part a_block = block_of(a);
  const Part b_block = block_of(b);
  const int64_t first =
      std::max(1 - a.levels[0].count, floor_divide(-b_block.extent - delta, stride) + 1);
  const int64_t last =
      std::min(b.levels[0].count - 1, floor_divide(a_block.extent - delta - 1, stride));
  for (int64_t shift = first; shift <= last; ++shift) {
    if (parts_meet(a_block, b_block, delta + shift * stride, steps_left)) return true;
  }
  return false;
}

// `b` repeats at a divisor of the stride of `a` and reaches three of its blocks or more: seen as
// one that repeats at the same stride. What is left over at its end need not be asked: where that
// meets a block, what lies one stride before it meets the block before.
bool meet_divided(const Part& a, const Part& b, int64_t delta, int& steps_left) {
  const int64_t stride = a.levels[0].stride;
  const RegionLevel divided = b.levels[0];
  const int64_t each = stride / divided.stride;
  const int64_t full_count = divided.count / each;
  RegionLevel levels[kMaxRank + 2];
  Part full{levels, 0, b.run, block_of(b).extent};
  if (full_count > 1) levels[full.level_count++] = {stride, full_count};
  levels[full.level_count++] = {divided.stride, each};
  full.extent += stride * (full_count - 1) + divided.stride * (each - 1);
  std::copy_n(b.levels + 1, b.level_count - 1, levels + full.level_count);
  full.level_count += b.level_count - 1;
  return parts_meet(a, full, delta, steps_left);
}

// `a` has the larger outermost stride: only those of its blocks that reach into `b` matter.
bool meet_at_larger_stride(const Part& a, const Part& b, int64_t delta, int& steps_left) {
  const int64_t stride = a.levels[0].stride;
  const Part block = block_of(a);
  const int64_t first = std::max(int64_t{0}, floor_divide(delta - block.extent, stride) + 1);
  const int64_t last = std::min(a.levels[0].count - 1, floor_divide(delta + b.extent - 1, stride));
  if (last - first >= 2) {
    if (b.level_count == 0) return true;  // a block between two others that reach into one run
    if (stride % b.levels[0].stride == 0) return meet_divided(a, b, delta, steps_left);
  }
  for (int64_t i = first; i <= last; ++i) {
    if (parts_meet(block, b, delta - i * stride, steps_left)) return true;
  }
  return false;
}

// `delta`: where `b` begins, from the begin of `a`.
bool parts_meet(const Part& a, const Part& b, int64_t delta, int& steps_left) {
  if (delta >= a.extent) return false;
  if (-delta >= b.extent) return false;
  if (a.level_count == 0 && b.level_count == 0) return true;
  if (--steps_left < 0) return true;
  const int64_t a_stride = outer_stride(a);
  const int64_t b_stride = outer_stride(b);
  if (a_stride == b_stride) return meet_at_equal_strides(a, b, delta, steps_left);
  if (a_stride < b_stride) return meet_at_larger_stride(b, a, -delta, steps_left);
  return meet_at_larger_stride(a, b, delta, steps_left);
}

bool part_covers(const Part& a, const Part& b, int64_t delta, int& steps_left) {
  if (delta < 0) return false;
  if (delta + b.extent > a.extent) return false;
  if (a.level_count == 0) return true;
  if (--steps_left < 0) return false;
  const int64_t stride = a.levels[0].stride;
  const Part a_block = block_of(a);
  const int64_t in_block = delta % stride;
  if (in_block + b.extent <= a_block.extent) {
    return part_covers(a_block, b, in_block, steps_left);
  }
  if (b.level_count == 0) return false;
  const RegionLevel& outer = b.levels[0];
  const Part block = block_of(b);
  // Blocks of `b` that lie alike in the blocks of `a`: where the first and the last are in, all
  // are.
  if (outer.stride % stride == 0) {
    return part_covers(a, block, delta, steps_left) &&
           part_covers(a, block, delta + outer.stride * (outer.count - 1), steps_left);
  }
  for (int64_t i = 0; i < outer.count; ++i) {
    if (!part_covers(a, block, delta + i * outer.stride, steps_left)) return false;
  }
  return true;
}

// Puts a level around what the region has so far. Strides come in ascending order; `levels` is
// innermost first while the region is being made.
void add_level(int64_t stride, int64_t count, Region& region) {
  const int64_t extent = region.end - region.begin;
  region.end += stride * (count - 1);
  if (region.level_count == 0 && stride <= region.run) {
    region.run = region.end - region.begin;
    return;
  }
  if (region.level_count > 0) {
    RegionLevel& inner = region.levels[static_cast<size_t>(region.level_count - 1)];
    if (stride % inner.stride == 0 && stride / inner.stride <= inner.count) {
      // Dense, or windows that slide over each other.
      inner.count += stride / inner.stride * (count - 1);
      return;
    }
  }
  if (stride >= extent) {
    region.levels[static_cast<size_t>(region.level_count++)] = {stride, count};
    return;
  }
  region.run = region.end - region.begin;
  region.levels = {};
  region.level_count = 0;
  region.exact = false;
}

}  // namespace

Region region_of(const View& view) {
  Region region;
  if (element_count(view) == 0) return region;
  const int64_t element_bytes = dtype_bytes(view.dtype);
  int64_t strides[kMaxRank];
  int64_t counts[kMaxRank];
  size_t sorted_count = 0;
  region.begin = view.offset * element_bytes;
  // From the innermost outwards, as that is mostly the order already.
  for (size_t dimension = view.rank; dimension-- > 0;) {
    const int64_t count = view.shape[dimension];
    int64_t stride = view.strides[dimension] * element_bytes;
    if (count == 1 || stride == 0) continue;
    if (stride < 0) {
      region.begin += stride * (count - 1);
      stride = -stride;
    }
    size_t at = sorted_count++;
    for (; at > 0 && strides[at - 1] > stride; --at) {
      strides[at] = strides[at - 1];
      counts[at] = counts[at - 1];
    }
    strides[at] = stride;
    counts[at] = count;
  }
  region.run = element_bytes;
  region.end = region.begin + element_bytes;
  for (size_t i = 0; i < sorted_count; ++i) add_level(strides[i], counts[i], region);
  if (region.level_count > 1) {
    std::reverse(region.levels.begin(), region.levels.begin() + region.level_count);
  }
  return region;
}

int64_t byte_count(const Region& region) {
  int64_t bytes = region.run;
  for (size_t i = 0; i < static_cast<size_t>(region.level_count); ++i) {
    bytes *= region.levels[i].count;
  }
  return bytes;
}

bool overlaps(const Region& a, const Region& b) {
  if (a.end <= b.begin) return false;
  if (b.end <= a.begin) return false;
  if (a.begin == a.end || b.begin == b.end) return false;
  int steps_left = kStepLimit;
  return parts_meet(whole_of(a), whole_of(b), b.begin - a.begin, steps_left);
}

bool covers(const Region& outer, const Region& inner) {
  if (inner.begin == inner.end) return true;
  if (!outer.exact) return false;
  int steps_left = kStepLimit;
  return part_covers(whole_of(outer), whole_of(inner), inner.begin - outer.begin, steps_left);
}

}  // namespace gapless
