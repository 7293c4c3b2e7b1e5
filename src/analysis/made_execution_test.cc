// SPDX-License-Identifier: Apache-2.0
//
// Chains and levels whose makespan can be computed by hand, and rules that every execution keeps.

#include "analysis/made_execution.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/kernel_times.h"
#include "base/test_effort.h"

namespace gapless {
namespace {

StepTasks tasks_of(const MadeExecution& made) {
  Result<StepTasks> tasks = StepTasks::create(made.trace, made.window);
  EXPECT_TRUE(tasks) << tasks.error().message;
  return std::move(tasks).value();
}

MadeOptions chain_options() {
  MadeOptions options;
  options.level_widths = {1, 1, 1};
  options.kernels = {{.name = "kernel", .mean_ns = 1000}};
  options.overheads = {
      .completion = {7, 7}, .dispatch = {20, 20}, .propagation = {300, 300}, .setup = {5, 5}};
  return options;
}

TEST(MadeExecution, OfAChainIsTheSumOfItsParts) {
  const MadeTruth truth = make_execution(chain_options()).truth;
  EXPECT_EQ(truth.makespan_ns, 3 * (20 + 300 + 5 + 1000) + 2 * 7);
  EXPECT_EQ(truth.zero_completion_ns, 3 * 1325);
  EXPECT_EQ(truth.zero_dispatch_ns, 3 * 1305 + 2 * 7);
  EXPECT_EQ(truth.zero_handoff_ns, 3 * 1020 + 2 * 7);
  EXPECT_EQ(truth.zero_submit_ns, truth.makespan_ns);
  EXPECT_EQ(truth.zero_all_ns, 3000);
  EXPECT_EQ(truth.run_ns, 3000);
  EXPECT_EQ(truth.longest_chain_ns, 3000);
}

TEST(MadeExecution, WaitsForTheOrchestrator) {
  MadeOptions options = chain_options();
  options.overheads = {};
  options.overheads.submit_interval_ns = 1500;
  const MadeTruth truth = make_execution(options).truth;
  EXPECT_EQ(truth.makespan_ns, 2 * 1500 + 1000);
  EXPECT_EQ(truth.zero_submit_ns, 3000);
}

TEST(MadeExecution, DispatchesOneAfterAnotherOnEachScheduler) {
  MadeOptions options = chain_options();
  options.level_widths = {4};
  options.overheads = {.dispatch = {100, 100}};
  const auto dispatches = [&options]() {
    std::vector<int64_t> times = make_execution(options).trace.tasks.at(TaskTime::kDispatch);
    std::sort(times.begin(), times.end());
    for (int64_t& time_ns : times) time_ns -= options.begin_ns;
    return times;
  };
  EXPECT_EQ(dispatches(), std::vector<int64_t>({100, 200, 300, 400}));
  options.scheduler_count = 2;
  EXPECT_EQ(dispatches(), std::vector<int64_t>({100, 100, 200, 200}));
  options.scheduler_count = 0;
  EXPECT_EQ(dispatches(), std::vector<int64_t>({100, 100, 100, 100}));
}

TEST(MadeExecution, JoinsWholeLevels) {
  MadeOptions options = chain_options();
  options.level_widths = {3, 2, 1, 2};
  options.edges_per_task = 0;
  const MadeExecution made = make_execution(options);
  EXPECT_EQ(made.trace.tasks.size(), 8u + 2u);
  EXPECT_EQ(made.trace.names[made.trace.tasks.kernel[8]], "kernel (all blocks)");
  // Through joins: 3 x 2 + 2 x 1, and 1 x 2.
  EXPECT_EQ(tasks_of(made).edge_count(), 10u);
}

TEST(MadeExecution, RecordsItsStep) {
  const MadeExecution made = make_execution(chain_options());
  const std::vector<StepWindow> steps = step_windows(made.trace);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].window.begin_ns, made.window.begin_ns);
  EXPECT_EQ(steps[0].window.end_ns, made.window.end_ns);
  EXPECT_EQ(made.window.end_ns - made.window.begin_ns, made.truth.makespan_ns);
}

MadeOptions random_options(std::mt19937& random) {
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  MadeOptions options;
  options.seed = random();
  options.core_counts = {0, 1 + below(6), 1 + below(6)};
  options.kernels = {
      {.name = "a", .core_class = CoreClass::kCube, .mean_ns = 9'000, .sigma = 0.5},
      {.name = "b", .core_class = CoreClass::kVector, .mean_ns = 4'000, .sigma = 0.2}};
  options.scheduler_count = below(3);
  options.level_count = 1 + below(20);
  options.max_width = 1 + below(20);
  options.edges_per_task = below(5);
  options.long_edge_every = below(5);
  options.overheads = {.completion = {100, 900},
                       .dispatch = {50, 150},
                       .propagation = {200, 400},
                       .setup = {0, 50},
                       .submit_interval_ns = below(200)};
  return options;
}

TEST(MadeExecution, IsTheSameEveryTime) {
  std::mt19937 random(1);
  const MadeOptions options = random_options(random);
  const MadeExecution a = make_execution(options);
  const MadeExecution b = make_execution(options);
  EXPECT_EQ(a.trace.tasks.time_ns, b.trace.tasks.time_ns);
  EXPECT_EQ(a.trace.edges.producer, b.trace.edges.producer);
  MadeOptions other = options;
  ++other.seed;
  EXPECT_NE(make_execution(other).truth.run_ns, a.truth.run_ns);
}

TEST(MadeExecution, KeepsTheOrderOfTheSevenTimesAndOfTheGraph) {
  std::mt19937 random(2);
  for (uint32_t round = 0; round < test_effort(100); ++round) {
    const MadeOptions options = random_options(random);
    const MadeExecution made = make_execution(options);
    const StepTasks tasks = tasks_of(made);  // refuses tasks that overlap
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      for (int time = 1; time < kTaskTimeCount; ++time) {
        EXPECT_LE(tasks.time_ns(task, static_cast<TaskTime>(time - 1)),
                  tasks.time_ns(task, static_cast<TaskTime>(time)));
      }
      for (const uint32_t producer : tasks.producers(task)) {
        EXPECT_LE(tasks.time_ns(producer, TaskTime::kFinish),
                  tasks.time_ns(task, TaskTime::kReady));
      }
      if (options.scheduler_count > 0) continue;
      EXPECT_EQ(tasks.time_ns(task, TaskTime::kDispatch), tasks.time_ns(task, TaskTime::kReceive));
    }
    EXPECT_EQ(tasks.backward_count(), 0u);
  }
}

// No schedule is shorter than its longest chain or its work on all cores; a list schedule is not
// longer than the chain and the work of each kind after each other.
TEST(MadeExecution, WithoutOverheadIsWithinTheBoundsOfListSchedules) {
  std::mt19937 random(3);
  for (uint32_t round = 0; round < test_effort(100); ++round) {
    const MadeOptions options = random_options(random);
    const MadeExecution made = make_execution(options);
    std::array<int64_t, kCoreClassCount> work_ns = {};
    const StepTasks tasks = tasks_of(made);
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      work_ns[static_cast<size_t>(tasks.task_class(task))] +=
          tasks.end_ns(task) - tasks.start_ns(task);
    }
    int64_t longest_ns = made.truth.longest_chain_ns;
    EXPECT_GE(made.truth.zero_all_ns, longest_ns);
    for (size_t kind = 1; kind < kCoreClassCount; ++kind) {
      EXPECT_GE(made.truth.zero_all_ns * options.core_counts[kind], work_ns[kind]);
      longest_ns += work_ns[kind] / options.core_counts[kind] + 1;
    }
    EXPECT_LE(made.truth.zero_all_ns, longest_ns);
    EXPECT_GE(made.truth.makespan_ns, made.truth.longest_chain_ns);
  }
}

TEST(MadeExecution, OfTheNarrowStepHasItsCounts) {
  const MadeExecution made = make_execution(narrow_decode_options());
  const StepTasks tasks = tasks_of(made);
  ASSERT_EQ(tasks.task_count(), 38'705u);
  EXPECT_EQ(tasks.core_count(), 72u);
  EXPECT_EQ(made.truth.run_ns, int64_t{38'705} * 45'000);
  EXPECT_NEAR(static_cast<double>(made.truth.makespan_ns), 356e6, 0.5e6);
  int64_t sum_ns = 0;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    sum_ns += tasks.time_ns(task, TaskTime::kFinish) - tasks.time_ns(task, TaskTime::kDispatch);
  }
  EXPECT_NEAR(static_cast<double>(sum_ns) / 38'705, 61'000, 100);
}

TEST(MadeExecution, OfTheWideStepHasItsCounts) {
  const MadeExecution made = make_execution(wide_decode_options());
  const StepTasks tasks = tasks_of(made);
  EXPECT_EQ(tasks.task_count(), 38'560u);
  EXPECT_NEAR(static_cast<double>(tasks.edge_count()), 231e3, 20e3);
}

}  // namespace
}  // namespace gapless
