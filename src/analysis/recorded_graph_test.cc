// SPDX-License-Identifier: Apache-2.0

#include "analysis/recorded_graph.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/step_tasks.h"
#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

StepTasks all_tasks(const Trace& trace) {
  Result<StepTasks> tasks = StepTasks::create(trace, time_range(trace));
  EXPECT_TRUE(tasks.has_value()) << (tasks ? "" : tasks.error().message);
  return std::move(*tasks);
}

RecordedGraph recorded(const Trace& trace, const StepTasks& tasks,
                       const RecordedGraphOptions& options = {}) {
  Result<RecordedGraph> graph = make_recorded_graph(trace, tasks, options);
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return std::move(*graph);
}

// A trace of rows that somebody wrote down, on cube cores 0 and 1 and vector cores 2 to 5.
struct Row {
  uint64_t id = 0;
  uint32_t lane = kNoIndex;
  int64_t start_ns = kAbsent;
  int64_t end_ns = kAbsent;
  int64_t submit_ns = kAbsent;
  std::string kernel = "one";
};

using Edges = std::vector<std::pair<uint32_t, uint32_t>>;

Trace trace_of(const std::vector<Row>& rows, const Edges& edges) {
  Trace trace;
  trace.devices.push_back({.name = "hand"});
  for (int lane = 0; lane < 6; ++lane) {
    trace.lanes.push_back(
        {.name = "core", .kind = lane < 2 ? LaneKind::kCubeCore : LaneKind::kVectorCore});
  }
  for (const Row& row : rows) {
    trace.tasks.id.push_back(row.id);
    trace.tasks.lane.push_back(row.lane);
    trace.tasks.kernel.push_back(trace.names.intern(row.kernel));
    for (std::vector<int64_t>& times : trace.tasks.time_ns) times.push_back(kAbsent);
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kStart)].back() = row.start_ns;
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kEnd)].back() = row.end_ns;
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kSubmit)].back() = row.submit_ns;
  }
  for (const auto& [producer, consumer] : edges) {
    trace.edges.producer.push_back(producer);
    trace.edges.consumer.push_back(consumer);
    trace.edges.kind.push_back(static_cast<uint8_t>(EdgeKind::kData));
  }
  return trace;
}

// The graph that ran and the graph that was recorded run alike, to the nanosecond.
void expect_same_run(const TracedSim& made) {
  const StepTasks tasks = all_tasks(made.trace);
  const RecordedGraph graph = recorded(made.trace, tasks);
  ASSERT_EQ(graph.graph.task_count(), made.graph.task_count());
  EXPECT_TRUE(graph.is_order_recorded);
  EXPECT_EQ(graph.unpaired_count, 0u);
  const Result<SimResult> again = simulate(made.profile, graph.graph);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  for (uint32_t task = 0; task < made.graph.task_count(); ++task) {
    ASSERT_EQ(graph.graph.kernel_name(task), made.graph.kernel_name(task)) << task;
    ASSERT_EQ(again->tasks[task].submit_ns, made.result.tasks[task].submit_ns) << task;
    ASSERT_EQ(again->tasks[task].ready_ns, made.result.tasks[task].ready_ns) << task;
    ASSERT_EQ(again->tasks[task].finish_ns, made.result.tasks[task].finish_ns) << task;
  }
  ASSERT_EQ(again->records.size(), made.result.records.size());
  for (size_t record = 0; record < again->records.size(); ++record) {
    ASSERT_EQ(again->records[record].core, made.result.records[record].core);
    ASSERT_EQ(again->records[record].start_ns, made.result.records[record].start_ns);
    ASSERT_EQ(again->records[record].end_ns, made.result.records[record].end_ns);
  }
}

TEST(RecordedGraph, OfASimulatedLayerRunsAsTheLayerDid) {
  for (const LayerTiling tiling : {LayerTiling::kBf16, LayerTiling::kA8W8Int8}) {
    Result<SimGraph> graph = make_layer_graph({.tiling = tiling, .layers = 2});
    ASSERT_TRUE(graph.has_value());
    expect_same_run(traced_sim(changed_profile("ascend-910b", {}), std::move(*graph),
                               {.has_ticks = false, .begin_ns = 12'345}));
  }
}

TEST(RecordedGraph, OfRandomGraphsRunsAsTheyDid) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 10; ++round) {
    SimGraph graph = random_sim_graph(random, {.task_count = 90, .has_memory = true});
    expect_same_run(traced_sim(changed_profile("ascend-910b", {}), graph, {.has_ticks = false}));
    expect_same_run(
        traced_sim(changed_profile("cpu-like", {}), std::move(graph), {.has_ticks = false}));
  }
}

TEST(RecordedGraph, KeepsTasksWithoutACore) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  std::vector<uint32_t> first;
  for (int i = 0; i < 100; ++i) {
    first.push_back(builder.add_task(timed_task(kernel, SimShape::kVector, 100)));
  }
  const std::vector<uint32_t> dummy = {
      builder.add_task({.kernel = builder.add_kernel("barrier"), .is_dummy = true}, first)};
  builder.add_task(timed_task(kernel, SimShape::kCube, 100), dummy);
  const TracedSim made =
      traced_sim(changed_profile("ascend-910b", {}), *builder.finish(), {.has_ticks = false});
  const StepTasks tasks = all_tasks(made.trace);
  EXPECT_EQ(recorded(made.trace, tasks).dummy_count, 1u);
  EXPECT_EQ(recorded(made.trace, tasks).graph.edge_count(), 101u);
  expect_same_run(made);
}

// A swimlane file has no join for a task that nobody waits for.
TEST(RecordedGraph, PutsRecordsTogetherByTheirIds) {
  constexpr uint64_t kRecord = uint64_t{1} << 40;
  const Trace trace = trace_of({{7 + 1 * kRecord, 2, 0, 100, 0},
                                {7 + 2 * kRecord, 3, 0, 300, 0},
                                {8 + 1 * kRecord, 4, 0, 500, 5}},
                               {});
  const StepTasks tasks = all_tasks(trace);
  const RecordedGraph graph = recorded(trace, tasks);
  ASSERT_EQ(graph.graph.task_count(), 2u);
  EXPECT_EQ(graph.graph.task(0).block_count, 2u);
  EXPECT_EQ(graph.graph.task(0).vector.run_ns, 300);
  EXPECT_EQ(graph.graph.block_scale(0, 0), 333'334u) << "100 of 300, rounded up";
  EXPECT_EQ(graph.graph.block_scale(0, 1), kWholeBlock);
  EXPECT_EQ(graph.submit_ns, (std::vector<int64_t>{0, 5}));
}

TEST(RecordedGraph, MakesMixedTasksByCluster) {
  constexpr uint64_t kRecord = uint64_t{1} << 40;
  const Trace trace = trace_of({{1 + 1 * kRecord, 0, 10, 100},
                                {1 + 2 * kRecord, 2, 20, 100},
                                {1 + 3 * kRecord, 3, 30, 100},
                                {1 + 4 * kRecord, 1, 10, 200},
                                {1 + 5 * kRecord, 4, 10, 200},
                                {1 + 6 * kRecord, 5, 40, 200}},
                               {});
  const StepTasks tasks = all_tasks(trace);
  const RecordedGraph graph = recorded(trace, tasks);
  ASSERT_EQ(graph.graph.task_count(), 1u);
  EXPECT_EQ(graph.graph.task(0).shape, SimShape::kMix);
  EXPECT_EQ(graph.graph.task(0).block_count, 2u);
  EXPECT_EQ(graph.graph.task(0).cube.run_ns, 160) << "from when the last core had started";
  EXPECT_EQ(graph.mixed_count, 1u);
  EXPECT_EQ(graph.unpaired_count, 0u);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    EXPECT_EQ(graph.block_of[task], tasks.row(task) / 3);
  }
}

TEST(RecordedGraph, CountsMixedTasksWithoutAllCores) {
  constexpr uint64_t kRecord = uint64_t{1} << 40;
  const Trace trace = trace_of({{1 + 1 * kRecord, 0, 10, 100}, {1 + 2 * kRecord, 2, 20, 100}}, {});
  const StepTasks tasks = all_tasks(trace);
  EXPECT_EQ(recorded(trace, tasks).unpaired_count, 1u);
}

TEST(RecordedGraph, LeavesOutWhatIsNotOfTheStep) {
  // Rows 0 and 1 of the step before, joined by row 2; rows 3 to 5 of this one.
  const Trace trace = trace_of({{0, 2, 0, 100},
                                {1, 3, 0, 100},
                                {2, kNoIndex, kAbsent, kAbsent, kAbsent, "one (all blocks)"},
                                {3, 2, 200, 300},
                                {4, kNoIndex, kAbsent, kAbsent, kAbsent, "barrier"},
                                {5, 3, 300, 400}},
                               {{0, 2}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
  Result<StepTasks> tasks = StepTasks::create(trace, {.begin_ns = 150, .end_ns = 500});
  ASSERT_TRUE(tasks.has_value());
  const RecordedGraph graph = recorded(trace, *tasks);
  ASSERT_EQ(graph.graph.task_count(), 3u);
  EXPECT_EQ(graph.graph.edge_count(), 2u);
  EXPECT_EQ(graph.dummy_count, 1u);
  EXPECT_FALSE(graph.is_order_recorded);
}

TEST(RecordedGraph, IsInTheOrderOfIdsOrElseOfStarts) {
  const std::vector<Row> rows = {{9, 2, 0, 100}, {3, 3, 200, 300}, {5, 4, 150, 300}};
  const Trace by_id = trace_of(rows, {});
  const StepTasks tasks = all_tasks(by_id);
  EXPECT_EQ(recorded(by_id, tasks).task_of, (std::vector<uint32_t>{2, 1, 0}));
  // 9 must come before 3: ids are not the order of submission.
  const Trace by_start = trace_of(rows, {{0, 1}});
  const StepTasks other_tasks = all_tasks(by_start);
  EXPECT_EQ(recorded(by_start, other_tasks).task_of, (std::vector<uint32_t>{0, 1, 2}));
}

TEST(RecordedGraph, ScalesKernels) {
  const Trace trace = trace_of({{0, 2, 0, 100, 0, "a"}, {1, 3, 0, 100, 1, "b"}}, {});
  const StepTasks tasks = all_tasks(trace);
  std::vector<double> scale(trace.names.size(), 1.0);
  scale[trace.names.find("b")] = 2.5;
  const RecordedGraph graph = recorded(trace, tasks, {.kernel_scale = scale});
  EXPECT_EQ(graph.graph.task(0).vector.run_ns, 100);
  EXPECT_EQ(graph.graph.task(1).vector.run_ns, 250);
}

TEST(RecordedGraph, NamesACircle) {
  const Trace trace = trace_of({{0, 2, 0, 100, 0}, {1, 3, 0, 100, 1}}, {{0, 1}, {1, 0}});
  const StepTasks tasks = all_tasks(trace);
  const Result<RecordedGraph> graph = make_recorded_graph(trace, tasks);
  ASSERT_FALSE(graph.has_value());
  EXPECT_NE(graph.error().message.find("wait for each other"), std::string::npos);
}

TEST(RecordedCores, AreClustersWhereTheyDivide) {
  const Trace trace = trace_of({{0, 2, 0, 100}}, {});
  const StepTasks tasks = all_tasks(trace);
  const RecordedCores cores = recorded_cores(tasks);
  EXPECT_EQ(cores.cube_count, 2u);
  EXPECT_EQ(cores.vector_count, 4u);
  EXPECT_EQ(cores.vector_cores(), 2u);
  EXPECT_EQ((RecordedCores{.cube_count = 2, .vector_count = 5}.vector_cores()), 0u);
}

}  // namespace
}  // namespace gapless
