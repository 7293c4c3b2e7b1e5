// SPDX-License-Identifier: Apache-2.0

#include "cuda/recorder_places.h"

#include <cstring>

namespace gapless {
namespace {

uint32_t tag_of(DevicePhase phase) { return static_cast<uint32_t>(phase) | kRecordMark; }

PlaceHeader header_of(const DeviceTask& task) {
  constexpr uint32_t kHighMask = (1u << (kTaskClockBits - 32)) - 1;
  const uint64_t clock_high = task.set_up_and_more >> kClockHighShift & kHighMask;
  return {.is_there = task.mark != 0 || task.begin_ns != 0,
          .sm = task.set_up_and_more >> kTaskSmShift,
          .begin_ns = task.begin_ns & ~kReadApart,
          .begin_clock = clock_high << 32 | task.begin_clock,
          .is_close = (task.begin_ns & kReadApart) == 0};
}

std::vector<DeviceRecord> records_of(const DeviceTask& task) {
  if (task.mark != kTaskMark || task.waited_clock == 0) return {};  // it did not end
  const uint32_t set_up = (task.set_up_and_more & kMaxSetUp) * kSetUpCycles;
  std::vector<DeviceRecord> records = {
      {tag_of(DevicePhase::kSetUp), task.begin_clock},
      {tag_of(DevicePhase::kWaitLaunch), task.begin_clock + set_up}};
  if (task.data_clock != task.waited_clock)
    records.push_back({tag_of(DevicePhase::kWaitData), task.waited_clock});
  if (task.data_clock != 0) records.push_back({tag_of(DevicePhase::kWork), task.data_clock});
  records.push_back({tag_of(DevicePhase::kEnd), task.end_clock});
  return records;
}

}  // namespace

template <typename T>
T RecordedPlaces::read(size_t place) const {
  T value;
  std::memcpy(&value, bytes(place), sizeof(value));
  return value;
}

PlaceHeader RecordedPlaces::header(size_t place) const {
  if (!has_phases()) return header_of(read<DeviceTask>(place));
  const DeviceBlockHeader header = read<DeviceBlockHeader>(place);
  // The first record's clock was read before the timer, the header's behind it.
  const uint32_t before = record_at(bytes(place), 0, 0).clock;
  return {.is_there = header.step != 0,
          .sm = header.sm,
          .begin_ns = header.begin_ns,
          .begin_clock = header.begin_clock,
          .is_close = static_cast<uint32_t>(header.begin_clock) - before <= kMaxAnchorCycles};
}

bool RecordedPlaces::can_be_of(size_t place, size_t step) const {
  return !has_phases() || read<DeviceBlockHeader>(place).step == step;
}

std::vector<DeviceRecord> RecordedPlaces::records(size_t place, int role) const {
  if (!has_phases()) {
    if (role != static_cast<int>(DeviceRole::kMain)) return {};
    return records_of(read<DeviceTask>(place));
  }
  std::vector<DeviceRecord> records(static_cast<size_t>(record_count(bytes(place), role)));
  for (size_t i = 0; i < records.size(); ++i)
    records[i] = record_at(bytes(place), role, static_cast<int>(i));
  return records;
}

uint32_t RecordedPlaces::dropped(size_t place, int role) const {
  return has_phases() ? read<DeviceBlockHeader>(place).dropped[role] : 0;
}

}  // namespace gapless
