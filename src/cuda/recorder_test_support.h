// SPDX-License-Identifier: Apache-2.0
//
// MadeRecording: a DeviceRecording of blocks whose true times are known, as a GPU would leave it at
// either level: a timer that ticks every 32 ns and is ahead of the host, and SM clocks of 1.755 GHz
// that began at different times, some of them just before their low half wraps. And what
// is expected of a recording that a GPU made.

#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/recorder.h"

namespace gapless {

// Of a recording of tasks, how many had data. Those came when the launch before was over or later,
// and before the end.
inline int expect_data_in_order(const DeviceRecording& recording) {
  int count = 0;
  for (size_t at = 0; at < recording.blocks.size(); at += sizeof(DeviceTask)) {
    DeviceTask task;
    std::memcpy(&task, recording.blocks.data() + at, sizeof(task));
    EXPECT_NE(task.waited_clock, 0u);
    if (task.data_clock == 0) continue;
    ++count;
    EXPECT_LE(task.data_clock - task.waited_clock, task.end_clock - task.waited_clock);
  }
  return count;
}

inline constexpr int64_t kMadeTickNs = 32;
inline constexpr int64_t kMadeOffsetNs = 1'700'000'000'000'000'000 / kMadeTickNs * kMadeTickNs;
inline constexpr double kMadeClockGhz = 1.755;

inline uint32_t made_tag(DevicePhase phase, uint32_t value = 0) {
  return static_cast<uint32_t>(phase) | kRecordMark | value << 8;
}

struct MadePhase {
  int64_t time_ns = 0;  // since the recording's begin, as all times here
  DevicePhase phase = DevicePhase::kWork;
  uint32_t value = 0;
};

struct MadeBlock {
  size_t step = 0;
  size_t launch = 0;
  size_t index = 0;
  uint32_t sm = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<MadePhase> main = {};  // kEnd is added
  std::vector<MadePhase> copy = {};
};

class MadeRecording {
 public:
  MadeRecording(int sm_count, std::vector<RecordedLaunch> launches, int step_count,
                RecordLevel level = RecordLevel::kPhases) {
    recording_.level = level;
    recording_.device_name = "NVIDIA H200";
    recording_.sm_count = sm_count;
    recording_.step_count = step_count;
    recording_.clock = {.offset_ns = kMadeOffsetNs, .error_ns = 900};
    for (const RecordedLaunch& launch : launches) {
      first_blocks_.push_back(step_blocks_);
      step_blocks_ += static_cast<size_t>(launch.blocks);
    }
    recording_.launches = std::move(launches);
    recording_.blocks.resize(step_blocks_ * static_cast<size_t>(step_count) * block_bytes());
  }

  static uint64_t clock_at(uint32_t sm, int64_t time_ns) {
    const uint64_t first = (uint64_t{sm} + 1) * 0x1'0000'0000 - 20'000 * (sm % 3 + 1);
    return first + static_cast<uint64_t>(static_cast<double>(time_ns) * kMadeClockGhz);
  }
  static uint64_t timer_at(int64_t time_ns) {
    return static_cast<uint64_t>((kMadeOffsetNs + time_ns) / kMadeTickNs * kMadeTickNs);
  }

  size_t place_of(size_t step, size_t launch, size_t index) const {
    return step * step_blocks_ + first_blocks_[launch] + index;
  }
  size_t block_bytes() const { return static_cast<size_t>(device_block_bytes(recording_.level)); }
  std::byte* data(size_t place) { return recording_.blocks.data() + place * block_bytes(); }
  DeviceTask task(size_t place) { return first_of<DeviceTask>(place); }
  void set_task(size_t place, const DeviceTask& task) { set_first(place, task); }
  DeviceBlockHeader header(size_t place) { return first_of<DeviceBlockHeader>(place); }
  void set_header(size_t place, const DeviceBlockHeader& header) { set_first(place, header); }
  void set_record(size_t place, DeviceRole role, int index, DeviceRecord record) {
    const size_t at = static_cast<size_t>(role) * kRoleRecords + static_cast<size_t>(index);
    std::memcpy(data(place) + sizeof(DeviceBlockHeader) + at * sizeof(record), &record,
                sizeof(record));
  }

  void add(const MadeBlock& block) {
    const size_t place = place_of(block.step, block.launch, block.index);
    if (recording_.level == RecordLevel::kTasks) return set_task(place, task_of(block));
    DeviceBlockHeader header;
    header.step = static_cast<uint32_t>(block.step + 1);
    header.sm = block.sm;
    header.begin_ns = timer_at(block.begin_ns);
    header.begin_clock = clock_at(block.sm, block.begin_ns);
    set_header(place, header);
    add_role(place, block, DeviceRole::kMain, block.main);
    add_role(place, block, DeviceRole::kCopy, block.copy);
  }

  DeviceRecording& recording() { return recording_; }

 private:
  // What a place begins with.
  template <typename T>
  T first_of(size_t place) {
    T value;
    std::memcpy(&value, data(place), sizeof(value));
    return value;
  }
  template <typename T>
  void set_first(size_t place, const T& value) {
    std::memcpy(data(place), &value, sizeof(value));
  }

  // What a kMain with these phases leaves at level kTasks.
  static DeviceTask task_of(const MadeBlock& block) {
    const uint64_t clock = clock_at(block.sm, block.begin_ns);
    DeviceTask task;
    task.begin_ns = timer_at(block.begin_ns);
    task.begin_clock = static_cast<uint32_t>(clock);
    uint32_t set_up = 0;
    for (const MadePhase& phase : block.main) {
      const uint64_t phase_clock = clock_at(block.sm, phase.time_ns);
      const uint32_t odd = static_cast<uint32_t>(phase_clock) | 1;
      if (phase.phase == DevicePhase::kWaitLaunch)
        set_up = static_cast<uint32_t>(phase_clock - clock) / kSetUpCycles;
      if (phase.phase != DevicePhase::kWaitData && phase.phase != DevicePhase::kWork) continue;
      if (task.waited_clock == 0) task.waited_clock = odd;
      if (phase.phase == DevicePhase::kWork && task.data_clock == 0) task.data_clock = odd;
    }
    const uint32_t clock_high = static_cast<uint32_t>(clock >> 32) & 63;
    task.set_up_and_more = set_up | clock_high << kClockHighShift | block.sm << kTaskSmShift;
    task.end_clock = static_cast<uint32_t>(clock_at(block.sm, block.end_ns)) | 1;
    task.mark = kTaskMark;
    return task;
  }
  void add_role(size_t place, const MadeBlock& block, DeviceRole role,
                const std::vector<MadePhase>& phases) {
    if (phases.empty()) return;
    int count = 0;
    for (const MadePhase& phase : phases) {
      set_record(place, role, count++,
                 {made_tag(phase.phase, phase.value),
                  static_cast<uint32_t>(clock_at(block.sm, phase.time_ns))});
    }
    set_record(
        place, role, count,
        {made_tag(DevicePhase::kEnd), static_cast<uint32_t>(clock_at(block.sm, block.end_ns))});
  }

  DeviceRecording recording_;
  std::vector<size_t> first_blocks_;
  size_t step_blocks_ = 0;
};

inline constexpr int64_t kHandMadeStepNs = 40'000;

// Three launches on SMs 0 to 2 of four, two steps. The second and third launch begin early: the
// last block of the third is on SM 2 while one of the second still runs there.
inline MadeRecording hand_made_recording(RecordLevel level = RecordLevel::kPhases) {
  MadeRecording made(4,
                     {{.name = "norm", .layer = 0, .blocks = 3, .bytes = 1000, .flops = 10},
                      {.name = "qkv", .layer = 0, .blocks = 2, .bytes = 2001, .flops = 0},
                      {.name = "attention", .layer = 1, .blocks = 3, .bytes = 3002, .flops = 7}},
                     2, level);
  for (size_t step = 0; step < 2; ++step) {
    const int64_t t = 1'000'000 + static_cast<int64_t>(step) * kHandMadeStepNs;
    const auto add_norm = [&](size_t index, uint32_t sm, int64_t end_ns) {
      made.add({.step = step,
                .launch = 0,
                .index = index,
                .sm = sm,
                .begin_ns = t,
                .end_ns = t + end_ns,
                .main = {{t, DevicePhase::kSetUp}, {t + 200, DevicePhase::kWork, 5}}});
    };
    const auto add_early = [&](size_t launch, size_t index, uint32_t sm, int64_t begin_ns,
                               int64_t waited_ns, int64_t end_ns) {
      made.add({.step = step,
                .launch = launch,
                .index = index,
                .sm = sm,
                .begin_ns = t + begin_ns,
                .end_ns = t + end_ns,
                .main = {{t + begin_ns, DevicePhase::kSetUp},
                         {t + begin_ns + 100, DevicePhase::kWaitLaunch},
                         {t + waited_ns, DevicePhase::kWork, 9}},
                .copy = {{t + begin_ns + 50, DevicePhase::kReadAhead}}});
    };
    add_norm(0, 0, 10'000);
    add_norm(1, 1, 12'000);
    add_norm(2, 2, 8'000);
    add_early(1, 0, 2, 8'500, 12'500, 20'000);
    add_early(1, 1, 0, 10'500, 12'500, 18'000);
    add_early(2, 0, 1, 13'000, 20'600, 30'000);
    add_early(2, 1, 0, 18'500, 20'600, 26'000);
    add_early(2, 2, 2, 15'000, 20'600, 31'000);
    made.recording().host_steps.push_back({t - 9'000, t - 4'000});
  }
  return made;
}

}  // namespace gapless
