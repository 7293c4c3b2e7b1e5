// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the row ops share: values on the GPU and back, poison around what may be
// written, and a recorder of one step.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/attention_test_support.h"
#include "cuda/device.h"
#include "cuda/gpu_test_support.h"
#include "cuda/rows.h"

namespace gapless {

class CudaRowsOnDevice : public GpuTest {};

inline std::string rows_error(const Result<void>& result) {
  return result ? "" : result.error().message;
}

// Mean 0, deviation 1.
inline std::vector<float> random_floats(int64_t count, uint64_t seed) {
  RandomValues random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.next();
  return values;
}

// An array on the GPU between two guards of bytes 0xff.
template <typename T>
class DeviceArray {
 public:
  static constexpr int64_t kGuardBytes = 512;

  // Bytes of 0xff, or the values.
  static DeviceArray poisoned(int64_t count) { return DeviceArray(count); }
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    expect_done(buffer_.copy_from_host(values.data(), count_ * int64_t{sizeof(T)}, kGuardBytes));
  }

  T* data() const { return reinterpret_cast<T*>(buffer_.data() + kGuardBytes); }
  void poison() { expect_done(buffer_.fill(0xff)); }
  void clear() { expect_done(buffer_.fill(0)); }

  // After all launches; the guards must be as they were.
  std::vector<T> values() const {
    expect_done(synchronize(nullptr));
    std::vector<std::byte> bytes(static_cast<size_t>(buffer_.bytes()));
    expect_done(buffer_.copy_to_host(bytes.data(), buffer_.bytes()));
    const size_t size = static_cast<size_t>(count_) * sizeof(T);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool is_guard = i < kGuardBytes || i >= kGuardBytes + size;
      if (is_guard && bytes[i] != std::byte{0xff}) {
        ADD_FAILURE() << "byte " << i << " outside an array of " << size << " was written";
        break;
      }
    }
    std::vector<T> values(static_cast<size_t>(count_));
    std::memcpy(values.data(), bytes.data() + kGuardBytes, size);
    return values;
  }

 private:
  explicit DeviceArray(int64_t count) : count_(count) {
    Result<DeviceBuffer> buffer =
        DeviceBuffer::allocate(count * int64_t{sizeof(T)} + 2 * kGuardBytes, "a test");
    if (!buffer) {
      ADD_FAILURE() << buffer.error().message;
      return;
    }
    buffer_ = std::move(*buffer);
    poison();
  }
  static void expect_done(const Result<void>& result) { EXPECT_EQ(rows_error(result), ""); }

  int64_t count_ = 0;
  DeviceBuffer buffer_;
};

// A recorder of one step with one launch, by hand.
class OneLaunchRecorder {
 public:
  explicit OneLaunchRecorder(int blocks, RecordLevel level)
      : blocks_(blocks),
        level_(level),
        buffer_(std::vector<std::byte>(static_cast<size_t>(blocks * device_block_bytes(level)))),
        steps_(std::vector<uint32_t>(static_cast<size_t>(blocks) * kDeviceRoleCount)) {}

  RecorderLaunch launch() const {
    return {.level = level_,
            .ends_step = true,
            .buffer = buffer_.data(),
            .steps = steps_.data(),
            .step_capacity = 1,
            .step_blocks = static_cast<uint32_t>(blocks_),
            .first_block = 0};
  }
  // Every block has set up, waited, worked and ended, in this order.
  void expect_all_phases() const {
    const std::vector<std::byte> bytes = buffer_.values();
    if (level_ == RecordLevel::kTasks) return expect_all_tasks(bytes);
    for (int block = 0; block < blocks_; ++block) {
      const std::byte* place = bytes.data() + static_cast<size_t>(block) * kDeviceBlockBytes;
      DeviceBlockHeader header;
      std::memcpy(&header, place, sizeof(header));
      ASSERT_EQ(header.step, 1u) << "block " << block;
      ASSERT_EQ(record_count(place, 0), 4) << "block " << block;
      constexpr DevicePhase kPhases[] = {DevicePhase::kSetUp, DevicePhase::kWaitLaunch,
                                         DevicePhase::kWork, DevicePhase::kEnd};
      for (int i = 0; i < 4; ++i) EXPECT_EQ(record_at(place, 0, i).phase(), kPhases[i]);
      EXPECT_NE(record_at(place, 0, 3).clock, record_at(place, 0, 0).clock);
    }
  }

 private:
  // Nobody waits for more than the launch before, and the step was counted.
  void expect_all_tasks(const std::vector<std::byte>& bytes) const {
    for (int block = 0; block < blocks_; ++block) {
      DeviceTask task;
      std::memcpy(&task, bytes.data() + static_cast<size_t>(block) * sizeof(task), sizeof(task));
      ASSERT_EQ(task.mark, kTaskMark) << "block " << block;
      EXPECT_GT(task.begin_ns, 0u);
      EXPECT_EQ(task.data_clock, task.waited_clock);
      EXPECT_LT(task.waited_clock - task.begin_clock, 1u << 30);
      EXPECT_LT(task.end_clock - task.waited_clock, 1u << 30);
    }
    const std::vector<uint32_t> steps = steps_.values();
    EXPECT_EQ(steps[0], 0u);
    EXPECT_EQ(steps[1], 1u);
  }

  int blocks_;
  RecordLevel level_;
  DeviceArray<std::byte> buffer_;
  DeviceArray<uint32_t> steps_;
};

}  // namespace gapless
