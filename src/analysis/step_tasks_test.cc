// SPDX-License-Identifier: Apache-2.0
//
// Hand-made traces whose graph can be read off, and random ones whose producers are looked up by
// walking the trace's rows one by one.

#include "analysis/step_tasks.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct TestTask {
  uint32_t lane = 0;
  int64_t start_ns = kAbsent;
  int64_t end_ns = kAbsent;
};

// Row i is task i.
Trace make_trace(const std::vector<LaneKind>& kinds, const std::vector<TestTask>& tasks,
                 const std::vector<std::pair<uint32_t, uint32_t>>& edges = {}) {
  Trace trace = TraceBuilder("test").finish();
  trace.devices.push_back({.name = "device"});
  for (const LaneKind kind : kinds) trace.lanes.push_back({.name = "lane", .kind = kind});
  for (size_t i = 0; i < tasks.size(); ++i) {
    trace.tasks.id.push_back(i);
    trace.tasks.lane.push_back(tasks[i].lane);
    trace.tasks.kernel.push_back(trace.names.intern("kernel " + std::to_string(i % 3)));
    for (std::vector<int64_t>& times : trace.tasks.time_ns) times.push_back(kAbsent);
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kStart)].back() = tasks[i].start_ns;
    trace.tasks.time_ns[static_cast<size_t>(TaskTime::kEnd)].back() = tasks[i].end_ns;
  }
  for (const auto& [producer, consumer] : edges) {
    trace.edges.producer.push_back(producer);
    trace.edges.consumer.push_back(consumer);
    trace.edges.kind.push_back(0);
  }
  return trace;
}

std::vector<LaneKind> workers(size_t count) {
  return std::vector<LaneKind>(count, LaneKind::kWorker);
}

StepTasks tasks_of(const Trace& trace, TimeRange window) {
  Result<StepTasks> tasks = StepTasks::create(trace, window);
  EXPECT_TRUE(tasks) << tasks.error().message;
  return std::move(tasks).value();
}

std::string refusal(const Trace& trace, TimeRange window, std::vector<uint32_t> lanes = {}) {
  const Result<StepTasks> tasks = StepTasks::create(trace, window, lanes);
  return tasks ? "accepted" : tasks.error().message;
}

std::vector<uint32_t> list(std::span<const uint32_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

using Numbers = std::vector<uint32_t>;
constexpr TestTask kDidNotRun = {.lane = kNoIndex};

TEST(StepTasks, AreInTheOrderOfTheirStart) {
  const Trace trace = make_trace({LaneKind::kCubeCore, LaneKind::kVectorCore, LaneKind::kSm},
                                 {{2, 30, 40}, {0, 10, 20}, {1, 15, 25}, {0, 20, 22}});
  const StepTasks tasks = tasks_of(trace, {0, 50});
  ASSERT_EQ(tasks.task_count(), 4u);
  const Numbers rows = {1, 2, 3, 0};
  const Numbers cores = {0, 1, 0, 2};
  for (uint32_t task = 0; task < 4; ++task) {
    EXPECT_EQ(tasks.row(task), rows[task]);
    EXPECT_EQ(tasks.core(task), cores[task]);
    EXPECT_EQ(tasks.kernel(task), trace.tasks.kernel[rows[task]]);
  }
  EXPECT_EQ(tasks.start_ns(1), 15);
  EXPECT_EQ(tasks.end_ns(1), 25);
  EXPECT_EQ(list(tasks.tasks_of_core(0)), Numbers({0, 2}));
  EXPECT_EQ(list(tasks.tasks_of_core(2)), Numbers({3}));
  EXPECT_EQ(tasks.core_class(0), CoreClass::kCube);
  EXPECT_EQ(tasks.task_class(1), CoreClass::kVector);
  EXPECT_EQ(tasks.core_class(2), CoreClass::kAny);
  EXPECT_EQ(core_class_name(CoreClass::kCube), "cube");
}

TEST(StepTasks, KnowProducersAndConsumersOnce) {
  const Trace trace =
      make_trace(workers(1), {{0, 0, 1}, {0, 2, 3}, {0, 4, 5}}, {{1, 2}, {0, 2}, {1, 2}, {0, 1}});
  const StepTasks tasks = tasks_of(trace, {0, 5});
  EXPECT_EQ(list(tasks.producers(2)), Numbers({0, 1}));
  EXPECT_EQ(list(tasks.consumers(0)), Numbers({1, 2}));
  EXPECT_TRUE(tasks.producers(0).empty());
  EXPECT_EQ(tasks.edge_count(), 3u);
}

TEST(StepTasks, LookThroughJoinsAndSkippedTasks) {
  // Two blocks, their join (2), a skipped task (3) that waits for it, and one that waits for both.
  const Trace trace =
      make_trace(workers(2), {{0, 0, 10}, {1, 0, 12}, kDidNotRun, kDidNotRun, {0, 20, 30}},
                 {{0, 2}, {1, 2}, {2, 3}, {3, 4}, {2, 4}, {0, 4}});
  const StepTasks tasks = tasks_of(trace, {0, 30});
  ASSERT_EQ(tasks.task_count(), 3u);
  EXPECT_EQ(list(tasks.producers(2)), Numbers({0, 1}));
  EXPECT_EQ(tasks.edge_count(), 2u);
  EXPECT_EQ(tasks.thinned_join_count(), 0u);
}

TEST(StepTasks, SurviveACircleOfRowsThatDidNotRun) {
  const Trace trace = make_trace(workers(1), {{0, 0, 10}, kDidNotRun, kDidNotRun, {0, 20, 30}},
                                 {{0, 1}, {1, 2}, {2, 1}, {2, 3}, {1, 3}});
  const StepTasks tasks = tasks_of(trace, {0, 30});
  EXPECT_EQ(list(tasks.producers(1)), Numbers({0}));
}

TEST(StepTasks, KeepTheBlocksOfAJoinThatEndedLast) {
  // Block i ends at 1000 - i, so the first 64 rows are the last to end.
  std::vector<TestTask> rows;
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (uint32_t i = 0; i < 100; ++i) {
    rows.push_back({i, 0, 1000 - int64_t{i}});
    edges.push_back({i, 100});
  }
  rows.push_back(kDidNotRun);
  rows.push_back({0, 2000, 2001});
  edges.push_back({100, 101});
  const Trace trace = make_trace(workers(100), rows, edges);
  const StepTasks tasks = tasks_of(trace, {0, 3000});
  const std::span<const uint32_t> producers = tasks.producers(100);
  ASSERT_EQ(producers.size(), StepTasks::kJoinProducers);
  for (const uint32_t producer : producers) EXPECT_LT(tasks.row(producer), 64u);
  EXPECT_EQ(tasks.thinned_join_count(), 1u);
}

TEST(StepTasks, KeepFewerBlocksWhereThereWouldBeTooManyEdges) {
  // 64 blocks before 300,000 tasks would be 19 million edges.
  constexpr uint32_t kConsumers = 300'000;
  std::vector<TestTask> rows;
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (uint32_t i = 0; i < 64; ++i) {
    rows.push_back({i, 0, 10 + int64_t{i}});
    edges.push_back({i, 64});
  }
  rows.push_back(kDidNotRun);
  for (uint32_t i = 0; i < kConsumers; ++i) {
    rows.push_back({0, 100 + int64_t{i}, 101 + int64_t{i}});
    edges.push_back({64, 65 + i});
  }
  const StepTasks tasks = tasks_of(make_trace(workers(64), rows, edges), {0, 1'000'000});
  EXPECT_EQ(tasks.edge_count(), uint64_t{kConsumers} * 32);
  for (const uint32_t producer : tasks.producers(64)) EXPECT_GE(tasks.row(producer), 32u);
  EXPECT_EQ(tasks.thinned_join_count(), 1u);
}

TEST(StepTasks, AreCutAtTheWindow) {
  const Trace trace = make_trace(workers(3), {{0, 0, 10}, {0, 20, 60}, {1, 5, 100}, {2, 9, 10}},
                                 {{0, 1}, {3, 1}, {2, 1}});
  const StepTasks tasks = tasks_of(trace, {10, 50});
  ASSERT_EQ(tasks.task_count(), 2u);
  EXPECT_EQ(tasks.start_ns(0), 10);
  EXPECT_EQ(tasks.end_ns(0), 50);
  EXPECT_EQ(tasks.end_ns(1), 50);
  EXPECT_EQ(tasks.cut_count(), 2u);
  // Rows 0 and 3 are over before the window begins.
  EXPECT_EQ(list(tasks.producers(1)), Numbers({0}));
  EXPECT_EQ(tasks.outside_count(), 2u);
  EXPECT_EQ(tasks.core_count(), 3u);
}

TEST(StepTasks, CountEdgesFromOutsideThroughJoins) {
  const Trace trace = make_trace(workers(1), {{0, 0, 10}, kDidNotRun, {0, 30, 40}, {0, 50, 60}},
                                 {{0, 1}, {1, 2}, {1, 3}, {2, 3}});
  const StepTasks tasks = tasks_of(trace, {20, 60});
  EXPECT_EQ(tasks.edge_count(), 1u);
  EXPECT_EQ(tasks.outside_count(), 2u);
}

TEST(StepTasks, LeaveOutWhatHasNoEnd) {
  const Trace trace = make_trace(workers(2), {{0, 0, kAbsent}, {1, 5, 10}}, {{0, 1}});
  const StepTasks tasks = tasks_of(trace, {0, 10});
  EXPECT_EQ(tasks.task_count(), 1u);
  EXPECT_EQ(tasks.unfinished_count(), 1u);
  EXPECT_EQ(tasks.outside_count(), 1u);
}

TEST(StepTasks, DropEdgesThatGoBackInTime) {
  const Trace trace =
      make_trace(workers(2), {{0, 0, 10}, {1, 5, 15}, {0, 20, 30}}, {{2, 0}, {0, 0}, {1, 2}});
  const StepTasks tasks = tasks_of(trace, {0, 30});
  EXPECT_EQ(tasks.edge_count(), 1u);
  EXPECT_EQ(tasks.backward_count(), 2u);
}

TEST(StepTasks, KnowWhichTimesAreThere) {
  Trace trace = make_trace(workers(1), {{0, 0, 10}, {0, 10, 20}});
  trace.tasks.time_ns[static_cast<size_t>(TaskTime::kDispatch)] = {-5, 3};
  trace.tasks.time_ns[static_cast<size_t>(TaskTime::kFinish)][1] = 22;
  const StepTasks tasks = tasks_of(trace, {0, 20});
  EXPECT_TRUE(tasks.has_time(TaskTime::kStart));
  EXPECT_TRUE(tasks.has_time(TaskTime::kDispatch));
  EXPECT_FALSE(tasks.has_time(TaskTime::kFinish));
  EXPECT_EQ(tasks.absent_count(TaskTime::kFinish), 1u);
  EXPECT_EQ(tasks.absent_count(TaskTime::kReady), 2u);
  EXPECT_EQ(tasks.time_ns(0, TaskTime::kDispatch), -5);
  EXPECT_EQ(tasks.time_ns(0, TaskTime::kFinish), kAbsent);
}

TEST(StepTasks, TakeTheLanesThatAreNamed) {
  const Trace trace = make_trace(workers(3), {{0, 0, 10}, {1, 0, 10}, {2, 10, 20}}, {{0, 2}});
  const std::vector<uint32_t> lanes = {2, 1};
  const Result<StepTasks> tasks = StepTasks::create(trace, {0, 20}, lanes);
  ASSERT_TRUE(tasks);
  EXPECT_EQ(tasks->task_count(), 2u);
  EXPECT_EQ(tasks->lane(0), 2u);
  EXPECT_EQ(tasks->core(0), 1u);
  EXPECT_EQ(tasks->outside_count(), 1u);
}

TEST(StepTasks, RefuseWhatCannotBe) {
  const Trace trace = make_trace(workers(2), {{0, 0, 10}, {0, 9, 12}});
  EXPECT_EQ(refusal(trace, {5, 5}), "the window from 5 to 5 ns is empty");
  EXPECT_EQ(refusal(trace, {0, 9}, {7}), "lane 7 of a trace with 2 lanes");
  EXPECT_EQ(refusal(trace, {0, 9}, {1, 1}), "lane 1 is named twice");
  EXPECT_EQ(refusal(trace, {-kMaxTimeNs, kMaxTimeNs}).find("2 lanes x"), 0u);
  EXPECT_EQ(
      refusal(trace, {0, 20}),
      "tasks overlap on lane 0 (\"lane\"): kernel 0 of 0 to 10 ns and kernel 1 of 9 to 12 ns");
  EXPECT_EQ(refusal(trace, {0, 9}), "accepted");
}

TEST(StepTasks, AcceptTasksOfNoLengthThatTouch) {
  const Trace trace =
      make_trace(workers(1), {{0, 10, 20}, {0, 10, 10}, {0, 20, 20}, {0, 20, 25}}, {{1, 0}});
  const StepTasks tasks = tasks_of(trace, {0, 30});
  ASSERT_EQ(tasks.task_count(), 4u);
  EXPECT_EQ(tasks.row(0), 1u);
  EXPECT_EQ(list(tasks.producers(1)), Numbers({0}));
}

// All rows that ran and that this one waits for, by the trace's edges alone.
void find_producers(const Trace& trace, uint32_t row, std::set<uint32_t>& seen,
                    std::set<uint32_t>& producers) {
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    const uint32_t producer = trace.edges.producer[edge];
    if (trace.edges.consumer[edge] != row) continue;
    if (trace.tasks.at(TaskTime::kStart)[producer] != kAbsent) {
      producers.insert(producer);
    } else if (seen.insert(producer).second) {
      find_producers(trace, producer, seen, producers);
    }
  }
}

TEST(StepTasks, HaveTheProducersThatAWalkFinds) {
  std::mt19937 random(11);
  for (uint32_t round = 0; round < test_effort(300); ++round) {
    const uint32_t row_count = 1 + static_cast<uint32_t>(random() % 40);
    std::vector<TestTask> rows;
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t row = 0; row < row_count; ++row) {
      const bool ran = random() % 3 > 0;
      rows.push_back(ran ? TestTask{row % 5, int64_t{row} * 10, int64_t{row} * 10 + 15}
                         : kDidNotRun);
      for (uint32_t i = 0; row > 0 && i < random() % 4; ++i) {
        edges.push_back({static_cast<uint32_t>(random() % row), row});
      }
    }
    std::shuffle(edges.begin(), edges.end(), random);
    const Trace trace = make_trace(workers(5), rows, edges);
    const StepTasks tasks = tasks_of(trace, {0, 1000});
    uint64_t consumer_count = 0;
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      std::set<uint32_t> seen;
      std::set<uint32_t> expected;
      find_producers(trace, tasks.row(task), seen, expected);
      std::set<uint32_t> found;
      for (const uint32_t producer : tasks.producers(task)) {
        EXPECT_LT(producer, task);
        found.insert(tasks.row(producer));
      }
      EXPECT_EQ(found, expected);
      EXPECT_EQ(found.size(), tasks.producers(task).size());
      for (const uint32_t consumer : tasks.consumers(task)) {
        const std::span<const uint32_t> producers = tasks.producers(consumer);
        EXPECT_TRUE(std::binary_search(producers.begin(), producers.end(), task));
        ++consumer_count;
      }
    }
    EXPECT_EQ(consumer_count, tasks.edge_count());
  }
}

}  // namespace
}  // namespace gapless
