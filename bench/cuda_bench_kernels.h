// SPDX-License-Identifier: Apache-2.0
//
// Device work of the benchmarks on a GPU: random data, and the read that is the ceiling of all of
// them. Both return a cudaError_t, 0 for success, and do not wait.

#pragma once

#include <cstdint>

namespace gapless {

// 16-bit values between -2 and 2, never all alike: zeros can be quicker than real data.
int start_filling(uint16_t* values, int64_t count, bool is_bf16, uint64_t seed);

// Reads memory once, a multiple of 16 bytes, and forgets it. `stream` is a cudaStream_t.
int start_reading(const void* memory, int64_t bytes, int sm_count, void* never_written,
                  void* stream);

}  // namespace gapless
