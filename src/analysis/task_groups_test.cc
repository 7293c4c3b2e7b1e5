// SPDX-License-Identifier: Apache-2.0

#include "analysis/task_groups.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "analysis/step_tasks.h"
#include "analysis/whatif_test_support.h"
#include "trace/trace.h"

namespace gapless {
namespace {

// Tasks of 10 ns one after another on one core; times follow from the place in the list.
Trace trace_in_a_row(std::vector<HandTask> list) {
  for (size_t place = 0; place < list.size(); ++place) {
    list[place].start_ns = static_cast<int64_t>(place) * 10;
    list[place].end_ns = list[place].start_ns + 10;
  }
  return hand_trace(list, 1);
}

StepTasks all_tasks(const Trace& trace) {
  return make_step_tasks(trace, {0, static_cast<int64_t>(trace.tasks.size()) * 10 + 1});
}

// Kernels in the order of their first start, with the trace's names.
std::vector<std::string> kernel_order(const Trace& trace, const TaskGroups& groups) {
  std::vector<std::string> names;
  for (const KernelFan& fan : groups.kernels) names.emplace_back(trace.names[fan.kernel]);
  return names;
}

// What holds for the groups of any tasks.
void expect_sums_to_hold(const StepTasks& tasks, const TaskGroups& groups) {
  ASSERT_EQ(groups.task_layer.size(), tasks.task_count());
  int64_t run_ns = 0;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    run_ns += tasks.end_ns(task) - tasks.start_ns(task);
    EXPECT_LT(groups.task_layer[task], groups.layer_count);
    for (const uint32_t producer : tasks.producers(task)) {
      EXPECT_LE(groups.task_layer[producer], groups.task_layer[task]);
    }
  }
  int64_t group_run_ns = 0;
  uint64_t group_tasks = 0;
  for (const TaskGroup& group : groups.groups) {
    group_run_ns += group.run_ns;
    group_tasks += group.task_count;
    EXPECT_LE(group.run_ns, (group.end_ns - group.begin_ns) * int64_t{tasks.core_count()});
  }
  EXPECT_EQ(group_run_ns, run_ns);
  EXPECT_EQ(group_tasks, tasks.task_count());
  uint64_t producers = 0;
  uint64_t consumers = 0;
  uint64_t kernel_tasks = 0;
  uint64_t kernel_layers = 0;
  for (const KernelFan& fan : groups.kernels) {
    producers += fan.producer_count;
    consumers += fan.consumer_count;
    kernel_tasks += fan.task_count;
    kernel_layers += fan.layer_count;
    EXPECT_LE(fan.median_per_layer, fan.max_per_layer);
    EXPECT_GE(uint64_t{fan.max_per_layer} * fan.layer_count, fan.task_count);
  }
  EXPECT_EQ(producers, tasks.edge_count());
  EXPECT_EQ(consumers, tasks.edge_count());
  EXPECT_EQ(kernel_tasks, tasks.task_count());
  EXPECT_EQ(kernel_layers, groups.groups.size());
}

TEST(TaskGroups, HandMadeGraphHasTwoLayers) {
  // norm -> two matmuls -> add, twice; the second layer's norm waits for the first one's add.
  const Trace trace = trace_in_a_row({{.kernel = "norm"},
                                      {.producers = {0}, .kernel = "matmul"},
                                      {.producers = {0}, .kernel = "matmul"},
                                      {.producers = {1, 2}, .kernel = "add"},
                                      {.producers = {3}, .kernel = "norm"},
                                      {.producers = {4}, .kernel = "matmul"},
                                      {.producers = {4}, .kernel = "matmul"},
                                      {.producers = {5, 6}, .kernel = "add"}});
  const TaskGroups groups = group_tasks(all_tasks(trace));
  EXPECT_EQ(groups.layer_count, 2u);
  EXPECT_EQ(groups.task_layer, (std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(kernel_order(trace, groups), (std::vector<std::string>{"norm", "matmul", "add"}));

  const KernelFan& matmul = groups.kernels[1];
  EXPECT_EQ(matmul.task_count, 4u);
  EXPECT_EQ(matmul.layer_count, 2u);
  EXPECT_EQ(matmul.median_per_layer, 2u);
  EXPECT_EQ(matmul.max_per_layer, 2u);
  EXPECT_EQ(matmul.max_producers, 1u);
  EXPECT_DOUBLE_EQ(matmul.mean_fan_in(), 1.0);
  const KernelFan& add = groups.kernels[2];
  EXPECT_EQ(add.max_producers, 2u);
  EXPECT_EQ(add.max_consumers, 1u);
  EXPECT_DOUBLE_EQ(add.mean_fan_in(), 2.0);
  EXPECT_DOUBLE_EQ(add.mean_fan_out(), 0.5);

  ASSERT_EQ(groups.groups.size(), 6u);
  const TaskGroup& second_matmuls = groups.groups[4];
  EXPECT_EQ(trace.names[second_matmuls.kernel], "matmul");
  EXPECT_EQ(second_matmuls.layer, 1u);
  EXPECT_EQ(second_matmuls.task_count, 2u);
  EXPECT_EQ(second_matmuls.run_ns, 20);
  EXPECT_EQ(second_matmuls.begin_ns, 50);
  EXPECT_EQ(second_matmuls.end_ns, 70);
}

TEST(TaskGroups, FortyLayersOfEightKernelsAreForty) {
  MadeOptions options;
  options.kernels.clear();
  for (int kernel = 0; kernel < 8; ++kernel) {
    options.kernels.push_back({.name = "kernel_" + std::to_string(kernel)});
  }
  const std::vector<uint32_t> widths = {1, 6, 3, 12, 4, 2, 8, 1};
  for (int layer = 0; layer < 40; ++layer) {
    options.level_widths.insert(options.level_widths.end(), widths.begin(), widths.end());
  }
  options.edges_per_task = 0;  // all of the level before
  const MadeExecution made = make_execution(options);
  const StepTasks tasks = make_step_tasks(made.trace, made.window);
  const TaskGroups groups = group_tasks(tasks);
  EXPECT_EQ(groups.layer_count, 40u);
  ASSERT_EQ(groups.kernels.size(), 8u);
  for (size_t kernel = 0; kernel < widths.size(); ++kernel) {
    EXPECT_EQ(groups.kernels[kernel].layer_count, 40u);
    EXPECT_EQ(groups.kernels[kernel].median_per_layer, widths[kernel]);
    EXPECT_EQ(groups.kernels[kernel].max_per_layer, widths[kernel]);
    EXPECT_EQ(groups.kernels[kernel].task_count, 40 * widths[kernel]);
  }
  EXPECT_EQ(groups.kernels[2].max_producers, 6u);
  EXPECT_EQ(groups.kernels[2].max_consumers, 12u);
  expect_sums_to_hold(tasks, groups);
}

TEST(TaskGroups, AKernelThatIsCalledTwiceMakesTwoLayersOfOne) {
  // norm, attention, norm, mlp: twice.
  const Trace trace = trace_in_a_row({{.kernel = "norm"},
                                      {.producers = {0}, .kernel = "attention"},
                                      {.producers = {1}, .kernel = "norm"},
                                      {.producers = {2}, .kernel = "mlp"},
                                      {.producers = {3}, .kernel = "norm"},
                                      {.producers = {4}, .kernel = "attention"},
                                      {.producers = {5}, .kernel = "norm"},
                                      {.producers = {6}, .kernel = "mlp"}});
  const TaskGroups groups = group_tasks(all_tasks(trace));
  EXPECT_EQ(groups.task_layer, (std::vector<uint32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(groups.layer_count, 4u);
  EXPECT_EQ(groups.kernels[0].layer_count, 4u);
  EXPECT_EQ(groups.kernels[1].layer_count, 2u);
}

TEST(TaskGroups, AChainOfOneKernelIsOneLayer) {
  const Trace trace = trace_in_a_row({{}, {.producers = {0}}, {.producers = {1}}});
  EXPECT_EQ(group_tasks(all_tasks(trace)).layer_count, 1u);
}

TEST(TaskGroups, TasksWithoutEdgesAreOneLayer) {
  const Trace trace = trace_in_a_row({{.kernel = "b"}, {.kernel = "a"}, {.kernel = "b"}});
  const StepTasks tasks = all_tasks(trace);
  const TaskGroups groups = group_tasks(tasks);
  EXPECT_EQ(groups.layer_count, 1u);
  EXPECT_EQ(kernel_order(trace, groups), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(groups.kernels[0].task_count, 2u);
  EXPECT_EQ(groups.kernels[0].mean_fan_in(), 0.0);
  expect_sums_to_hold(tasks, groups);
}

TEST(TaskGroups, TasksWithoutANameAreAKernelOfTheirOwn) {
  Trace trace = trace_in_a_row({{.kernel = "a"},
                                {.producers = {0}},
                                {.producers = {1}, .kernel = "b"},
                                {.producers = {2}},
                                {.producers = {3}, .kernel = "a"}});
  trace.tasks.kernel[1] = kNoIndex;
  trace.tasks.kernel[3] = kNoIndex;
  const StepTasks tasks = all_tasks(trace);
  const TaskGroups groups = group_tasks(tasks);
  ASSERT_EQ(groups.kernels.size(), 3u);
  EXPECT_EQ(groups.kernels[1].kernel, kNoIndex);
  EXPECT_EQ(groups.kernels[1].task_count, 2u);
  EXPECT_EQ(groups.task_layer, (std::vector<uint32_t>{0, 0, 0, 1, 2}));
  expect_sums_to_hold(tasks, groups);
}

TEST(TaskGroups, ARootGoesToTheEarliestLayerThatNeedsIt) {
  // A gather feeds each of three layers; the one of layer 2 starts early and has no producers.
  const Trace trace = trace_in_a_row({{.kernel = "gather"},
                                      {.kernel = "gather"},
                                      {.producers = {0}, .kernel = "matmul"},
                                      {.producers = {2}, .kernel = "add"},
                                      {.producers = {0, 3}, .kernel = "matmul"},
                                      {.producers = {4}, .kernel = "add"},
                                      {.producers = {1, 5}, .kernel = "matmul"},
                                      {.kernel = "gather"}});
  const TaskGroups groups = group_tasks(all_tasks(trace));
  EXPECT_EQ(groups.layer_count, 3u);
  EXPECT_EQ(groups.task_layer, (std::vector<uint32_t>{0, 2, 0, 0, 1, 1, 2, 0}));
}

TEST(TaskGroups, ARootOfALaterKernelStaysALayerBeforeItsConsumer) {
  const Trace trace = trace_in_a_row({{.kernel = "a"},
                                      {.producers = {0}, .kernel = "b"},
                                      {.producers = {1}, .kernel = "a"},
                                      {.kernel = "b"},
                                      {.producers = {2, 3}, .kernel = "a"}});
  const TaskGroups groups = group_tasks(all_tasks(trace));
  EXPECT_EQ(groups.task_layer, (std::vector<uint32_t>{0, 0, 1, 0, 1}));
}

TEST(TaskGroups, MedianIsTheSmallerOfTwo) {
  const Trace trace = trace_in_a_row({{.kernel = "a"},
                                      {.producers = {0}, .kernel = "b"},
                                      {.producers = {1}, .kernel = "a"},
                                      {.producers = {1}, .kernel = "a"},
                                      {.producers = {1}, .kernel = "a"}});
  const TaskGroups groups = group_tasks(all_tasks(trace));
  EXPECT_EQ(groups.kernels[0].median_per_layer, 1u);
  EXPECT_EQ(groups.kernels[0].max_per_layer, 3u);
}

TEST(TaskGroups, NoTasksHaveNoLayers) {
  const TaskGroups groups = group_tasks(make_step_tasks(hand_trace({}, 2), {0, 100}));
  EXPECT_EQ(groups.layer_count, 0u);
  EXPECT_TRUE(groups.kernels.empty());
  EXPECT_TRUE(groups.groups.empty());
}

TEST(TaskGroups, GroupsComeByLayerThenKernel) {
  const Trace trace = trace_in_a_row({{.kernel = "b"},
                                      {.producers = {0}, .kernel = "a"},
                                      {.producers = {1}, .kernel = "b"},
                                      {.producers = {2}, .kernel = "a"}});
  const TaskGroups groups = group_tasks(all_tasks(trace));
  std::vector<std::string> order;
  for (const TaskGroup& group : groups.groups) {
    order.push_back(std::string(trace.names[group.kernel]) + std::to_string(group.layer));
  }
  EXPECT_EQ(order, (std::vector<std::string>{"b0", "a0", "b1", "a1"}));
}

TEST(TaskGroups, SumsOfRandomExecutionsAreTheTotals) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    MadeOptions options;
    options.seed = seed;
    options.kernels.clear();
    for (uint64_t kernel = 0; kernel <= seed % 5; ++kernel) {
      options.kernels.push_back({.name = "k" + std::to_string(kernel), .sigma = 0.4});
    }
    options.level_count = 30;
    options.max_width = 10;
    options.edges_per_task = static_cast<uint32_t>(seed % 4);
    options.long_edge_every = 5;
    const MadeExecution made = make_execution(options);
    const StepTasks tasks = make_step_tasks(made.trace, made.window);
    expect_sums_to_hold(tasks, group_tasks(tasks));
  }
}

}  // namespace
}  // namespace gapless
