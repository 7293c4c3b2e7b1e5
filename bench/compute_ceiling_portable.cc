// SPDX-License-Identifier: Apache-2.0
//
// Multiply and add on vectors of four floats, which every 64-bit machine has.

#include "bench/compute_ceiling_levels.h"

namespace gapless::portable {
namespace {

using Vector = float __attribute__((vector_size(kF32Lanes * sizeof(float))));

}  // namespace

float multiply_add_f32(int64_t iterations) {
  const Vector half = {0.5f, 0.5f, 0.5f, 0.5f};
  const Vector one = {1.0f, 1.0f, 1.0f, 1.0f};
  Vector sums[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    // Chains that are alike would become one, and one that stays at 2 would be seen through.
    const float start = static_cast<float>(3 + chain);
    sums[chain] = Vector{start, start, start, start};
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (Vector& sum : sums) sum = sum * half + one;
  }
  Vector total = {};
#pragma GCC unroll 12
  for (const Vector& sum : sums) total += sum;
  return total[0] + total[1] + total[2] + total[3];
}

}  // namespace gapless::portable
