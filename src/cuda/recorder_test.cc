// SPDX-License-Identifier: Apache-2.0
//
// CudaRecorder on a GPU, with a kernel of two roles that does nothing but record, and its errors on
// the host. Without a GPU the tests of the former are skipped and say so.

#include "cuda/recorder.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "cuda/recorder_test_kernel.h"

namespace gapless {
namespace {

RecordedLaunch launch_of(const char* name, int blocks) {
  return {.name = name, .layer = 0, .blocks = blocks, .bytes = 64, .flops = 0};
}

std::string error_of(const Result<CudaRecorder>& result) {
  return result ? "" : result.error().message;
}

TEST(CudaRecorder, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of(CudaRecorder::make({}, 1)),
            "a recorder of 0 launches and 1 steps; needs 1 of each");
  EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", 1)}, 0)),
            "a recorder of 1 launches and 0 steps; needs 1 of each");
  EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", 1), launch_of("b", 0)}, 1)),
            "a recorder of launch b with 0 blocks; needs 1");
  constexpr int kMany = std::numeric_limits<int>::max();
  EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", kMany), launch_of("b", 1)}, 1)),
            "a recorder of 2147483648 or more blocks a step");
  EXPECT_EQ(error_of(CudaRecorder::make({launch_of("a", kMany)}, kMany)),
            "a recorder of 2147483647 steps of 2147483647 blocks");
}

class CudaRecorderOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const Result<CudaLimits> limits = cuda_limits();
    if (!limits) GTEST_SKIP() << "NO GPU, NOTHING WAS TESTED: " << limits.error().message;
    sm_count_ = limits->sm_count;
  }

  int sm_count_ = 0;
};

constexpr int kBlocks[] = {7, 300};  // more of the second than an SM has places for one each
constexpr int kStepBlocks = 307;

std::vector<RecordedLaunch> two_launches() {
  return {launch_of("first", kBlocks[0]), launch_of("second", kBlocks[1])};
}

struct StepOptions {
  int phases = 5;
  bool starts_early = false;
  bool is_recorded = true;
};

Result<void> launch_step(const CudaRecorder& recorder, const StepOptions& options,
                         CudaStream stream = nullptr) {
  for (int i = 0; i < 2; ++i) {
    const RecorderTestLaunch launch = {.recorder = recorder.launch(i),
                                       .blocks = kBlocks[i],
                                       .phases = options.phases,
                                       .is_recorded = options.is_recorded,
                                       .starts_early = options.starts_early};
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
  ASSERT_EQ(count_of(place, DeviceRole::kMain), 8);
  ASSERT_EQ(count_of(place, DeviceRole::kCopy), 3);
  EXPECT_EQ(count_of(place, DeviceRole::kCombine), 0);
  EXPECT_EQ(place.header.dropped[0] + place.header.dropped[1] + place.header.dropped[2], 0u);
  const DeviceRecord* main = place.records[0];
  EXPECT_EQ(main[0].phase(), DevicePhase::kSetUp);
  EXPECT_LT(static_cast<uint32_t>(place.header.begin_clock) - main[0].clock, 1u << 16);
  EXPECT_EQ(main[1].phase(), DevicePhase::kWaitLaunch);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(main[2 + i].tag, tag_of(DevicePhase::kWork, i));
  }
  EXPECT_EQ(main[7].phase(), DevicePhase::kEnd);
  const DeviceRecord* copy = place.records[1];
  EXPECT_EQ(copy[0].phase(), DevicePhase::kReadAhead);
  const uint32_t index = static_cast<uint32_t>(block < kBlocks[0] ? block : block - kBlocks[0]);
  EXPECT_EQ(copy[1].tag, tag_of(DevicePhase::kWaitData, index));
  EXPECT_EQ(copy[2].phase(), DevicePhase::kEnd);
  expect_in_order(place, DeviceRole::kMain);
  expect_in_order(place, DeviceRole::kCopy);
}

void expect_whole(const DeviceRecording& recording, int step_count, int sm_count) {
  ASSERT_EQ(recording.step_count, step_count);
  ASSERT_EQ(recording.blocks.size(), static_cast<size_t>(step_count) * kStepBlocks * sizeof(Place));
  for (int step = 0; step < step_count; ++step) {
    for (int block = 0; block < kStepBlocks; ++block) {
      SCOPED_TRACE(testing::Message() << "step " << step << " block " << block);
      expect_whole(place_of(recording, step, block), step, block, sm_count);
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
  for (const bool starts_early : {false, true}) {
    SCOPED_TRACE(starts_early ? "early" : "plain");
    Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 4);
    ASSERT_TRUE(recorder) << recorder.error().message;
    for (int step = 0; step < 3; ++step) {
      const Result<void> launched = launch_step(*recorder, {.starts_early = starts_early});
      ASSERT_TRUE(launched) << launched.error().message;
    }
    const Result<DeviceRecording> recording = recorder->read();
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(recording->lost_step_count, 0);
    EXPECT_EQ(recording->sm_count, sm_count_);
    expect_whole(*recording, 3, sm_count_);
    expect_trace_is_sound(*recording);
  }
}

TEST_F(CudaRecorderOnGpu, RecordsReplaysOfAGraph) {
  Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 6);
  ASSERT_TRUE(recorder) << recorder.error().message;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Result<void> launched = launch_step(*recorder, {.starts_early = true}, stream);
  ASSERT_TRUE(launched) << launched.error().message;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int step = 0; step < 6; ++step) ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
  const Result<DeviceRecording> recording = recorder->read();
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_TRUE(recording) << recording.error().message;
  expect_whole(*recording, 6, sm_count_);
  expect_trace_is_sound(*recording);
}

TEST_F(CudaRecorderOnGpu, CountsPhasesThatHaveNoPlace) {
  Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 1);
  ASSERT_TRUE(recorder) << recorder.error().message;
  ASSERT_TRUE(launch_step(*recorder, {.phases = 100}));
  const Result<DeviceRecording> recording = recorder->read();
  ASSERT_TRUE(recording) << recording.error().message;
  for (int block = 0; block < kStepBlocks; ++block) {
    const Place place = place_of(*recording, 0, block);
    ASSERT_EQ(count_of(place, DeviceRole::kMain), kRoleRecords);
    ASSERT_EQ(place.header.dropped[0], 102u - (kRoleRecords - 1));
    EXPECT_EQ(place.records[0][kRoleRecords - 2].tag >> 8, static_cast<uint32_t>(kRoleRecords - 4));
    EXPECT_EQ(place.records[0][kRoleRecords - 1].phase(), DevicePhase::kEnd);
  }
}

TEST_F(CudaRecorderOnGpu, CountsStepsThatHaveNoPlaceAndStartsAfresh) {
  Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 2);
  ASSERT_TRUE(recorder) << recorder.error().message;
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(launch_step(*recorder, {}));
  Result<DeviceRecording> recording = recorder->read();
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->lost_step_count, 3);
  expect_whole(*recording, 2, sm_count_);

  ASSERT_TRUE(recorder->reset());
  ASSERT_TRUE(launch_step(*recorder, {}));
  recording = recorder->read();
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->lost_step_count, 0);
  expect_whole(*recording, 1, sm_count_);
}

TEST_F(CudaRecorderOnGpu, IsNotInKernelsThatDoNotRecord) {
  Result<CudaRecorder> recorder = CudaRecorder::make(two_launches(), 1);
  ASSERT_TRUE(recorder) << recorder.error().message;
  ASSERT_TRUE(launch_step(*recorder, {.is_recorded = false}));
  const Result<DeviceRecording> recording = recorder->read();
  ASSERT_TRUE(recording) << recording.error().message;
  ASSERT_EQ(recording->step_count, 0);
  for (const std::byte byte : recording->blocks) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(CudaRecorderOnGpu, WritesNothingWithoutABuffer) {
  const RecorderTestLaunch launch = {.recorder = {}, .blocks = 3, .phases = 5};
  ASSERT_EQ(recorder_test_launch_kernel(launch, nullptr), 0);
  const Result<void> done = synchronize(nullptr);
  EXPECT_TRUE(done) << done.error().message;
}

TEST_F(CudaRecorderOnGpu, SaysHowMuchMemoryItNeeds) {
  const Result<CudaRecorder> recorder = CudaRecorder::make({launch_of("a", 1 << 20)}, 1 << 20);
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
  for (const DeviceClockOffset& offset : {*first, *second}) {
    EXPECT_GT(offset.error_ns, 32);
    EXPECT_LT(offset.error_ns, 100'000);
  }
  // They were taken one after another: what is left is their errors, and a drift of a millisecond.
  EXPECT_LE(std::abs(first->offset_ns - second->offset_ns),
            first->error_ns + second->error_ns + 1'000);
}

}  // namespace
}  // namespace gapless
