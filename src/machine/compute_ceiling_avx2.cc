// SPDX-License-Identifier: Apache-2.0
//
// FMA and 16-bit multiply-adds on 256 bits.

#include <immintrin.h>

#include "machine/compute_ceiling_loop.h"

namespace gapless::avx2 {

double multiply_add_f32(int64_t iterations) {
  using Vector = float __attribute__((vector_size(32)));
  const __m256 half = _mm256_set1_ps(0.5f);
  const __m256 one = _mm256_set1_ps(1.0f);
  return run_chains<Vector>(
      iterations, [half, one](Vector sum) -> Vector { return _mm256_fmadd_ps(sum, half, one); });
}

// Each product has the sum before it as a factor, or the compiler would take it out of the loop.
double multiply_add_int16(int64_t iterations) {
  using Vector = int32_t __attribute__((vector_size(32)));
  const __m256i ones = _mm256_set1_epi16(1);
  return run_chains<Vector>(iterations, [ones](Vector sum) {
    Vector next = reinterpret_cast<Vector>(_mm256_madd_epi16(reinterpret_cast<__m256i>(sum), ones));
    next += 1;
    asm volatile("" : "+x"(next));  // keeps it in its register
    return next;
  });
}

}  // namespace gapless::avx2
