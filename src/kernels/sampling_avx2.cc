// SPDX-License-Identifier: Apache-2.0
//
// The search for the next logit that matters, 32 logits at a time on 256 bits.

#include <immintrin.h>

#include "kernels/sampling_levels.h"

namespace gapless::avx2 {
namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kVectors = 4;  // side by side; one branch for all of them

// Not less or equal, and true for NaN.
inline __m256 above(const float* logits, __m256 threshold) {
  return _mm256_cmp_ps(_mm256_loadu_ps(logits), threshold, _CMP_NLE_UQ);
}

inline bool block_has_above(const float* logits, __m256 threshold) {
  const __m256 a = _mm256_or_ps(above(logits, threshold), above(logits + kLanes, threshold));
  const __m256 b =
      _mm256_or_ps(above(logits + 2 * kLanes, threshold), above(logits + 3 * kLanes, threshold));
  return _mm256_movemask_ps(_mm256_or_ps(a, b)) != 0;
}

}  // namespace

int64_t find_above(const float* logits, int64_t begin, int64_t count, float threshold) {
  const __m256 thresholds = _mm256_set1_ps(threshold);
  int64_t i = begin;
  while (i + kVectors * kLanes <= count && !block_has_above(logits + i, thresholds)) {
    i += kVectors * kLanes;
  }
  for (; i + kLanes <= count; i += kLanes) {
    const unsigned found = static_cast<unsigned>(_mm256_movemask_ps(above(logits + i, thresholds)));
    if (found != 0) return i + __builtin_ctz(found);
  }
  while (i < count && logits[i] <= threshold) ++i;
  return i;
}

}  // namespace gapless::avx2
