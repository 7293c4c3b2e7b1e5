// SPDX-License-Identifier: Apache-2.0

#include "trace/synthetic.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

const SyntheticOptions kEverything = {.seed = 7,
                                      .device_count = 2,
                                      .lane_count = 6,
                                      .spans_per_lane = 50,
                                      .nesting_depth = 3,
                                      .ties = true,
                                      .unicode_names = true,
                                      .values = true,
                                      .categories = true,
                                      .args = true,
                                      .flow_count = 40,
                                      .counter_count = 30,
                                      .instant_count = 20,
                                      .task_lane_count = 3,
                                      .task_count = 30,
                                      .edges_per_task = 2};

TEST(Synthetic, MakesWhatIsAskedFor) {
  const Trace trace = make_synthetic_trace(kEverything);
  EXPECT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.lanes.size(), 9u);
  EXPECT_EQ(trace.spans.size(), 300u);
  EXPECT_EQ(trace.spans.category.size(), 300u);
  EXPECT_EQ(trace.spans.args.size(), 300u);
  EXPECT_EQ(std::set<uint64_t>(trace.flows.id.begin(), trace.flows.id.end()).size(), 40u);
  EXPECT_EQ(trace.counters.size(), 30u);
  EXPECT_EQ(trace.instants.size(), 20u);
  EXPECT_EQ(trace.tasks.size(), 30u);
  EXPECT_EQ(trace.edges.size(), 2u * 29);
  EXPECT_TRUE(trace.findings.empty());
  EXPECT_EQ(time_range(trace).begin_ns, kEverything.first_time_ns);
}

TEST(Synthetic, TheSeedAloneDecides) {
  const Trace first = make_synthetic_trace(kEverything);
  const Trace second = make_synthetic_trace(kEverything);
  EXPECT_EQ(first.spans.begin_ns, second.spans.begin_ns);
  EXPECT_EQ(first.spans.value, second.spans.value);
  EXPECT_EQ(first.flows.span, second.flows.span);
  EXPECT_EQ(first.counters.value, second.counters.value);
  EXPECT_EQ(first.edges.producer, second.edges.producer);
  SyntheticOptions other = kEverything;
  other.seed = 8;
  EXPECT_NE(make_synthetic_trace(other).spans.begin_ns, first.spans.begin_ns);
}

// The generator must not change under benchmarks and recorded results. The figures were worked out
// apart from it, from the definition of SplitMix64.
TEST(Synthetic, MakesTheSameTraceOnEveryMachine) {
  const Trace trace = make_synthetic_trace({.lane_count = 1, .spans_per_lane = 3});
  std::vector<int64_t> times;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    times.push_back(trace.spans.begin_ns[i] - 1'700'000'000'000'000'000);
    times.push_back(trace.spans.end_ns[i] - trace.spans.begin_ns[i]);
  }
  EXPECT_EQ(times, (std::vector<int64_t>{240, 591, 1067, 49, 2162, 521}));
}

TEST(Synthetic, FlowsLieInTheirSpansAndGoForward) {
  const Trace trace = make_synthetic_trace(kEverything);
  for (size_t i = 0; i < trace.flows.size(); ++i) {
    const uint32_t span = trace.flows.span[i];
    ASSERT_NE(span, kNoIndex);
    EXPECT_LE(trace.spans.begin_ns[span], trace.flows.time_ns[i]);
    EXPECT_GE(trace.spans.end_ns[span], trace.flows.time_ns[i]);
    EXPECT_EQ(trace.spans.lane[span], trace.flows.lane[i]);
  }
}

TEST(Synthetic, TasksWaitForTheirProducers) {
  const Trace trace = make_synthetic_trace(kEverything);
  for (size_t i = 0; i < trace.edges.size(); ++i) {
    EXPECT_LE(trace.tasks.at(TaskTime::kEnd)[trace.edges.producer[i]],
              trace.tasks.at(TaskTime::kReady)[trace.edges.consumer[i]]);
  }
  for (size_t task = 0; task < trace.tasks.size(); ++task) {
    for (size_t time = 1; time < kTaskTimeCount; ++time) {
      EXPECT_LE(trace.tasks.time_ns[time - 1][task], trace.tasks.time_ns[time][task]);
    }
  }
}

TEST(Synthetic, OverlappingSpansDoOverlap) {
  const Trace trace =
      make_synthetic_trace({.lane_count = 1, .spans_per_lane = 100, .overlapping = true});
  int overlaps = 0;
  for (size_t i = 1; i < trace.spans.size(); ++i) {
    const bool begins_inside = trace.spans.begin_ns[i] < trace.spans.end_ns[i - 1];
    if (begins_inside && trace.spans.end_ns[i] > trace.spans.end_ns[i - 1]) ++overlaps;
  }
  EXPECT_GT(overlaps, 10);
}

TEST(Synthetic, NothingAskedForIsAnEmptyTrace) {
  const Trace trace = make_synthetic_trace({.lane_count = 0, .spans_per_lane = 0});
  EXPECT_TRUE(trace.lanes.empty());
  EXPECT_EQ(trace.spans.size(), 0u);
}

}  // namespace
}  // namespace gapless
