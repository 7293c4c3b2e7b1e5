// SPDX-License-Identifier: Apache-2.0
//
// SliceLayout: what a viewer draws, in the order it wants it. A slice is a span, or a task that has
// a lane, a start and an end. Slices of one lane come sorted by begin, the longer first; viewers
// accept slices of one track only when they nest, so a slice that overlaps its neighbours without
// nesting moves to the first sub-lane where it fits: nothing is lost, and every row nests properly.
// Slices that touch do not overlap.
//
// One pass over the spans in order of time: about 10 ns and 4 bytes a slice.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace gapless {

// The name of tasks whose kernel is not known.
inline constexpr std::string_view kUnknownKernel = "(unknown kernel)";

// One row of a viewer: a lane or one of its sub-lanes, with its slices.
struct SliceRow {
  uint32_t lane;
  uint32_t sub_lane;  // 0: the lane itself
  std::vector<uint32_t> slices;
};

// A slice number below spans.size() is a row of spans; the others are rows of tasks, after them.
// The trace must outlive its layout.
struct SliceLayout {
  explicit SliceLayout(const Trace& of_trace);

  bool is_task(uint32_t slice) const { return slice >= span_count; }
  uint32_t task(uint32_t slice) const { return slice - span_count; }
  int64_t begin_ns(uint32_t slice) const {
    if (!is_task(slice)) return trace.spans.begin_ns[slice];
    return trace.tasks.at(TaskTime::kStart)[task(slice)];
  }
  // A task that ends before it starts is drawn with no length.
  int64_t end_ns(uint32_t slice) const {
    if (!is_task(slice)) return trace.spans.end_ns[slice];
    const int64_t start_ns = trace.tasks.at(TaskTime::kStart)[task(slice)];
    const int64_t task_end_ns = trace.tasks.at(TaskTime::kEnd)[task(slice)];
    return task_end_ns > start_ns ? task_end_ns : start_ns;
  }
  // kNoIndex: a task of an unknown kernel.
  uint32_t name(uint32_t slice) const {
    return is_task(slice) ? trace.tasks.kernel[task(slice)] : trace.spans.name[slice];
  }
  // kNoValue: none, as for every task.
  uint32_t value(uint32_t slice) const {
    return is_task(slice) ? kNoValue : trace.spans.value[slice];
  }
  uint32_t lane(uint32_t slice) const {
    return is_task(slice) ? trace.tasks.lane[task(slice)] : trace.spans.lane[slice];
  }
  size_t slice_count() const { return size_t{span_count} + drawn_tasks.size(); }

  // Calls visit(slice, begin_ns, end_ns) for all slices by begin, the longer first, whatever their
  // row. Of two equal slices the span comes first, so that it is the outer one. Reads the columns
  // from front to back, which is several times faster than going row by row.
  template <typename Visit>
  void visit_in_time(Visit visit) const;

  const Trace& trace;
  uint32_t span_count;
  std::vector<uint32_t> drawn_tasks;  // the slices that are tasks, by begin, the longer first
  std::vector<SliceRow> rows;  // by lane, then by sub-lane; lanes without slices have one empty row
  uint64_t moved_count = 0;    // slices that had to leave their lane
};

template <typename Visit>
void SliceLayout::visit_in_time(Visit visit) const {
  const std::vector<int64_t>& begins_ns = trace.spans.begin_ns;
  const std::vector<int64_t>& ends_ns = trace.spans.end_ns;
  size_t next_task = 0;
  int64_t task_begin_ns = drawn_tasks.empty() ? 0 : begin_ns(drawn_tasks[0]);
  const auto visit_task = [&] {
    visit(drawn_tasks[next_task], task_begin_ns, end_ns(drawn_tasks[next_task]));
    if (++next_task < drawn_tasks.size()) task_begin_ns = begin_ns(drawn_tasks[next_task]);
  };
  const auto visit_span = [&](uint32_t span) {
    const int64_t span_begin_ns = begins_ns[span];
    const int64_t span_end_ns = ends_ns[span];
    while (next_task < drawn_tasks.size() &&
           (task_begin_ns < span_begin_ns ||
            (task_begin_ns == span_begin_ns && end_ns(drawn_tasks[next_task]) > span_end_ns))) {
      visit_task();
    }
    visit(span, span_begin_ns, span_end_ns);
  };
  std::vector<uint32_t> together;  // spans that begin at one time, out of order
  for (uint32_t span = 0; span < span_count;) {
    uint32_t last = span + 1;
    bool in_order = true;
    for (; last < span_count && begins_ns[last] == begins_ns[span]; ++last) {
      in_order = in_order && ends_ns[last] <= ends_ns[last - 1];
    }
    if (in_order) {
      for (; span < last; ++span) visit_span(span);
      continue;
    }
    together.clear();
    for (; span < last; ++span) together.push_back(span);
    std::stable_sort(together.begin(), together.end(),
                     [&ends_ns](uint32_t a, uint32_t b) { return ends_ns[a] > ends_ns[b]; });
    for (const uint32_t tied : together) visit_span(tied);
  }
  while (next_task < drawn_tasks.size()) visit_task();
}

// Finds the row of each slice while slices are visited in time.
class RowFinder {
 public:
  explicit RowFinder(const SliceLayout& layout);

  uint32_t row_of_next(uint32_t lane, uint32_t slice) {
    uint32_t row = first_rows_[lane];
    while (next_[row] == end_[row] || *next_[row] != slice) ++row;
    ++next_[row];
    return row;
  }
  uint32_t first_row(uint32_t lane) const { return first_rows_[lane]; }

 private:
  std::vector<uint32_t> first_rows_;   // by lane
  std::vector<const uint32_t*> next_;  // by row: its first slice that has not been visited
  std::vector<const uint32_t*> end_;   // by row
};

// Whether a row of tasks is a slice: it has a lane, a start and an end.
inline bool is_drawn(const TaskColumns& tasks, uint32_t task) {
  return tasks.lane[task] != kNoIndex && tasks.at(TaskTime::kStart)[task] != kAbsent &&
         tasks.at(TaskTime::kEnd)[task] != kAbsent;
}

// "name", or "name (2)" for the first sub-lane: what a row is called.
std::string row_name(const Trace& trace, const SliceRow& row);

// By device: the process id viewers know it by. Viewers merge devices of one number and treat 0 as
// their own, so a device's number is kept only if it is positive and no other has it before.
std::vector<uint32_t> process_numbers(const Trace& trace);

}  // namespace gapless
