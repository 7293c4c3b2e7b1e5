// SPDX-License-Identifier: Apache-2.0
//
// Costs of tasks and properties: from the calls of gapless/trace.h through the file and back, and
// through a file of columns.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "gapless/trace.h"
#include "trace/trace_difference.h"
#include "trace/trace_file.h"
#include "trace/trace_file_writer.h"

namespace gapless {
namespace {

class RecorderCostTest : public ::testing::Test {
 protected:
  ~RecorderCostTest() override { stop_recording(); }

  void start(FullPolicy policy = FullPolicy::kGrow) {
    RecorderOptions options;
    options.path = directory_.path("test.gapless");
    options.policy = policy;
    options.capacity_bytes = 1;  // the least there is
    ASSERT_TRUE(start_recording(options)) << recording_error();
  }
  Trace read(const std::string& name = "test.gapless") const {
    Result<Trace> trace = read_trace_file(directory_.path(name));
    EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
    return trace ? *std::move(trace) : Trace();
  }
  std::string path(const std::string& name) const { return directory_.path(name); }

 private:
  TemporaryDirectory directory_;
};

std::string property(const Trace& trace, std::string_view key) {
  for (const Property& entry : trace.properties) {
    if (entry.key == key) return entry.value;
  }
  return "none";
}

void run_task(uint32_t task) {
  task_event(TaskTime::kStart, thread_lane(), task);
  task_event(TaskTime::kEnd, thread_lane(), task);
}

TEST_F(RecorderCostTest, CostsAreReadBackWithTheirTasks) {
  start();
  run_task(1);
  task_cost(1, 1'000'000'007, 0);
  task_cost(3, 5, ~uint64_t{0});
  run_task(2);
  run_task(3);
  task_cost(4, 1, 1);
  EXPECT_EQ(stop_recording().event_count, 3u * 2 + 3 * 2) << "a cost takes two records";

  const Trace trace = read();
  ASSERT_EQ(trace.tasks.id, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{1'000'000'007, kAbsent, 5}));
  EXPECT_EQ(trace.tasks.flops,
            (std::vector<int64_t>{0, kAbsent, static_cast<int64_t>(kMaxTaskCost)}));
  ASSERT_EQ(trace.findings.size(), 1u);
  EXPECT_EQ(trace.findings[0].code, "cost-without-task");
}

TEST_F(RecorderCostTest, BytesBeyondWhatARecordHoldsAreTheLargestNumber) {
  start();
  run_task(1);
  task_cost(1, ~uint64_t{0}, 2);
  run_task(2);
  task_cost(2, kMaxTaskCost, 2);
  stop_recording();
  const int64_t largest = static_cast<int64_t>(kMaxTaskCost);
  EXPECT_EQ(read().tasks.bytes, (std::vector<int64_t>{largest, largest}));
}

TEST_F(RecorderCostTest, NothingIsRecordedWhileNothingIsRecorded) {
  task_cost(1, 2, 3);
  start();
  pause_recording();
  task_cost(1, 2, 3);
  resume_recording();
  EXPECT_EQ(stop_recording().event_count, 0u);
}

TEST_F(RecorderCostTest, CostsThatDoNotFitAreDropsOfTheThreadsLane) {
  start(FullPolicy::kKeepOldest);
  name_thread("the test");
  constexpr uint32_t kCosts = 100'000;
  for (uint32_t task = 0; task < kCosts; ++task) task_cost(task, 1, 1);
  const RecordingSummary summary = stop_recording();
  EXPECT_GT(summary.dropped_count, 0u);
  EXPECT_EQ(summary.event_count + summary.dropped_count, 2u * kCosts);
  const Trace trace = read();
  uint64_t dropped_count = 0;
  for (const Lane& lane : trace.lanes) {
    if (lane.name == "the test") dropped_count += lane.dropped_count;
  }
  EXPECT_EQ(dropped_count, summary.dropped_count);
}

TEST_F(RecorderCostTest, ColumnsKeepCosts) {
  start();
  for (uint32_t task = 0; task < 100; ++task) {
    run_task(task);
    if (task % 3 != 0) task_cost(task, 10 * task, 20 * task);
  }
  stop_recording();
  const Trace recorded = read();
  for (const bool compress : {false, true}) {
    const Result<void> written =
        write_trace_file(recorded, path("columns"), {.compress = compress, .progress = {}});
    ASSERT_TRUE(written.has_value()) << written.error().message;
    const Trace columns = read("columns");
    EXPECT_EQ(first_difference(columns, recorded), "");
    EXPECT_EQ(columns.tasks.flops.size(), 100u);
  }
}

TEST_F(RecorderCostTest, PropertiesMayBeSetBeforeAndDuringARecording) {
  set_property("test.before", "1");
  set_property("test.changed", "old");
  start();
  set_property("test.during", "2");
  set_property("test.changed", "new");
  set_property("test.changed", "newest");
  set_property("test.empty", "");
  set_property("", "no key");
  stop_recording();
  const Trace trace = read();
  EXPECT_EQ(property(trace, "test.before"), "1");
  EXPECT_EQ(property(trace, "test.during"), "2");
  EXPECT_EQ(property(trace, "test.changed"), "newest");
  EXPECT_EQ(property(trace, "test.empty"), "");
  EXPECT_EQ(property(trace, ""), "none");
  EXPECT_NE(property(trace, "recorder.events"), "none") << "what the recorder says is there too";
  EXPECT_TRUE(trace.findings.empty());
}

TEST_F(RecorderCostTest, PropertiesAreForLaterRecordingsToo) {
  start();
  set_property("test.kept", "first");
  stop_recording();
  EXPECT_EQ(property(read(), "test.kept"), "first");
  set_property("test.kept", "second");
  EXPECT_EQ(property(read(), "test.kept"), "first") << "that recording is over";
  start();
  stop_recording();
  EXPECT_EQ(property(read(), "test.kept"), "second");
}

TEST_F(RecorderCostTest, PropertiesAreKeptWhileRecordingIsPaused) {
  start();
  pause_recording();
  set_property("test.paused", "yes");
  stop_recording();
  EXPECT_EQ(property(read(), "test.paused"), "yes");
}

}  // namespace
}  // namespace gapless
