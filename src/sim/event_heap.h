// SPDX-License-Identifier: Apache-2.0
//
// EventHeap: what happens next in virtual time. A binary heap that knows what a simulation does
// with it: nearly every entry that is put in is later than most of those that are there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace gapless {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The lowest first; of equal ones any.
template <typename Entry>
class EventHeap {
 public:
  bool empty() const { return entries_.empty(); }
  const Entry& top() const { return entries_.front(); }
  void push(const Entry& entry) {
    const size_t hole = entries_.size();
    entries_.push_back(entry);
    rise(hole, entry);
  }
  // The hole goes down to a leaf first: the last entry nearly always belongs there.
  Entry pop() {
    const Entry lowest = entries_.front();
    const Entry last = entries_.back();
    entries_.pop_back();
    const size_t count = entries_.size();
    if (count == 0) return lowest;
    size_t hole = 0;
    for (size_t child = 1; child < count; child = 2 * hole + 1) {
      const size_t right = child + static_cast<size_t>(child + 1 < count);
      child = entries_[right] < entries_[child] ? right : child;
      entries_[hole] = entries_[child];
      hole = child;
    }
    rise(hole, last);
    return lowest;
  }

 private:
  void rise(size_t hole, const Entry& entry) {
    while (hole > 0 && entry < entries_[(hole - 1) / 2]) {
      entries_[hole] = entries_[(hole - 1) / 2];
      hole = (hole - 1) / 2;
    }
    entries_[hole] = entry;
  }

  std::vector<Entry> entries_;
};

}  // namespace gapless
