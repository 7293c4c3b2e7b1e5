// SPDX-License-Identifier: Apache-2.0
//
// Multiply and add on vectors of four floats, which every 64-bit machine has.

#include "machine/compute_ceiling_loop.h"

namespace gapless::portable {

double multiply_add_f32(int64_t iterations) {
  using Vector = float __attribute__((vector_size(kF32Lanes * sizeof(float))));
  return run_chains<Vector>(iterations, [](Vector sum) { return sum * 0.5f + 1.0f; });
}

}  // namespace gapless::portable
