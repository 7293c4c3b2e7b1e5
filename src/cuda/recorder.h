// SPDX-License-Identifier: Apache-2.0
//
// CudaRecorder: what every SM does during steps, recorded inside the kernels.
//
// The launches of a step are known beforehand, so every block of every launch of every step has a
// place of its own in one buffer: nothing to wait for. The buffer is read after the steps.
// `device_trace` makes a Trace of it: a lane for each SM with a task for each block, and lanes for
// the roles inside it with their phases; launches are a stream's lane, the host's part another. At
// level kTasks the only role is the main one, with set up, waits for launch and data, and work.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/device.h"
#include "cuda/recorder_launch.h"
#include "trace/trace.h"

namespace gapless {

// A launch of a step, in the order of the stream.
struct RecordedLaunch {
  std::string name;
  int layer = -1;  // -1: of none
  int blocks = 0;
  int64_t bytes = 0;  // of all blocks: moved and computed
  int64_t flops = 0;
};

// What the host did around a step, in nanoseconds of its steady clock.
struct HostStep {
  int64_t launch_begin_ns = 0;
  int64_t launch_end_ns = 0;
};

// The device's global timer and the host's steady clock, read as close together as can be: the
// device's time of a host time h lies within +-error_ns of h + offset_ns.
struct DeviceClockOffset {
  int64_t offset_ns = 0;
  int64_t error_ns = 0;
};

struct DeviceRecording {
  std::string device_name;
  int sm_count = 0;
  RecordLevel level = RecordLevel::kPhases;
  std::vector<RecordedLaunch> launches;
  int step_count = 0;                // that the buffer has
  int64_t lost_step_count = 0;       // for which there was no room
  std::vector<std::byte> blocks;     // [step][block][device_block_bytes(level)]
  std::vector<HostStep> host_steps;  // as many as steps, or none
  DeviceClockOffset clock;           // while it was made
};

class CudaRecorder {
 public:
  // Memory for that many steps is taken on the device: device_block_bytes() a block and step. At
  // level kTasks a step begins when the one before has ended: its first launch does not start
  // early, or the step is a replay of a graph.
  static Result<CudaRecorder> make(std::vector<RecordedLaunch> launches, int step_capacity,
                                   RecordLevel level);

  RecorderLaunch launch(int index) const;
  // Forgets all steps. The stream is idle.
  Result<void> reset();
  // Waits for the device and takes what is there. The host's part of the steps is the caller's.
  Result<DeviceRecording> read() const;

 private:
  Result<uint32_t> count_steps() const;

  std::vector<RecordedLaunch> launches_;
  std::vector<uint32_t> first_blocks_;
  RecordLevel level_ = RecordLevel::kTasks;
  uint32_t step_blocks_ = 0;
  int step_capacity_ = 0;
  DeviceBuffer buffer_;
  DeviceBuffer steps_;             // as RecorderLaunch::steps
  DeviceClockOffset first_clock_;  // when the steps were forgotten
};

// Between two readings of the host's steady clock the device reads its timer; the best of many
// tries. The error is half of what lay between, and a tick of the timer. Takes about a millisecond.
Result<DeviceClockOffset> measure_device_clock();
// What holds at both times and, where one clock drifts against the other, between them.
DeviceClockOffset joined(const DeviceClockOffset& first, const DeviceClockOffset& second);

// Blocks whose place was not written, clocks that go back and records that were dropped become
// findings. Needs no device.
Trace device_trace(const DeviceRecording& recording);

}  // namespace gapless
