// SPDX-License-Identifier: Apache-2.0

#include "analysis/device_time.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trace/capture_table_test_support.h"
#include "trace/capture_trace.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

std::vector<DeviceTime> times_of(const CaptureTable& table, TimeRange window) {
  const Trace trace = trace_of(table);
  const Result<StepTasks> tasks = StepTasks::create(trace, window);
  EXPECT_TRUE(tasks.has_value()) << (tasks ? "" : tasks.error().message);
  return tasks ? device_times(trace, *tasks) : std::vector<DeviceTime>{};
}

TestKernel collective(int64_t start_ns, int64_t duration_ns) {
  return {start_ns, duration_ns, 37, KernelKind::kFragment, 0, "hcom_allReduce_"};
}

TEST(DeviceTime, SharesTheWindowOut) {
  //  0        10        20   25   30   35        50   60      80  100
  //  idle     compute   both      comm idle      copy idle    compute
  CaptureTable table = table_of({{10, 15, 1},
                                 collective(20, 15),
                                 {50, 10, 2, KernelKind::kCopy, 0, "Memcpy HtoD"},
                                 {80, 20, 1}});
  table.launch_ns = {4, kAbsent, kAbsent, 65};
  const std::vector<DeviceTime> times = times_of(table, {0, 100});
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].window_ns, 100);
  EXPECT_EQ(times[0].compute_ns, 35);
  EXPECT_EQ(times[0].overlapped_ns, 5);
  EXPECT_EQ(times[0].communication_alone_ns, 10);
  EXPECT_EQ(times[0].copy_alone_ns, 10);
  EXPECT_EQ(times[0].idle_ns, 45);
  ASSERT_EQ(times[0].gaps.size(), 3u);
  EXPECT_EQ(times[0].gaps[0].task_before, kNoIndex);
  EXPECT_EQ(times[0].gaps[0].task_after, 0u);
  EXPECT_EQ(times[0].gaps[2].begin_ns, 60);
  EXPECT_EQ(times[0].gaps[2].launch_ns, 65);
  EXPECT_EQ(times[0].gaps[2].task_before, 2u);
  EXPECT_EQ(times[0].gaps[2].task_after, 3u);
  EXPECT_EQ(times[0].idle_for_launch_ns, 4 + 5);
  EXPECT_EQ(times[0].idle_launched_ns, 6 + 15);
  EXPECT_EQ(times[0].idle_unknown_ns, 15);
}

TEST(DeviceTime, TakesALaunchBeforeTheGapAsLaunched) {
  CaptureTable table = table_of({{0, 10, 1}, {20, 5, 1}});
  table.launch_ns = {-5, 3};
  const std::vector<DeviceTime> times = times_of(table, {0, 30});
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].idle_launched_ns, 10);
  EXPECT_EQ(times[0].idle_unknown_ns, 5) << "nothing comes after the last kernel";
}

TEST(DeviceTime, TakesEachDeviceForItself) {
  const std::vector<DeviceTime> times = times_of(
      table_of({{0, 10, 1, KernelKind::kCompute, 0}, {5, 5, 1, KernelKind::kCompute, 4}}), {0, 10});
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].compute_ns, 10);
  EXPECT_EQ(times[1].compute_ns, 5);
  EXPECT_EQ(times[1].idle_ns, 5);
}

// Names mislead: at level 0 a collective's kernel is "AivKernel", and MemSet computes on an NPU.
TEST(DeviceTime, KnowsCollectivesByTheirRowsNotByTheirNames) {
  const std::vector<DeviceTime> times =
      times_of(table_of({{0, 10, 37, KernelKind::kFragment, 0, "AivKernel"},
                         {10, 5, 148, KernelKind::kCompute, 0, "MemSet"}}),
               {0, 15});
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].communication_alone_ns, 10);
  EXPECT_EQ(times[0].compute_ns, 5);
}

TEST(DeviceTime, LeavesDevicesWithCoresAlone) {
  TraceBuilder builder("test");
  builder.add_device({"host", 0});
  const uint32_t lane = builder.add_lane({.name = "worker", .kind = LaneKind::kWorker});
  builder.task_time(1, TaskTime::kStart, 0, lane, builder.intern("k"));
  builder.task_time(1, TaskTime::kEnd, 10, lane, builder.intern("k"));
  const Trace trace = builder.finish();
  const Result<StepTasks> tasks = StepTasks::create(trace, {0, 10});
  ASSERT_TRUE(tasks.has_value());
  EXPECT_TRUE(device_times(trace, *tasks).empty());
}

TEST(DeviceTime, AddsUpForAnyRows) {
  std::mt19937 random(5);
  const auto below = [&random](uint32_t limit) { return static_cast<int64_t>(random() % limit); };
  for (int round = 0; round < 300; ++round) {
    std::vector<TestKernel> rows;
    CaptureTable table;
    for (int64_t i = 0, count = 1 + below(40); i < count; ++i) {
      TestKernel row = {below(100), below(20), static_cast<int32_t>(below(4))};
      if (below(3) == 0) row = collective(row.start_ns, row.duration_ns);
      rows.push_back(row);
    }
    table = table_of(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      table.launch_ns.push_back(below(2) == 0 ? kAbsent : rows[i].start_ns - below(30));
    }
    for (const DeviceTime& time : times_of(table, {-10, 130})) {
      EXPECT_EQ(time.compute_ns + time.communication_alone_ns + time.copy_alone_ns + time.idle_ns,
                time.window_ns);
      EXPECT_EQ(time.idle_for_launch_ns + time.idle_launched_ns + time.idle_unknown_ns,
                time.idle_ns);
      EXPECT_LE(time.overlapped_ns, time.compute_ns);
      int64_t busy_ns = 0;  // counted moment by moment
      for (int64_t at = -10; at < 130; ++at) {
        bool runs = false;
        for (const TestKernel& row : rows) {
          runs |= row.start_ns <= at && at < row.start_ns + row.duration_ns;
        }
        busy_ns += runs ? 1 : 0;
      }
      EXPECT_EQ(time.window_ns - time.idle_ns, busy_ns);
    }
  }
}

}  // namespace
}  // namespace gapless
