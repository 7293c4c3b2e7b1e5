// SPDX-License-Identifier: Apache-2.0

#include "formats/slice_layout.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"

namespace gapless {
namespace {

constexpr int64_t kNothingOpen = std::numeric_limits<int64_t>::min();

// The slices of one row that are open at the time the pass has reached: their ends, innermost last.
struct OpenSlices {
  std::vector<int64_t> ends_ns;

  // Slices come by begin, so what ended by now is never asked for again.
  int64_t innermost_end_at(int64_t time_ns) {
    while (!ends_ns.empty() && ends_ns.back() <= time_ns) ends_ns.pop_back();
    return ends_ns.empty() ? kNothingOpen : ends_ns.back();
  }
};

struct SubLane {
  OpenSlices open;
  std::vector<uint32_t> slices;
};

// The sub-lanes of one lane while they fill up; there is always the lane itself.
class LaneRows {
 public:
  LaneRows() : sub_lanes_(1) {}

  void reserve(size_t slice_count) { sub_lanes_[0].slices.reserve(slice_count); }

  // Returns the number of the sub-lane the slice went to.
  size_t add(uint32_t slice, int64_t begin_ns, int64_t end_ns) {
    size_t index = 0;
    for (; index < sub_lanes_.size(); ++index) {
      const int64_t enclosing_end_ns = sub_lanes_[index].open.innermost_end_at(begin_ns);
      if (enclosing_end_ns == kNothingOpen || end_ns <= enclosing_end_ns) break;
    }
    if (index == sub_lanes_.size()) sub_lanes_.emplace_back();
    sub_lanes_[index].open.ends_ns.push_back(end_ns);
    sub_lanes_[index].slices.push_back(slice);
    return index;
  }

  void move_into(uint32_t lane, std::vector<SliceRow>& rows) {
    for (size_t index = 0; index < sub_lanes_.size(); ++index) {
      rows.push_back({lane, static_cast<uint32_t>(index), std::move(sub_lanes_[index].slices)});
    }
  }

 private:
  std::vector<SubLane> sub_lanes_;
};

// By begin, the longer first.
std::vector<uint32_t> tasks_in_order(const SliceLayout& layout) {
  const TaskColumns& tasks = layout.trace.tasks;
  std::vector<uint32_t> slices;
  for (uint32_t task = 0; task < tasks.size(); ++task) {
    if (is_drawn(tasks, task)) slices.push_back(layout.span_count + task);
  }
  std::sort(slices.begin(), slices.end(), [&layout](uint32_t a, uint32_t b) {
    const int64_t begin_a = layout.begin_ns(a);
    const int64_t begin_b = layout.begin_ns(b);
    if (begin_a != begin_b) return begin_a < begin_b;
    const int64_t end_a = layout.end_ns(a);
    const int64_t end_b = layout.end_ns(b);
    return end_a != end_b ? end_a > end_b : a < b;
  });
  return slices;
}

std::vector<LaneRows> make_lanes(const SliceLayout& layout) {
  const Trace& trace = layout.trace;
  std::vector<size_t> counts(trace.lanes.size());
  for (const uint32_t lane : trace.spans.lane) ++counts[lane];
  for (const uint32_t slice : layout.drawn_tasks) ++counts[layout.lane(slice)];
  std::vector<LaneRows> lanes(trace.lanes.size());
  for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane].reserve(counts[lane]);
  return lanes;
}

}  // namespace

SliceLayout::SliceLayout(const Trace& of_trace)
    : trace(of_trace), span_count(static_cast<uint32_t>(of_trace.spans.size())) {
  GAPLESS_CHECK(trace.spans.size() + trace.tasks.size() < kNoIndex);
  drawn_tasks = tasks_in_order(*this);
  std::vector<LaneRows> lanes = make_lanes(*this);
  visit_in_time([this, &lanes](uint32_t slice, int64_t slice_begin_ns, int64_t slice_end_ns) {
    if (lanes[lane(slice)].add(slice, slice_begin_ns, slice_end_ns) != 0) ++moved_count;
  });
  rows.reserve(lanes.size());
  for (uint32_t lane_index = 0; lane_index < lanes.size(); ++lane_index) {
    lanes[lane_index].move_into(lane_index, rows);
  }
}

RowFinder::RowFinder(const SliceLayout& layout) {
  for (uint32_t row = 0; row < layout.rows.size(); ++row) {
    const std::vector<uint32_t>& slices = layout.rows[row].slices;
    if (layout.rows[row].sub_lane == 0) first_rows_.push_back(row);
    next_.push_back(slices.data());
    end_.push_back(slices.data() + slices.size());
  }
}

std::string row_name(const Trace& trace, const SliceRow& row) {
  const std::string& lane_name = trace.lanes[row.lane].name;
  if (row.sub_lane == 0) return lane_name;
  return fmt::format("{} ({})", lane_name, row.sub_lane + 1);
}

std::vector<uint32_t> process_numbers(const Trace& trace) {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  std::vector<uint32_t> numbers;
  std::set<int64_t> taken;
  for (const Device& device : trace.devices) {
    int64_t number = device.number;
    if (number <= 0 || number > kLargest) number = 1;
    while (!taken.insert(number).second) number = number == kLargest ? 1 : number + 1;
    numbers.push_back(static_cast<uint32_t>(number));
  }
  return numbers;
}

}  // namespace gapless
