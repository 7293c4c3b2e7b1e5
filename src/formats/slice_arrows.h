// SPDX-License-Identifier: Apache-2.0
//
// SliceArrows: the arrows a viewer draws between slices. They come from the flows of a trace and
// from the edges between its tasks.
//
// A viewer ties a point of an arrow to a slice when the slice begins, takes the slices in order of
// time, and needs the first point before the others. So the points of an arrow are put in the order
// of SliceLayout::visit_in_time, in which writers have to write; points without a slice, and arrows
// left with fewer than two slices, cannot be drawn. Arrows are numbered anew: recorders use an id
// again, viewers take that amiss. Costs 12 bytes a point and 8 bytes a slice, nothing in a trace
// without arrows.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/slice_layout.h"

namespace gapless {

struct ArrowPoint {
  uint32_t slice;
  uint32_t arrow;  // from 1
  FlowPhase phase;
  bool operator==(const ArrowPoint&) const = default;
};

class SliceArrows {
 public:
  explicit SliceArrows(const SliceLayout& layout);

  // In the order of the arrows.
  std::span<const ArrowPoint> points_of(uint32_t slice) const {
    if (points_.empty()) return {};
    return {points_.data() + first_[slice], points_.data() + first_[slice + 1]};
  }
  bool empty() const { return points_.empty(); }
  uint32_t arrow_count() const { return arrow_count_; }
  // Pairs of neighbours on all arrows: what a viewer counts.
  size_t hop_count() const { return points_.size() - arrow_count_; }
  // Points that no slice is tied to, and arrows without a second slice.
  uint64_t lost_count() const { return lost_count_; }

 private:
  struct Chain;
  void add_flows(const SliceLayout& layout, Chain& chain);
  void add_edges(const SliceLayout& layout, Chain& chain);
  void close(Chain& chain);
  void index_by_slice(size_t slice_limit);

  std::vector<ArrowPoint> points_;  // by slice
  std::vector<uint32_t> first_;     // by slice: its first point
  uint32_t arrow_count_ = 0;
  uint64_t lost_count_ = 0;
};

}  // namespace gapless
