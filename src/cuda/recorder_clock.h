// SPDX-License-Identifier: Apache-2.0
//
// SmClock: nanoseconds of an SM's clock, from moments at which it was read together with the GPU's
// timer.
//
// The timer moves in ticks (32 ns on an H200), so that the true time of a reading is between it and
// a tick later; the clock's rate moves with load. The map is a string pulled tight between these
// borders: at every reading it is off by less than a tick, and between two of them too while the
// rate holds. A rate that holds for many readings makes it straight and the error a few
// nanoseconds, which lines from reading to reading would not.
//
// Behind the last reading the rate of the last 200 us goes on: in 40 us a tick of that is a fifth
// of a tick. So it does behind the last reading before a rest, in which the clock ran far slower
// than it usually does, or not at all.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gapless {

struct SmAnchor {
  uint64_t clock = 0;
  int64_t time_ns = 0;
};

class SmClock {
 public:
  SmClock() = default;
  // In any order. The most on which the timer does not go back are taken. The others are left out,
  // and counted when it goes back by more than two ticks: warps of one SM come between each other's
  // readings.
  SmClock(std::vector<SmAnchor> anchors, int64_t tick_ns);

  // Never falls as the clock grows.
  int64_t time_ns(uint64_t clock) const;
  uint64_t rejected_count() const { return rejected_count_; }

 private:
  struct Knot {
    uint64_t clock = 0;
    double time_ns = 0.0;  // since base_ns_
  };
  // Where the next straight part ends, and at which reading.
  struct Reach {
    Knot knot;
    size_t reading = 0;
  };
  std::vector<SmAnchor> take_readings(std::vector<SmAnchor> anchors, int64_t tick_ns);
  void add_part(const std::vector<SmAnchor>& readings, double tick);
  double tail_cycle_ns(size_t first_knot, double tick) const;
  Reach next_knot(const std::vector<SmAnchor>& readings, size_t from, double tick) const;

  std::vector<Knot> knots_;
  double usual_cycle_ns_ = 0.0;
  double tail_cycle_ns_ = 0.0;  // behind the last knot
  int64_t base_ns_ = 0;
  uint64_t rejected_count_ = 0;
};

}  // namespace gapless
