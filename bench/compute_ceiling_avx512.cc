// SPDX-License-Identifier: Apache-2.0
//
// FMA and vpdpbusd on 512 bits.

#include <immintrin.h>

#include "bench/compute_ceiling_levels.h"

namespace gapless::avx512 {

float multiply_add_f32(int64_t iterations) {
  const __m512 half = _mm512_set1_ps(0.5f);
  const __m512 one = _mm512_set1_ps(1.0f);
  __m512 sums[kChains];
#pragma GCC unroll 12
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum));  // or chains that are alike become one
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, half, one);
    }
  }
  __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 12
  for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  return _mm512_cvtss_f32(total);
}

int32_t multiply_add_int8(int64_t iterations) {
  const __m512i factor = _mm512_set1_epi8(1);
  __m512i sums[kChains];
#pragma GCC unroll 12
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
    asm volatile("" : "+v"(sum));  // or chains that are alike become one
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, factor, factor);
    }
  }
  __m512i total = _mm512_setzero_si512();
#pragma GCC unroll 12
  for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  return _mm512_cvtsi512_si32(total);
}

}  // namespace gapless::avx512
