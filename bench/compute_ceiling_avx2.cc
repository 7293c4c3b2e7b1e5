// SPDX-License-Identifier: Apache-2.0
//
// FMA and 16-bit multiply-adds on 256 bits.

#include <immintrin.h>

#include "bench/compute_ceiling_levels.h"

namespace gapless::avx2 {

float multiply_add_f32(int64_t iterations) {
  const __m256 half = _mm256_set1_ps(0.5f);
  const __m256 one = _mm256_set1_ps(1.0f);
  __m256 sums[kChains];
#pragma GCC unroll 12
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
    asm volatile("" : "+x"(sum));  // or chains that are alike become one
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, half, one);
    }
  }
  __m256 total = _mm256_setzero_ps();
#pragma GCC unroll 12
  for (const __m256& sum : sums) total = _mm256_add_ps(total, sum);
  return _mm256_cvtss_f32(total);
}

// Each product has the sum before it as a factor, or the compiler would take it out of the loop.
int32_t multiply_add_int16(int64_t iterations) {
  const __m256i ones_16 = _mm256_set1_epi16(1);
  const __m256i ones_32 = _mm256_set1_epi32(1);
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (__m256i& sum : sums) {
    sum = _mm256_setzero_si256();
    asm volatile("" : "+x"(sum));  // or chains that are alike become one
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      const __m256i products = _mm256_madd_epi16(sum, ones_16);
      sum = _mm256_add_epi32(products, ones_32);
      asm volatile("" : "+x"(sum));  // keeps it in its register
    }
  }
  __m256i total = _mm256_setzero_si256();
#pragma GCC unroll 12
  for (const __m256i& sum : sums) total = _mm256_add_epi32(total, sum);
  return _mm_cvtsi128_si32(_mm256_castsi256_si128(total));
}

}  // namespace gapless::avx2
