// SPDX-License-Identifier: Apache-2.0
//
// The search for the next logit that matters, 64 logits at a time on 512 bits.

#include <immintrin.h>

#include "kernels/sampling_levels.h"

namespace gapless::avx512 {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kVectors = 4;  // side by side; one branch for all of them

// Not less or equal, and true for NaN.
inline __mmask16 above(__m512 logits, __m512 threshold) {
  return _mm512_cmp_ps_mask(logits, threshold, _CMP_NLE_UQ);
}

inline bool block_has_above(const float* logits, __m512 threshold) {
  const __mmask16 a = above(_mm512_loadu_ps(logits), threshold);
  const __mmask16 b = above(_mm512_loadu_ps(logits + kLanes), threshold);
  const __mmask16 c = above(_mm512_loadu_ps(logits + 2 * kLanes), threshold);
  const __mmask16 d = above(_mm512_loadu_ps(logits + 3 * kLanes), threshold);
  return _kortestz_mask16_u8(_kor_mask16(a, b), _kor_mask16(c, d)) == 0;
}

}  // namespace

int64_t find_above(const float* logits, int64_t begin, int64_t count, float threshold) {
  const __m512 thresholds = _mm512_set1_ps(threshold);
  int64_t i = begin;
  while (i + kVectors * kLanes <= count && !block_has_above(logits + i, thresholds)) {
    i += kVectors * kLanes;
  }
  for (; i < count; i += kLanes) {
    const int64_t left = count - i;
    const __mmask16 in_range = static_cast<__mmask16>(left >= kLanes ? 0xffffu : (1u << left) - 1u);
    const __m512 values = _mm512_maskz_loadu_ps(in_range, logits + i);
    const __mmask16 found = _mm512_mask_cmp_ps_mask(in_range, values, thresholds, _CMP_NLE_UQ);
    if (found != 0) return i + __builtin_ctz(found);
  }
  return count;
}

}  // namespace gapless::avx512
