// SPDX-License-Identifier: Apache-2.0
//
// FluidMemory: a memory whose bandwidth flows share like a liquid.
//
// At any moment all flows get the same rate, except that none gets more than the cap of its class,
// and what those leave is shared by the others (progressive filling: max-min fair). Flows of one
// class always have the same rate, so each class keeps one count of bytes that any of its flows has
// got since the beginning; a flow ends when that count passes its own mark. An arrival or an end
// costs the number of classes and one heap operation, whatever the number of flows.
//
// All in whole numbers. A rate is bytes a second, rounded down; a flow ends at the first whole
// nanosecond at which it has all its bytes, and takes its share until then. So a flow is never
// early, and late by less than 1 ns and the rounding of rates (1 byte/s).

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/event_heap.h"

namespace gapless {

// Bytes of a flow: counts are billionths of a byte, modulo 2^64, and must not lap each other.
inline constexpr int64_t kMaxFlowBytes = int64_t{1} << 32;

class FluidMemory {
 public:
  static constexpr size_t kMaxClasses = 4;

  // `caps`: bytes/s of one flow, by class; at most kMaxClasses. All rates are positive.
  FluidMemory(int64_t bytes_per_s, std::span<const int64_t> caps);

  // Times never go back. 1 <= bytes <= kMaxFlowBytes. `tag` says whose flow it is.
  void start(int64_t now_ns, size_t flow_class, int64_t bytes, uint32_t tag);
  // When the next flow ends; kNever when there is none.
  int64_t next_end_ns() const { return next_end_ns_; }
  // Ends a flow at next_end_ns() and returns its tag: of several the lowest class, in it the
  // one that was due first.
  uint32_t take_next();
  size_t active_count() const { return active_count_; }
  // Bytes/s that a flow of the class gets now; 0 without one.
  int64_t rate(size_t flow_class) const { return classes_[flow_class].rate; }

 private:
  struct Flow {
    uint64_t mark;  // of the class's count, modulo 2^64
    uint32_t tag;
  };
  struct Class {
    int64_t cap = 0;
    int64_t rate = 0;
    uint64_t got = 0;         // billionths of a byte
    std::vector<Flow> flows;  // a heap, the next to end in front
  };

  void advance(int64_t now_ns);
  void share();

  int64_t bytes_per_s_;
  size_t class_count_;
  std::array<Class, kMaxClasses> classes_;
  std::array<size_t, kMaxClasses> by_cap_ = {};  // classes, the smallest cap first
  size_t active_count_ = 0;
  int64_t now_ns_ = 0;
  int64_t next_end_ns_ = kNever;
  size_t next_class_ = 0;
};

}  // namespace gapless
