// SPDX-License-Identifier: Apache-2.0
//
// CudaRecorder on a GPU, with a kernel of two roles that does nothing but record, and its errors on
// the host. Without a GPU the tests of the former are skipped and say so.

#include "cuda/recorder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test_support.h"
#include "cuda/recorder_places.h"
#include "cuda/recorder_test_kernel.h"

namespace gapless {
namespace {

constexpr RecordLevel kLevels[] = {RecordLevel::kTasks, RecordLevel::kPhases};

RecordedLaunch launch_of(const char* name, int blocks) {
  return {.name = name, .layer = 0, .blocks = blocks, .bytes = 64, .flops = 0};
}

std::string error_of(const Result<CudaRecorder>& result) {
  return result ? "" : result.error().message;
}

TEST(CudaRecorder, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of(CudaRecorder::make({}, 1, RecordLevel::kTasks)),
            "a recorder of 0 launches and 1 steps; needs 1 of each");
  EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", 1)}, 0, RecordLevel::kTasks)),
            "a recorder of 1 launches and 0 steps; needs 1 of each");
  constexpr int kMany = std::numeric_limits<int>::max();
  for (const RecordLevel level : kLevels) {
    EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", 1), launch_of("b", 0)}, 1, level)),
              "a recorder of launch b with 0 blocks; needs 1");
    EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", kMany), launch_of("b", 1)}, 1, level)),
              "a recorder of 2147483648 or more blocks a step");
    EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", kMany)}, kMany, level)),
              "a recorder of 2147483647 steps of 2147483647 blocks");
  }
  // Places of tasks are numbered in 32 bits.
  EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", 1 << 20)}, 1 << 12, RecordLevel::kTasks)),
            "a recorder of 4096 steps of 1048576 blocks");
}

// A clock that drifted by 4000 ns between readings that were each good to 500 or 700.
TEST(CudaRecorder, JoinsReadingsOfAClockThatDrifts) {
  const DeviceClockOffset first = {.offset_ns = -10'000, .error_ns = 500};
  const DeviceClockOffset second = {.offset_ns = -6'000, .error_ns = 700};
  for (const DeviceClockOffset& both : {joined(first, second), joined(second, first)}) {
    EXPECT_EQ(both.offset_ns, -7'900);
    EXPECT_EQ(both.error_ns, 2'600);
  }
  const DeviceClockOffset same = joined(first, first);
  EXPECT_EQ(same.offset_ns, -10'000);
  EXPECT_EQ(same.error_ns, 500);
  const DeviceClockOffset odd = joined({.offset_ns = 0, .error_ns = 0}, {.offset_ns = 1});
  EXPECT_LE(odd.offset_ns - odd.error_ns, 0);
  EXPECT_GE(odd.offset_ns + odd.error_ns, 1);
}

class CudaRecorderOnGpu : public GpuTest {};

constexpr int kBlocks[] = {7, 300};  // more of the second than an SM has places for one each
constexpr int kStepBlocks = 307;

std::vector<RecordedLaunch> two_launches() {
  return {launch_of("first", kBlocks[0]), launch_of("second", kBlocks[1])};
}

struct StepOptions {
  int phases = 5;
  bool starts_early = false;  // all but the first: steps do not overlap
  RecordLevel level = RecordLevel::kPhases;
};

Result<void> launch_step(const CudaRecorder& recorder, const StepOptions& options,
                         CudaStream stream = nullptr) {
  for (int i = 0; i < 2; ++i) {
    const RecorderTestLaunch launch = {.recorder = recorder.launch(i),
                                       .blocks = kBlocks[i],
                                       .phases = options.phases,
                                       .level = options.level,
                                       .starts_early = options.starts_early && i > 0};
    GAPLESS_TRY(check_cuda(recorder_test_launch_kernel(launch, stream), "launching a test"));
  }
  return {};
}

struct Place {
  DeviceBlockHeader header;
  DeviceRecord records[kDeviceRoleCount][kRoleRecords];
};
static_assert(sizeof(Place) == kDeviceBlockBytes);

Place place_of(const DeviceRecording& recording, int step, int block) {
  Place place;
  const size_t index = static_cast<size_t>(step) * kStepBlocks + static_cast<size_t>(block);
  std::memcpy(&place, recording.blocks.data() + index * sizeof(place), sizeof(place));
  return place;
}

uint32_t tag_of(DevicePhase phase, uint32_t value) {
  return static_cast<uint32_t>(phase) | kRecordMark | value << 8;
}

int count_of(const Place& place, DeviceRole role) {
  return record_count(reinterpret_cast<const std::byte*>(&place), static_cast<int>(role));
}

// Clocks are of one SM, so that they cannot go back within a role.
void expect_in_order(const Place& place, DeviceRole role) {
  const DeviceRecord* records = place.records[static_cast<int>(role)];
  for (int i = 1; i < count_of(place, role); ++i) {
    EXPECT_LT(records[i].clock - records[i - 1].clock, 1u << 30);
  }
}

void expect_whole(const Place& place, int step, int block, int sm_count) {
  EXPECT_EQ(place.header.step, static_cast<uint32_t>(step + 1));
  EXPECT_LT(place.header.sm, static_cast<uint32_t>(sm_count));
  EXPECT_GT(place.header.begin_ns, 0u);
  ASSERT_EQ(count_of(place, DeviceRole::kMain), 9);
  ASSERT_EQ(count_of(place, DeviceRole::kCopy), 3);
  EXPECT_EQ(count_of(place, DeviceRole::kCombine), 0);
  EXPECT_EQ(place.header.dropped[0] + place.header.dropped[1] + place.header.dropped[2], 0u);
  const DeviceRecord* main = place.records[0];
  EXPECT_EQ(main[0].phase(), DevicePhase::kSetUp);
  EXPECT_LT(static_cast<uint32_t>(place.header.begin_clock) - main[0].clock, 1u << 16);
  EXPECT_EQ(main[1].phase(), DevicePhase::kWaitLaunch);
  EXPECT_EQ(main[2].phase(), DevicePhase::kWaitData);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(main[3 + i].tag, tag_of(DevicePhase::kWork, i));
  }
  EXPECT_EQ(main[8].phase(), DevicePhase::kEnd);
  const DeviceRecord* copy = place.records[1];
  EXPECT_EQ(copy[0].phase(), DevicePhase::kReadAhead);
  const uint32_t index = static_cast<uint32_t>(block < kBlocks[0] ? block : block - kBlocks[0]);
  EXPECT_EQ(copy[1].tag, tag_of(DevicePhase::kWaitData, index));
  EXPECT_EQ(copy[2].phase(), DevicePhase::kEnd);
  expect_in_order(place, DeviceRole::kMain);
  expect_in_order(place, DeviceRole::kCopy);
}

// 300 cycles until the first data, and 5 times 300 of work.
void expect_whole_task(const DeviceRecording& recording, int step, int block, int sm_count) {
  const size_t index = static_cast<size_t>(step) * kStepBlocks + static_cast<size_t>(block);
  const RecordedPlaces places(recording);
  const PlaceHeader header = places.header(index);
  EXPECT_TRUE(header.is_there);
  EXPECT_LT(header.sm, static_cast<uint32_t>(sm_count));
  EXPECT_GT(header.begin_ns, 0u);
  const std::vector<DeviceRecord> records = places.records(index, 0);
  ASSERT_EQ(records.size(), 5u);
  constexpr DevicePhase kPhases[] = {DevicePhase::kSetUp, DevicePhase::kWaitLaunch,
                                     DevicePhase::kWaitData, DevicePhase::kWork, DevicePhase::kEnd};
  constexpr uint32_t kLeastCycles[] = {0, 0, 299, 1499};  // clocks are odd
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(records[i].phase(), kPhases[i]);
  EXPECT_EQ(records[0].clock, static_cast<uint32_t>(header.begin_clock));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(records[i + 1].clock - records[i].clock, kLeastCycles[i]) << i;
    EXPECT_LT(records[i + 1].clock - records[i].clock, 1u << 30) << i;
  }
  EXPECT_TRUE(places.records(index, 1).empty());
}

void expect_whole(const DeviceRecording& recording, int step_count, int sm_count) {
  ASSERT_EQ(recording.step_count, step_count);
  ASSERT_EQ(recording.blocks.size(), static_cast<size_t>(step_count) * kStepBlocks *
                                         static_cast<size_t>(device_block_bytes(recording.level)));
  for (int step = 0; step < step_count; ++step) {
    for (int block = 0; block < kStepBlocks; ++block) {
      SCOPED_TRACE(testing::Message() << "step " << step << " block " << block);
      if (recording.level == RecordLevel::kTasks) {
        expect_whole_task(recording, step, block, sm_count);
      } else {
        expect_whole(place_of(recording, step, block), step, block, sm_count);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// What launches before wrote is waited for: no task starts before the launch before has ended.
void expect_trace_is_sound(const DeviceRecording& recording) {
  const Trace trace = device_trace(recording);
  for (const Finding& finding : trace.findings) ADD_FAILURE() << finding.text;
  ASSERT_EQ(trace.tasks.size(), static_cast<size_t>(recording.step_count) * kStepBlocks);
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    ASSERT_GE(trace.tasks.at(TaskTime::kStart)[row], trace.tasks.at(TaskTime::kReady)[row]) << row;
    ASSERT_GE(trace.tasks.at(TaskTime::kEnd)[row], trace.tasks.at(TaskTime::kStart)[row]) << row;
  }
}

TEST_F(CudaRecorderOnGpu, GivesBackWhatEveryBlockRecorded) {
  for (const int form : {0, 1, 2, 3}) {
    const bool starts_early = form % 2 == 1;
    const RecordLevel level = kLevels[form / 2];
    SCOPED_TRACE(testing::Message() << (starts_early ? "early" : "plain") << " level " << form / 2);
    Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 4, level);
    ASSERT_TRUE(recorder) << recorder.error().message;
    for (int step = 0; step < 3; ++step) {
      const Result<void> launched =
          launch_step(*recorder, {.starts_early = starts_early, .level = level});
      ASSERT_TRUE(launched) << launched.error().message;
    }
    const Result<DeviceRecording> recording = recorder->read();
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(recording->lost_step_count, 0);
    EXPECT_EQ(recording->sm_count, limits_.sm_count);
    expect_whole(*recording, 3, limits_.sm_count);
    expect_trace_is_sound(*recording);
  }
}

void expect_replays_are_recorded(RecordLevel level, int sm_count) {
  Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 40, level);
  ASSERT_TRUE(recorder) << recorder.error().message;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Result<void> launched =
      launch_step(*recorder, {.starts_early = true, .level = level}, stream);
  ASSERT_TRUE(launched) << launched.error().message;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int step = 0; step < 40; ++step) ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
  const Result<DeviceRecording> recording = recorder->read();
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_TRUE(recording) << recording.error().message;
  expect_whole(*recording, 40, sm_count);
  expect_trace_is_sound(*recording);
}

// One behind the other, without the host in between.
TEST_F(CudaRecorderOnGpu, RecordsReplaysOfAGraph) {
  for (const RecordLevel level : kLevels) expect_replays_are_recorded(level, limits_.sm_count);
}

TEST_F(CudaRecorderOnGpu, CountsPhasesThatHaveNoPlace) {
  Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 1, RecordLevel::kPhases);
  ASSERT_TRUE(recorder) << recorder.error().message;
  ASSERT_TRUE(launch_step(*recorder, {.phases = 100}));
  const Result<DeviceRecording> recording = recorder->read();
  ASSERT_TRUE(recording) << recording.error().message;
  for (int block = 0; block < kStepBlocks; ++block) {
    const Place place = place_of(*recording, 0, block);
    ASSERT_EQ(count_of(place, DeviceRole::kMain), kRoleRecords);
    ASSERT_EQ(place.header.dropped[0], 103u - (kRoleRecords - 1));
    EXPECT_EQ(place.records[0][kRoleRecords - 2].tag >> 8, static_cast<uint32_t>(kRoleRecords - 5));
    EXPECT_EQ(place.records[0][kRoleRecords - 1].phase(), DevicePhase::kEnd);
  }
}

TEST_F(CudaRecorderOnGpu, CountsStepsThatHaveNoPlaceAndStartsAfresh) {
  for (const RecordLevel level : kLevels) {
    Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 2, level);
    ASSERT_TRUE(recorder) << recorder.error().message;
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(launch_step(*recorder, {.level = level}));
    Result<DeviceRecording> recording = recorder->read();
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(recording->lost_step_count, 3);
    expect_whole(*recording, 2, limits_.sm_count);

    ASSERT_TRUE(recorder->reset());
    ASSERT_TRUE(launch_step(*recorder, {.level = level}));
    recording = recorder->read();
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(recording->lost_step_count, 0);
    expect_whole(*recording, 1, limits_.sm_count);
  }
}

// The launch is the first of its step and the last one.
TEST_F(CudaRecorderOnGpu, RecordsStepsOfOneLaunch) {
  for (const RecordLevel level : kLevels) {
    Result<CudaRecorder> recorder = CudaRecorder::make({launch_of("one", kStepBlocks)}, 9, level);
    ASSERT_TRUE(recorder) << recorder.error().message;
    const RecorderTestLaunch launch = {
        .recorder = recorder->launch(0), .blocks = kStepBlocks, .phases = 5, .level = level};
    for (int step = 0; step < 9; ++step) ASSERT_EQ(recorder_test_launch_kernel(launch, nullptr), 0);
    const Result<DeviceRecording> recording = recorder->read();
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(recording->lost_step_count, 0);
    const Trace trace = device_trace(*recording);
    EXPECT_EQ(trace.tasks.size(), size_t{9} * kStepBlocks);
    EXPECT_TRUE(trace.findings.empty());
  }
}

// Bytes of the places and of the counters that a launch of this level wrote to.
size_t written_bytes(RecordLevel level) {
  constexpr int kCount = 7;
  constexpr int64_t kPlaces = kCount * int64_t{kDeviceBlockBytes};
  std::vector<std::byte> bytes(static_cast<size_t>(kPlaces) + kCount * kDeviceRoleCount * 4);
  Result<DeviceBuffer> buffer = DeviceBuffer::allocate(std::ssize(bytes), "records");
  if (!buffer || !buffer->fill(0)) return 0;
  const RecorderLaunch recorder = {.level = level,
                                   .buffer = buffer->data(),
                                   .steps = reinterpret_cast<uint32_t*>(buffer->data() + kPlaces),
                                   .step_capacity = 1,
                                   .step_blocks = kCount,
                                   .first_block = 0};
  const RecorderTestLaunch launch = {
      .recorder = recorder, .blocks = kCount, .phases = 5, .level = level};
  if (recorder_test_launch_kernel(launch, nullptr) != 0 || !synchronize(nullptr)) return 0;
  if (!buffer->copy_to_host(bytes.data(), std::ssize(bytes))) return 0;
  return bytes.size() - static_cast<size_t>(std::count(bytes.begin(), bytes.end(), std::byte{0}));
}

TEST_F(CudaRecorderOnGpu, IsNotInKernelsThatDoNotRecord) {
  EXPECT_EQ(written_bytes(RecordLevel::kNone), 0u);
  EXPECT_GT(written_bytes(RecordLevel::kPhases), 7u * 6u * sizeof(DeviceRecord))
      << "or nothing would be seen";
}

TEST_F(CudaRecorderOnGpu, WritesNothingWithoutABuffer) {
  for (const RecordLevel level : kLevels) {
    const RecorderTestLaunch launch = {.recorder = {}, .blocks = 3, .phases = 5, .level = level};
    ASSERT_EQ(recorder_test_launch_kernel(launch, nullptr), 0);
    const Result<void> done = synchronize(nullptr);
    EXPECT_TRUE(done) << done.error().message;
  }
}

TEST_F(CudaRecorderOnGpu, SaysHowMuchMemoryItNeeds) {
  const Result<CudaRecorder> recorder =
      CudaRecorder::make({launch_of("a", 1 << 20)}, 1 << 20, RecordLevel::kPhases);
  ASSERT_FALSE(recorder);
  EXPECT_EQ(recorder.error().message.find("records of 1048576 steps of 1048576 blocks need "
                                          "1125899906842624 bytes of GPU memory; "),
            0u)
      << recorder.error().message;
}

TEST_F(CudaRecorderOnGpu, KnowsTheHostsTime) {
  const Result<DeviceClockOffset> first = measure_device_clock();
  ASSERT_TRUE(first) << first.error().message;
  const Result<DeviceClockOffset> second = measure_device_clock();
  ASSERT_TRUE(second) << second.error().message;
  for (const DeviceClockOffset& offset : {*first, *second, joined(*first, *second)}) {
    EXPECT_GT(offset.error_ns, 32);
    EXPECT_LT(offset.error_ns, 100'000);
  }
  // They were taken one after another: what is left is their errors, and a drift of a millisecond.
  EXPECT_LE(std::abs(first->offset_ns - second->offset_ns),
            first->error_ns + second->error_ns + 1'000);
}

}  // namespace
}  // namespace gapless
