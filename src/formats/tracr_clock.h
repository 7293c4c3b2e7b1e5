// SPDX-License-Identifier: Apache-2.0
//
// The old clock of TraCR overflows: it computes ticks * 1e9 / frequency in 64 bits, so that its
// times start again every 2^64 / frequency ns (6.6 s at 2.794 GHz, 369 s at 50 MHz). The frequency
// is not in the file; this estimates the period from the jumps and adds it back.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/tracr.h"

namespace gapless {

struct TracrThreadRecords {
  std::string name;
  std::vector<TracrRecord> records;  // in the order of the file
};

// The times of a wrapped clock are below this: 2^64 / 1 MHz.
inline constexpr uint64_t kTracrLongestPeriodNs = 18'446'744'073'710;

struct ClockRepair {
  uint64_t wrap_count = 0;  // jumps found, over all threads
  uint64_t thread_count = 0;
  int64_t period_ns = 0;
  int64_t uncertainty_ns = 0;           // how far the period may be off
  bool is_nominal = false;              // the period of a usual counter frequency
  uint64_t ambiguous_thread_count = 0;  // threads that may have begun a period later
};

struct RunLimits {
  int64_t start_ns = 0;  // 0: unknown
  int64_t end_ns = 0;    // 0: unknown
};

// Repairs the times of all threads of a proc in place, so that they go up over every jump; nothing
// when no jump looks like a wrap, and then nothing is changed.
std::optional<ClockRepair> repair_clock_wrap(std::vector<TracrThreadRecords>& threads,
                                             const RunLimits& limits);

}  // namespace gapless
