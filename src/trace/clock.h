// SPDX-License-Identifier: Apache-2.0
//
// Raw ticks and nanoseconds: pairs of both read at one instant (anchors), and the map between them.
//
// The hot path stores raw ticks. Whoever reads the trace converts, piece by piece between anchors,
// so that long runs do not drift: the error is that of reading an anchor (tens of nanoseconds),
// whatever the length of the run.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gapless/trace_format.h"

namespace gapless {

// What read_ticks() of include/gapless/trace.h reads on this machine.
ClockSource clock_source();
// Whether it runs at one rate on all cores, whatever their frequency and sleep.
bool clock_is_invariant();

// The two clocks at one instant: the tightest of a few tries. Time is CLOCK_MONOTONIC_RAW.
AnchorBody read_anchor();
// Nanoseconds since 1970 minus CLOCK_MONOTONIC_RAW, now.
int64_t wall_minus_monotonic_ns();

// Ticks to nanoseconds. Exact at the anchors, linear between them to the nanosecond, monotonic.
// What lies beyond kMaxTimeNs of trace/trace.h is moved there.
class ClockMap {
 public:
  // `ticks_per_second` is used when there are fewer than two anchors. Anchors that do not rise in
  // both numbers are left out. Without any, tick 0 is time 0.
  ClockMap(std::vector<AnchorBody> anchors, uint64_t ticks_per_second);

  int64_t to_ns(uint64_t ticks) {
    if (ticks < piece_begin_ || ticks >= piece_end_) find_piece(ticks);
    return to_ns_in(pieces_[current_], ticks);
  }
  size_t anchor_count() const { return anchor_count_; }

 private:
  // Nanoseconds a tick, times 2^shift; the shift fills the 64 bits, so that a piece may be years
  // long.
  struct Rate {
    uint64_t scaled;
    int shift;
  };
  struct Piece {
    uint64_t ticks;
    int64_t time_ns;
    Rate rate;
  };
  static Rate make_rate(uint64_t time_ns, uint64_t ticks);
  static int64_t to_ns_in(const Piece& piece, uint64_t ticks);
  void find_piece(uint64_t ticks);

  std::vector<Piece> pieces_;
  size_t current_ = 0;
  uint64_t piece_begin_ = 1;  // an empty range: the first call looks its piece up
  uint64_t piece_end_ = 0;
  size_t anchor_count_ = 0;
};

}  // namespace gapless
