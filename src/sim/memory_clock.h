// SPDX-License-Identifier: Apache-2.0
//
// MemoryClock: tasks that read and write at the rate at which they were seen to, as long as the
// memory gives that to all that run; beyond it all are slowed down in proportion.
//
// As all are slowed down by the same factor there is one clock for them, which goes slower while
// the memory is short, and a task ends when that clock has gone on by its run time. So a start or
// an end is one heap operation, whatever the number of tasks. FluidMemory is the other kind, where
// tasks want bytes and not a rate; here it is a recorded run that is changed, and while the memory
// is not short nothing is: ends are exact to the nanosecond. Otherwise late by less than 2 ns.

#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/event_heap.h"

namespace gapless {

// Bytes a second of a task that moved `bytes` in `run_ns`; 0 for one that took no time.
inline int64_t rate_of(int64_t bytes, int64_t run_ns) {
  if (bytes <= 0 || run_ns <= 0) return 0;
  return static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(run_ns));
}

class MemoryClock {
 public:
  explicit MemoryClock(int64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  struct Ended {
    uint32_t task = 0;
    uint32_t core = 0;
    int64_t began_ns = 0;
  };

  // Times never go back.
  void start(int64_t now_ns, int64_t run_ns, int64_t rate, uint32_t task, uint32_t core) {
    advance(now_ns);
    wanted_ += rate;
    flows_.push({units_ + run_ns * kUnitsPerNs, rate, {task, core, now_ns}});
  }
  // kNever when nothing runs.
  int64_t next_end_ns() const {
    if (flows_.empty()) return kNever;
    const Wide rest = std::max<int64_t>(flows_.top().end_units - units_, 0);
    if (wanted_ <= bytes_per_s_) return now_ns_ + static_cast<int64_t>(up(rest, kUnitsPerNs));
    return now_ns_ + static_cast<int64_t>(up(rest * wanted_, Wide{bytes_per_s_} * kUnitsPerNs));
  }
  // At next_end_ns().
  Ended take_next() {
    advance(next_end_ns());
    const Flow flow = flows_.pop();
    wanted_ -= flow.rate;
    units_ = std::max(units_, flow.end_units);  // what was rounded down
    return flow.ended;
  }

 private:
  __extension__ typedef __int128 Wide;  // NOLINT(modernize-use-using)
  static constexpr int64_t kUnitsPerNs = 1024;

  struct Flow {
    int64_t end_units;
    int64_t rate;
    Ended ended;
    bool operator<(const Flow& other) const {
      return end_units != other.end_units ? end_units < other.end_units
                                          : ended.task < other.ended.task;
    }
  };

  static Wide up(Wide amount, Wide divisor) { return (amount + divisor - 1) / divisor; }

  void advance(int64_t now_ns) {
    const Wide passed = Wide{now_ns - now_ns_} * kUnitsPerNs;
    const bool is_short = wanted_ > bytes_per_s_;
    units_ += static_cast<int64_t>(is_short ? passed * bytes_per_s_ / wanted_ : passed);
    now_ns_ = now_ns;
  }

  int64_t bytes_per_s_;
  int64_t wanted_ = 0;  // bytes/s that the running tasks had when nothing slowed them down
  int64_t units_ = 0;   // of the clock
  int64_t now_ns_ = 0;
  EventHeap<Flow> flows_;
};

}  // namespace gapless
