// SPDX-License-Identifier: Apache-2.0
//
// ReadyQueue: the tasks one worker has made ready and nobody has taken yet.
//
// Tasks of a higher level come first, of one level in the order in which they came. Levels are
// few, so the best task is found by two bit scans. Tasks are linked through an array of the
// program's, so a queue never allocates and never overflows. Thieves take half of the best level.
// One lock, held for some ten nanoseconds; a device of one worker goes without.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "runtime/spin.h"

namespace gapless {

inline constexpr uint32_t kNoTask = 0xffffffff;
inline constexpr int kLevelCount = 1024;

// What queues know of a task. The program fills the last three once; queues own the others.
struct QueueLink {
  uint32_t next = kNoTask;
  int32_t next_block = 0;
  int32_t block_count = 1;
  uint16_t level = 0;  // 0 .. kLevelCount - 1, the highest first
  uint8_t queue = 0;   // which of a worker's queues it belongs to
};
static_assert(sizeof(QueueLink) == 16);

// One block of one task, taken to be run. Most tasks have one block.
struct Taken {
  uint32_t task = kNoTask;
  int32_t block = 0;
};

class ReadyQueue {
 public:
  // Empties the queue. `shared`: other threads use it too.
  void attach(QueueLink* links, bool shared);

  void push(std::span<const uint32_t> tasks);
  // Takes one block; a task stays until its last block is taken.
  bool pop(Taken& taken);
  // Another worker's side: takes one block and moves up to half of the tasks of that level, at
  // most kMaxSteal, to `own`. False when there is nothing or the owner is at it.
  bool steal(Taken& taken, ReadyQueue& own);

  // May be stale. Counts tasks, not blocks.
  uint32_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kMaxSteal = 64;
  static constexpr int kWordCount = kLevelCount / 64;

  void append(uint32_t task);
  int best_level() const;
  bool take_best(Taken& taken);
  // Unlinks simple tasks from the front of `level`; returns how many.
  uint32_t cut_front(int level, uint32_t count, std::span<uint32_t> out);
  void set_size(uint32_t size) { size_.store(size, std::memory_order_relaxed); }

  // What thieves poll lies apart from what the owner works on.
  alignas(64) std::atomic<uint32_t> size_ = 0;
  alignas(64) SpinLock lock_;
  bool shared_ = false;
  QueueLink* links_ = nullptr;
  uint64_t summary_ = 0;  // bit w: word w of `occupied_` is not zero
  std::array<uint64_t, kWordCount> occupied_ = {};
  std::array<uint32_t, kLevelCount> heads_;
  std::array<uint32_t, kLevelCount> tails_;
};

}  // namespace gapless
