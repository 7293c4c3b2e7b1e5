// SPDX-License-Identifier: Apache-2.0

#include "runtime/ready_queue.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <mutex>

namespace gapless {

void ReadyQueue::attach(QueueLink* links, bool shared) {
  links_ = links;
  shared_ = shared;
  summary_ = 0;
  occupied_.fill(0);
  set_size(0);
}

void ReadyQueue::append(uint32_t task) {
  QueueLink& link = links_[task];
  link.next = kNoTask;
  const size_t level = link.level;
  const uint64_t bit = uint64_t{1} << (level % 64);
  if ((occupied_[level / 64] & bit) == 0) {
    occupied_[level / 64] |= bit;
    summary_ |= uint64_t{1} << (level / 64);
    heads_[level] = task;
  } else {
    links_[tails_[level]].next = task;
  }
  tails_[level] = task;
}

void ReadyQueue::push(std::span<const uint32_t> tasks) {
  if (tasks.empty()) return;
  if (shared_) lock_.lock();
  for (const uint32_t task : tasks) append(task);
  set_size(size() + static_cast<uint32_t>(tasks.size()));
  if (shared_) lock_.unlock();
}

int ReadyQueue::best_level() const {
  const int word = 63 - std::countl_zero(summary_);
  return word * 64 + 63 - std::countl_zero(occupied_[static_cast<size_t>(word)]);
}

bool ReadyQueue::take_best(Taken& taken) {
  if (summary_ == 0) return false;
  const size_t level = static_cast<size_t>(best_level());
  const uint32_t task = heads_[level];
  QueueLink& link = links_[task];
  taken = {task, link.next_block};
  if (++link.next_block < link.block_count) return true;
  link.next_block = 0;  // for the next time it becomes ready
  heads_[level] = link.next;
  if (link.next == kNoTask) {
    occupied_[level / 64] &= ~(uint64_t{1} << (level % 64));
    if (occupied_[level / 64] == 0) summary_ &= ~(uint64_t{1} << (level / 64));
  }
  set_size(size() - 1);
  return true;
}

bool ReadyQueue::pop(Taken& taken) {
  if (!shared_) return take_best(taken);
  // Empty by the owner's own count: nobody else adds to it without being seen on a later look.
  if (size() == 0) return false;
  const std::lock_guard<SpinLock> guard(lock_);
  return take_best(taken);
}

uint32_t ReadyQueue::cut_front(int level_number, uint32_t count, std::span<uint32_t> out) {
  const size_t level = static_cast<size_t>(level_number);
  uint32_t cut = 0;
  uint32_t task = heads_[level];
  while (cut < count && task != kNoTask && links_[task].block_count == 1) {
    out[cut++] = task;
    task = links_[task].next;
  }
  heads_[level] = task;
  if (task == kNoTask) {
    occupied_[level / 64] &= ~(uint64_t{1} << (level % 64));
    if (occupied_[level / 64] == 0) summary_ &= ~(uint64_t{1} << (level / 64));
  }
  set_size(size() - cut);
  return cut;
}

bool ReadyQueue::steal(Taken& taken, ReadyQueue& own) {
  std::array<uint32_t, kMaxSteal> moved;
  uint32_t moved_count = 0;
  {
    if (!lock_.try_lock()) return false;
    const std::lock_guard<SpinLock> guard(lock_, std::adopt_lock);
    if (summary_ == 0) return false;
    const int level = best_level();
    const uint32_t half = std::min(size() / 2, kMaxSteal);
    if (!take_best(taken)) return false;
    const bool level_is_left =
        (occupied_[static_cast<size_t>(level / 64)] >> (level % 64) & 1) != 0;
    if (half > 1 && level_is_left) moved_count = cut_front(level, half - 1, moved);
  }
  own.push({moved.data(), moved_count});
  return true;
}

}  // namespace gapless
