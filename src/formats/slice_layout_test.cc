// SPDX-License-Identifier: Apache-2.0

#include "formats/slice_layout.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct Interval {
  int64_t begin_ns;
  int64_t end_ns;
  bool operator==(const Interval&) const = default;
};

TraceBuilder builder_with_lanes(int count) {
  TraceBuilder builder("test");
  builder.add_device({"device", 0});
  for (int lane = 0; lane < count; ++lane) builder.add_lane({.name = "lane", .number = lane});
  return builder;
}

Trace trace_of(const std::vector<Interval>& intervals) {
  TraceBuilder builder = builder_with_lanes(1);
  const uint32_t name = builder.intern("span");
  for (const Interval& interval : intervals) {
    builder.add_span(0, interval.begin_ns, interval.end_ns, name);
  }
  return builder.finish();
}

// What each row of the layout shows.
std::vector<std::vector<Interval>> rows_of(const SliceLayout& layout) {
  std::vector<std::vector<Interval>> rows;
  for (const SliceRow& row : layout.rows) {
    std::vector<Interval>& intervals = rows.emplace_back();
    for (const uint32_t slice : row.slices) {
      intervals.push_back({layout.begin_ns(slice), layout.end_ns(slice)});
    }
  }
  return rows;
}

using Rows = std::vector<std::vector<Interval>>;

Rows rows_of_intervals(const std::vector<Interval>& intervals) {
  const Trace trace = trace_of(intervals);
  return rows_of(SliceLayout(trace));
}

TEST(SliceLayout, KeepsNestedSlicesOnTheirLane) {
  EXPECT_EQ(rows_of_intervals({{20, 30}, {0, 100}, {22, 25}, {40, 100}}),
            (Rows{{{0, 100}, {20, 30}, {22, 25}, {40, 100}}}));
}

TEST(SliceLayout, TouchingSlicesDoNotOverlap) {
  EXPECT_EQ(rows_of_intervals({{0, 10}, {10, 20}, {20, 25}}),
            (Rows{{{0, 10}, {10, 20}, {20, 25}}}));
}

TEST(SliceLayout, SlicesWithoutLengthStayOnTheirLane) {
  EXPECT_EQ(rows_of_intervals({{10, 10}, {10, 20}, {10, 10}, {20, 20}, {15, 15}}),
            (Rows{{{10, 20}, {10, 10}, {10, 10}, {15, 15}, {20, 20}}}));
}

TEST(SliceLayout, MovesOverlappingSlicesToTheFirstSubLaneThatFits) {
  const Trace trace = trace_of({{0, 10}, {5, 15}, {7, 20}, {8, 9}, {10, 12}, {15, 18}});
  const SliceLayout layout(trace);
  EXPECT_EQ(rows_of(layout), (Rows{{{0, 10}, {8, 9}, {10, 12}, {15, 18}}, {{5, 15}}, {{7, 20}}}));
  EXPECT_EQ(layout.moved_count, 2u);
  EXPECT_EQ(layout.slice_count(), 6u);
  EXPECT_EQ(layout.rows[2].sub_lane, 2u);
  EXPECT_EQ(row_name(trace, layout.rows[0]), "lane");
  EXPECT_EQ(row_name(trace, layout.rows[1]), "lane (2)");
}

TEST(SliceLayout, EveryLaneHasARow) {
  TraceBuilder builder = builder_with_lanes(3);
  builder.add_span(1, 0, 1, builder.intern("span"), 7);
  const Trace trace = builder.finish();
  const SliceLayout layout(trace);
  ASSERT_EQ(layout.rows.size(), 3u);
  EXPECT_TRUE(layout.rows[0].slices.empty());
  EXPECT_EQ(layout.rows[1].slices, std::vector<uint32_t>{0});
  EXPECT_EQ(layout.value(0), 7u);
  EXPECT_TRUE(layout.rows[2].slices.empty());
}

TEST(SliceLayout, AnEmptyTraceHasNoRows) {
  const Trace trace;
  const SliceLayout layout(trace);
  EXPECT_TRUE(layout.rows.empty());
  EXPECT_EQ(layout.slice_count(), 0u);
}

TEST(SliceLayout, TasksWithLaneStartAndEndAreSlices) {
  TraceBuilder builder = builder_with_lanes(1);
  const uint32_t kernel = builder.intern("matmul");
  builder.task_time(5, TaskTime::kStart, 10, 0, kernel);
  builder.task_time(5, TaskTime::kEnd, 20, 0, kernel);
  builder.task_time(6, TaskTime::kStart, 30, 0, kNoIndex);
  builder.task_time(6, TaskTime::kEnd, 25, 0, kNoIndex);
  builder.task_time(7, TaskTime::kSubmit, 0, kNoIndex, kernel);
  builder.task_time(8, TaskTime::kStart, 40, kNoIndex, kernel);
  builder.task_time(8, TaskTime::kEnd, 41, kNoIndex, kernel);
  builder.add_span(0, 0, 50, builder.intern("step"));
  builder.add_span(0, 10, 20, builder.intern("same time as the task"));
  const Trace trace = builder.finish();
  const SliceLayout layout(trace);
  EXPECT_EQ(rows_of(layout), (Rows{{{0, 50}, {10, 20}, {10, 20}, {30, 30}}}));
  const std::vector<uint32_t>& slices = layout.rows[0].slices;
  EXPECT_FALSE(layout.is_task(slices[1])) << "the span is the outer one";
  ASSERT_TRUE(layout.is_task(slices[2]));
  EXPECT_EQ(trace.tasks.id[layout.task(slices[2])], 5u);
  EXPECT_EQ(layout.name(slices[2]), kernel);
  EXPECT_EQ(layout.name(slices[3]), kNoIndex);
  EXPECT_EQ(layout.value(slices[2]), kNoValue);
}

// True when the slices of a row are in order and each either lies in an earlier one that is still
// open or begins after it.
bool nests(const std::vector<Interval>& row) {
  std::vector<Interval> stack;
  for (const Interval& slice : row) {
    while (!stack.empty() && stack.back().end_ns <= slice.begin_ns) stack.pop_back();
    if (!stack.empty() && slice.end_ns > stack.back().end_ns) return false;
    if (!stack.empty() && slice.begin_ns < stack.back().begin_ns) return false;
    stack.push_back(slice);
  }
  return true;
}

// Goal: whatever overlaps, nothing is lost and every row nests.
// Method: random intervals on a small time axis, so that ties and overlaps are common.
TEST(SliceLayout, LosesNothingAndNestsOnRandomSlices) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Interval> intervals;
    for (int i = 0; i < 60; ++i) {
      const int64_t begin = static_cast<int64_t>(random() % 50);
      intervals.push_back({begin, begin + static_cast<int64_t>(random() % 20)});
    }
    const Rows rows = rows_of_intervals(intervals);
    std::vector<Interval> shown;
    for (const std::vector<Interval>& row : rows) {
      EXPECT_TRUE(nests(row));
      shown.insert(shown.end(), row.begin(), row.end());
    }
    const auto before = [](const Interval& a, const Interval& b) {
      return std::pair(a.begin_ns, a.end_ns) < std::pair(b.begin_ns, b.end_ns);
    };
    std::sort(shown.begin(), shown.end(), before);
    std::sort(intervals.begin(), intervals.end(), before);
    EXPECT_EQ(shown, intervals);
  }
}

}  // namespace
}  // namespace gapless
