// SPDX-License-Identifier: Apache-2.0
//
// RoleRecorder: how a role of a block records its phases (cuda/recorder_launch.h). In a kernel:
//
//   RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
//   recorder.begin(DevicePhase::kSetUp);       // at entry
//   recorder.phase(DevicePhase::kWaitLaunch);  // what was before ends here
//   wait_for_launch_before();
//   recorder.phase(DevicePhase::kWork, tile);
//   recorder.end();                            // the last statement of the role
//
// The last argument is true in one thread of the block, lane 0 of a warp; all other threads may
// call the same functions, or not, and record nothing. Where a role records nothing at a level, the
// object is empty and its functions do nothing. Every block has a kMain, which begins when the
// block does; no role waits for another. A role that ends later than kMain says enter() when the
// block begins, waited() when the launch before is over and has_data() when the block's first data
// are there, or had_data() if they were before: its own phases need not begin then.
//
// kPhases: a phase costs a clock read and an 8-byte store that nobody waits for; all lanes run the
// same instructions and one of them stores, so that nothing branches. The block's place depends on
// the number of the step, which begin() starts to load. A role takes its place when it begins to
// wait for the launch before, since then it has time, at the latest with its third phase (kCombine
// only then: it begins when that wait may be over). What was recorded until then stays in
// registers, and is stored with kMain's header. From there on the object is three registers.
//
// kTasks: one lane records for the block: six clock reads, one load whose result is used when the
// wait for the launch before begins, and two stores of 16 bytes. It is a lane of the role
// that ends last (kEndsBlock), or of a warp that does nothing else (observe_block): most of what a
// block does is done once, from code that the SM does not have, at six cycles an instruction, so
// that thirty instructions of a recorder among those that others wait for are 0.1 us of the launch.
//
// The statements in assembler keep their order among those of the kernel's waits, and have no
// effect on when the kernel's own loads and stores are.

#pragma once

#include <cstddef>
#include <type_traits>

#include "cuda/recorder_launch.h"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"

namespace gapless::device {

struct ClockPair {
  uint64_t ns;
  uint64_t clock;
};
__device__ __forceinline__ uint32_t read_clock() {
  uint32_t clock;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
  return clock;
}
__device__ __forceinline__ ClockPair read_clocks() {
  ClockPair pair;
  asm volatile("mov.u64 %0, %%globaltimer;\n mov.u64 %1, %%clock64;"
               : "=l"(pair.ns), "=l"(pair.clock));
  return pair;
}

// Global memory, which nobody in the kernel reads or writes but through these.
__device__ __forceinline__ uint32_t load_word(const uint32_t* source) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(source));
  return word;
}
__device__ __forceinline__ void store_word(uint32_t* target, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(target), "r"(word));
}
__device__ __forceinline__ void store_four(std::byte* target, uint4 words) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w));
}
// By the lanes whose index is below the limit, without a branch.
__device__ __forceinline__ void store_two_below(uint32_t limit, uint32_t index, std::byte* target,
                                                uint2 words) {
  asm volatile(
      "{\n .reg .pred p;\n setp.lt.u32 p, %0, %1;\n @p st.global.v2.u32 [%2], {%3, %4};\n}" ::"r"(
          index),
      "r"(limit), "l"(target), "r"(words.x), "r"(words.y));
}

// kEndsBlock: no other role of the block ends later.
template <RecordLevel kLevel, DeviceRole kRole, bool kEndsBlock = kRole == DeviceRole::kMain>
class RoleRecorder {
 public:
  __device__ __forceinline__ RoleRecorder(const RecorderLaunch&, bool /*is_recording_lane*/) {}
  __device__ __forceinline__ void enter() {}
  __device__ __forceinline__ void waited() {}
  __device__ __forceinline__ void has_data() {}
  __device__ __forceinline__ void had_data() {}
  __device__ __forceinline__ void begin(DevicePhase, uint32_t = 0) {}
  __device__ __forceinline__ void phase(DevicePhase, uint32_t = 0) {}
  __device__ __forceinline__ void end() {}
  __device__ __forceinline__ void end_idle() {}
};
static_assert(std::is_empty_v<RoleRecorder<RecordLevel::kNone, DeviceRole::kMain>>);
static_assert(std::is_empty_v<RoleRecorder<RecordLevel::kTasks, DeviceRole::kCopy>>);

// The number of the block among those of all launches.
__device__ __forceinline__ uint32_t block_of_step(const RecorderLaunch& launch) {
  return launch.first_block + blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}
__device__ __forceinline__ uint32_t low_half(uint64_t value) {
  return static_cast<uint32_t>(value);
}
__device__ __forceinline__ uint32_t high_half(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

// ---- kPhases.

template <DeviceRole kRole, bool kEndsBlock>
class RoleRecorder<RecordLevel::kPhases, kRole, kEndsBlock> {
 public:
  __device__ __forceinline__ RoleRecorder(const RecorderLaunch& launch, bool is_recording_lane)
      : launch_(launch), is_recording_(is_recording_lane) {}

  __device__ __forceinline__ void enter() {}
  __device__ __forceinline__ void waited() {}
  __device__ __forceinline__ void has_data() {}
  __device__ __forceinline__ void had_data() {}
  // The first phase. Of kMain: the block begins.
  __device__ __forceinline__ void begin(DevicePhase phase, uint32_t value = 0) {
    is_recording_ = is_recording_ && launch_.buffer != nullptr;
    kept_count_ = 1;
    if (!is_recording_) return;
    kept_[0] = {tag_of(phase, value), read_clock()};
    if constexpr (kRole == DeviceRole::kMain) begin_ = read_clocks();
    step_ = load_word(counter());
  }

  // The phase before ends, this one begins. `value` has 24 bits.
  __device__ __forceinline__ void phase(DevicePhase phase, uint32_t value = 0) {
    const uint2 record = {tag_of(phase, value), read_clock()};
    if (kept_count_ == 1) {
      kept_[1] = record;
      kept_count_ = 2;
      if (kHasTime && phase == DevicePhase::kWaitLaunch) take_place();
      return;
    }
    if (kept_count_ == 2) take_place();
    store_two_below(kPhaseRecords, count_, record_place(count_), record);
    ++count_;
  }

  // Nothing may be recorded after it.
  __device__ __forceinline__ void end() {
    const uint2 record = {tag_of(DevicePhase::kEnd, 0), read_clock()};
    if (kept_count_ != kIsPlaced) take_place();
    store_two_below(kNoPlace, count_, record_place(min(count_, kPhaseRecords)), record);
    if (count_ <= kPhaseRecords || count_ >= kNoPlace) return;
    uint32_t* dropped = reinterpret_cast<uint32_t*>(records_ - kRecordsOffset + kDroppedOffset);
    store_word(dropped, count_ - kPhaseRecords);
  }
  __device__ __forceinline__ void end_idle() { end(); }

 private:
  static constexpr uint32_t kPhaseRecords = kRoleRecords - 1;  // the last place is kEnd's
  static constexpr uint32_t kNoPlace = 1u << 31;               // no role has so many phases
  static constexpr uint32_t kIsPlaced = 3;
  static constexpr bool kHasTime = kRole != DeviceRole::kCombine;  // before the launch before ends
  static constexpr uint32_t kRoleIndex = static_cast<uint32_t>(kRole);
  static constexpr int64_t kRecordsOffset =
      sizeof(DeviceBlockHeader) + kRoleIndex * kRoleRecords * sizeof(DeviceRecord);
  static constexpr int64_t kDroppedOffset =
      offsetof(DeviceBlockHeader, dropped) + kRoleIndex * sizeof(uint32_t);

  static __device__ __forceinline__ uint32_t tag_of(DevicePhase phase, uint32_t value) {
    return static_cast<uint32_t>(phase) | kRecordMark | value << 8;
  }
  __device__ __forceinline__ uint32_t* counter() const {
    return launch_.steps + uint64_t{block_of_step(launch_)} * kDeviceRoleCount + kRoleIndex;
  }
  __device__ __forceinline__ std::byte* record_place(uint32_t index) const {
    return records_ + uint64_t{index} * sizeof(DeviceRecord);
  }

  // The number of the step is needed here, and with it the block has its place: what was kept is
  // stored, with the header when the role is kMain.
  __device__ __forceinline__ void take_place() {
    const uint32_t kept_count = kept_count_;
    kept_count_ = kIsPlaced;
    count_ = kNoPlace;
    if (!is_recording_) return;
    store_word(counter(), step_ + 1);
    if (step_ >= launch_.step_capacity) return;
    count_ = kept_count;
    const uint64_t place = uint64_t{step_} * launch_.step_blocks + block_of_step(launch_);
    std::byte* header = launch_.buffer + place * kDeviceBlockBytes;
    records_ = header + kRecordsOffset;
    store_four(records_, {kept_[0].x, kept_[0].y, kept_[1].x, kept_[1].y});
    if constexpr (kRole == DeviceRole::kMain) {
      uint32_t sm;
      asm("mov.u32 %0, %%smid;" : "=r"(sm));
      store_four(header, {step_ + 1, sm, low_half(begin_.ns), high_half(begin_.ns)});
      store_four(header + 16, {low_half(begin_.clock), high_half(begin_.clock), 0, 0});
    }
  }

  const RecorderLaunch& launch_;
  bool is_recording_;
  // Until the block has its place:
  uint32_t step_ = 0;        // on its way
  uint32_t kept_count_ = 0;  // of phases, or kIsPlaced
  uint2 kept_[2] = {};
  ClockPair begin_ = {};  // of kMain
  // Then:
  std::byte* records_ = nullptr;
  uint32_t count_ = 0;  // of phases so far, also of those beyond; kNoPlace and more: none is stored
};

// ---- kTasks.

inline constexpr uint32_t kNoTask = ~0u;

// Odd: 0 is no reading.
__device__ __forceinline__ uint32_t read_odd_clock() { return read_clock() | 1; }

// In the last launch of a step, after the step's number was read: when all its blocks were here,
// the word beside the count has grown by one.
__device__ __forceinline__ void count_block(const RecorderLaunch& launch) {
  const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
  const bool is_first = block_of_step(launch) == launch.first_block;
  const uint64_t part = is_first ? (uint64_t{1} << 32) - (blocks - 1) : 1;
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(launch.steps), "l"(part));
}

// By lanes that have a task. To stay in L2 whatever else comes through it is for the first half:
// where the second does not find it there, the launch ends half a microsecond later.
template <bool kStaysInL2>
__device__ __forceinline__ void store_half(std::byte* place, uint32_t task, uint4 words) {
  if constexpr (kStaysInL2) {
    asm volatile(
        "{\n .reg .pred p;\n .reg .b64 policy;\n setp.ne.u32 p, %0, -1;\n"
        " createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
        " @p st.global.L2::cache_hint.v4.u32 [%1], {%2, %3, %4, %5}, policy;\n}" ::"r"(task),
        "l"(place), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
  } else {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.u32 p, %0, -1;\n"
        " @p st.global.v4.u32 [%1], {%2, %3, %4, %5};\n}" ::"r"(task),
        "l"(place), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
  }
}

// What the lane that records a block does, whatever its role. kIsStream: what the block reads goes
// through L2 and takes the place of what lies there.
template <bool kIsStream>
class BlockRecorder {
 public:
  __device__ __forceinline__ BlockRecorder(const RecorderLaunch& launch, bool is_recording_lane)
      : launch_(launch), is_recording_(is_recording_lane) {}

  __device__ __forceinline__ void begin() {
    is_recording_ = is_recording_ && launch_.buffer != nullptr;
    if (!is_recording_) return;  // the other warps are not held up
    step_ = load_word(launch_.steps + 1);
    const uint32_t before = read_clock();
    begin_ = read_clocks();
    if (low_half(begin_.clock) - before > kMaxAnchorCycles) begin_.ns |= kReadApart;
  }
  // The wait for the launch before begins: there is time.
  __device__ __forceinline__ void take_place() {
    if (!is_recording_) return;
    constexpr uint32_t kHighMask = (1u << (kTaskClockBits - 32)) - 1;
    const uint32_t set_up = (read_clock() - low_half(begin_.clock)) / kSetUpCycles;
    const uint32_t clock_high = high_half(begin_.clock) & kHighMask;
    uint32_t sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    const uint32_t more =
        min(set_up, kMaxSetUp) | clock_high << kClockHighShift | sm << kTaskSmShift;
    if (step_ < launch_.step_capacity) task_ = step_ * launch_.step_blocks + block_of_step(launch_);
    place_ = launch_.buffer + uint64_t{task_} * sizeof(DeviceTask);
    store_half<kIsStream>(
        place_, task_, {low_half(begin_.ns), high_half(begin_.ns), low_half(begin_.clock), more});
    if (launch_.ends_step) count_block(launch_);
  }
  // With when the launch before was over, and when there were data.
  __device__ __forceinline__ void end(uint32_t waited_clock, uint32_t data_clock) {
    constexpr int kSecondHalf = offsetof(DeviceTask, waited_clock);
    store_half<false>(place_ + kSecondHalf, task_,
                      {waited_clock, data_clock, read_odd_clock(), kTaskMark});
  }

 private:
  const RecorderLaunch& launch_;
  bool is_recording_;
  uint32_t step_ = 0;        // on its way, until the block has its place
  ClockPair begin_ = {};     // as long
  uint32_t task_ = kNoTask;  // which of the buffer's
  std::byte* place_ = nullptr;
};

template <>
class RoleRecorder<RecordLevel::kTasks, DeviceRole::kMain, true> {
 public:
  __device__ __forceinline__ RoleRecorder(const RecorderLaunch& launch, bool is_recording_lane)
      : block_(launch, is_recording_lane) {}
  __device__ __forceinline__ void begin(DevicePhase, uint32_t = 0) { block_.begin(); }
  __device__ __forceinline__ void phase(DevicePhase phase, uint32_t = 0) {
    if (phase == DevicePhase::kWaitLaunch) block_.take_place();
    if (phase == DevicePhase::kWaitData) waited_ = read_odd_clock();
    if (phase == DevicePhase::kWork && data_ == 0) data_ = read_odd_clock();
  }
  __device__ __forceinline__ void end() { block_.end(waited_ != 0 ? waited_ : data_, data_); }

 private:
  BlockRecorder<false> block_;
  uint32_t waited_ = 0;
  uint32_t data_ = 0;
};

// Where another role ends the block, it records the block, and kMain nothing.
static_assert(std::is_empty_v<RoleRecorder<RecordLevel::kTasks, DeviceRole::kMain, false>>);

template <>
class RoleRecorder<RecordLevel::kTasks, DeviceRole::kCombine, true> {
 public:
  __device__ __forceinline__ RoleRecorder(const RecorderLaunch& launch, bool is_recording_lane)
      : block_(launch, is_recording_lane) {}
  __device__ __forceinline__ void enter() { block_.begin(); }
  __device__ __forceinline__ void begin(DevicePhase, uint32_t = 0) {}
  __device__ __forceinline__ void phase(DevicePhase phase, uint32_t = 0) {
    if (phase == DevicePhase::kWaitLaunch) block_.take_place();
  }
  __device__ __forceinline__ void waited() { waited_ = read_odd_clock(); }
  __device__ __forceinline__ void has_data() { data_ = read_odd_clock(); }
  __device__ __forceinline__ void had_data() { data_ = waited_; }
  __device__ __forceinline__ void end() { block_.end(waited_, data_); }
  // Of a block without work: it has not waited yet, and there are no data.
  __device__ __forceinline__ void end_idle() {
    block_.take_place();
    wait_for_launch_before();
    block_.end(read_odd_clock(), 0);
  }

 private:
  BlockRecorder<true> block_;
  uint32_t waited_ = 0;
  uint32_t data_ = 0;  // 0: none so far
};

// Warps of a block that record it beside all others.
template <RecordLevel kLevel>
inline constexpr int kObserverWarps = kLevel == RecordLevel::kTasks ? 1 : 0;

// What such a warp does. Others arrive at `over`, so many in all, with the last thing they do; the
// first phase of `first_data` ends with the block's first data. `meet` waits for the other warps,
// behind which barriers may be used.
template <typename Meet>
__device__ __forceinline__ void observe_block(const RecorderLaunch& launch, const WaitLimit& limit,
                                              uint32_t first_data, uint32_t over, int arrivals,
                                              const Meet& meet) {
  const bool is_recording_lane = threadIdx.x % kWarpLanes == 0;
  BlockRecorder<false> block(launch, is_recording_lane);
  block.begin();
  if (is_recording_lane) initialise_barrier(over, arrivals);
  meet();
  if (!is_recording_lane) return;
  block.take_place();
  wait_for_launch_before();
  const uint32_t waited = read_odd_clock();
  const bool had_data = is_phase_done(first_data, 0);
  if (!had_data) wait_for_either(first_data, over, limit, DeviceWait::kRecordedBlock);
  const uint32_t data = had_data ? waited : read_odd_clock();
  wait_for_phase(over, 0, limit, DeviceWait::kRecordedBlock);
  block.end(waited, data);
}

// ---- From a number to a form.

template <RecordLevel kLevel>
using LevelConstant = std::integral_constant<RecordLevel, kLevel>;

// Calls `choose` with the level as a type.
template <typename Choose>
auto with_level(RecordLevel level, const Choose& choose) {
  if (level == RecordLevel::kTasks) return choose(LevelConstant<RecordLevel::kTasks>());
  if (level == RecordLevel::kPhases) return choose(LevelConstant<RecordLevel::kPhases>());
  return choose(LevelConstant<RecordLevel::kNone>());
}

}  // namespace gapless::device
