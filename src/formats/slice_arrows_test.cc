// SPDX-License-Identifier: Apache-2.0

#include "formats/slice_arrows.h"

#include <vector>

#include <gtest/gtest.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

// Spans [0, 10], [20, 30], [40, 50], ... on lanes 0, 1, 2, ...: rows in this order.
TraceBuilder builder_with_spans(uint32_t count) {
  TraceBuilder builder("test");
  builder.add_device({"device", 0});
  const uint32_t name = builder.intern("span");
  for (uint32_t i = 0; i < count; ++i) {
    builder.add_lane({.name = "lane"});
    builder.add_span(i, 20 * i, 20 * i + 10, name);
  }
  return builder;
}

std::vector<ArrowPoint> all_points(const Trace& trace) {
  const SliceLayout layout(trace);
  const SliceArrows arrows(layout);
  std::vector<ArrowPoint> points;
  for (uint32_t slice = 0; slice < trace.spans.size() + trace.tasks.size(); ++slice) {
    for (const ArrowPoint& point : arrows.points_of(slice)) points.push_back(point);
  }
  return points;
}

using Points = std::vector<ArrowPoint>;

TEST(SliceArrows, ATraceWithoutFlowsHasNone) {
  const Trace trace = builder_with_spans(2).finish();
  const SliceLayout layout(trace);
  const SliceArrows arrows(layout);
  EXPECT_TRUE(arrows.empty());
  EXPECT_TRUE(arrows.points_of(1).empty());
  EXPECT_EQ(arrows.hop_count(), 0u);
}

TEST(SliceArrows, AnIdUsedAgainIsAnotherArrow) {
  TraceBuilder builder = builder_with_spans(4);
  builder.flow(0, 5, 9, FlowPhase::kOut, 0);
  builder.flow(1, 25, 9, FlowPhase::kIn, 1);
  builder.flow(2, 45, 9, FlowPhase::kOut, 2);
  builder.flow(3, 65, 9, FlowPhase::kIn, 3);
  EXPECT_EQ(all_points(builder.finish()), (Points{{0, 1, FlowPhase::kOut},
                                                  {1, 1, FlowPhase::kIn},
                                                  {2, 2, FlowPhase::kOut},
                                                  {3, 2, FlowPhase::kIn}}));
}

TEST(SliceArrows, OneOutMayHaveSeveralIns) {
  TraceBuilder builder = builder_with_spans(3);
  builder.flow(0, 5, 9, FlowPhase::kOut, 0);
  builder.flow(1, 25, 9, FlowPhase::kIn, 1);
  builder.flow(2, 45, 9, FlowPhase::kIn, 2);
  EXPECT_EQ(all_points(builder.finish()), (Points{{0, 1, FlowPhase::kOut},
                                                  {0, 2, FlowPhase::kOut},
                                                  {1, 1, FlowPhase::kIn},
                                                  {2, 2, FlowPhase::kIn}}));
}

TEST(SliceArrows, PointsAreInTheOrderInWhichSlicesBegin) {
  TraceBuilder builder = builder_with_spans(1);
  builder.add_lane({.name = "long"});
  const uint32_t late = builder.add_span(0, 100, 110, builder.intern("late"));
  const uint32_t early = builder.add_span(1, 50, 200, builder.intern("early"));
  builder.flow(0, 105, 1, FlowPhase::kOut, late);
  builder.flow(1, 120, 1, FlowPhase::kIn, early);
  const Trace trace = builder.finish();
  EXPECT_EQ(all_points(trace), (Points{{1, 1, FlowPhase::kOut}, {2, 1, FlowPhase::kIn}}));
  EXPECT_EQ(trace.spans.begin_ns[1], 50);
}

TEST(SliceArrows, WhatCannotBeDrawnIsCounted) {
  TraceBuilder builder = builder_with_spans(2);
  builder.flow(0, 5, 1, FlowPhase::kOut, 0);  // nowhere to go
  builder.flow(0, 15, 2, FlowPhase::kOut);    // no span is open
  builder.flow(1, 25, 2, FlowPhase::kIn, 1);
  builder.flow(0, 5, 3, FlowPhase::kOut, 0);  // to itself
  builder.flow(0, 6, 3, FlowPhase::kIn, 0);
  builder.task_time(1, TaskTime::kStart, 0, 0, kNoIndex);
  builder.task_time(1, TaskTime::kEnd, 1, 0, kNoIndex);
  builder.task_time(2, TaskTime::kSubmit, 0, kNoIndex, kNoIndex);
  builder.edge(1, 2);  // never ran
  const Trace trace = builder.finish();
  EXPECT_TRUE(all_points(trace).empty());
  const SliceLayout layout(trace);
  EXPECT_EQ(SliceArrows(layout).lost_count(), 5u);
}

TEST(SliceArrows, EdgesJoinTheSlicesOfTasks) {
  TraceBuilder builder = builder_with_spans(1);
  for (uint64_t task = 0; task < 3; ++task) {
    const int64_t time_ns = static_cast<int64_t>(100 * (task + 1));
    builder.task_time(task, TaskTime::kStart, time_ns, 0, kNoIndex);
    builder.task_time(task, TaskTime::kEnd, time_ns + 50, 0, kNoIndex);
  }
  builder.edge(0, 1);
  builder.edge(0, 2);
  EXPECT_EQ(all_points(builder.finish()), (Points{{1, 1, FlowPhase::kOut},
                                                  {1, 2, FlowPhase::kOut},
                                                  {2, 1, FlowPhase::kIn},
                                                  {3, 2, FlowPhase::kIn}}));
}

// Tasks 1 and 2 are blocks, 3 joins them and has no slice, 4 waits for the join.
TEST(SliceArrows, GoThroughATaskThatOnlyJoins) {
  TraceBuilder builder = builder_with_spans(3);
  const auto run = [&builder](uint64_t task, uint32_t lane, int64_t start_ns, int64_t end_ns) {
    builder.task_time(task, TaskTime::kStart, start_ns, lane, kNoIndex);
    builder.task_time(task, TaskTime::kEnd, end_ns, lane, kNoIndex);
  };
  run(1, 0, 100, 180);
  run(2, 1, 100, 150);
  builder.task_time(3, TaskTime::kReady, 100, kNoIndex, kNoIndex);
  builder.task_time(3, TaskTime::kFinish, 190, kNoIndex, kNoIndex);
  run(4, 2, 200, 300);
  builder.edge(1, 3);
  builder.edge(2, 3);
  builder.edge(3, 4);
  const Trace trace = builder.finish();
  // Slices are the three spans and then the tasks: the arrow goes from task 1 to task 4.
  EXPECT_EQ(all_points(trace), (Points{{3, 1, FlowPhase::kOut}, {6, 1, FlowPhase::kIn}}));
  EXPECT_EQ(SliceArrows(SliceLayout(trace)).lost_count(), 0u);
}

}  // namespace
}  // namespace gapless
