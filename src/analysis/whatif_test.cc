// SPDX-License-Identifier: Apache-2.0

#include "analysis/whatif.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "analysis/critical_path.h"
#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"
#include "base/test_effort.h"

namespace gapless {
namespace {

constexpr WhatIf kNoOverhead = {
    .zero_completion = true, .zero_scheduler = true, .zero_handoff = true};

int64_t makespan_ns(const StepTasks& tasks, const WhatIf& change) {
  return expect_value(replay_tasks(tasks, change)).makespan_ns;
}

std::string error_of(const StepTasks& tasks, const WhatIf& change) {
  const Result<WhatIfResult> result = replay_tasks(tasks, change);
  return result ? "" : result.error().message;
}

// 0 .. 20 on core 0, seen at 23; ready at 24, dispatched at 31, 40 .. 60 on core 1; window to 66.
Trace two_tasks() {
  return hand_trace({{.core = 0,
                      .start_ns = 0,
                      .end_ns = 20,
                      .submit_ns = 0,
                      .ready_ns = 0,
                      .dispatch_ns = 0,
                      .finish_ns = 23,
                      .kernel = "first"},
                     {.core = 1,
                      .start_ns = 40,
                      .end_ns = 60,
                      .producers = {0},
                      .submit_ns = 0,
                      .ready_ns = 24,
                      .dispatch_ns = 31,
                      .finish_ns = 62,
                      .kernel = "second"}},
                    2);
}

TEST(ReplayTasks, TakesEachOverheadAway) {
  const Trace trace = two_tasks();
  const StepTasks tasks = make_step_tasks(trace, {0, 66});
  EXPECT_EQ(makespan_ns(tasks, {}), 66);
  EXPECT_EQ(makespan_ns(tasks, {.zero_completion = true}), 60) << "4 before the second, 2 after it";
  EXPECT_EQ(makespan_ns(tasks, {.zero_scheduler = true}), 59);
  EXPECT_EQ(makespan_ns(tasks, {.zero_handoff = true}), 57);
  EXPECT_EQ(makespan_ns(tasks, kNoOverhead), 44)
      << "what is after the last end that was seen stays";
  EXPECT_EQ(expect_value(replay_tasks(tasks, {})).busy_ns, 40);
}

TEST(ReplayTasks, ScalesKernels) {
  const Trace trace = two_tasks();
  const StepTasks tasks = make_step_tasks(trace, {0, 66});
  WhatIf change;
  change.kernel_scale = {1.0, 0.25};
  ASSERT_EQ(trace.names[1], "second");
  EXPECT_EQ(makespan_ns(tasks, change), 51);
  EXPECT_EQ(expect_value(replay_tasks(tasks, change)).busy_ns, 25);
  change.kernel_scale = {0.0};
  EXPECT_EQ(makespan_ns(tasks, change), 46);
}

TEST(ReplayTasks, DoesNotTakeWaitingForABusyCoreForOverhead) {
  std::vector<HandTask> list;
  for (int64_t i = 0; i < 6; ++i) {
    list.push_back({.core = static_cast<uint32_t>(i % 2),
                    .start_ns = 10 * (i / 2),
                    .end_ns = 10 * (i / 2) + 10,
                    .submit_ns = 0,
                    .ready_ns = 0});
  }
  const Trace trace = hand_trace(list, 2);
  const StepTasks tasks = make_step_tasks(trace, {0, 30});
  EXPECT_EQ(makespan_ns(tasks, {}), 30);
  EXPECT_EQ(makespan_ns(tasks, kNoOverhead), 30);
  WhatIf change;
  change.core_counts[0] = 1;
  EXPECT_EQ(makespan_ns(tasks, change), 60);
  change.core_counts[0] = 3;
  EXPECT_EQ(makespan_ns(tasks, change), 20);
  change.core_counts[0] = 100;
  EXPECT_EQ(makespan_ns(tasks, change), 10);
}

TEST(ReplayTasks, KeepsSubmitTimesUnlessAskedOtherwise) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .submit_ns = 0},
                                  {.core = 0, .start_ns = 50, .end_ns = 60, .submit_ns = 48}},
                                 1);
  const StepTasks tasks = make_step_tasks(trace, {0, 60});
  EXPECT_EQ(makespan_ns(tasks, {}), 60);
  EXPECT_EQ(makespan_ns(tasks, kNoOverhead), 58);
  EXPECT_EQ(makespan_ns(tasks, {.zero_submit = true}), 22) << "its 2 before the start are overhead";
}

TEST(ReplayTasks, LetsStagedTasksFollowAtOnce) {
  // Dispatched at 2, while the first one ran, which was seen to have ended at 19 only.
  const Trace trace = hand_trace(
      {{.core = 0, .start_ns = 0, .end_ns = 10, .ready_ns = 0, .dispatch_ns = 0, .finish_ns = 19},
       {.core = 0, .start_ns = 11, .end_ns = 21, .ready_ns = 0, .dispatch_ns = 2, .finish_ns = 23},
       {.core = 0,
        .start_ns = 25,
        .end_ns = 30,
        .ready_ns = 0,
        .dispatch_ns = 24,
        .finish_ns = 30}},
      1);
  const StepTasks tasks = make_step_tasks(trace, {0, 30});
  EXPECT_EQ(makespan_ns(tasks, {}), 30);
  EXPECT_EQ(makespan_ns(tasks, {.zero_completion = true}), 28) << "only the third waited for it";
  EXPECT_EQ(makespan_ns(tasks, {.zero_handoff = true}), 28);
  EXPECT_EQ(makespan_ns(tasks, kNoOverhead), 25);
}

TEST(ReplayTasks, KeepsCoresAwayThatWereAway) {
  // Core 1 leaves the second task to core 0, and the last one too; core 2 never comes.
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .ready_ns = 0},
                                  {.core = 0, .start_ns = 10, .end_ns = 20, .ready_ns = 0},
                                  {.core = 0, .start_ns = 20, .end_ns = 30, .ready_ns = 20},
                                  {.core = 1, .start_ns = 20, .end_ns = 25, .ready_ns = 20},
                                  {.core = 0, .start_ns = 30, .end_ns = 40, .ready_ns = 20}},
                                 3);
  const StepTasks tasks = make_step_tasks(trace, {0, 40});
  EXPECT_EQ(makespan_ns(tasks, {}), 40);
  EXPECT_EQ(makespan_ns(tasks, {.zero_placement = true}), 30) << "2 at 0, 3 at 20";
}

// `count` pairs of "a" and then "b", 10 ns each, with 5 ns of hand-off before each task.
std::vector<HandTask> pairs(int64_t count) {
  std::vector<HandTask> list;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t first = static_cast<uint32_t>(list.size());
    const int64_t begin_ns = 30 * i;
    list.push_back({.core = 0,
                    .start_ns = begin_ns + 5,
                    .end_ns = begin_ns + 15,
                    .submit_ns = 0,
                    .ready_ns = begin_ns,
                    .dispatch_ns = begin_ns,
                    .kernel = "a"});
    if (i > 0) list.back().producers = {first - 1};
    list.push_back({.core = 0,
                    .start_ns = begin_ns + 20,
                    .end_ns = begin_ns + 30,
                    .producers = {first},
                    .submit_ns = 0,
                    .ready_ns = begin_ns + 15,
                    .dispatch_ns = begin_ns + 15,
                    .kernel = "b"});
  }
  return list;
}

TEST(ReplayTasks, FusesKernelsIntoOneTask) {
  const Trace trace = hand_trace(pairs(4), 1);
  const StepTasks tasks = make_step_tasks(trace, {0, 120});
  const uint32_t a = trace.names.find("a");
  const uint32_t b = trace.names.find("b");
  WhatIf change;
  change.fused = {{a, b}};
  const WhatIfResult fused = expect_value(replay_tasks(tasks, change));
  EXPECT_EQ(fused.task_count, 4u);
  EXPECT_EQ(fused.busy_ns, 80);
  EXPECT_EQ(fused.makespan_ns, 100) << "one hand-off less a pair";
  change.kernel_scale.assign(trace.names.size(), 1.0);
  change.kernel_scale[b] = 0.5;
  EXPECT_EQ(makespan_ns(tasks, change), 80);
  change.fused = {{b, a}};
  EXPECT_EQ(expect_value(replay_tasks(tasks, change)).task_count, 5u) << "each b with the next a";
}

TEST(ReplayTasks, RefusesAFusionAroundAnotherTask) {
  const Trace trace =
      hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .kernel = "a"},
                  {.core = 1, .start_ns = 10, .end_ns = 20, .producers = {0}, .kernel = "other"},
                  {.core = 0, .start_ns = 20, .end_ns = 30, .producers = {0, 1}, .kernel = "b"}},
                 2);
  const StepTasks tasks = make_step_tasks(trace, {0, 30});
  WhatIf change;
  change.fused = {{trace.names.find("a"), trace.names.find("b")}};
  EXPECT_EQ(error_of(tasks, change),
            "the fused kernels have other tasks between them: task row 0 would wait for ever");
}

TEST(ReplayTasks, SaysWhatMakesNoSense) {
  const Trace trace = two_tasks();
  const StepTasks tasks = make_step_tasks(trace, {0, 66});
  WhatIf change;
  change.core_counts[static_cast<size_t>(CoreClass::kCube)] = 4;
  EXPECT_EQ(error_of(tasks, change), "4 cores of class \"cube\": the trace has none");
  for (const double scale : {-1.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    WhatIf scaled;
    scaled.kernel_scale = {1.0, scale};
    EXPECT_NE(error_of(tasks, scaled).find("kernel 1 is scaled by"), std::string::npos);
  }
  const Trace loose = hand_trace(
      {{.core = 0, .start_ns = 0, .end_ns = 10}, {.core = 0, .start_ns = 10, .end_ns = 12}}, 1);
  EXPECT_EQ(error_of(make_step_tasks(loose, {0, 20}), {}),
            "2 tasks have no edges and no ready or submit times: who waited for whom cannot be "
            "known");
}

// Two cores that each take their own tasks in turn, though the other one is free.
std::vector<HandTask> bound_tasks() {
  std::vector<HandTask> list;
  for (int64_t i = 0; i < 8; ++i) {
    // All ready at 0; core 0 has six of them, core 1 the last two.
    const bool is_first = i < 6;
    const int64_t start_ns = 10 * (is_first ? i : i - 6);
    list.push_back({.core = is_first ? 0U : 1U,
                    .start_ns = start_ns,
                    .end_ns = start_ns + 10,
                    .submit_ns = 0,
                    .ready_ns = 0});
  }
  return list;
}

TEST(ReplayTasks, KeepsTasksOnTheirCoresWhereTheyAreBound) {
  const Trace trace = hand_trace(bound_tasks(), 2);
  const StepTasks tasks = make_step_tasks(trace, {0, 60});
  EXPECT_EQ(makespan_ns(tasks, {}), 60);
  EXPECT_EQ(makespan_ns(tasks, {.zero_placement = true}), 40);
  WhatIf change;
  change.core_counts[0] = 4;
  EXPECT_EQ(makespan_ns(tasks, change), 20) << "other cores, other places";
}

TEST(ReplayTasks, TakesTasksAsTheyCameWhereTheyWere) {
  // One core. The first task is quicker without completion delay of its producer, and then the
  // third is ready before the second, and comes before it: 0 .. 10 and 60 .. 90 stay as they are.
  const Trace trace = hand_trace(
      {{.core = 0, .start_ns = 0, .end_ns = 10, .ready_ns = 0, .finish_ns = 10},
       {.core = 1, .start_ns = 0, .end_ns = 8, .ready_ns = 0, .finish_ns = 20},
       {.core = 0, .start_ns = 10, .end_ns = 40, .producers = {0}, .ready_ns = 10, .finish_ns = 40},
       {.core = 0, .start_ns = 40, .end_ns = 50, .producers = {1}, .ready_ns = 20, .finish_ns = 50},
       {.core = 1,
        .start_ns = 50,
        .end_ns = 90,
        .producers = {3},
        .ready_ns = 50,
        .finish_ns = 90}},
      2, {LaneKind::kCubeCore, LaneKind::kVectorCore});
  const StepTasks tasks = make_step_tasks(trace, {0, 90});
  EXPECT_EQ(makespan_ns(tasks, {}), 90);
  EXPECT_EQ(makespan_ns(tasks, {.zero_completion = true}), 60)
      << "at 10 the fourth has been ready for longer than the third";
}

TEST(ReplayTasks, FindsTheMakespanWithoutSomeOfTheTimes) {
  constexpr std::array<TaskTime, 4> kTimes = {TaskTime::kSubmit, TaskTime::kReady,
                                              TaskTime::kDispatch, TaskTime::kFinish};
  const std::vector<MadeOptions> list = made_machines(5);
  for (size_t machine = 0; machine < 4; ++machine) {
    const MadeExecution made = make_execution(list[machine]);
    for (size_t erased = 0; erased < 16; ++erased) {
      SCOPED_TRACE(testing::Message() << "machine " << machine << ", without set " << erased);
      Trace trace = made.trace;
      for (size_t i = 0; i < kTimes.size(); ++i) {
        std::vector<int64_t>& column = trace.tasks.time_ns[static_cast<size_t>(kTimes[i])];
        if ((erased >> i & 1) != 0) std::fill(column.begin(), column.end(), kAbsent);
      }
      const StepTasks tasks = make_step_tasks(trace, made.window);
      EXPECT_NEAR(
          static_cast<double>(makespan_ns(tasks, {})) / static_cast<double>(made.truth.makespan_ns),
          1.0, 0.01);
    }
  }
}

TEST(ReplayTasks, RunsEveryTaskWhateverTheTimes) {
  std::mt19937_64 random(17);
  for (uint32_t round = 0; round < test_effort(60); ++round) {
    MadeOptions options = made_machines(round)[round % kMadeMachineCount];
    options.level_count = 20;
    MadeExecution made = make_execution(options);
    for (const TaskTime time : {TaskTime::kSubmit, TaskTime::kReady, TaskTime::kDispatch,
                                TaskTime::kReceive, TaskTime::kFinish}) {
      for (int64_t& time_ns : made.trace.tasks.time_ns[static_cast<size_t>(time)]) {
        if (random() % 5 == 0) time_ns = kAbsent;
        if (random() % 5 == 0) time_ns = static_cast<int64_t>(random() % 3'000'000);
      }
    }
    const StepTasks tasks = make_step_tasks(made.trace, made.window);
    const int64_t chain_ns = static_path(tasks).length_ns;
    for (const WhatIf& change : {WhatIf{}, kNoOverhead}) {
      const WhatIfResult result = expect_value(replay_tasks(tasks, change));
      EXPECT_EQ(result.task_count, tasks.task_count());
      EXPECT_EQ(result.busy_ns, made.truth.run_ns);
      EXPECT_GE(result.makespan_ns, chain_ns);
      EXPECT_EQ(makespan_ns(tasks, change), result.makespan_ns) << "the same each time";
    }
  }
}

TEST(Efficiencies, MultiplyToTheBusyShare) {
  for (uint64_t seed = 1; seed <= test_effort(20); ++seed) {
    MadeOptions options = made_machines(seed)[seed % kMadeMachineCount];
    options.level_count = 40;
    const MadeExecution made = make_execution(options);
    const StepTasks tasks = make_step_tasks(made.trace, made.window);
    const Efficiencies found = expect_value(measure_efficiencies(tasks));
    EXPECT_NEAR(found.product(),
                static_cast<double>(made.truth.run_ns) / (static_cast<double>(tasks.core_count()) *
                                                          static_cast<double>(tasks.window_ns())),
                1e-9);
    EXPECT_LE(found.lower_bound_ns, found.zero_overhead_ns);
    EXPECT_GE(found.lower_bound_ns, made.truth.longest_chain_ns);
    EXPECT_EQ(found.makespan_ns, made.truth.makespan_ns);
  }
}

TEST(Efficiencies, TellWidthFromOverhead) {
  // Two of four cores have work: half the parallelism. Ten of each thirty ns are hand-off.
  std::vector<HandTask> list;
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t begin_ns = 30 * (i / 2);
    list.push_back({.core = static_cast<uint32_t>(i % 2),
                    .start_ns = begin_ns + 10,
                    .end_ns = begin_ns + 30,
                    .submit_ns = 0,
                    .ready_ns = begin_ns,
                    .dispatch_ns = begin_ns});
    if (i >= 2) list.back().producers = {static_cast<uint32_t>(i) - 2};
  }
  const Trace trace = hand_trace(list, 4);
  const Efficiencies found = expect_value(measure_efficiencies(make_step_tasks(trace, {0, 90})));
  EXPECT_DOUBLE_EQ(found.parallelism, 0.5);
  EXPECT_DOUBLE_EQ(found.schedule, 1.0);
  EXPECT_NEAR(found.overhead, 2.0 / 3.0, 1e-12);
  EXPECT_EQ(found.lower_bound_ns, 60);
}

// Goal: overhead and submission hide each other, and are both found. Method: four independent tasks
// on four cores, submitted every 50 ns, each with 40 ns of hand-off and 10 ns of run.
TEST(Efficiencies, TellSubmissionFromSchedule) {
  std::vector<HandTask> list;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t submit_ns = 50 * i;
    list.push_back({.core = static_cast<uint32_t>(i),
                    .start_ns = submit_ns + 40,
                    .end_ns = submit_ns + 50,
                    .submit_ns = submit_ns,
                    .ready_ns = submit_ns,
                    .dispatch_ns = submit_ns});
  }
  const Trace trace = hand_trace(list, 4);
  const Efficiencies found = expect_value(measure_efficiencies(make_step_tasks(trace, {0, 200})));
  EXPECT_EQ(found.lower_bound_ns, 10);
  EXPECT_EQ(found.zero_submit_ns, 10);
  EXPECT_EQ(found.zero_overhead_ns, 160);
  EXPECT_EQ(found.at_once_ns, 50);
  EXPECT_DOUBLE_EQ(found.parallelism, 1.0);
  EXPECT_DOUBLE_EQ(found.schedule, 1.0);
  EXPECT_DOUBLE_EQ(found.submission, 10.0 / 160.0);
  EXPECT_DOUBLE_EQ(found.overhead, 160.0 / 200.0);
}

TEST(Efficiencies, NeedSomethingThatRan) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 100, .end_ns = 110}}, 1);
  const Result<Efficiencies> found = measure_efficiencies(make_step_tasks(trace, {0, 50}));
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "no task ran for any time from 0 to 50 ns");
}

TEST(StandardChanges, AreSortedByGain) {
  const Trace trace = two_tasks();
  const StepTasks tasks = make_step_tasks(trace, {0, 66});
  const StandardChanges table = expect_value(standard_changes(tasks, trace));
  EXPECT_EQ(table.recorded_ns, 66);
  EXPECT_EQ(table.replayed_ns, 66);
  EXPECT_EQ(table.error, 0.0);
  std::vector<std::string> names;
  for (const StandardChange& row : table.changes) {
    names.push_back(row.name);
    EXPECT_EQ(row.makespan_ns, makespan_ns(tasks, row.change)) << row.name;
    EXPECT_DOUBLE_EQ(row.gain, 1.0 - static_cast<double>(row.makespan_ns) / 66.0) << row.name;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "no overhead", "no overhead, all submitted at once", "first in half the time",
                "second in half the time", "no hand-off delay", "no scheduler delay",
                "no completion delay", "all submitted at once", "twice the cores"}));
}

TEST(StandardChanges, CarryWhatEfficienciesNeed) {
  const MadeExecution made = make_execution(made_machines(3)[1]);
  const StepTasks tasks = make_step_tasks(made.trace, made.window);
  const StandardChanges table = expect_value(standard_changes(tasks, made.trace));
  const Efficiencies alone = expect_value(measure_efficiencies(tasks));
  const Efficiencies found = expect_value(measure_efficiencies(tasks, table, static_path(tasks)));
  EXPECT_EQ(found.zero_overhead_ns, alone.zero_overhead_ns);
  EXPECT_EQ(found.lower_bound_ns, alone.lower_bound_ns);
  EXPECT_EQ(found.product(), alone.product());
}

TEST(StandardChanges, AreTheSameOnSeveralThreads) {
  // Large enough for threads; a replay of each row alone needs none.
  MadeOptions options = made_machines(4)[2];
  options.level_count = 300;
  const MadeExecution made = make_execution(options);
  const StepTasks tasks = make_step_tasks(made.trace, made.window);
  ASSERT_GT(tasks.task_count(), 4000u);
  const StandardChanges table = expect_value(standard_changes(tasks, made.trace));
  for (const StandardChange& row : table.changes) {
    EXPECT_EQ(row.makespan_ns, makespan_ns(tasks, row.change)) << row.name;
  }
}

TEST(StandardChanges, NameEachClassOfCoresAndTheTopKernels) {
  const MadeExecution made = make_execution(made_machines(2)[1]);
  const StepTasks tasks = make_step_tasks(made.trace, made.window);
  const StandardChanges table = expect_value(standard_changes(tasks, made.trace, 1));
  std::vector<std::string> names;
  for (const StandardChange& row : table.changes) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{
                       "a in half the time", "all submitted at once", "no completion delay",
                       "no hand-off delay", "no overhead", "no overhead, all submitted at once",
                       "no scheduler delay", "twice the cube cores", "twice the vector cores"}));
  EXPECT_TRUE(std::is_sorted(
      table.changes.begin(), table.changes.end(),
      [](const StandardChange& a, const StandardChange& b) { return a.gain > b.gain; }));
  EXPECT_LT(std::abs(table.error), 0.0025);
}

}  // namespace
}  // namespace gapless
