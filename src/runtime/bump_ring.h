// SPDX-License-Identifier: Apache-2.0
//
// BumpRing: places in a ring, given out and taken back in order. It only counts; the memory is the
// owner's. A place never wraps round the end: what is left there is skipped. An empty ring begins
// at its beginning again, so that whatever is no larger than the ring fits sooner or later.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gapless {

class BumpRing {
 public:
  struct Place {
    uint64_t offset = 0;  // where it begins, below the capacity
    uint64_t end = 0;     // for release_to(); grows for ever
  };

  explicit BumpRing(uint64_t capacity) : capacity_(capacity) {}

  // `alignment` must divide the capacity. Nothing: no room until something is released.
  std::optional<Place> allocate(uint64_t count, uint64_t alignment = 1) {
    if (count > capacity_) return std::nullopt;
    if (capacity_ == 0) return Place{};
    if (head_ == tail_) head_ = tail_ = (head_ + capacity_ - 1) / capacity_ * capacity_;
    uint64_t begin = (head_ + alignment - 1) / alignment * alignment;
    if (begin % capacity_ + count > capacity_) {
      begin = (begin + capacity_ - 1) / capacity_ * capacity_;
    }
    if (begin + count - tail_ > capacity_) return std::nullopt;
    head_ = begin + count;
    return Place{begin % capacity_, head_};
  }
  // Everything up to the place with this end is free. A place of no size may end before a ring that
  // has begun anew.
  void release_to(uint64_t end) { tail_ = std::max(tail_, end); }

  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return head_ - tail_; }

 private:
  uint64_t capacity_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace gapless
