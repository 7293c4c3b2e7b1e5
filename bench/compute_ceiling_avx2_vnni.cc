// SPDX-License-Identifier: Apache-2.0
//
// vpdpbusd on 256 bits, as it is without AVX-512.

#include <immintrin.h>

#include "bench/compute_ceiling_levels.h"

namespace gapless::avx2_vnni {

int32_t multiply_add_int8(int64_t iterations) {
  const __m256i factor = _mm256_set1_epi8(1);
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (__m256i& sum : sums) {
    sum = _mm256_setzero_si256();
    asm volatile("" : "+x"(sum));  // or chains that are alike become one
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      sum = _mm256_dpbusd_avx_epi32(sum, factor, factor);
    }
  }
  __m256i total = _mm256_setzero_si256();
#pragma GCC unroll 12
  for (const __m256i& sum : sums) total = _mm256_add_epi32(total, sum);
  return _mm_cvtsi128_si32(_mm256_castsi256_si128(total));
}

}  // namespace gapless::avx2_vnni
