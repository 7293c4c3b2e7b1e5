// SPDX-License-Identifier: Apache-2.0
//
// device_trace of recordings at level kTasks, made by hand and damaged. No GPU.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/recorder_trace_test_support.h"
#include "trace/trace.h"

namespace gapless {
namespace {

using namespace made_trace;

// Name, begin and end since `from_ns` of what is on a lane, in the order of the trace.
struct LanePart {
  std::string_view name;
  int64_t begin_ns;
  int64_t end_ns;
};
void expect_parts(const Trace& trace, std::string_view lane_name, int64_t from_ns,
                  const std::vector<LanePart>& parts) {
  const uint32_t lane = lane_of(trace, lane_name);
  ASSERT_NE(lane, kNoIndex) << lane_name;
  std::vector<size_t> rows;
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    if (trace.spans.lane[row] == lane) rows.push_back(row);
  }
  ASSERT_GE(rows.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(trace.names[trace.spans.name[rows[i]]], parts[i].name) << i;
    expect_near(trace.spans.begin_ns[rows[i]], from_ns + parts[i].begin_ns, "begin");
    expect_near(trace.spans.end_ns[rows[i]], from_ns + parts[i].end_ns, "end");
  }
}

TEST(DeviceTraceOfTasks, HasTheTasksOfARecordingMadeByHand) {
  const Trace trace = device_trace(hand_made_recording(RecordLevel::kTasks).recording());
  EXPECT_TRUE(trace.findings.empty());
  EXPECT_EQ(trace.edges.size(), 10u);
  // There is no block without a wait.
  constexpr HandMadeTask kTruth[kHandMadeStepTasks] = {
      {0, 0, 0, 200, 10'000},
      {1, 0, 0, 200, 12'000},
      {2, 0, 0, 200, 8'000},
      {2, 12'000, 8'500, 12'500, 20'000},
      {0, 12'000, 10'500, 12'500, 18'000},
      {1, 20'000, 13'000, 20'600, 30'000},
      {0, 20'000, 18'500, 20'600, 26'000},
      {2, 20'000, 15'000, 20'600, 31'000},
  };
  expect_hand_made_tasks(trace, kTruth);
  expect_parts(
      trace, "SM 2 main 2", 1'000'000,
      {{"set up", 15'000, 15'100}, {"wait for launch", 15'100, 20'600}, {"work", 20'600, 31'000}});
}

// Goal: what was not recorded is not there: no lanes of other roles, no phases that nobody saw.
TEST(DeviceTraceOfTasks, ClaimsNothingThatWasNotRecorded) {
  const Trace trace = device_trace(hand_made_recording(RecordLevel::kTasks).recording());
  for (const Lane& lane : trace.lanes) {
    EXPECT_EQ(lane.name.find("copy"), std::string::npos) << lane.name;
    EXPECT_EQ(lane.name.find("combine"), std::string::npos) << lane.name;
  }
  for (const std::string_view name : {"read ahead", "wait for data", "wait for block", "store"})
    EXPECT_EQ(trace.names.find(name), kNoIndex) << name;
  EXPECT_EQ(property_of(trace, "recorder.level"), "tasks");
  EXPECT_EQ(property_of(trace, "recorder.events"), "64");
  EXPECT_EQ(property_of(device_trace(hand_made_recording().recording()), "recorder.level"),
            "phases");
}

// In a step before another one, so that the SM's rate is known.
MadeRecording one_task(std::vector<MadePhase> main) {
  MadeRecording made(1, {{.name = "one", .layer = 0, .blocks = 1}}, 2, RecordLevel::kTasks);
  made.add({.begin_ns = 5'000, .end_ns = 9'000, .main = std::move(main)});
  made.add({.step = 1,
            .begin_ns = 45'000,
            .end_ns = 49'000,
            .main = {{45'000, DevicePhase::kWaitLaunch}, {46'000, DevicePhase::kWork}}});
  return made;
}

TEST(DeviceTraceOfTasks, KnowsWaitsForDataAndBlocksWithoutAny) {
  using P = DevicePhase;
  MadeRecording made = one_task(
      {{5'500, P::kWaitLaunch}, {6'000, P::kWaitData}, {7'000, P::kWork}, {8'000, P::kWork}});
  expect_parts(device_trace(made.recording()), "SM 0 main", 0,
               {{"set up", 5'000, 5'500},
                {"wait for launch", 5'500, 6'000},
                {"wait for data", 6'000, 7'000},
                {"work", 7'000, 9'000}});
  made = one_task({{5'500, P::kWaitLaunch}, {6'000, P::kWaitData}});
  expect_parts(device_trace(made.recording()), "SM 0 main", 0,
               {{"set up", 5'000, 5'500},
                {"wait for launch", 5'500, 6'000},
                {"wait for data", 6'000, 9'000}});
}

TEST(DeviceTraceOfTasks, CountsTasksThatAreNotThereAndThatCannotBe) {
  using Change = void (*)(DeviceTask&);
  constexpr Change kChanges[] = {
      [](DeviceTask& t) { t = {}; },
      [](DeviceTask& t) { t.mark = 0; },  // it did not end
      [](DeviceTask& t) { t.mark = 2; },
      [](DeviceTask& t) { t.waited_clock = 0; },
      [](DeviceTask& t) { t.set_up_and_more |= 4u << kTaskSmShift; },  // of 4 SMs
      [](DeviceTask& t) { t.begin_ns = 0; },
      [](DeviceTask& t) { t.begin_ns |= uint64_t{1} << 62; },
      [](DeviceTask& t) { t.begin_clock += 1 << 20; },
      [](DeviceTask& t) { t.waited_clock = t.begin_clock - (1 << 17); },
      [](DeviceTask& t) { t.end_clock = t.begin_clock - (1 << 17); },
  };
  for (size_t i = 0; i < std::size(kChanges); ++i) {
    SCOPED_TRACE(i);
    MadeRecording made = hand_made_recording(RecordLevel::kTasks);
    DeviceTask task = made.task(7);
    kChanges[i](task);
    made.set_task(7, task);
    const Trace trace = device_trace(made.recording());
    EXPECT_EQ(trace.tasks.size(), 15u);
    EXPECT_EQ(finding_count(trace, "records-missing"), 1u);
    expect_no_overlap(trace);
  }
}

// Goal: a clock whose recorded bits wrap in the middle of a recording is no other clock.
TEST(DeviceTraceOfTasks, FollowsClocksThatWrap) {
  MadeRecording made = hand_made_recording(RecordLevel::kTasks);
  constexpr uint64_t kBits = (uint64_t{1} << kTaskClockBits) - 1;
  const uint64_t middle = MadeRecording::clock_at(2, 1'000'000 + 25'000);
  for (size_t place = 0; place < 16; ++place) {
    DeviceTask task = made.task(place);
    if (task.set_up_and_more >> kTaskSmShift != 2) continue;
    const uint64_t high = task.set_up_and_more >> kClockHighShift & 63;
    const uint64_t clock = ((high << 32 | task.begin_clock) - (middle & ~uint64_t{1})) & kBits;
    const uint32_t moved = static_cast<uint32_t>(clock) - task.begin_clock;
    task.begin_clock += moved;
    task.waited_clock += moved;
    task.data_clock += moved;
    task.end_clock += moved;
    task.set_up_and_more &= ~(63u << kClockHighShift);
    task.set_up_and_more |= static_cast<uint32_t>(clock >> 32) << kClockHighShift;
    made.set_task(place, task);
  }
  const Trace trace = device_trace(made.recording());
  EXPECT_TRUE(trace.findings.empty());
  ASSERT_EQ(trace.tasks.size(), 16u);
  expect_parts(
      trace, "SM 2 main 2", 1'000'000,
      {{"set up", 15'000, 15'100}, {"wait for launch", 15'100, 20'600}, {"work", 20'600, 31'000}});
}

// Goal: where timer and clock were read apart, as the block says, they do not bend the SM's clock.
TEST(DeviceTraceOfTasks, DoesNotBelieveATimerThatWasReadApart) {
  MadeRecording made = hand_made_recording(RecordLevel::kTasks);
  const size_t place = made.place_of(0, 1, 0);
  DeviceTask task = made.task(place);
  task.begin_ns = (task.begin_ns - 992) | kReadApart;
  made.set_task(place, task);
  const Trace trace = device_trace(made.recording());
  EXPECT_TRUE(trace.findings.empty());
  ASSERT_EQ(trace.tasks.size(), 16u);
  expect_near(time_of(trace, place, TaskTime::kEnd), 1'000'000 + 20'000, "end");
}

}  // namespace
}  // namespace gapless
