// SPDX-License-Identifier: Apache-2.0
//
// vdpbf16ps on 512 bits.

#include <immintrin.h>

#include "bench/compute_ceiling_levels.h"

namespace gapless::avx512_bf16 {

float multiply_add_bf16(int64_t iterations) {
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
  __m512 sums[kChains];
#pragma GCC unroll 12
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum));  // or chains that are alike become one
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, factor, factor);
    }
  }
  __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 12
  for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  return _mm512_cvtss_f32(total);
}

}  // namespace gapless::avx512_bf16
