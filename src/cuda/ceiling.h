// SPDX-License-Identifier: Apache-2.0
//
// How fast this GPU reads memory and multiplies, measured now: what a kernel reaches is a share of
// these, in the same run. As machine/machine_limits.h for the CPU.

#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"

namespace gapless {

struct CudaMachineLimitsOptions {
  int round_count = 5;                    // medians are taken over these
  int64_t read_bytes = int64_t{4} << 30;  // read by one launch; less where memory is scarce
};

struct CudaMachineLimits {
  double read_bytes_per_s = 0.0;  // memory to registers
  // Multiplies and adds a second of the instructions that our kernels use: mma.sync on s8 and bf16
  // (f16 is as quick), FMA on f32. Hopper's asynchronous matrix instructions can do more.
  double s8_ops_per_s = 0.0;
  double bf16_ops_per_s = 0.0;
  double f32_ops_per_s = 0.0;
  // kS8, kBf16, kF16 or kF32.
  double ops_per_s(DType weights) const;
};

// What a launch reads to measure the ceiling: `wanted_bytes`, at most half of what is free, and not
// less than what makes the cache of `l2_bytes` useless, else an error.
Result<int64_t> cuda_ceiling_bytes(int64_t wanted_bytes, int64_t free_bytes, int64_t l2_bytes);

// About 50 ms; up to 4 GiB of GPU memory meanwhile.
Result<CudaMachineLimits> measure_cuda_limits(const CudaMachineLimitsOptions& options = {});

}  // namespace gapless
