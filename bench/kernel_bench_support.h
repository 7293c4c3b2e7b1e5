// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of the kernels share: the machine's ceilings, waiting for a quiet process,
// goals on ratios, numbers that are the same everywhere. They lie in src/kernels, which is below
// src/machine, and so get the ceilings from here.

#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "bench/measurement.h"
#include "machine/compute_ceiling.h"
#include "machine/pinned_threads.h"
#include "machine/read_ceiling.h"

namespace gapless {

// Waits until all other threads of this process sleep: those of OpenMP spin for milliseconds after
// their work. Error when that does not come.
Result<void> wait_until_quiet();

// A loud line when the threads did not have their cores to themselves.
void print_core_share(const PinnedThreads& threads);

// "1 thread", "2 threads".
std::string threads_text(int thread_count);

// A row with the median of figure / limit as its goal.
Row& expect_ratio_at_least(Row& row, double bound);

// What a round of memory-bound work is compared with: the mean of the ceilings just before and just
// after it.
inline double mean_of(double before, double after) { return (before + after) / 2.0; }

// SplitMix64: the same values everywhere.
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // Uniform in [-1, 1).
  float next_float();

 private:
  uint64_t state_;
};

}  // namespace gapless
