// SPDX-License-Identifier: Apache-2.0
//
// Hand-made traces whose figures can be read off, and random ones against a count of every single
// nanosecond.

#include "analysis/kernel_times.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "trace/synthetic.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct TestRun {
  uint32_t lane = 0;
  std::string kernel;
  int64_t start_ns = kAbsent;
  int64_t end_ns = kAbsent;
};

// A trace with these lanes and one task for each run.
Trace make_trace(const std::vector<LaneKind>& kinds, const std::vector<TestRun>& runs) {
  TraceBuilder builder("test");
  const uint32_t device = builder.add_device({.name = "cpu"});
  for (const LaneKind kind : kinds) {
    builder.add_lane({.name = "lane", .kind = kind, .device = device});
  }
  Trace trace = builder.finish();
  for (size_t i = 0; i < runs.size(); ++i) {
    trace.tasks.id.push_back(i);
    trace.tasks.lane.push_back(runs[i].lane);
    trace.tasks.kernel.push_back(runs[i].kernel.empty() ? kNoIndex
                                                        : trace.names.intern(runs[i].kernel));
    for (std::vector<int64_t>& times : trace.tasks.time_ns) times.push_back(kAbsent);
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kStart)].back() = runs[i].start_ns;
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kEnd)].back() = runs[i].end_ns;
  }
  return trace;
}

Trace make_worker_trace(size_t worker_count, const std::vector<TestRun>& runs) {
  return make_trace(std::vector<LaneKind>(worker_count, LaneKind::kWorker), runs);
}

KernelTimes times_of(const Trace& trace, TimeRange window) {
  const Result<KernelTimes> times = kernel_times(trace, {.window = window});
  EXPECT_TRUE(times) << times.error().message;
  return times ? *times : KernelTimes{};
}

std::string refusal(const Trace& trace, const KernelTimesOptions& options) {
  const Result<KernelTimes> times = kernel_times(trace, options);
  return times ? "accepted" : times.error().message;
}

// What must hold for any trace and window.
void expect_to_add_up(const KernelTimes& times) {
  int64_t busy_ns = 0;
  int64_t run_count = 0;
  for (const LaneTime& lane : times.lanes) {
    EXPECT_GE(lane.busy_ns, 0);
    EXPECT_GE(lane.idle_ns, 0);
    EXPECT_EQ(lane.busy_ns + lane.idle_ns, times.window_ns());
    busy_ns += lane.busy_ns;
    run_count += lane.run_count;
  }
  EXPECT_EQ(times.busy_ns, busy_ns);
  EXPECT_EQ(times.busy_ns + times.idle_ns,
            times.window_ns() * static_cast<int64_t>(times.lanes.size()));
  for (const KernelTime& kernel : times.kernels) {
    busy_ns -= kernel.self_ns;
    run_count -= kernel.run_count;
    EXPECT_LE(kernel.self_ns, kernel.sum_ns);
    EXPECT_LE(kernel.min_ns, kernel.median_ns);
    EXPECT_LE(kernel.median_ns, kernel.max_ns);
    EXPECT_LE(kernel.max_ns, kernel.sum_ns);
    EXPECT_LE(kernel.sum_ns, kernel.max_ns * kernel.run_count);
  }
  EXPECT_EQ(busy_ns, 0) << "self times are the busy time";
  EXPECT_EQ(run_count, 0) << "every run is on a lane and of a kernel";
}

// worker 0: norm 0-10, matmul 10-40         worker 1: matmul 5-25, matmul 30-40; window 0-50
TEST(KernelTimes, SayWhatEachKernelTook) {
  const Trace trace = make_worker_trace(
      2, {{0, "norm", 0, 10}, {0, "matmul", 10, 40}, {1, "matmul", 5, 25}, {1, "matmul", 30, 40}});
  const KernelTimes times = times_of(trace, {0, 50});
  expect_to_add_up(times);
  ASSERT_EQ(times.kernels.size(), 2u);
  const KernelTime& matmul = times.kernels[0];
  EXPECT_EQ(kernel_name(trace, matmul), "matmul");
  EXPECT_EQ(matmul.run_count, 3);
  EXPECT_EQ(matmul.cut_count, 0);
  EXPECT_EQ(matmul.sum_ns, 60);
  EXPECT_EQ(matmul.self_ns, 60);
  EXPECT_EQ(matmul.min_ns, 10);
  EXPECT_EQ(matmul.median_ns, 20);
  EXPECT_EQ(matmul.max_ns, 30);
  EXPECT_EQ(matmul.lane_count, 2);
  EXPECT_EQ(times.share(matmul), 0.6);
  const KernelTime& norm = times.kernels[1];
  EXPECT_EQ(kernel_name(trace, norm), "norm");
  EXPECT_EQ(norm.run_count, 1);
  EXPECT_EQ(norm.median_ns, 10);
  EXPECT_EQ(norm.lane_count, 1);
  EXPECT_EQ(times.share(norm), 0.1);

  ASSERT_EQ(times.lanes.size(), 2u);
  EXPECT_EQ(times.lanes[0].run_count, 2);
  EXPECT_EQ(times.lanes[0].busy_ns, 40);
  EXPECT_EQ(times.lanes[0].idle_ns, 10);
  EXPECT_EQ(times.lanes[1].busy_ns, 30);
  EXPECT_EQ(times.lanes[1].idle_ns, 20);
  EXPECT_EQ(times.busy_ns, 70);
  EXPECT_EQ(times.idle_ns, 30);
  EXPECT_EQ(times.average_busy_lanes(), 1.4);
}

TEST(KernelTimes, OfAnEvenNumberHaveTheSmallerMiddleAsMedian) {
  const Trace trace =
      make_worker_trace(1, {{0, "a", 0, 8}, {0, "a", 10, 11}, {0, "a", 20, 24}, {0, "a", 30, 32}});
  const KernelTimes times = times_of(trace, {0, 100});
  EXPECT_EQ(times.kernels[0].min_ns, 1);
  EXPECT_EQ(times.kernels[0].median_ns, 2);
  EXPECT_EQ(times.kernels[0].max_ns, 8);
}

TEST(KernelTimes, AreCutAtTheWindow) {
  const Trace trace = make_worker_trace(1, {{0, "before", 0, 10},
                                            {0, "a", 10, 30},
                                            {0, "a", 30, 40},
                                            {0, "a", 40, 70},
                                            {0, "after", 70, 80}});
  const KernelTimes times = times_of(trace, {20, 50});
  expect_to_add_up(times);
  ASSERT_EQ(times.kernels.size(), 1u);
  EXPECT_EQ(times.kernels[0].run_count, 3);
  EXPECT_EQ(times.kernels[0].cut_count, 2);
  EXPECT_EQ(times.kernels[0].sum_ns, 30);
  EXPECT_EQ(times.kernels[0].max_ns, 10);
  EXPECT_EQ(times.lanes[0].idle_ns, 0);
  // A window inside one task.
  EXPECT_EQ(times_of(trace, {12, 20}).kernels[0].sum_ns, 8);
  EXPECT_EQ(times_of(trace, {12, 20}).kernels[0].cut_count, 1);
}

TEST(KernelTimes, LeaveOutWhatOnlyTouchesTheWindow) {
  const Trace trace = make_worker_trace(1, {{0, "left", 0, 10}, {0, "right", 20, 30}});
  const KernelTimes times = times_of(trace, {10, 20});
  expect_to_add_up(times);
  EXPECT_TRUE(times.kernels.empty());
  EXPECT_EQ(times.idle_ns, 10);
  EXPECT_EQ(times.average_busy_lanes(), 0.0);
}

TEST(KernelTimes, CountRunsOfNoLengthWhereTheyAre) {
  const Trace trace = make_worker_trace(1, {{0, "a", 10, 10}, {0, "a", 15, 15}, {0, "a", 20, 20}});
  const KernelTimes times = times_of(trace, {10, 20});
  expect_to_add_up(times);
  ASSERT_EQ(times.kernels.size(), 1u);
  EXPECT_EQ(times.kernels[0].run_count, 2) << "20 is outside";
  EXPECT_EQ(times.kernels[0].sum_ns, 0);
  EXPECT_EQ(times.kernels[0].lane_count, 1);
}

// outer 0-100 holds inner 20-50, which holds leaf 30-40; "late" 90-120 overlaps the end of outer.
TEST(KernelTimes, GiveEachMomentToTheTaskThatStartedLast) {
  const Trace trace = make_worker_trace(
      1, {{0, "outer", 0, 100}, {0, "inner", 20, 50}, {0, "leaf", 30, 40}, {0, "late", 90, 120}});
  const KernelTimes times = times_of(trace, {0, 200});
  expect_to_add_up(times);
  std::map<std::string, int64_t> self_ns;
  std::map<std::string, int64_t> sum_ns;
  for (const KernelTime& kernel : times.kernels) {
    self_ns[std::string(kernel_name(trace, kernel))] = kernel.self_ns;
    sum_ns[std::string(kernel_name(trace, kernel))] = kernel.sum_ns;
  }
  EXPECT_EQ(self_ns, (std::map<std::string, int64_t>{
                         {"outer", 60}, {"inner", 20}, {"leaf", 10}, {"late", 30}}));
  EXPECT_EQ(sum_ns, (std::map<std::string, int64_t>{
                        {"outer", 100}, {"inner", 30}, {"leaf", 10}, {"late", 30}}));
  EXPECT_EQ(times.busy_ns, 120);
}

TEST(KernelTimes, TakeTheLongerOfTwoThatStartTogetherForTheOuterOne) {
  const Trace trace = make_worker_trace(1, {{0, "short", 0, 10}, {0, "long", 0, 30}});
  const KernelTimes times = times_of(trace, {0, 30});
  EXPECT_EQ(kernel_name(trace, times.kernels[0]), "long");
  EXPECT_EQ(times.kernels[0].self_ns, 20);
  EXPECT_EQ(times.kernels[1].self_ns, 10);
}

TEST(KernelTimes, ListKernelsByTimeAndThenByName) {
  const Trace trace =
      make_worker_trace(1, {{0, "b", 0, 10}, {0, "a", 10, 20}, {0, "", 20, 30}, {0, "z", 30, 50}});
  const KernelTimes times = times_of(trace, {0, 50});
  std::vector<std::string> names;
  for (const KernelTime& kernel : times.kernels) names.emplace_back(kernel_name(trace, kernel));
  EXPECT_EQ(names, (std::vector<std::string>{"z", "(no name)", "a", "b"}));
}

TEST(KernelTimes, IgnoreRowsThatNeverStartedAndCountThoseThatNeverEnded) {
  const Trace trace = make_worker_trace(
      1, {{0, "many (all blocks)"}, {0, "a", 0, 10}, {0, "a", 10, kAbsent}, {0, "a", 90, kAbsent}});
  const KernelTimes times = times_of(trace, {0, 50});
  expect_to_add_up(times);
  ASSERT_EQ(times.kernels.size(), 1u);
  EXPECT_EQ(times.kernels[0].run_count, 1);
  EXPECT_EQ(times.unfinished_count, 1) << "the one at 90 starts after the window";
}

TEST(KernelTimes, CountIdleCoresAndNoOtherIdleLanes) {
  const std::vector<LaneKind> kinds = {LaneKind::kOrchestrator, LaneKind::kWorker,
                                       LaneKind::kWorker, LaneKind::kThread, LaneKind::kThread};
  const Trace trace = make_trace(kinds, {{1, "a", 0, 10}, {4, "a", 0, 5}});
  EXPECT_EQ(core_lanes(trace), (std::vector<uint32_t>{1, 2, 4}));
  const KernelTimes times = times_of(trace, {0, 10});
  expect_to_add_up(times);
  ASSERT_EQ(times.lanes.size(), 3u);
  EXPECT_EQ(times.lanes[1].lane, 2u);
  EXPECT_EQ(times.lanes[1].idle_ns, 10);
  EXPECT_EQ(times.share(times.kernels[0]), 0.5);
}

TEST(KernelTimes, MayBeOfSomeLanesOnly) {
  const Trace trace = make_worker_trace(3, {{0, "a", 0, 10}, {1, "b", 0, 4}, {2, "c", 0, 2}});
  const Result<KernelTimes> times =
      kernel_times(trace, {.window = {0, 10}, .lanes = std::vector<uint32_t>{2, 0}});
  ASSERT_TRUE(times) << times.error().message;
  expect_to_add_up(*times);
  EXPECT_EQ(times->lanes[0].lane, 2u);
  EXPECT_EQ(times->lanes[0].busy_ns, 2);
  EXPECT_EQ(times->lanes[1].busy_ns, 10);
  EXPECT_EQ(times->kernels.size(), 2u);
}

TEST(KernelTimes, OfATraceWithoutCoresAreEmpty) {
  const KernelTimes times = times_of(Trace{}, {0, 10});
  expect_to_add_up(times);
  EXPECT_TRUE(times.kernels.empty());
  EXPECT_EQ(times.average_busy_lanes(), 0.0);
  EXPECT_EQ(times.share({}), 0.0);
}

TEST(KernelTimes, RefuseWhatDoesNotAddUp) {
  const Trace trace = make_worker_trace(3, {{0, "a", 0, 10}});
  EXPECT_EQ(refusal(trace, {.window = {5, 5}}), "the window from 5 to 5 ns is empty");
  EXPECT_EQ(refusal(trace, {.window = {5, 4}}), "the window from 5 to 4 ns is empty");
  EXPECT_EQ(refusal(trace, {.window = {0, kMaxTimeNs}}),
            "3 lanes x 0 to 4611686018427387904 ns are more than 292 years");
  EXPECT_EQ(refusal(trace, {.window = {0, kMaxTimeNs}, .lanes = {0}}), "accepted");
  EXPECT_EQ(refusal(trace, {.window = {-kMaxTimeNs - 1, kMaxTimeNs}, .lanes = {0}}),
            "1 lanes x -4611686018427387905 to 4611686018427387904 ns are more than 292 years");
  EXPECT_EQ(refusal(trace, {.window = {0, 1}, .lanes = {0, 3}}), "lane 3 of a trace with 3 lanes");
  EXPECT_EQ(refusal(trace, {.window = {0, 1}, .lanes = {0, 0}}), "lane 0 is named twice");
  const Trace crowded = make_worker_trace(
      1, {{0, "a", 0, kMaxTimeNs}, {0, "a", 0, kMaxTimeNs}, {0, "a", 0, kMaxTimeNs}});
  EXPECT_EQ(refusal(crowded, {.window = {0, kMaxTimeNs}}),
            "the runs of a last more than 292 years together");
}

// Goal: overlaps of every kind. Method: random runs; for each nanosecond of each lane, look for the
// run that started last (the shorter of two, the later row of two alike).
TEST(KernelTimes, AgreeWithACountOfEveryNanosecond) {
  constexpr int64_t kLength = 60;
  std::mt19937 random(7);
  const auto pick = [&random](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (uint32_t round = 0; round < test_effort(400); ++round) {
    std::vector<TestRun> runs;
    for (int i = 0; i < 12; ++i) {
      const int64_t start = pick(0, kLength);
      runs.push_back({static_cast<uint32_t>(pick(0, 2)), std::string(1, "abc"[pick(0, 2)]), start,
                      pick(start, kLength)});
    }
    const TimeRange window = {pick(0, 20), pick(30, kLength)};
    const Trace trace = make_worker_trace(3, runs);
    const KernelTimes times = times_of(trace, window);
    expect_to_add_up(times);
    // The part inside the window is what counts, also for who started last.
    for (TestRun& run : runs) run.start_ns = std::max(run.start_ns, window.begin_ns);
    for (TestRun& run : runs) run.end_ns = std::min(run.end_ns, window.end_ns);
    std::map<std::string, int64_t> self_ns;
    for (uint32_t lane = 0; lane < 3; ++lane) {
      for (int64_t time = window.begin_ns; time < window.end_ns; ++time) {
        const TestRun* last = nullptr;
        for (const TestRun& run : runs) {
          if (run.lane != lane || run.start_ns > time || run.end_ns <= time) continue;
          const bool is_later = last == nullptr || run.start_ns > last->start_ns ||
                                (run.start_ns == last->start_ns && run.end_ns <= last->end_ns);
          if (is_later) last = &run;
        }
        if (last != nullptr) ++self_ns[last->kernel];
      }
    }
    for (const KernelTime& kernel : times.kernels) {
      const std::string name(kernel_name(trace, kernel));
      EXPECT_EQ(kernel.self_ns, self_ns[name]) << "round " << round << ", kernel " << name;
    }
  }
}

TEST(KernelTimes, AddUpForSyntheticTraces) {
  const Trace trace = make_synthetic_trace({.task_lane_count = 5, .task_count = 2000});
  const TimeRange whole = time_range(trace);
  const KernelTimes times = times_of(trace, whole);
  expect_to_add_up(times);
  ASSERT_EQ(times.lanes.size(), 5u);
  int64_t run_count = 0;
  for (const KernelTime& kernel : times.kernels) run_count += kernel.run_count;
  EXPECT_EQ(run_count, 2000);
  // Two halves are the whole.
  const int64_t middle = whole.begin_ns + (whole.end_ns - whole.begin_ns) / 3;
  const KernelTimes left = times_of(trace, {whole.begin_ns, middle});
  const KernelTimes right = times_of(trace, {middle, whole.end_ns});
  EXPECT_EQ(left.busy_ns + right.busy_ns, times.busy_ns);
  EXPECT_EQ(left.idle_ns + right.idle_ns, times.idle_ns);
}

TEST(StepWindows, AreTheStepsOfOrchestratorsInOrder) {
  TraceBuilder builder("test");
  const uint32_t device = builder.add_device({.name = "cpu"});
  const uint32_t orchestrator =
      builder.add_lane({.name = "o", .kind = LaneKind::kOrchestrator, .device = device});
  const uint32_t thread =
      builder.add_lane({.name = "t", .kind = LaneKind::kThread, .device = device});
  builder.add_span(orchestrator, 50, 80, builder.intern("step"), 4);
  builder.add_span(orchestrator, 10, 40, builder.intern("step"), 3);
  builder.add_span(orchestrator, 40, 50, builder.intern("drain"));
  builder.add_span(thread, 0, 100, builder.intern("step"), 9);
  const std::vector<StepWindow> steps = step_windows(builder.finish());
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, 3u);
  EXPECT_EQ(steps[0].lane, orchestrator);
  EXPECT_EQ(steps[0].window.begin_ns, 10);
  EXPECT_EQ(steps[0].window.end_ns, 40);
  EXPECT_EQ(steps[1].step, 4u);
  EXPECT_EQ(steps[1].window.begin_ns, 50);
}

TEST(StepWindows, OfATraceWithoutStepsAreNone) { EXPECT_TRUE(step_windows(Trace{}).empty()); }

}  // namespace
}  // namespace gapless
