// SPDX-License-Identifier: Apache-2.0

#include "analysis/step_analysis.h"

#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"

namespace gapless {
namespace {

MadeOptions varied_options(uint64_t seed) {
  MadeOptions options;
  options.seed = seed;
  options.core_counts = {0, 4, 8};
  options.kernels = {
      {.name = "cube", .core_class = CoreClass::kCube, .mean_ns = 20'000, .sigma = 0.4},
      {.name = "vector", .core_class = CoreClass::kVector, .mean_ns = 5'000, .sigma = 0.4}};
  options.level_count = 30;
  options.overheads = {.completion = {100, 900}, .dispatch = {50, 200}, .setup = {300, 300}};
  return options;
}

// Method: every part against a call of its own.
TEST(StepAnalysis, FindsWhatTheAnalysesFindOneByOne) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const MadeExecution made = make_execution(varied_options(seed));
    const StepTasks tasks = make_step_tasks(made.trace, made.window);
    const StepAnalysis analysis =
        expect_value(analyse_step(made.trace, tasks, {.steps = {made.window}, .kernel_count = 2}));
    const BubblePartition bubbles = partition_bubbles(tasks);
    EXPECT_EQ(analysis.bubbles.cause_ns, bubbles.cause_ns);
    EXPECT_EQ(analysis.kernels.busy_ns, bubbles.busy_ns);
    EXPECT_EQ(analysis.path.part_ns, observed_path(tasks).part_ns);
    EXPECT_EQ(analysis.longest.chain, static_path(tasks).chain);
    EXPECT_EQ(analysis.groups.task_layer, group_tasks(tasks).task_layer);
    EXPECT_FALSE(analysis.roofline) << "no task has a cost";
    EXPECT_EQ(
        analysis.quality.findings.size(),
        check_quality(
            {.trace = &made.trace, .tasks = &tasks, .bubbles = &bubbles, .steps = {made.window}})
            .findings.size());
    const StandardChanges changes = expect_value(standard_changes(tasks, made.trace, 2));
    ASSERT_TRUE(analysis.changes);
    ASSERT_EQ(analysis.changes->changes.size(), changes.changes.size());
    for (size_t i = 0; i < changes.changes.size(); ++i) {
      EXPECT_EQ(analysis.changes->changes[i].name, changes.changes[i].name);
      EXPECT_EQ(analysis.changes->changes[i].makespan_ns, changes.changes[i].makespan_ns);
    }
    ASSERT_TRUE(analysis.efficiencies);
    EXPECT_EQ(analysis.efficiencies->product(),
              expect_value(measure_efficiencies(tasks)).product());
    EXPECT_FALSE(analysis.has_overheads_only);
  }
}

TEST(StepAnalysis, TriesOverheadsAloneOfALargeStep) {
  const MadeExecution made = make_execution(varied_options(1));
  const StepTasks tasks = make_step_tasks(made.trace, made.window);
  const StepAnalysis analysis =
      expect_value(analyse_step(made.trace, tasks, {.large_step = tasks.task_count()}));
  EXPECT_TRUE(analysis.has_overheads_only);
  ASSERT_TRUE(analysis.changes);
  for (const StandardChange& change : analysis.changes->changes)
    EXPECT_TRUE(change.change.kernel_scale.empty() && change.change.core_counts[1] == 0)
        << change.name;
  EXPECT_TRUE(analysis.efficiencies);
}

TEST(StepAnalysis, HasNoReplayWithoutEdges) {
  const Trace trace = hand_trace(
      {{.core = 0, .start_ns = 0, .end_ns = 10}, {.core = 1, .start_ns = 5, .end_ns = 20}}, 2);
  const StepTasks tasks = make_step_tasks(trace, {.begin_ns = 0, .end_ns = 20});
  const StepAnalysis analysis = expect_value(analyse_step(trace, tasks));
  EXPECT_FALSE(analysis.changes);
  EXPECT_FALSE(analysis.efficiencies);
  EXPECT_EQ(analysis.bubbles.busy_ns, 25);
}

}  // namespace
}  // namespace gapless
