// SPDX-License-Identifier: Apache-2.0
//
// SliceLayout: what a viewer draws, in the order it wants it. A slice is a span, or a task that has
// a start and an end. Slices of one lane come sorted by begin, the longer first; viewers accept
// slices of one track only when they nest, so a slice that overlaps its neighbours without nesting
// moves to a sub-lane: nothing is lost, and every row nests properly.

#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace gapless {

// One row of a viewer: a lane or one of its sub-lanes, with its slices.
struct SliceRow {
  uint32_t lane;
  uint32_t sub_lane;  // 0: the lane itself
  std::vector<uint32_t> slices;
};

// A slice number below spans.size() is a row of spans; the others are rows of tasks, after them.
struct SliceLayout {
  explicit SliceLayout(const Trace& trace);

  bool is_task(uint32_t slice) const { return slice >= span_count; }
  uint32_t task(uint32_t slice) const { return slice - span_count; }
  int64_t begin_ns(uint32_t slice) const;
  int64_t end_ns(uint32_t slice) const;
  uint32_t name(uint32_t slice) const;   // kNoIndex: a task of an unknown kernel
  uint32_t value(uint32_t slice) const;  // kNoValue: none
  size_t slice_count() const;

  const Trace& trace;
  uint32_t span_count;
  std::vector<SliceRow> rows;  // by lane, then by sub-lane; lanes without slices have one empty row
  uint64_t moved_count = 0;    // slices that had to leave their lane
};

}  // namespace gapless
