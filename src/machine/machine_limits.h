// SPDX-License-Identifier: Apache-2.0
//
// MachineLimits: how fast these cores read memory and multiply, measured now. What a kernel reaches
// is a share of these, in the same run: the machine is shared, and yesterday's figure is not
// today's.

#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/cpu_level.h"

namespace gapless {

struct MachineLimitsOptions {
  int thread_count = 0;  // 0: one for each CPU we may use
  CpuLevel level = CpuLevel::kPortable;
  int round_count = 5;             // medians are taken over these
  int64_t read_bytes = 256 << 20;  // of each thread, much more than the caches; 1 GiB for all
};

struct MachineLimits {
  int thread_count = 1;
  double read_bytes_per_s = 0.0;  // all threads together, memory to registers
  // Multiplies and adds a second of all threads, of the instruction that a matmul with such weights
  // uses: kS8, kBf16, kF32. f16 weights are multiplied in f32, and so are all where the level has
  // no instruction for them.
  double s8_ops_per_s = 0.0;
  double bf16_ops_per_s = 0.0;
  double f32_ops_per_s = 0.0;
  // kS8, kBf16, kF16 or kF32.
  double ops_per_s(DType weights) const;
};

// Pins the calling thread while it measures. With the defaults less than a second on a machine with
// two cores; less than 1.1 GiB of memory.
Result<MachineLimits> measure_machine_limits(const MachineLimitsOptions& options);

// "AMD EPYC": as the operating system says it; "unknown" when it does not.
std::string cpu_name();

}  // namespace gapless
