// SPDX-License-Identifier: Apache-2.0
//
// Random data for the benchmarks on a GPU.

#pragma once

#include <cstdint>

namespace gapless {

// 16-bit values between -2 and 2, never all alike: zeros can be quicker than real data. Returns a
// cudaError_t, 0 for success, and does not wait.
int start_filling(uint16_t* values, int64_t count, bool is_bf16, uint64_t seed);

}  // namespace gapless
