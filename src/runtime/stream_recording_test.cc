// SPDX-License-Identifier: Apache-2.0
//
// What a recording holds of a stream, also of one that was open before it began and after it ended.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "gapless/trace.h"
#include "runtime/stream.h"
#include "runtime/stream_test_support.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

class StreamRecording : public testing::Test {
 protected:
  void start(const std::string& name = "trace") {
    ASSERT_TRUE(start_recording({.path = folder_.path(name)})) << recording_error();
  }
  Trace stop(const std::string& name = "trace") {
    stop_recording();
    return must(read_trace_file(folder_.path(name)));
  }
  void TearDown() override { stop_recording(); }

 private:
  TemporaryDirectory folder_;
};

std::string findings_of(const Trace& trace) {
  std::string text;
  for (const Finding& finding : trace.findings) text += finding.code + ": " + finding.text + "\n";
  return text;
}

std::string kernel_of(const Trace& trace, size_t row) {
  return std::string(trace.names[trace.tasks.kernel[row]]);
}

std::vector<size_t> rows_of(const Trace& trace, std::string_view kernel) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    if (kernel_of(trace, row) == kernel) rows.push_back(row);
  }
  return rows;
}

bool has_time(const Trace& trace, size_t row, TaskTime time) {
  return trace.tasks.at(time)[row] != kAbsent;
}

// All seven, none before the one that it follows.
void expect_all_times_in_order(const Trace& trace, size_t row) {
  SCOPED_TRACE(kernel_of(trace, row));
  for (int i = 0; i < kTaskTimeCount; ++i) {
    const TaskTime time = static_cast<TaskTime>(i);
    EXPECT_TRUE(has_time(trace, row, time)) << task_time_name(time) << " is missing";
    if (i == 0) continue;
    EXPECT_LE(trace.tasks.at(static_cast<TaskTime>(i - 1))[row], trace.tasks.at(time)[row])
        << task_time_name(time);
  }
}

// (producer's kernel, consumer's kernel, kind), sorted.
using NamedEdge = std::tuple<std::string, std::string, EdgeKind>;
std::vector<NamedEdge> edges_of(const Trace& trace) {
  std::vector<NamedEdge> edges;
  for (size_t i = 0; i < trace.edges.size(); ++i) {
    edges.emplace_back(kernel_of(trace, trace.edges.producer[i]),
                       kernel_of(trace, trace.edges.consumer[i]),
                       static_cast<EdgeKind>(trace.edges.kind[i]));
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

// How many spans of this name lie on lanes of this kind.
int64_t span_count(const Trace& trace, std::string_view name, LaneKind kind) {
  int64_t count = 0;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    if (trace.names[trace.spans.name[i]] != name) continue;
    if (trace.lanes[trace.spans.lane[i]].kind == kind) ++count;
  }
  return count;
}

TestTask named(const std::string& name, std::vector<Argument> arguments) {
  return {.name = name, .run = [](TaskContext&) {}, .arguments = std::move(arguments)};
}

TEST_F(StreamRecording, HoldsAllSevenTimesOfEachTask) {
  for (const int worker_count : {1, 2}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    start();
    {
      Numbers x(4, 0);
      TestStream stream(*device);
      const View xs = stream.share("x", x);
      for (int64_t i = 0; i < 100; ++i) stream.add(mix_task(slice(xs, 0, i % 4, 1), i));
      stream.wait();
    }
    const Trace trace = stop();
    ASSERT_EQ(trace.tasks.size(), 100u);
    for (size_t row = 0; row < trace.tasks.size(); ++row) {
      expect_all_times_in_order(trace, row);
      EXPECT_EQ(kernel_of(trace, row), "mix");
      EXPECT_EQ(trace.lanes[trace.tasks.lane[row]].kind, LaneKind::kWorker);
    }
    EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
  }
}

TEST_F(StreamRecording, HoldsEveryBlockAndEveryPartOfACluster) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  start();
  {
    TestStream stream(*device);
    const auto nothing = [](TaskContext&) {};
    stream.add({.name = "blocks", .run = nothing, .block_count = 5});
    stream.add({.name = "gang", .run = nothing, .block_count = 3, .gang = true});
    stream.add({.name = "mixed", .run = nothing, .core = CoreKind::kMixed, .block_count = 2});
    stream.wait();
  }
  const Trace trace = stop();
  EXPECT_EQ(rows_of(trace, "blocks").size(), 5u);
  EXPECT_EQ(rows_of(trace, "gang").size(), 3u);
  EXPECT_EQ(rows_of(trace, "mixed").size(), 6u);
  for (const char* kernel : {"blocks", "gang", "mixed"}) {
    for (const size_t row : rows_of(trace, kernel)) expect_all_times_in_order(trace, row);
    const std::vector<size_t> joins = rows_of(trace, std::string(kernel) + " (all blocks)");
    ASSERT_EQ(joins.size(), 1u);
    EXPECT_FALSE(has_time(trace, joins[0], TaskTime::kStart));
    for (const size_t row : rows_of(trace, kernel)) {
      EXPECT_LE(trace.tasks.at(TaskTime::kEnd)[row], trace.tasks.at(TaskTime::kFinish)[joins[0]]);
    }
  }
  EXPECT_EQ(trace.edges.size(), 5u + 3 + 6) << "from each part to its join";
  EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
}

// Edges grow with the sum of the blocks of two tasks, not with the product.
TEST_F(StreamRecording, JoinsTheBlocksOfATask) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  start();
  {
    Numbers x(1, 0);
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    TestTask first = named("first", {inout(xs)});
    first.block_count = 40;
    TestTask second = named("second", {inout(xs)});
    second.block_count = 30;
    stream.add(first);
    stream.add(second);
    stream.wait();
  }
  const Trace trace = stop();
  std::map<NamedEdge, int> counts;
  for (const NamedEdge& edge : edges_of(trace)) ++counts[edge];
  const std::map<NamedEdge, int> expected = {
      {{"first", "first (all blocks)", EdgeKind::kOrder}, 40},
      {{"first (all blocks)", "second", EdgeKind::kData}, 30},
      {{"second", "second (all blocks)", EdgeKind::kOrder}, 30},
  };
  EXPECT_EQ(counts, expected);
}

TEST_F(StreamRecording, HoldsEdgesWithTheirKinds) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  start();
  {
    Numbers x(1, 0), y(1, 0);
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    const View ys = stream.share("y", y);
    stream.add(named("write", {out(xs)}));
    const TaskId read = stream.add(named("read", {in(xs), out(ys)}));
    stream.add(named("overwrite", {out(xs)}));
    stream.add(named("write_again", {out(xs)}));
    TestTask last = named("last", {});
    last.after = {read};
    stream.add(last);
    stream.wait();
  }
  const Trace trace = stop();
  const std::vector<NamedEdge> expected = {
      {"overwrite", "write_again", EdgeKind::kOrder},
      {"read", "last", EdgeKind::kOrder},
      {"read", "overwrite", EdgeKind::kOrder},
      {"write", "read", EdgeKind::kData},
  };
  EXPECT_EQ(edges_of(trace), expected);
}

TEST_F(StreamRecording, ASkippedTaskIsReadyAndFinishedButNeverStarts) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  const int64_t never = 0;
  start();
  {
    TestStream stream(*device);
    TestTask task = named("skipped", {});
    task.predicate = {&never, Comparison::kNotEqual, 0};
    task.block_count = 2;
    stream.add(task);
    stream.wait();
  }
  const Trace trace = stop();
  ASSERT_EQ(trace.tasks.size(), 3u) << "two blocks and their join";
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    EXPECT_TRUE(has_time(trace, row, TaskTime::kSubmit));
    EXPECT_TRUE(has_time(trace, row, TaskTime::kReady));
    EXPECT_TRUE(has_time(trace, row, TaskTime::kFinish));
    EXPECT_FALSE(has_time(trace, row, TaskTime::kStart));
    EXPECT_FALSE(has_time(trace, row, TaskTime::kEnd));
  }
}

TEST_F(StreamRecording, TheOrchestratorShowsWhenItWaits) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.window_tasks = 2;
  start();
  {
    TestStream stream(*device, options);
    for (int i = 0; i < 10; ++i) stream.add(named("task", {}));
    stream.wait();
  }
  const Trace trace = stop();
  EXPECT_EQ(span_count(trace, "drain", LaneKind::kOrchestrator), 1);
  EXPECT_GE(span_count(trace, "wait for room", LaneKind::kOrchestrator), 4);
  EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
}

TEST_F(StreamRecording, AWorkerShowsWhenItSearches) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  start();
  {
    TestStream stream(*device);
    for (int i = 0; i < 20; ++i) {
      Gate gate;
      stream.add(open_task(gate));
      gate.wait();
    }
    stream.wait();
  }
  const Trace trace = stop();
  EXPECT_GE(span_count(trace, "search", LaneKind::kWorker), 1);
  EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
}

// ---- Recordings that begin or end while the stream is open.

TEST_F(StreamRecording, TasksFromBeforeItBeganAreAbsent) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  Gate started, may_end;
  Trace trace;
  {
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    TestTask before = start_and_wait(started, may_end);
    before.arguments = {inout(xs)};
    stream.add(before);
    stream.add(mix_task(xs, 1));
    started.wait();
    start();
    for (int i = 0; i < 10; ++i) stream.add(named("after", {inout(xs)}));
    may_end.open();
    stream.wait();
  }
  trace = stop();
  ASSERT_EQ(trace.tasks.size(), 10u);
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    EXPECT_EQ(kernel_of(trace, row), "after");
    expect_all_times_in_order(trace, row);
  }
  EXPECT_EQ(trace.edges.size(), 9u);
  EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
}

TEST_F(StreamRecording, TasksThatAreInFlightAtItsEndAreUnfinished) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  Gate started, may_end;
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  start();
  TestTask running = start_and_wait(started, may_end);
  running.arguments = {inout(xs)};
  stream.add(running);
  stream.add(named("waiting", {inout(xs)}));
  started.wait();
  const Trace trace = stop();
  may_end.open();
  EXPECT_EQ(stream.wait().run_count, 2u);
  ASSERT_EQ(trace.tasks.size(), 2u);
  const size_t first = rows_of(trace, "start_and_wait").at(0);
  const size_t second = rows_of(trace, "waiting").at(0);
  EXPECT_TRUE(has_time(trace, first, TaskTime::kStart));
  EXPECT_FALSE(has_time(trace, first, TaskTime::kFinish));
  EXPECT_TRUE(has_time(trace, second, TaskTime::kSubmit));
  EXPECT_FALSE(has_time(trace, second, TaskTime::kReady));
}

TEST_F(StreamRecording, TasksOfAnEarlierRecordingAreAbsentFromTheNext) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  Gate started, may_end;
  Trace trace;
  {
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    start("first");
    TestTask running = start_and_wait(started, may_end);
    running.arguments = {inout(xs)};
    stream.add(running);
    stream.add(named("waiting", {inout(xs)}));
    started.wait();
    stop("first");
    start("second");
    stream.add(named("later", {inout(xs)}));
    may_end.open();
    stream.wait();
  }
  trace = stop("second");
  ASSERT_EQ(trace.tasks.size(), 1u);
  EXPECT_EQ(kernel_of(trace, 0), "later");
  EXPECT_EQ(trace.edges.size(), 0u);
  EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
}

// Idle workers search when a recording ends and when the next begins: neither trace may hold half
// a span.
TEST_F(StreamRecording, ARecordingOfAnOpenStreamIsWithoutFindings) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  for (int round = 0; round < 10; ++round) {
    start();
    for (int i = 0; i < 20; ++i) {
      Gate gate;
      TestTask task = open_task(gate);
      task.arguments = {inout(xs)};
      stream.add(task);
      gate.wait();
    }
    stream.wait();
    const Trace trace = stop();
    ASSERT_EQ(trace.tasks.size(), 20u);
    for (size_t row = 0; row < trace.tasks.size(); ++row) expect_all_times_in_order(trace, row);
    ASSERT_TRUE(trace.findings.empty()) << findings_of(trace);
  }
}

// Costs of the rows of one kernel, the largest first.
std::vector<int64_t> costs_of(const Trace& trace, std::string_view kernel,
                              const std::vector<int64_t>& column) {
  std::vector<int64_t> costs;
  for (const size_t row : rows_of(trace, kernel)) costs.push_back(column.at(row));
  std::sort(costs.rbegin(), costs.rend());
  return costs;
}

TEST_F(StreamRecording, HoldsTheCostsOfTasksDividedAmongTheirParts) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  start();
  {
    TestStream stream(*device);
    TestTask one = named("one", {});
    one.cost = {.bytes = 1000, .flops = 2000};
    stream.add(one);
    stream.add(one);
    stream.add(named("unknown", {}));
    TestTask blocks = named("blocks", {});
    blocks.block_count = 3;
    blocks.cost = {.bytes = 11, .flops = 2};
    stream.add(blocks);
    TestTask mixed = named("mixed", {});
    mixed.core = CoreKind::kMixed;
    mixed.cost = {.flops = 3001};
    stream.add(mixed);
    stream.wait();
  }
  const Trace trace = stop();
  const std::vector<int64_t>& bytes = trace.tasks.bytes;
  const std::vector<int64_t>& flops = trace.tasks.flops;
  EXPECT_EQ(costs_of(trace, "one", bytes), (std::vector<int64_t>{1000, 1000}));
  EXPECT_EQ(costs_of(trace, "one", flops), (std::vector<int64_t>{2000, 2000}));
  EXPECT_EQ(costs_of(trace, "unknown", bytes), (std::vector<int64_t>{kAbsent}));
  EXPECT_EQ(costs_of(trace, "blocks", bytes), (std::vector<int64_t>{4, 4, 3}));
  EXPECT_EQ(costs_of(trace, "blocks", flops), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(costs_of(trace, "blocks (all blocks)", bytes), (std::vector<int64_t>{kAbsent}));
  EXPECT_EQ(costs_of(trace, "mixed", flops), (std::vector<int64_t>{1001, 1000, 1000}));
  EXPECT_TRUE(trace.findings.empty()) << findings_of(trace);
}

}  // namespace
}  // namespace gapless
