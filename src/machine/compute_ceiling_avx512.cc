// SPDX-License-Identifier: Apache-2.0
//
// FMA and vpdpbusd on 512 bits.

#include <immintrin.h>

#include "machine/compute_ceiling_loop.h"

namespace gapless::avx512 {

double multiply_add_f32(int64_t iterations) {
  using Vector = float __attribute__((vector_size(64)));
  const __m512 half = _mm512_set1_ps(0.5f);
  const __m512 one = _mm512_set1_ps(1.0f);
  return run_chains<Vector>(
      iterations, [half, one](Vector sum) -> Vector { return _mm512_fmadd_ps(sum, half, one); });
}

double multiply_add_int8(int64_t iterations) {
  using Vector = int32_t __attribute__((vector_size(64)));
  const __m512i factor = _mm512_set1_epi8(1);
  return run_chains<Vector>(iterations, [factor](Vector sum) {
    return reinterpret_cast<Vector>(
        _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), factor, factor));
  });
}

}  // namespace gapless::avx512
