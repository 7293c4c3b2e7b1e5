// SPDX-License-Identifier: Apache-2.0
//
// device_trace on recordings whose truth is known: by hand, at random, and damaged. No GPU.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "cuda/recorder_blocks.h"
#include "cuda/recorder_trace_test_support.h"
#include "trace/trace.h"

namespace gapless {
namespace {

using namespace made_trace;

TEST(DeviceTrace, HasTheTasksOfARecordingMadeByHand) {
  const Trace trace = device_trace(hand_made_recording().recording());
  EXPECT_TRUE(trace.findings.empty());
  constexpr HandMadeTask kTruth[kHandMadeStepTasks] = {
      {0, 0, 0, 0, 10'000},
      {1, 0, 0, 0, 12'000},
      {2, 0, 0, 0, 8'000},
      {2, 12'000, 8'500, 12'500, 20'000},
      {0, 12'000, 10'500, 12'500, 18'000},
      {1, 20'000, 13'000, 20'600, 30'000},
      {0, 20'000, 18'500, 20'600, 26'000},
      {2, 20'000, 15'000, 20'600, 31'000},
  };
  expect_hand_made_tasks(trace, kTruth);
  EXPECT_EQ(trace.names[trace.tasks.kernel[4]], "qkv");
}

TEST(DeviceTrace, JoinsEveryBlockToTheLastOfTheLaunchBefore) {
  const Trace trace = device_trace(hand_made_recording().recording());
  ASSERT_EQ(trace.edges.size(), 10u);  // 2 + 3 a step, none between steps
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    const uint64_t producer = trace.tasks.id[trace.edges.producer[edge]] - 1;
    const uint64_t consumer = trace.tasks.id[trace.edges.consumer[edge]] - 1;
    EXPECT_EQ(producer / 8, consumer / 8);
    EXPECT_EQ(producer % 8, consumer % 8 < 5 ? 1u : 3u);
  }
}

TEST(DeviceTrace, SharesBytesAndOperationsExactly) {
  const Trace trace = device_trace(hand_made_recording().recording());
  std::map<std::string_view, std::pair<int64_t, int64_t>> sums;
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    auto& [bytes, flops] = sums[trace.names[trace.tasks.kernel[row]]];
    bytes += trace.tasks.bytes[row];
    flops += trace.tasks.flops[row];
  }
  EXPECT_EQ(sums["norm"], std::pair(int64_t{2000}, int64_t{20}));
  EXPECT_EQ(sums["qkv"], std::pair(int64_t{4002}, int64_t{0}));
  EXPECT_EQ(sums["attention"], std::pair(int64_t{6004}, int64_t{14}));
  EXPECT_EQ(trace.tasks.bytes[0], 334);
  EXPECT_EQ(trace.tasks.bytes[2], 333);
}

TEST(DeviceTrace, PutsPhasesOnLanesOfRolesThatDoNotOverlap) {
  const Trace trace = device_trace(hand_made_recording().recording());
  const uint32_t first = lane_of(trace, "SM 2 main");
  const uint32_t second = lane_of(trace, "SM 2 main 2");  // of the block that came early
  ASSERT_NE(first, kNoIndex);
  ASSERT_NE(second, kNoIndex);
  EXPECT_EQ(trace.lanes[first].kind, LaneKind::kOther);
  EXPECT_EQ(lane_of(trace, "SM 3 main"), kNoIndex);
  EXPECT_EQ(lane_of(trace, "SM 0 combine"), kNoIndex);
  std::vector<size_t> rows;
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    if (trace.spans.lane[row] == second) rows.push_back(row);
  }
  ASSERT_EQ(rows.size(), 6u);
  constexpr std::string_view kNames[] = {"set up", "wait for launch", "work"};
  constexpr int64_t kBegins[] = {15'000, 15'100, 20'600};
  constexpr int64_t kEnds[] = {15'100, 20'600, 31'000};
  for (size_t i = 0; i < 6; ++i) {
    const int64_t t = 1'000'000 + static_cast<int64_t>(i / 3) * kHandMadeStepNs;
    EXPECT_EQ(trace.names[trace.spans.name[rows[i]]], kNames[i % 3]);
    EXPECT_EQ(trace.spans.value[rows[i]], i % 3 == 2 ? 9u : 0u);
    expect_near(trace.spans.begin_ns[rows[i]], t + kBegins[i % 3], "begin");
    expect_near(trace.spans.end_ns[rows[i]], t + kEnds[i % 3], "end");
  }
}

TEST(DeviceTrace, HasLanesForSmsStepsLaunchesAndTheHost) {
  const Trace trace = device_trace(hand_made_recording().recording());
  ASSERT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.devices[0].name, "NVIDIA H200");
  for (uint32_t sm = 0; sm < 4; ++sm) {
    EXPECT_EQ(trace.lanes[sm].name, "SM " + std::to_string(sm));
    EXPECT_EQ(trace.lanes[sm].kind, LaneKind::kSm);
  }
  EXPECT_EQ(trace.lanes[lane_of(trace, "steps")].kind, LaneKind::kOrchestrator);
  EXPECT_EQ(trace.lanes[lane_of(trace, "launches")].kind, LaneKind::kStream);
  ASSERT_NE(lane_of(trace, "launches 2"), kNoIndex);  // the second begins before the first ends
  const uint32_t host = lane_of(trace, "launches of steps");
  ASSERT_NE(host, kNoIndex);
  EXPECT_EQ(trace.lanes[host].device, 1u);
  int64_t host_begin_ns = 0;
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    if (trace.spans.lane[row] == host) host_begin_ns = trace.spans.begin_ns[row];
  }
  EXPECT_EQ(host_begin_ns, 1'000'000 + kHandMadeStepNs - 9'000);  // on the clock of the tasks
  EXPECT_EQ(property_of(trace, "device.clock_error_ns"), "32");
  EXPECT_EQ(property_of(trace, "host.clock_error_ns"), "900");
  EXPECT_EQ(property_of(trace, "recorder.dropped"), "0");
}

// ---- At random: blocks that overlap as they like.

RecordLevel level_of(uint32_t seed) {
  return seed % 2 == 0 ? RecordLevel::kTasks : RecordLevel::kPhases;
}

struct RandomCase {
  MadeRecording made;
  std::vector<MadeBlock> blocks;  // by place
};

RandomCase random_recording(uint32_t seed, RecordLevel level) {
  std::mt19937 random(seed);
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  const int sm_count = static_cast<int>(2 + below(4));
  std::vector<RecordedLaunch> launches;
  for (int64_t i = 2 + below(5); i > 0; --i) {
    launches.push_back({.name = "launch " + std::to_string(i % 3),
                        .layer = 0,
                        .blocks = static_cast<int>(1 + below(12)),
                        .bytes = below(1'000'000),
                        .flops = below(1'000)});
  }
  RandomCase c = {MadeRecording(sm_count, launches, 3, level), {}};
  int64_t ended_ns = 5'000;
  for (size_t step = 0; step < 3; ++step) {
    for (size_t launch = 0; launch < launches.size(); ++launch) {
      const int64_t before_ns = ended_ns;
      const int64_t waited_ns = before_ns + 100 + below(900);
      for (size_t i = 0; i < static_cast<size_t>(launches[launch].blocks); ++i) {
        MadeBlock block = {.step = step,
                           .launch = launch,
                           .index = i,
                           .sm = static_cast<uint32_t>(below(sm_count)),
                           .begin_ns = before_ns - (launch == 0 ? 0 : below(3'000))};
        block.end_ns = waited_ns + 1 + below(9'000);
        block.main = {{block.begin_ns, DevicePhase::kWaitLaunch}, {waited_ns, DevicePhase::kWork}};
        c.made.add(block);
        c.blocks.push_back(block);
        ended_ns = std::max(ended_ns, block.end_ns);
      }
    }
    ended_ns += below(2'000);
  }
  return c;
}

// The time in which some block of the SM had what it waited for.
std::map<uint32_t, int64_t> busy_truth(const std::vector<MadeBlock>& blocks) {
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (const MadeBlock& block : blocks) {
    ranges[block.sm].push_back({block.main[1].time_ns, block.end_ns});
  }
  std::map<uint32_t, int64_t> busy_ns;
  for (auto& [sm, of_sm] : ranges) {
    std::sort(of_sm.begin(), of_sm.end());
    int64_t until_ns = 0;
    for (const auto& [begin_ns, end_ns] : of_sm) {
      busy_ns[sm] += std::max<int64_t>(0, end_ns - std::max(begin_ns, until_ns));
      until_ns = std::max(until_ns, end_ns);
    }
  }
  return busy_ns;
}

TEST(DeviceTrace, OfRandomRecordingsAddsUp) {
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t seed = i / 2 + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed << " at level " << i % 2);
    RandomCase c = random_recording(seed, level_of(i));
    const Trace trace = device_trace(c.made.recording());
    EXPECT_TRUE(trace.findings.empty());
    ASSERT_EQ(trace.tasks.size(), c.blocks.size());
    expect_no_overlap(trace);

    std::map<uint32_t, int64_t> busy_ns;
    std::map<uint32_t, int64_t> task_counts;
    int64_t bytes = 0;
    for (size_t row = 0; row < trace.tasks.size(); ++row) {
      const uint32_t lane = trace.tasks.lane[row];
      EXPECT_EQ(lane, c.blocks[trace.tasks.id[row] - 1].sm);
      busy_ns[lane] += time_of(trace, row, TaskTime::kEnd) - time_of(trace, row, TaskTime::kStart);
      ++task_counts[lane];
      bytes += trace.tasks.bytes[row];
    }
    for (const auto& [sm, truth_ns] : busy_truth(c.blocks)) {
      EXPECT_LE(std::abs(busy_ns[sm] - truth_ns), 2 * kMadeTickNs * task_counts[sm]) << sm;
    }
    int64_t expected_bytes = 0;
    for (const RecordedLaunch& launch : c.made.recording().launches)
      expected_bytes += 3 * launch.bytes;
    EXPECT_EQ(bytes, expected_bytes);
  }
}

TEST(DeviceTrace, HasEveryTaskInsideItsStep) {
  for (uint32_t seed = 31; seed <= 50; ++seed) {
    RandomCase c = random_recording(seed, level_of(seed));
    const Trace trace = device_trace(c.made.recording());
    const uint32_t lane = lane_of(trace, "steps");
    std::map<uint32_t, std::pair<int64_t, int64_t>> windows;
    for (size_t row = 0; row < trace.spans.size(); ++row) {
      if (trace.spans.lane[row] != lane) continue;
      windows[trace.spans.value[row]] = {trace.spans.begin_ns[row], trace.spans.end_ns[row]};
    }
    ASSERT_EQ(windows.size(), 3u);
    const size_t step_blocks = c.blocks.size() / 3;
    for (size_t row = 0; row < trace.tasks.size(); ++row) {
      const uint32_t step = static_cast<uint32_t>((trace.tasks.id[row] - 1) / step_blocks);
      EXPECT_GE(time_of(trace, row, TaskTime::kStart), windows[step].first) << seed;
      EXPECT_LE(time_of(trace, row, TaskTime::kEnd), windows[step].second) << seed;
    }
  }
}

// ---- Damage.

TEST(DeviceTrace, CountsBlocksThatWereNotWritten) {
  MadeRecording made = hand_made_recording();
  made.set_header(made.place_of(0, 1, 0), {});  // the last of its launch
  const Trace trace = device_trace(made.recording());
  EXPECT_EQ(trace.tasks.size(), 15u);
  EXPECT_EQ(finding_count(trace, "records-missing"), 1u);
  // The block that now ended last is what the next launch waited for.
  const auto row = std::find(trace.tasks.id.begin(), trace.tasks.id.end(), 6u);
  ASSERT_NE(row, trace.tasks.id.end());
  expect_near(time_of(trace, static_cast<size_t>(row - trace.tasks.id.begin()), TaskTime::kReady),
              1'000'000 + 18'000, "ready");
}

TEST(DeviceTrace, LeavesOutHeadersThatCannotBe) {
  using Change = void (*)(DeviceBlockHeader&);
  constexpr Change kChanges[] = {
      [](DeviceBlockHeader& h) { h.step = 2; },
      [](DeviceBlockHeader& h) { h.sm = 4; },
      [](DeviceBlockHeader& h) { h.begin_ns = 32; },
      [](DeviceBlockHeader& h) { h.begin_ns -= 1'000'000; },
      [](DeviceBlockHeader& h) { h.begin_ns += 1'000'000; },
      [](DeviceBlockHeader& h) { h.begin_ns += uint64_t{1} << 40; },
      [](DeviceBlockHeader& h) { h.begin_ns = ~uint64_t{0}; },
      [](DeviceBlockHeader& h) { h.begin_clock = 0; },
      [](DeviceBlockHeader& h) { h.begin_clock -= uint64_t{1} << 20; },
      [](DeviceBlockHeader& h) { h.begin_clock += uint64_t{1} << 20; },
      [](DeviceBlockHeader& h) { h.begin_clock += uint64_t{1} << 40; },
      [](DeviceBlockHeader& h) { h.begin_clock = ~uint64_t{0}; },
  };
  // Before the first or behind the last block of an SM it may have rested for a millisecond.
  const std::set<size_t> may_be_rests = {3, 4};
  // The first of its SM, one between others, and the last.
  for (const size_t place : {size_t{2}, size_t{7}, size_t{15}}) {
    for (size_t i = 0; i < std::size(kChanges); ++i) {
      SCOPED_TRACE(testing::Message() << "place " << place << " change " << i);
      MadeRecording made = hand_made_recording();
      DeviceBlockHeader header = made.header(place);
      if (i == 0 && header.step == 2) continue;
      if (place != 7 && may_be_rests.contains(i)) continue;
      kChanges[i](header);
      made.set_header(place, header);
      const Trace trace = device_trace(made.recording());
      EXPECT_EQ(trace.tasks.size(), 15u);
      EXPECT_EQ(finding_count(trace, "records-missing"), 1u);
      expect_no_overlap(trace);
      for (size_t row = 0; row < trace.tasks.size(); ++row) {
        EXPECT_NE(trace.tasks.id[row], place + 1);
        EXPECT_LT(time_of(trace, row, TaskTime::kEnd), 1'000'000 + 2 * kHandMadeStepNs);
      }
    }
  }
}

// Damage of kMain leaves no end to know, so that the block is left out; of others their phases are.
void expect_damage(MadeRecording& made, DeviceRole role) {
  const Trace trace = device_trace(made.recording());
  const bool is_main = role == DeviceRole::kMain;
  EXPECT_EQ(trace.tasks.size(), is_main ? 15u : 16u);
  EXPECT_EQ(finding_count(trace, "records-missing"), is_main ? 1u : 0u);
  EXPECT_EQ(finding_count(trace, "damaged"), is_main ? 0u : 1u);
}

TEST(DeviceTrace, LeavesOutRecordsThatCannotBe) {
  constexpr size_t kPlace = 4;  // main: four records, copy: two
  const uint32_t work = made_tag(DevicePhase::kWork);
  const DeviceRecord records[] = {{0x88, 0},                         // no phase
                                  {static_cast<uint32_t>(4), 0},     // no mark
                                  {made_tag(DevicePhase::kEnd), 0},  // more behind the end
                                  {work, 0x8000'0000},
                                  {work, static_cast<uint32_t>(-(1 << 17))}};
  for (const DeviceRole role : {DeviceRole::kMain, DeviceRole::kCopy}) {
    for (size_t i = 0; i < std::size(records); ++i) {
      SCOPED_TRACE(testing::Message() << "role " << static_cast<int>(role) << " record " << i);
      MadeRecording made = hand_made_recording();
      DeviceRecord record = records[i];
      record.clock += static_cast<uint32_t>(made.header(kPlace).begin_clock);
      made.set_record(kPlace, role, 0, record);
      expect_damage(made, role);
    }
    // The end is not there, or something stands behind it.
    MadeRecording made = hand_made_recording();
    const int end = role == DeviceRole::kMain ? 3 : 1;
    made.set_record(kPlace, role, end, {0, 0});
    expect_damage(made, role);
    made = hand_made_recording();
    const uint32_t clock = static_cast<uint32_t>(made.header(kPlace).begin_clock);
    made.set_record(kPlace, role, end + 1, {work, clock});
    expect_damage(made, role);
    // Records were dropped although there was room.
    made = hand_made_recording();
    DeviceBlockHeader header = made.header(kPlace);
    header.dropped[static_cast<int>(role)] = 1;
    made.set_header(kPlace, header);
    expect_damage(made, role);
  }
  MadeRecording made = hand_made_recording();
  made.set_record(kPlace, DeviceRole::kMain, 0, {0, 0});  // no kMain
  expect_damage(made, DeviceRole::kMain);
  made = hand_made_recording();
  const uint32_t late = static_cast<uint32_t>(made.header(kPlace).begin_clock) + (1 << 25);
  made.set_record(kPlace, DeviceRole::kCopy, 1, {made_tag(DevicePhase::kEnd), late});
  expect_damage(made, DeviceRole::kCopy);
}

// Goal: a block whose clock was read long after its timer does not bend the clock of its SM.
TEST(DeviceTrace, DoesNotBelieveATimerThatWasReadLongBeforeTheClock) {
  MadeRecording made = hand_made_recording();
  const size_t place = made.place_of(0, 1, 0);
  DeviceBlockHeader header = made.header(place);
  header.begin_clock += 1755;  // a microsecond
  made.set_header(place, header);
  const Trace trace = device_trace(made.recording());
  EXPECT_TRUE(trace.findings.empty());
  ASSERT_EQ(trace.tasks.size(), 16u);
  const auto row = std::find(trace.tasks.id.begin(), trace.tasks.id.end(), place + 1);
  ASSERT_NE(row, trace.tasks.id.end());
  const size_t index = static_cast<size_t>(row - trace.tasks.id.begin());
  expect_near(time_of(trace, index, TaskTime::kReceive), 1'000'000 + 8'500, "receive");
  expect_near(time_of(trace, index, TaskTime::kEnd), 1'000'000 + 20'000, "end");
}

TEST(DeviceTrace, MovesClocksThatGoBack) {
  MadeRecording made = hand_made_recording();
  const size_t place = made.place_of(0, 0, 0);
  const uint64_t begin_clock = made.header(place).begin_clock;
  made.set_record(place, DeviceRole::kMain, 1,
                  {made_tag(DevicePhase::kWork), static_cast<uint32_t>(begin_clock - 500)});
  const Trace trace = device_trace(made.recording());
  EXPECT_EQ(finding_count(trace, "time-goes-back"), 1u);
  expect_no_overlap(trace);
}

TEST(DeviceTrace, SaysWhatWasDroppedAndLost) {
  MadeRecording made = hand_made_recording();
  const uint32_t clock = static_cast<uint32_t>(made.header(2).begin_clock);
  for (int i = 0; i < kRoleRecords; ++i) {
    const DevicePhase phase = i + 1 < kRoleRecords ? DevicePhase::kWork : DevicePhase::kEnd;
    const uint32_t cycles = static_cast<uint32_t>(i) * 100;
    made.set_record(2, DeviceRole::kMain, i, {made_tag(phase), clock + cycles});
  }
  DeviceBlockHeader header = made.header(2);
  header.dropped[0] = 6;
  made.set_header(2, header);
  made.recording().lost_step_count = 3;
  const Trace trace = device_trace(made.recording());
  EXPECT_EQ(finding_count(trace, "dropped"), 6u);
  EXPECT_EQ(finding_count(trace, "steps-lost"), 3u);
  EXPECT_EQ(trace.lanes[lane_of(trace, "SM 2 main")].dropped_count, 6u);
  EXPECT_NE(trace.names.find("not recorded"), kNoIndex);
}

TEST(DeviceTrace, TakesWhatABufferThatIsCutShortHas) {
  MadeRecording made = hand_made_recording();
  made.recording().blocks.resize(made.recording().blocks.size() - 1);
  const Trace trace = device_trace(made.recording());
  EXPECT_EQ(trace.tasks.size(), 8u);
  EXPECT_EQ(finding_count(trace, "cut-short"), 1u);
  EXPECT_EQ(device_trace({}).tasks.size(), 0u);
}

// Goal: whatever the bytes are, the trace keeps its promises. Method: bytes of a good recording are
// overwritten at random, a few or many of them.
TEST(DeviceTrace, OfGarbageHasNoOverlapsAndDoesNotStop) {
  std::mt19937 random(8);
  for (int round = 0; round < 600; ++round) {
    MadeRecording made = hand_made_recording(level_of(static_cast<uint32_t>(round)));
    std::vector<std::byte>& bytes = made.recording().blocks;
    const bool is_of_headers = random() % 2 == 0;
    const size_t most = std::min<size_t>(is_of_headers ? 64 : 256, made.block_bytes());
    for (size_t i = 1 + random() % (round % 10 == 0 ? 5000 : 20); i > 0; --i) {
      const size_t place = random() % 16;
      const size_t at = random() % most;
      bytes[place * made.block_bytes() + at] = static_cast<std::byte>(random() % 256);
    }
    expect_no_overlap(device_trace(made.recording()), "steps");
  }
}

}  // namespace
}  // namespace gapless
