// SPDX-License-Identifier: Apache-2.0
//
// Device work that measures a GPU: reading memory, and multiplying on registers alone. All return a
// cudaError_t, 0 for success, and do not wait. `stream` is a cudaStream_t.

#pragma once

#include <cstdint>

namespace gapless {

enum class CeilingArithmetic : uint8_t { kS8, kBf16, kF32 };

inline constexpr int kCeilingThreads = 256;
inline constexpr int kCeilingBlocksPerSm = 2;
inline constexpr int kCeilingChains = 8;      // products of a warp that do not depend on each other
inline constexpr int kCeilingF32Chains = 16;  // of a thread

// Multiplies and adds of one launch.
constexpr double ceiling_ops(CeilingArithmetic arithmetic, int sm_count, int rounds) {
  const double threads = static_cast<double>(sm_count) * kCeilingBlocksPerSm * kCeilingThreads;
  if (arithmetic == CeilingArithmetic::kF32) return threads * rounds * kCeilingF32Chains * 2.0;
  const double k = arithmetic == CeilingArithmetic::kS8 ? 32.0 : 16.0;
  return threads / 32.0 * rounds * kCeilingChains * (16.0 * 8.0 * k * 2.0);
}

// Fills memory, a multiple of 16 bytes, with values that are never all alike: zeros can be quicker
// to read.
int ceiling_fill_kernel(void* memory, int64_t bytes, void* stream);
// Reads memory once, a multiple of 16 bytes at 16 bytes, and forgets it. `never_written` has 16
// bytes.
int ceiling_read_kernel(const void* memory, int64_t bytes, int sm_count, void* never_written,
                        void* stream);
int ceiling_multiply_kernel(CeilingArithmetic arithmetic, int sm_count, int rounds,
                            void* never_written, void* stream);

}  // namespace gapless
