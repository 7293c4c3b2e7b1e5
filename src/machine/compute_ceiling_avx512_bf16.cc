// SPDX-License-Identifier: Apache-2.0
//
// vdpbf16ps on 512 bits.

#include <immintrin.h>

#include "machine/compute_ceiling_loop.h"

namespace gapless::avx512_bf16 {

double multiply_add_bf16(int64_t iterations) {
  using Vector = float __attribute__((vector_size(64)));
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
  return run_chains<Vector>(
      iterations, [factor](Vector sum) -> Vector { return _mm512_dpbf16_ps(sum, factor, factor); });
}

}  // namespace gapless::avx512_bf16
