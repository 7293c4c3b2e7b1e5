// SPDX-License-Identifier: Apache-2.0
//
// RecordedPlaces: what the blocks of recorded steps left in the buffer, the same to read at either
// level. Nothing is believed yet: bytes may be anything.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/recorder.h"

namespace gapless {

struct PlaceHeader {
  bool is_there = false;  // the block left something
  uint32_t sm = 0;
  uint64_t begin_ns = 0;
  uint64_t begin_clock = 0;  // of kTasks: the lowest kTaskClockBits of it
  bool is_close = false;     // clock and timer were read together
};

class RecordedPlaces {
 public:
  explicit RecordedPlaces(const DeviceRecording& recording)
      : recording_(recording),
        block_bytes_(static_cast<size_t>(device_block_bytes(recording.level))) {}

  bool has_phases() const { return recording_.level == RecordLevel::kPhases; }
  size_t count() const { return recording_.blocks.size() / block_bytes_; }
  PlaceHeader header(size_t place) const;
  // That step (from 1) wrote it, as far as it says so.
  bool can_be_of(size_t place, size_t step) const;
  // Of one role. Those of kTasks are made of its clocks: a phase that was not recorded is not
  // among them.
  std::vector<DeviceRecord> records(size_t place, int role) const;
  uint32_t dropped(size_t place, int role) const;

 private:
  const std::byte* bytes(size_t place) const {
    return recording_.blocks.data() + place * block_bytes_;
  }
  template <typename T>
  T read(size_t place) const;

  const DeviceRecording& recording_;
  size_t block_bytes_;
};

}  // namespace gapless
