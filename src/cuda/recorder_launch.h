// SPDX-License-Identifier: Apache-2.0
//
// What a launch knows of the device recorder (cuda/recorder.h): numbers and device pointers, no
// CUDA types. Kernels take it in their launch structs; those compiled with a level of recording
// write, the others do not contain a trace of it.
//
// In a block, each role (one lane of one warp) says when it goes from one phase to the next. Both
// levels keep a reading of the SM's clock together with the global timer, from which the host puts
// all SMs on one clock. What a block does last delays the launches behind it, so that nothing is
// left for its end but the end.
//
// kPhases: a record is {tag, clock}, 8 bytes, stored to the block's place in device memory as it is
// made. Phases of a role follow each other without gaps.
// kTasks: five clock readings of a block, in 32 bytes and two stores (DeviceTask).

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gapless {

// How much is recorded: a template parameter of every kernel.
enum class RecordLevel : uint8_t {
  kNone,
  kTasks,   // of each block where and when it was a task
  kPhases,  // every phase of every role
};
inline constexpr RecordLevel kRecordLevels[] = {RecordLevel::kNone, RecordLevel::kTasks,
                                                RecordLevel::kPhases};

enum class DevicePhase : uint8_t {
  kSetUp,       // barriers, schedule
  kReadAhead,   // starts copies that do not depend on the launch before
  kWaitLaunch,  // for the launch before
  kWaitData,    // for bytes on their way
  kWork,
  kWaitBlock,  // for what another block of this launch writes
  kStore,      // results
  kEnd,        // the role is done; nothing follows
};
inline constexpr int kDevicePhaseCount = 8;

// Roles of a block; each has its own records.
enum class DeviceRole : uint8_t { kMain, kCopy, kCombine };
inline constexpr int kDeviceRoleCount = 3;

// In the tag of every record, so that no tag is 0: there are as many records as tags before a 0.
inline constexpr uint32_t kRecordMark = 0x80;

struct DeviceRecord {
  uint32_t tag;    // phase | mark | value << 8; the value is what the kernel says: a chunk, a tile
  uint32_t clock;  // low half of clock64

  DevicePhase phase() const { return static_cast<DevicePhase>(tag & (kRecordMark - 1)); }
};
static_assert(sizeof(DeviceRecord) == 8);

// Of a role, in a block. The last place is kEnd's; phases beyond the others are counted.
inline constexpr int kRoleRecords = 40;

struct DeviceBlockHeader {
  uint32_t step = 0;      // number of the step that wrote this, from 1
  uint32_t sm = 0;        // %smid
  uint64_t begin_ns = 0;  // global timer and clock, read together
  uint64_t begin_clock = 0;
  uint64_t unused = 0;
  uint32_t dropped[kDeviceRoleCount] = {};  // records that had no place
  uint32_t unused_words[5] = {};
};
static_assert(sizeof(DeviceBlockHeader) == 64);

// A block's place at level kPhases: the header, then [role][kRoleRecords].
inline constexpr int kDeviceBlockBytes =
    static_cast<int>(sizeof(DeviceBlockHeader)) +
    kDeviceRoleCount * kRoleRecords * static_cast<int>(sizeof(DeviceRecord));

// On the host, of a block's place: record `index` of a role, and how many there are.
inline DeviceRecord record_at(const std::byte* place, int role, int index) {
  const size_t at = static_cast<size_t>(role * kRoleRecords + index);
  DeviceRecord record;
  std::memcpy(&record, place + sizeof(DeviceBlockHeader) + at * sizeof(record), sizeof(record));
  return record;
}
inline int record_count(const std::byte* place, int role) {
  int count = 0;
  while (count < kRoleRecords && record_at(place, role, count).tag != 0) ++count;
  return count;
}

// A block's place at level kTasks: one sector. Its first half is stored when the wait for the
// launch before begins, the second at the end. Clocks of the second half are odd, 0 is none.
struct DeviceTask {
  uint64_t begin_ns = 0;         // global timer when the block began | kReadApart
  uint32_t begin_clock = 0;      // clock64, read behind it
  uint32_t set_up_and_more = 0;  // see below
  uint32_t waited_clock = 0;     // the launch before is over
  // The first data is there, or has been when the recording lane could look; the same as
  // waited_clock: no wait for it; 0: none came.
  uint32_t data_clock = 0;
  uint32_t end_clock = 0;
  uint32_t mark = 0;  // kTaskMark: it ended
};
static_assert(sizeof(DeviceTask) == 32);
inline constexpr uint32_t kTaskMark = 1;
// Clock and timer were read more than kMaxAnchorCycles apart.
inline constexpr uint64_t kReadApart = uint64_t{1} << 63;
inline constexpr uint32_t kMaxAnchorCycles = 96;
// set_up_and_more: 16 bits of kSetUpCycles each until the wait for the launch before begins, at
// most; 6 bits of the clock above its low half, which do for two minutes; 10 bits of %smid.
inline constexpr uint32_t kSetUpCycles = 16;
inline constexpr uint32_t kMaxSetUp = 0xffff;
inline constexpr int kClockHighShift = 16;
inline constexpr int kTaskSmShift = 22;
inline constexpr int kTaskClockBits = 32 + kTaskSmShift - kClockHighShift;

inline constexpr int device_block_bytes(RecordLevel level) {
  return level == RecordLevel::kTasks ? static_cast<int>(sizeof(DeviceTask)) : kDeviceBlockBytes;
}

struct RecorderLaunch {
  RecordLevel level = RecordLevel::kNone;  // of the kernel that the host starts
  bool ends_step = false;                  // kTasks: the last launch of a step counts steps
  // At 32 bytes; zeros at first. Null: this launch does not record.
  std::byte* buffer = nullptr;
  // On the device, zeros at first. kPhases: [step_blocks][kDeviceRoleCount], how many steps each
  // role of each block has recorded. It is of that role alone, so that nobody waits for anybody to
  // know the step's number, whatever overlaps.
  // kTasks: two words for all. The second is the number of steps that have ended. Each block of the
  // last launch of a step, when it has read it, adds to both as one number, so that the second
  // grows by one when all have: steps must not overlap, as replays of a graph do not.
  uint32_t* steps = nullptr;
  uint32_t step_capacity = 0;  // steps that the buffer holds; those beyond are not recorded
  uint32_t step_blocks = 0;    // of all launches of a step
  uint32_t first_block = 0;    // of this launch among them
};

// Memory of the host that the device sees too. The host asks by a number that grows, the device
// answers with its global timer. Each side's words have a line of their own.
struct alignas(128) DeviceClockExchange {
  uint32_t request;
  alignas(128) uint64_t device_ns;
  uint32_t answer;
};

// These return a cudaError_t; 0 is success. `stream` is a cudaStream_t.
// Answers requests 1 to `request_count`; gives up when one does not come within a second.
int recorder_clock_kernel(DeviceClockExchange* exchange, uint32_t request_count, void* stream);

}  // namespace gapless
