// SPDX-License-Identifier: Apache-2.0

#include "analysis/critical_path.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"
#include "base/test_effort.h"

namespace gapless {
namespace {

// "run 1", "scheduler 2": the segments with their lengths, one after another.
std::string text(const CriticalPath& path) {
  std::string text;
  for (const PathSegment& segment : path.segments) {
    text += text.empty() ? "" : ", ";
    text += std::string(path_part_name(segment.part)) + " " +
            std::to_string(segment.end_ns - segment.begin_ns);
    if (segment.through_core) text += " core";
  }
  return text;
}

std::string path_text(const std::vector<HandTask>& list, uint32_t core_count, TimeRange window) {
  const Trace trace = hand_trace(list, core_count);
  return text(observed_path(make_step_tasks(trace, window)));
}

void expect_tiling(const CriticalPath& path, TimeRange window) {
  int64_t time_ns = window.begin_ns;
  std::array<int64_t, kPathPartCount> part_ns = {};
  for (const PathSegment& segment : path.segments) {
    ASSERT_EQ(segment.begin_ns, time_ns);
    ASSERT_GE(segment.end_ns, segment.begin_ns);
    ASSERT_TRUE(segment.part == PathPart::kRun || segment.end_ns > segment.begin_ns);
    part_ns[static_cast<size_t>(segment.part)] += segment.end_ns - segment.begin_ns;
    time_ns = segment.end_ns;
  }
  EXPECT_EQ(time_ns, window.end_ns);
  EXPECT_EQ(part_ns, path.part_ns);
}

TEST(ObservedPath, CutsTheGapBetweenProducerAndConsumer) {
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 5, .end_ns = 20, .finish_ns = 23},
                       {.core = 1,
                        .start_ns = 40,
                        .end_ns = 60,
                        .producers = {0},
                        .submit_ns = 0,
                        .ready_ns = 24,
                        .dispatch_ns = 31}},
                      2, {0, 70}),
            "startup 5, run 15, completion 4, scheduler 7, handoff 9, run 20, end 10");
}

TEST(ObservedPath, BlamesTheCoreWhenItsTaskEndedAfterTheProducers) {
  // Task 2 was ready at 11 but its core was busy until 30, which was seen at 32.
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .finish_ns = 11},
                                  {.core = 1, .start_ns = 0, .end_ns = 30, .finish_ns = 32},
                                  {.core = 1,
                                   .start_ns = 36,
                                   .end_ns = 50,
                                   .producers = {0},
                                   .ready_ns = 11,
                                   .dispatch_ns = 35}},
                                 2);
  const CriticalPath path = observed_path(make_step_tasks(trace, {0, 50}));
  EXPECT_EQ(text(path), "run 30 core, completion 2, scheduler 3, handoff 1, run 14");
  EXPECT_EQ(path.core_bound_ns, 30);
  EXPECT_EQ(path.segments[0].task, 1u);
  EXPECT_EQ(path.segments[1].task, 2u) << "a gap belongs to the task after it";
}

TEST(ObservedPath, BlamesTheProducerWhenBothEndedTogether) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 30},
                                  {.core = 1, .start_ns = 0, .end_ns = 30},
                                  {.core = 1, .start_ns = 30, .end_ns = 50, .producers = {0}}},
                                 2);
  const CriticalPath path = observed_path(make_step_tasks(trace, {0, 50}));
  ASSERT_EQ(text(path), "run 30, run 20");
  EXPECT_EQ(path.segments[0].task, 0u);
}

TEST(ObservedPath, CallsTheSwitchToAWaitingTaskCoreBusy) {
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 30, .finish_ns = 38},
                       {.core = 0, .start_ns = 33, .end_ns = 50, .dispatch_ns = 12}},
                      1, {0, 50}),
            "run 30 core, core busy 3, run 17");
}

TEST(ObservedPath, TellsTheOrchestratorFromTheScheduler) {
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 10},
                       {.core = 1,
                        .start_ns = 30,
                        .end_ns = 40,
                        .producers = {0},
                        .submit_ns = 22,
                        .ready_ns = 24,
                        .dispatch_ns = 29}},
                      2, {0, 40}),
            "run 10, submit 12, completion 2, scheduler 5, handoff 1, run 10");
}

TEST(ObservedPath, GivesAGapWithoutTimesToTheScheduler) {
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 10},
                       {.core = 1, .start_ns = 18, .end_ns = 30, .producers = {0}}},
                      2, {0, 30}),
            "run 10, scheduler 8, run 12");
}

TEST(ObservedPath, ClampsTimesThatAreOutOfOrder) {
  // Started before it was submitted.
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 10, .finish_ns = 12},
                       {.core = 1,
                        .start_ns = 18,
                        .end_ns = 30,
                        .producers = {0},
                        .submit_ns = 99,
                        .ready_ns = 7,
                        .dispatch_ns = 3}},
                      2, {0, 30}),
            "run 10, submit 8, run 12");
  // Dispatched before it was ready, ready before its producer had ended.
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 10, .finish_ns = 12},
                       {.core = 1,
                        .start_ns = 18,
                        .end_ns = 30,
                        .producers = {0},
                        .ready_ns = 7,
                        .dispatch_ns = 3}},
                      2, {0, 30}),
            "run 10, handoff 8, run 12");
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 10},
                       {.core = 1,
                        .start_ns = 18,
                        .end_ns = 30,
                        .producers = {0},
                        .ready_ns = 50,
                        .dispatch_ns = 60}},
                      2, {0, 30}),
            "run 10, completion 8, run 12");
}

TEST(ObservedPath, PassesOverAProducerThatStillRan) {
  EXPECT_EQ(path_text({{.core = 0, .start_ns = 0, .end_ns = 10},
                       {.core = 1, .start_ns = 0, .end_ns = 25},
                       {.core = 2, .start_ns = 12, .end_ns = 30, .producers = {0, 1}}},
                      3, {0, 30}),
            "run 10, scheduler 2, run 18");
}

TEST(ObservedPath, IsTheWholeWindowWhenNothingRan) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 100, .end_ns = 110}}, 1);
  const CriticalPath path = observed_path(make_step_tasks(trace, {0, 50}));
  EXPECT_EQ(text(path), "startup 50");
  expect_tiling(path, {0, 50});
}

MadeOptions small_options(uint64_t seed) {
  MadeOptions options;
  options.seed = seed;
  options.core_counts = {0, 3, 5};
  options.scheduler_count = static_cast<uint32_t>(seed % 3);
  options.kernels = {{"a", CoreClass::kCube, 2'000, 0.6}, {"b", CoreClass::kVector, 3'000, 0.6}};
  options.level_count = 12;
  options.max_width = 12;
  options.edges_per_task = static_cast<uint32_t>(seed % 4);
  options.overheads = {.completion = {0, 400},
                       .dispatch = {0, 200},
                       .propagation = {0, 200},
                       .setup = {0, 100},
                       .submit_interval_ns = static_cast<int64_t>(seed % 5) * 50};
  return options;
}

TEST(ObservedPath, TilesTheWindowWhateverIsMissing) {
  std::mt19937_64 random(3);
  for (uint32_t round = 0; round < test_effort(100); ++round) {
    MadeExecution made = make_execution(small_options(round));
    expect_tiling(observed_path(make_step_tasks(made.trace, made.window)), made.window);
    for (size_t time = 0; time < kTaskTimeCount; ++time) {
      if (time == static_cast<size_t>(TaskTime::kStart)) continue;
      if (time == static_cast<size_t>(TaskTime::kEnd)) continue;
      for (int64_t& time_ns : made.trace.tasks.time_ns[time]) {
        if (random() % 3 == 0) time_ns = kAbsent;
        if (random() % 7 == 0) time_ns = static_cast<int64_t>(random() % 3'000'000);
      }
    }
    const TimeRange wider = {made.window.begin_ns - 77, made.window.end_ns + 99};
    expect_tiling(observed_path(make_step_tasks(made.trace, wider)), wider);
    const int64_t third_ns = (made.window.end_ns - made.window.begin_ns) / 3;
    const TimeRange middle = {made.window.begin_ns + third_ns, made.window.end_ns - third_ns};
    expect_tiling(observed_path(make_step_tasks(made.trace, middle)), middle);
  }
}

TEST(ObservedPath, FindsTheOverheadsOfAChain) {
  // One task after another: every overhead is on the path.
  MadeOptions options = small_options(7);
  options.min_width = 1;
  options.max_width = 1;
  options.scheduler_count = 1;
  options.overheads = {.completion = {100, 100},
                       .dispatch = {30, 30},
                       .propagation = {20, 20},
                       .setup = {5, 5},
                       .submit_interval_ns = 0};
  const MadeExecution made = make_execution(options);
  const CriticalPath path = observed_path(make_step_tasks(made.trace, made.window));
  const auto part = [&path](PathPart which) { return path.part_ns[static_cast<size_t>(which)]; };
  EXPECT_EQ(part(PathPart::kRun), made.truth.longest_chain_ns);
  EXPECT_EQ(part(PathPart::kStartup), 30 + 20 + 5);
  EXPECT_EQ(part(PathPart::kCompletion), 11 * 100);
  EXPECT_EQ(part(PathPart::kScheduler), 11 * 30);
  EXPECT_EQ(part(PathPart::kHandoff), 11 * 25);
}

TEST(StaticPath, FindsTheLongerSideOfADiamond) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10},
                                  {.core = 0, .start_ns = 20, .end_ns = 25, .producers = {0}},
                                  {.core = 1, .start_ns = 20, .end_ns = 32, .producers = {0}},
                                  {.core = 0, .start_ns = 40, .end_ns = 43, .producers = {1, 2}},
                                  {.core = 1, .start_ns = 40, .end_ns = 41}},
                                 2);
  const StaticPath path = static_path(make_step_tasks(trace, {0, 50}));
  EXPECT_EQ(path.length_ns, 25);
  EXPECT_EQ(path.chain, (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_EQ(path.slack_ns, (std::vector<int64_t>{0, 7, 0, 24, 0}));
}

TEST(StaticPath, IsEmptyWhenNothingRan) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 100, .end_ns = 110}}, 1);
  const StaticPath path = static_path(make_step_tasks(trace, {0, 50}));
  EXPECT_EQ(path.length_ns, 0);
  EXPECT_TRUE(path.chain.empty());
}

// The length of every chain from the first to the last task, by walking them all.
void walk_chains(const StepTasks& tasks, std::vector<uint32_t>& chain, int64_t length_ns,
                 std::vector<int64_t>& longest_ns) {
  const uint32_t last = chain.back();
  const int64_t with_ns = length_ns + tasks.end_ns(last) - tasks.start_ns(last);
  for (const uint32_t task : chain) longest_ns[task] = std::max(longest_ns[task], with_ns);
  for (const uint32_t consumer : tasks.consumers(last)) {
    chain.push_back(consumer);
    walk_chains(tasks, chain, with_ns, longest_ns);
    chain.pop_back();
  }
}

TEST(StaticPath, IsTheLongestOfAllChains) {
  // Goal: length, chain and slack. Method: all chains of small random graphs, one by one.
  std::mt19937_64 random(11);
  for (uint32_t round = 0; round < test_effort(300); ++round) {
    const uint32_t count = 1 + static_cast<uint32_t>(random() % 12);
    std::vector<HandTask> list;
    for (uint32_t task = 0; task < count; ++task) {
      HandTask made = {.core = task, .start_ns = 100 * task, .end_ns = 100 * task};
      made.end_ns += static_cast<int64_t>(random() % 60);
      for (uint32_t producer = 0; producer < task; ++producer) {
        if (random() % 3 == 0) made.producers.push_back(producer);
      }
      list.push_back(made);
    }
    const Trace trace = hand_trace(list, count);
    const StepTasks tasks = make_step_tasks(trace, {0, 100 * count});
    const StaticPath path = static_path(tasks);
    std::vector<int64_t> longest_ns(count, 0);
    for (uint32_t task = 0; task < count; ++task) {
      std::vector<uint32_t> chain = {task};
      walk_chains(tasks, chain, 0, longest_ns);
    }
    ASSERT_EQ(path.length_ns, *std::max_element(longest_ns.begin(), longest_ns.end()));
    for (uint32_t task = 0; task < count; ++task) {
      ASSERT_EQ(path.slack_ns[task], path.length_ns - longest_ns[task]);
    }
    int64_t chain_ns = 0;
    for (size_t i = 0; i < path.chain.size(); ++i) {
      const uint32_t task = path.chain[i];
      chain_ns += tasks.end_ns(task) - tasks.start_ns(task);
      ASSERT_EQ(path.slack_ns[task], 0);
      if (i == 0) continue;
      const std::span<const uint32_t> producers = tasks.producers(task);
      ASSERT_NE(std::find(producers.begin(), producers.end(), path.chain[i - 1]), producers.end());
    }
    ASSERT_EQ(chain_ns, path.length_ns);
  }
}

TEST(StaticPath, IsWhatTheGeneratorSays) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const MadeExecution made = make_execution(small_options(seed));
    EXPECT_EQ(static_path(make_step_tasks(made.trace, made.window)).length_ns,
              made.truth.longest_chain_ns);
  }
}

TEST(PathPart, HasAName) {
  EXPECT_EQ(path_part_name(PathPart::kRun), "run");
  EXPECT_EQ(path_part_name(PathPart::kSubmit), "submit");
}

}  // namespace
}  // namespace gapless
