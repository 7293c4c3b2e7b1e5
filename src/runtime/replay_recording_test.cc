// SPDX-License-Identifier: Apache-2.0
//
// What a recording of a replay holds: read back from the file and compared with the graph.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "gapless/trace.h"
#include "runtime/replay.h"
#include "runtime/test_graphs.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

constexpr std::array<TaskTime, kTaskTimeCount> kAllTimes = {
    TaskTime::kSubmit, TaskTime::kReady, TaskTime::kDispatch, TaskTime::kReceive,
    TaskTime::kStart,  TaskTime::kEnd,   TaskTime::kFinish};

// Scalars: a MeetingPoint.
void meet_kernel(TaskContext& context) { object_at<MeetingPoint>(context, 0).meet(); }

// Scalars: a CpuDevice. Goes on when the other worker of two looks for work.
void wait_for_searching_kernel(TaskContext& context) {
  const CpuDevice& device = object_at<CpuDevice>(context, 0);
  const Worker& other = device.worker(1 - context.worker_index());
  SpinWait wait;
  while (other.activity.load() != Activity::kSearching) wait.poll();
}

class ReplayRecordingTest : public ::testing::Test {
 protected:
  ~ReplayRecordingTest() override { stop_recording(); }

  void start() {
    RecorderOptions options;
    options.path = directory_.path("replay.gapless");
    ASSERT_TRUE(start_recording(options)) << recording_error();
  }
  // Ends the recording. Rows are the tasks in the order of their numbers: those of a step together,
  // in the order of the graph, the blocks of one task in a row.
  void stop() {
    EXPECT_EQ(stop_recording().dropped_count, 0u);
    trace_ = must(read_trace_file(directory_.path("replay.gapless")));
    rows_.clear();
    for (uint32_t row = 0; row < trace_.tasks.size(); ++row) rows_.push_back(row);
    std::sort(rows_.begin(), rows_.end(),
              [this](uint32_t a, uint32_t b) { return trace_.tasks.id[a] < trace_.tasks.id[b]; });
    for (const Finding& finding : trace_.findings) {
      EXPECT_EQ(finding.severity, Severity::kInfo) << finding.code << ": " << finding.text;
    }
  }
  void record(Replay& replay, int step_count) {
    start();
    for (int step = 0; step < step_count; ++step) must(replay.run());
    stop();
  }

  int64_t time(size_t task, TaskTime which) const { return trace_.tasks.at(which)[rows_[task]]; }
  std::string kernel(size_t task) const {
    const uint32_t name = trace_.tasks.kernel[rows_[task]];
    return name == kNoIndex ? "" : std::string(trace_.names[name]);
  }
  std::vector<int64_t> in_order(const std::vector<int64_t>& column) const {
    std::vector<int64_t> sorted;
    for (const uint32_t row : rows_) sorted.push_back(column.at(row));
    return sorted;
  }
  std::vector<int64_t> bytes() const { return in_order(trace_.tasks.bytes); }
  std::vector<int64_t> flops() const { return in_order(trace_.tasks.flops); }
  const Lane& lane(size_t task) const { return trace_.lanes[trace_.tasks.lane[rows_[task]]]; }
  void expect_seven_times(size_t task) const {
    for (const TaskTime which : kAllTimes) {
      EXPECT_NE(time(task, which), kAbsent) << task << " has no " << task_time_name(which);
    }
    for (size_t i = 1; i < kAllTimes.size(); ++i) {
      EXPECT_LE(time(task, kAllTimes[i - 1]), time(task, kAllTimes[i]))
          << task << ": " << task_time_name(kAllTimes[i - 1]) << " after "
          << task_time_name(kAllTimes[i]);
    }
  }

  // (producer, consumer, kind), both as positions in rows_.
  using EdgeSet = std::multiset<std::tuple<size_t, size_t, EdgeKind>>;
  EdgeSet recorded_edges() const {
    std::vector<size_t> position(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) position[rows_[i]] = i;
    EdgeSet edges;
    for (size_t i = 0; i < trace_.edges.size(); ++i) {
      edges.emplace(position[trace_.edges.producer[i]], position[trace_.edges.consumer[i]],
                    static_cast<EdgeKind>(trace_.edges.kind[i]));
    }
    return edges;
  }
  // What they must be for a graph whose tasks have one block each.
  static EdgeSet edges_of_steps(const Graph& graph, size_t step_count) {
    EdgeSet edges;
    for (size_t step = 0; step < step_count; ++step) {
      const size_t base = step * graph.task_count();
      for (const GraphEdge& edge : edges_of(graph)) {
        edges.emplace(base + edge.producer, base + edge.consumer, edge.kind);
      }
    }
    return edges;
  }
  void expect_producers_end_first() const {
    for (const auto& [producer, consumer, kind] : recorded_edges()) {
      EXPECT_LE(time(producer, TaskTime::kEnd), time(consumer, TaskTime::kStart));
    }
  }
  // Rows of spans with this name.
  std::vector<size_t> spans_named(std::string_view name) const {
    std::vector<size_t> spans;
    for (size_t i = 0; i < trace_.spans.size(); ++i) {
      if (trace_.names[trace_.spans.name[i]] == name) spans.push_back(i);
    }
    return spans;
  }

  TemporaryDirectory directory_;
  Trace trace_;
  std::vector<uint32_t> rows_;
};

TEST_F(ReplayRecordingTest, EveryTaskHasItsSevenTimesInOrder) {
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
    record(replay, 3);
    ASSERT_EQ(rows_.size(), 12u);
    for (size_t task = 0; task < rows_.size(); ++task) expect_seven_times(task);
  }
}

TEST_F(ReplayRecordingTest, TasksOfAllStepsHaveNumbersOfTheirOwn) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Replay first = must(Replay::prepare(*device, make_diamond(journal)));
  Replay second = must(Replay::prepare(*device, make_chain(journal, 3)));
  start();
  for (int step = 0; step < 3; ++step) {
    must(first.run());
    must(second.run());
  }
  stop();
  const std::set<uint64_t> ids(trace_.tasks.id.begin(), trace_.tasks.id.end());
  EXPECT_EQ(ids.size(), 3u * (4 + 3));
  EXPECT_EQ(trace_.tasks.size(), 3u * (4 + 3));
}

TEST_F(ReplayRecordingTest, TasksRunOnLanesOfWorkersUnderTheirKernelsNames) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  MeetingPoint point(2);
  TestGraph graph;
  graph.add({.name = "left", .run = meet_kernel, .scalars = {pointer_to(point)}});
  graph.add({.name = "right", .run = meet_kernel, .scalars = {pointer_to(point)}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 1);
  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(kernel(0), "left");
  EXPECT_EQ(kernel(1), "right");
  for (const size_t task : {0, 1}) EXPECT_EQ(lane(task).kind, LaneKind::kWorker);
  const std::set<std::string> names = {lane(0).name, lane(1).name};
  EXPECT_EQ(names, (std::set<std::string>{"worker 0", "worker 1"})) << "they met, so on both";
  EXPECT_EQ(trace_.devices[lane(0).device].name, "cpu");
}

TEST_F(ReplayRecordingTest, EdgesAreThoseOfTheGraphWithTheirKinds) {
  std::array<int64_t, 8> memory = {};
  TestGraph graph;
  const BufferId x = graph.add_buffer(
      {.name = "x", .kind = BufferKind::kExternal, .bytes = 64, .data = memory.data()});
  const View whole = vector_view(x, 8);
  const TaskId writer = graph.add({.name = "t", .run = nullptr, .arguments = {out(whole)}});
  graph.add({.name = "t", .run = nullptr, .arguments = {in(slice(whole, 0, 0, 4))}});
  graph.add({.name = "t", .run = nullptr, .arguments = {in(slice(whole, 0, 4, 4))}});
  graph.add({.name = "t", .run = nullptr, .arguments = {out(whole)}});
  graph.add({.name = "t", .run = nullptr, .after = {writer}});
  const Graph made = graph.finish();
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Replay replay = must(Replay::prepare(*device, made));
    record(replay, 2);
    const EdgeSet expected = edges_of_steps(made, 2);
    EXPECT_EQ(expected.size(), 2u * 5u);
    EXPECT_EQ(expected.count({0, 1, EdgeKind::kData}), 1u);
    EXPECT_EQ(expected.count({1, 3, EdgeKind::kOrder}), 1u);
    EXPECT_EQ(recorded_edges(), expected);
    expect_producers_end_first();
  }
}

// Two independent pairs of tasks whose intermediates must share memory in a small arena.
TEST_F(ReplayRecordingTest, LifetimeEdgesAreRecorded) {
  TestGraph graph;
  for (int i = 0; i < 2; ++i) {
    const BufferId between = graph.add_buffer({.name = "between", .bytes = 64});
    graph.add({.name = "t", .run = nullptr, .arguments = {out(vector_view(between, 8))}});
    graph.add({.name = "t", .run = nullptr, .arguments = {in(vector_view(between, 8))}});
  }
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Replay replay = must(Replay::prepare(*device, graph.finish(),
                                       {.memory = {.arena_bytes = 64, .may_add_edges = true}}));
  record(replay, 1);
  const EdgeSet edges = recorded_edges();
  EXPECT_EQ(edges.size(), 3u);
  EXPECT_EQ(edges.count({1, 2, EdgeKind::kLifetime}), 1u);
  expect_producers_end_first();
}

TEST_F(ReplayRecordingTest, JoinsOverManyTasksHaveAllTheirEdges) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  TestGraph graph;
  std::vector<TaskId> last;
  for (int layer = 0; layer < 3; ++layer) {
    std::vector<TaskId> present;
    for (int i = 0; i < 10; ++i) {
      present.push_back(graph.add({.scalars = note(journal, layer), .after = last}));
    }
    last = present;
  }
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 2);
  ASSERT_EQ(rows_.size(), 60u);
  for (size_t task = 0; task < rows_.size(); ++task) expect_seven_times(task);
  EXPECT_EQ(recorded_edges(), edges_of_steps(replay.graph(), 2));
  expect_producers_end_first();
}

TEST_F(ReplayRecordingTest, EveryBlockHasARowOfItsOwn) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  TestGraph graph;
  const TaskId many = graph.add(
      {.name = "many", .run = note_kernel, .scalars = note(journal, 1), .block_count = 3});
  graph.add({.name = "two",
             .run = note_kernel,
             .scalars = note(journal, 2),
             .after = {many},
             .block_count = 2,
             .gang = true});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 2);
  // Three blocks and their join, two blocks and theirs.
  ASSERT_EQ(rows_.size(), 2u * (4 + 3));
  EdgeSet expected;
  for (const size_t base : {0, 7}) {
    for (size_t block = 0; block < 3; ++block) {
      EXPECT_EQ(kernel(base + block), "many");
      expect_seven_times(base + block);
      expected.emplace(base + block, base + 3, EdgeKind::kOrder);
    }
    EXPECT_EQ(kernel(base + 3), "many (all blocks)");
    EXPECT_EQ(time(base + 3, TaskTime::kStart), kAbsent);
    for (size_t block = 4; block < 6; ++block) {
      EXPECT_EQ(kernel(base + block), "two");
      expect_seven_times(base + block);
      EXPECT_LE(time(base + 3, TaskTime::kFinish), time(base + block, TaskTime::kStart));
      expected.emplace(base + 3, base + block, EdgeKind::kOrder);
      expected.emplace(base + block, base + 6, EdgeKind::kOrder);
    }
    EXPECT_NE(lane(base + 4).name, lane(base + 5).name) << "a gang takes a worker a block";
  }
  EXPECT_EQ(recorded_edges(), expected);
}

TEST_F(ReplayRecordingTest, EveryPartOfAMixedTaskIsOnItsCoresLane) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  MeetingPoint point(3);
  TestGraph graph;
  graph.add({.name = "mixed",
             .run = meet_kernel,
             .scalars = {pointer_to(point)},
             .core = CoreKind::kMixed,
             .block_count = 2});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 1);
  ASSERT_EQ(rows_.size(), 7u) << "two blocks of three parts, and the join";
  for (const size_t block : {0, 3}) {
    EXPECT_EQ(lane(block).name, "worker 0 (cube of cluster 0)");
    EXPECT_EQ(lane(block).kind, LaneKind::kCubeCore);
    EXPECT_EQ(lane(block + 1).name, "worker 1 (vector 0 of cluster 0)");
    EXPECT_EQ(lane(block + 2).name, "worker 2 (vector 1 of cluster 0)");
    EXPECT_EQ(lane(block + 2).kind, LaneKind::kVectorCore);
  }
  for (size_t task = 0; task < 6; ++task) expect_seven_times(task);
}

TEST_F(ReplayRecordingTest, ASkippedTaskHasNoStart) {
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    const int64_t never = 0;
    TestGraph graph;
    const TaskId first = graph.add({.scalars = note(journal, 0)});
    const TaskId skipped =
        graph.add({.scalars = note(journal, 1), .after = {first}, .predicate = {&never}});
    graph.add({.scalars = note(journal, 2), .after = {skipped}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    record(replay, 1);
    ASSERT_EQ(rows_.size(), 3u);
    expect_seven_times(0);
    expect_seven_times(2);
    EXPECT_EQ(time(1, TaskTime::kStart), kAbsent);
    EXPECT_EQ(time(1, TaskTime::kEnd), kAbsent);
    EXPECT_NE(time(1, TaskTime::kSubmit), kAbsent);
    EXPECT_LE(time(1, TaskTime::kSubmit), time(1, TaskTime::kReady));
    EXPECT_LE(time(1, TaskTime::kReady), time(1, TaskTime::kFinish));
    EXPECT_LE(time(0, TaskTime::kEnd), time(1, TaskTime::kReady));
    EXPECT_EQ(recorded_edges(), edges_of_steps(replay.graph(), 1));
  }
}

TEST_F(ReplayRecordingTest, ATaskAfterAFailedOneHasNoStart) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  const int64_t must_fail = 1;
  TestGraph graph;
  const TaskId bad = graph.add(
      {.name = "bad", .run = note_or_fail_kernel, .scalars = note_or_fail(journal, 0, must_fail)});
  graph.add({.scalars = note(journal, 1), .after = {bad}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  start();
  EXPECT_FALSE(replay.run().has_value());
  stop();
  ASSERT_EQ(rows_.size(), 2u);
  expect_seven_times(0);
  EXPECT_EQ(time(1, TaskTime::kStart), kAbsent);
}

TEST_F(ReplayRecordingTest, EveryStepIsASpanOfTheOrchestrator) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
  must(replay.run());
  record(replay, 3);
  const std::vector<size_t> steps = spans_named("step");
  ASSERT_EQ(steps.size(), 3u);
  ASSERT_EQ(rows_.size(), 12u) << "a step before the recording leaves no trace";
  for (size_t i = 0; i < 3; ++i) {
    const size_t span = steps[i];
    EXPECT_EQ(trace_.spans.value[span], i + 2) << "the first step was not recorded";
    EXPECT_EQ(trace_.lanes[trace_.spans.lane[span]].name, "orchestrator");
    EXPECT_EQ(trace_.lanes[trace_.spans.lane[span]].kind, LaneKind::kOrchestrator);
    for (size_t task = 4 * i; task < 4 * i + 4; ++task) {
      EXPECT_LE(trace_.spans.begin_ns[span], time(task, TaskTime::kSubmit));
      EXPECT_GE(trace_.spans.end_ns[span], time(task, TaskTime::kFinish));
    }
  }
}

// The kernel ends when the other worker has begun to search; some of ten steps catch it at it.
TEST_F(ReplayRecordingTest, AWorkerThatFindsNothingSearches) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  TestGraph graph;
  graph.add({.name = "wait", .run = wait_for_searching_kernel, .scalars = {pointer_to(*device)}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 10);
  const std::vector<size_t> searches = spans_named("search");
  ASSERT_FALSE(searches.empty());
  for (const size_t span : searches) {
    EXPECT_EQ(trace_.lanes[trace_.spans.lane[span]].kind, LaneKind::kWorker);
  }
}

TEST_F(ReplayRecordingTest, TasksHaveTheirCostsInEveryStep) {
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    TestGraph graph;
    const TaskId first =
        graph.add({.scalars = note(journal, 0), .cost = {.bytes = 1000, .flops = 2000}});
    const TaskId unknown = graph.add({.scalars = note(journal, 1), .after = {first}});
    graph.add({.scalars = note(journal, 2), .after = {unknown}, .cost = {.flops = 5}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    record(replay, 2);
    ASSERT_EQ(rows_.size(), 6u);
    EXPECT_EQ(bytes(), (std::vector<int64_t>{1000, kAbsent, 0, 1000, kAbsent, 0}));
    EXPECT_EQ(flops(), (std::vector<int64_t>{2000, kAbsent, 5, 2000, kAbsent, 5}));
  }
}

TEST_F(ReplayRecordingTest, TheCostOfATaskIsDividedAmongItsBlocks) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  TestGraph graph;
  const TaskId many = graph.add({.name = "many",
                                 .scalars = note(journal, 1),
                                 .block_count = 3,
                                 .cost = {.bytes = 11, .flops = 2}});
  graph.add({.name = "gang",
             .scalars = note(journal, 2),
             .after = {many},
             .block_count = 2,
             .gang = true,
             .cost = {.bytes = 7, .flops = 8}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 1);
  // Three blocks and their join, two blocks and theirs.
  EXPECT_EQ(bytes(), (std::vector<int64_t>{4, 4, 3, kAbsent, 4, 3, kAbsent}));
  EXPECT_EQ(flops(), (std::vector<int64_t>{1, 1, 0, kAbsent, 4, 4, kAbsent}));
}

TEST_F(ReplayRecordingTest, TheCostOfAMixedTaskIsDividedAmongItsCores) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  MeetingPoint point(3);
  TestGraph graph;
  graph.add({.name = "mixed",
             .run = meet_kernel,
             .scalars = {pointer_to(point)},
             .core = CoreKind::kMixed,
             .block_count = 2,
             .cost = {.bytes = 6001}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  record(replay, 1);
  EXPECT_EQ(bytes(), (std::vector<int64_t>{1001, 1000, 1000, 1000, 1000, 1000, kAbsent}));
}

TEST_F(ReplayRecordingTest, WithoutCostsThereAreNoColumnsOfThem) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
  record(replay, 1);
  EXPECT_TRUE(trace_.tasks.bytes.empty());
  EXPECT_TRUE(trace_.tasks.flops.empty());
}

}  // namespace
}  // namespace gapless
