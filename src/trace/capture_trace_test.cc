// SPDX-License-Identifier: Apache-2.0

#include "trace/capture_trace.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trace/capture_table_test_support.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

std::string lane_name(const Trace& trace, size_t row) {
  return trace.lanes[trace.tasks.lane[row]].name;
}

LaneKind lane_kind(const Trace& trace, size_t row) {
  return trace.lanes[trace.tasks.lane[row]].kind;
}

TEST(KernelTrace, MakesLanesOfStreams) {
  CaptureTable table = table_of({{100, 10, 148},
                                 {110, 10, 62},
                                 {115, 30, -1, KernelKind::kCollective, 0, "hcom_allReduce_"},
                                 {116, 5, -1},
                                 {221, 9, 148, KernelKind::kCompute},
                                 {50, 10, 148, KernelKind::kCompute, 3}});
  table.findings.push_back({Severity::kWarning, "no-start", "one", kNoIndex, 1});
  table.type[1] = kNoIndex;
  const Trace trace = trace_of(table);
  EXPECT_EQ(trace.format, "test");
  ASSERT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.devices[0].name, "NPU 0");
  EXPECT_EQ(trace.devices[1].number, 3);
  ASSERT_EQ(trace.lanes.size(), 5u);
  EXPECT_EQ(trace.lanes[0].name, "Stream 148");
  EXPECT_EQ(trace.lanes[0].kind, LaneKind::kStream);
  EXPECT_EQ(trace.lanes[0].number, 148);
  EXPECT_EQ(lane_name(trace, 2), "Communication");
  EXPECT_EQ(lane_kind(trace, 2), LaneKind::kStream) << "nothing else tells of it";
  EXPECT_EQ(lane_name(trace, 3), "Kernels");
  EXPECT_NE(trace.tasks.lane[5], trace.tasks.lane[0]) << "a stream of another device";
  EXPECT_EQ(trace.names[trace.tasks.kernel[0]], "MatMulV2");
  EXPECT_EQ(trace.names[trace.tasks.kernel[1]], "aclnnMatmul_MatMulV2_MatMulV2");
  EXPECT_EQ(trace.tasks.at(TaskTime::kStart)[2], 115);
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd)[2], 145);
  EXPECT_EQ(trace.tasks.at(TaskTime::kDispatch)[2], kAbsent);
  ASSERT_EQ(trace.findings.size(), 1u);
  EXPECT_EQ(trace.findings[0].code, "no-start");
}

// A collective's kernel is on its stream; its summary tells the same time again.
TEST(KernelTrace, GivesNoCoreToWhatIsToldTwice) {
  const Trace trace =
      trace_of(table_of({{1000, 500, -1, KernelKind::kCollective, 0, "hcom_allReduce_"},
                         {1010, 480, 37, KernelKind::kFragment, 0, "hcom_allReduce_"},
                         {9000, 100, -1, KernelKind::kCollective, 0, "hcom_allReduce_"},
                         {9000, 90000, 99, KernelKind::kAiCpuCollective, 0, "hcom_allGather_"}}));
  EXPECT_EQ(lane_name(trace, 0), "Collectives");
  EXPECT_EQ(lane_kind(trace, 0), LaneKind::kOther);
  EXPECT_EQ(lane_name(trace, 1), "Stream 37");
  EXPECT_EQ(lane_kind(trace, 1), LaneKind::kStream);
  EXPECT_EQ(lane_name(trace, 2), "Communication") << "it has no kernel on a stream";
  EXPECT_EQ(lane_kind(trace, 2), LaneKind::kStream);
  EXPECT_EQ(lane_name(trace, 3), "Stream 99 wrappers");
  EXPECT_EQ(lane_kind(trace, 3), LaneKind::kOther);
  ASSERT_EQ(trace.findings.size(), 2u);
  EXPECT_EQ(trace.findings[0].code, "collectives-told-twice");
  EXPECT_EQ(trace.findings[1].code, "wrappers");

  const Trace all = trace_of(
      table_of({{1000, 500, -1, KernelKind::kCollective}, {1010, 480, 37, KernelKind::kFragment}}),
      DedupRule::kNone);
  EXPECT_EQ(lane_name(all, 0), "Communication");
}

TEST(KernelTrace, ShowsLaunchesHostAndSteps) {
  CaptureTable table = table_of({{100, 10}});
  table.append({.start_ns = 120, .duration_ns = 5, .device = 0, .stream = 7, .launch_ns = 90});
  EXPECT_EQ(table.launch_ns, (std::vector<int64_t>{kAbsent, 90}));
  const uint32_t call = table.names.intern("cudaLaunchKernel");
  table.host = {{80, 95, 4242, 1, call, table.names.intern("call")}, {90, 99, 4242, 2, call}};
  table.steps = {{100, 125, 7}};
  const Trace trace = trace_of(table);
  EXPECT_EQ(trace.tasks.at(TaskTime::kSubmit), (std::vector<int64_t>{kAbsent, 90}));
  ASSERT_EQ(trace.spans.size(), 3u);
  EXPECT_EQ(trace.lanes[trace.spans.lane[0]].name, "Thread 1");
  EXPECT_EQ(trace.lanes[trace.spans.lane[0]].kind, LaneKind::kThread);
  EXPECT_EQ(trace.devices[trace.lanes[trace.spans.lane[0]].device].name, "Process 4242");
  EXPECT_NE(trace.spans.lane[0], trace.spans.lane[1]);
  EXPECT_EQ(trace.names[trace.spans.category[0]], "call");
  EXPECT_EQ(trace.lanes[trace.spans.lane[2]].kind, LaneKind::kOrchestrator);
  EXPECT_EQ(trace.names[trace.spans.name[2]], "step");
  EXPECT_EQ(trace.spans.value[2], 7u);
}

TEST(KernelTrace, ComesBackAsATable) {
  CaptureTable table = table_of({{100, 10, 3}, {105, 20, 4}, {130, 5, 3}});
  table.launch_ns = {90, kAbsent, 120};
  const CaptureTable back = capture_of(trace_of(table));
  EXPECT_EQ(back.start_ns, table.start_ns);
  EXPECT_EQ(back.duration_ns, table.duration_ns);
  EXPECT_EQ(back.launch_ns, table.launch_ns);
  EXPECT_EQ(back.names[back.type[2]], "MatMulV2");
  EXPECT_EQ(back.stream[0], back.stream[2]);
  EXPECT_NE(back.stream[0], back.stream[1]);
}

TEST(KernelTrace, KeepsKindsAndStreamsOfACapture) {
  CaptureTable table =
      table_of({{1000, 500, -1, KernelKind::kCollective, 0, "hcom_allReduce_"},
                {1010, 480, 37, KernelKind::kFragment, 0, "AivKernel"},
                {1600, 40, 148, KernelKind::kCompute, 0, "MemSet"},
                {2000, 100, 148, KernelKind::kCompute, 0, "MatMulV2"},
                {2200, 10, 3, KernelKind::kCopy, 0, "MEMCPY_ASYNC"},
                {9000, 90000, 99, KernelKind::kAiCpuCollective, 0, "hcom_allGather_"}});
  const CaptureTable back = capture_of(trace_of(table));
  EXPECT_EQ(back.kind, table.kind);
  EXPECT_EQ(back.stream, table.stream);
  const CaptureTable alone =
      capture_of(trace_of(table_of({{1, 5, 7, KernelKind::kCollective, 0, "ncclAllReduce"}})));
  EXPECT_EQ(alone.kind[0], KernelKind::kCollective) << "there are no summaries";
}

TEST(KernelTrace, LeavesOutTasksThatDidNotRun) {
  TraceBuilder builder("test");
  builder.add_device({"host", 0});
  const uint32_t lane = builder.add_lane({.name = "w", .kind = LaneKind::kWorker});
  const uint32_t kernel = builder.intern("ncclDevKernel_AllReduce");
  builder.task_time(1, TaskTime::kStart, 10, lane, kernel);
  builder.task_time(1, TaskTime::kEnd, 30, lane, kernel);
  builder.task_time(2, TaskTime::kSubmit, 5, lane, kernel);
  const CaptureTable table = capture_of(builder.finish());
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.kind[0], KernelKind::kCollective);
  EXPECT_EQ(table.dropped_count, 1u);
}

// Rows 26 and 27 of the robustness table.
TEST(KernelTrace, PutsOverlappingRowsOnFurtherLanes) {
  const Trace trace = trace_of(table_of({{100, 50}, {110, 10}, {115, 50}, {150, 10}, {170, 5}}));
  EXPECT_EQ(lane_name(trace, 0), "Stream 7");
  EXPECT_EQ(lane_name(trace, 1), "Stream 7 (2)");
  EXPECT_EQ(lane_name(trace, 2), "Stream 7 (3)");
  EXPECT_EQ(lane_name(trace, 3), "Stream 7") << "a row that begins where another ends follows it";
  EXPECT_EQ(lane_name(trace, 4), "Stream 7");
  ASSERT_EQ(trace.findings.size(), 1u);
  EXPECT_EQ(trace.findings[0].code, "overlapping-rows");
  EXPECT_EQ(trace.findings[0].count, 2u);
}

TEST(KernelTrace, TakesATableOfNoRows) {
  const Trace trace = trace_of(CaptureTable{});
  EXPECT_EQ(trace.tasks.size(), 0u);
  EXPECT_TRUE(trace.lanes.empty());
}

// Goal: tasks of a lane never overlap, nothing is lost, and no more lanes are made than needed.
// Method: random rows in any order; the number of lanes of a stream must be the largest number of
// rows that run at one moment.
TEST(KernelTrace, MakesAsManyLanesAsRowsRunAtOnce) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<TestKernel> rows(1 + random() % 40);
    for (TestKernel& row : rows) {
      row = {static_cast<int64_t>(random() % 60), static_cast<int64_t>(1 + random() % 20)};
    }
    const Trace trace = trace_of(table_of(rows));
    std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> by_lane;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t end_ns = rows[i].start_ns + rows[i].duration_ns;
      by_lane[trace.tasks.lane[i]].emplace_back(rows[i].start_ns, end_ns);
    }
    for (auto& [lane, tasks] : by_lane) {
      std::sort(tasks.begin(), tasks.end());
      for (size_t i = 1; i < tasks.size(); ++i) ASSERT_LE(tasks[i - 1].second, tasks[i].first);
    }
    ptrdiff_t most = 0;
    for (const TestKernel& moment : rows) {
      const auto runs_then = [&moment](const TestKernel& row) {
        return row.start_ns <= moment.start_ns && moment.start_ns < row.start_ns + row.duration_ns;
      };
      most = std::max(most, std::count_if(rows.begin(), rows.end(), runs_then));
    }
    ASSERT_EQ(trace.lanes.size(), static_cast<size_t>(most));
  }
}
}  // namespace
}  // namespace gapless
