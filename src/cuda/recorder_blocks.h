// SPDX-License-Identifier: Apache-2.0
//
// RecordedBlocks: when and where the blocks of recorded steps ran, on the host's clock.
//
// Blocks of one SM may overlap, with early launches most of them do, but the tasks of a lane must
// not: in the order of their ends, a task starts when its block has what it waited for, and not
// before the task before it on that SM has ended. So an SM is busy while one of its blocks can
// work; only what a block does before another of its launch that ends earlier has begun is lost.
// A block begins where its header says and ends with the last of its roles. Whatever the bytes are,
// what cannot be is left out and counted.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/recorder.h"
#include "cuda/recorder_clock.h"
#include "cuda/recorder_places.h"

namespace gapless {

// Lanes for what overlaps: in the order of their begins, which lane each can have so that those of
// one lane do not overlap.
class SlotChooser {
 public:
  uint32_t choose(int64_t begin_ns, int64_t end_ns) {
    uint32_t slot = 0;
    while (slot < ends_.size() && ends_[slot] > begin_ns) ++slot;
    if (slot == ends_.size()) ends_.push_back(0);
    ends_[slot] = end_ns;
    return slot;
  }
  uint32_t count() const { return static_cast<uint32_t>(ends_.size()); }

 private:
  std::vector<int64_t> ends_;
};

struct RecordedBlock {
  uint32_t sm = kNoIndex;  // kNoIndex: nothing is known of it
  uint32_t slot = 0;       // among the blocks that are on the SM at once
  uint64_t begin_clock = 0;
  int64_t begin_ns = 0;
  int64_t ready_ns = 0;   // the launch before had ended; of a step's first: its launch began
  int64_t waited_ns = 0;  // what the launch before wrote can be read
  int64_t start_ns = 0;   // of its task
  int64_t end_ns = 0;     // of all its roles

  bool is_there() const { return sm != kNoIndex; }
};

// One launch of one step.
struct LaunchRun {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  size_t last_block = 0;  // the place of the one that ended last
  bool is_there = false;
};

struct RolePhase {
  int64_t time_ns = 0;
  uint32_t tag = 0;

  DevicePhase phase() const { return DeviceRecord{.tag = tag, .clock = 0}.phase(); }
  uint32_t value() const { return tag >> 8; }
};

// What one role of one block recorded.
struct RolePhases {
  std::vector<RolePhase> phases = {};  // none, or the last is kEnd; times do not go back
  uint32_t dropped = 0;
  uint64_t backward_count = 0;  // times that did
  bool is_damaged = false;      // what it recorded cannot be
};

class RecordedBlocks {
 public:
  explicit RecordedBlocks(const DeviceRecording& recording);

  size_t step_count() const { return step_count_; }  // that the bytes are enough for
  size_t step_blocks() const { return step_blocks_; }
  size_t sm_count() const { return clocks_.size(); }
  const RecordedPlaces& places() const { return places_; }
  // The blocks of a launch are side by side, those of a step too.
  size_t first_place(size_t step, size_t launch) const {
    return step * step_blocks_ + first_blocks_[launch];
  }
  const std::vector<RecordedBlock>& blocks() const { return blocks_; }  // by place
  const LaunchRun& run(size_t step, size_t launch) const {
    return runs_[step * first_blocks_.size() + launch];
  }
  RolePhases phases(size_t place, int role) const;
  // Of times of one SM against those of another: less than this.
  int64_t clock_error_ns() const { return tick_ns_; }

  bool is_offset_known() const { return is_offset_known_; }
  uint64_t missing_count() const { return missing_count_; }            // blocks not written
  uint64_t damaged_count() const { return damaged_count_; }            // ... or not as they can be
  uint64_t damaged_role_count() const { return damaged_role_count_; }  // of other blocks
  uint64_t backward_count() const { return backward_count_; }          // anchors and records

 private:
  void size_up();
  void read_headers();
  void find_tick();
  void unwrap_clocks();
  void make_clocks();
  std::vector<std::vector<size_t>> places_of_sms() const;
  void time_blocks();
  void time_launches();
  LaunchRun run_of(size_t first, size_t last) const;  // of the blocks from place to place
  void place_blocks();
  void leave_out(RecordedBlock& block);
  int64_t cycles_of(size_t place, const DeviceRecord& record) const;

  const DeviceRecording& recording_;
  RecordedPlaces places_;
  size_t step_count_ = 0;
  size_t step_blocks_ = 0;
  std::vector<size_t> first_blocks_;   // by launch
  std::vector<RecordedBlock> blocks_;  // by place
  std::vector<LaunchRun> runs_;        // [step][launch]
  std::vector<SmClock> clocks_;        // by SM
  int64_t tick_ns_ = 0;
  int64_t offset_ns_ = 0;
  bool is_offset_known_ = true;
  uint64_t missing_count_ = 0;
  uint64_t damaged_count_ = 0;
  uint64_t damaged_role_count_ = 0;
  uint64_t backward_count_ = 0;
};

}  // namespace gapless
