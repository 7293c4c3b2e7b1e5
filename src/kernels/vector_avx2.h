// SPDX-License-Identifier: Apache-2.0
//
// Eight floats at a time: loads, stores, casts, exp and sums that the AVX2 forms share.
//
// For files compiled with the AVX2 flags only. Everything is static and always inlined, so that no
// copy of it can end up in code that runs on machines without AVX2. A count of lanes stands for
// the first elements of a vector; the others are neither read nor written, even where memory ends.
// Casts give the bits of base/half.h, exp those of vector_avx512.h (elementwise_test.cc).

#pragma once

#include <cstdint>

#include <immintrin.h>

#include "base/dtype.h"

namespace gapless::avx2 {

constexpr int kVectorFloats = 8;

// All ones in the first `count` lanes, 0 <= count <= 8: for maskload and maskstore.
[[gnu::always_inline]] static inline __m256i first_lanes(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}

[[gnu::always_inline]] static inline __m256 bf16_to_f32(__m128i values) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(values), 16));
}

// Round to nearest even; a NaN stays a NaN.
[[gnu::always_inline]] static inline __m128i f32_to_bf16(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_add_epi32(bits, half);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
  const __m256i chosen = _mm256_castps_si256(
      _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan));
  const __m256i upper = _mm256_srli_epi32(chosen, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}

[[gnu::always_inline]] static inline __m256 f16_to_f32(__m128i values) {
  return _mm256_cvtph_ps(values);
}
[[gnu::always_inline]] static inline __m128i f32_to_f16(__m256 values) {
  return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// AVX2 has no masked moves of 16-bit elements: these go one by one through a vector on the stack.
[[gnu::always_inline]] static inline __m128i load_first_16bit(const uint16_t* data, int64_t count) {
  alignas(16) uint16_t lanes[kVectorFloats] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = data[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes));
}
[[gnu::always_inline]] static inline void store_first_16bit(uint16_t* data, int64_t count,
                                                            __m128i values) {
  alignas(16) uint16_t lanes[kVectorFloats];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), values);
  for (int64_t i = 0; i < count; ++i) data[i] = lanes[i];
}

// Elements [index, index + 8) of an array of kF32, kBf16 or kF16, as f32.
template <DType kDType>
[[gnu::always_inline]] static inline __m256 load(const void* data, int64_t index) {
  if constexpr (kDType == DType::kF32) {
    return _mm256_loadu_ps(static_cast<const float*>(data) + index);
  } else {
    const __m128i bits = _mm_loadu_si128(
        reinterpret_cast<const __m128i_u*>(static_cast<const uint16_t*>(data) + index));
    return kDType == DType::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}
// The first `count` of them; the other lanes are zero.
template <DType kDType>
[[gnu::always_inline]] static inline __m256 load_first(const void* data, int64_t index,
                                                       int64_t count) {
  if constexpr (kDType == DType::kF32) {
    return _mm256_maskload_ps(static_cast<const float*>(data) + index, first_lanes(count));
  } else {
    const __m128i bits = load_first_16bit(static_cast<const uint16_t*>(data) + index, count);
    return kDType == DType::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

template <DType kDType>
[[gnu::always_inline]] static inline void store(void* data, int64_t index, __m256 values) {
  if constexpr (kDType == DType::kF32) {
    _mm256_storeu_ps(static_cast<float*>(data) + index, values);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(static_cast<uint16_t*>(data) + index),
                     kDType == DType::kBf16 ? f32_to_bf16(values) : f32_to_f16(values));
  }
}
template <DType kDType>
[[gnu::always_inline]] static inline void store_first(void* data, int64_t index, int64_t count,
                                                      __m256 values) {
  if constexpr (kDType == DType::kF32) {
    _mm256_maskstore_ps(static_cast<float*>(data) + index, first_lanes(count), values);
  } else {
    store_first_16bit(static_cast<uint16_t*>(data) + index, count,
                      kDType == DType::kBf16 ? f32_to_bf16(values) : f32_to_f16(values));
  }
}

// As much as there is of a vector that begins `left` > 0 elements before the end. Masked moves are
// slow (stores above all), so whole vectors go without.
template <DType kDType>
[[gnu::always_inline]] static inline __m256 load_left(const void* data, int64_t index,
                                                      int64_t left) {
  if (left >= kVectorFloats) return load<kDType>(data, index);
  return load_first<kDType>(data, index, left);
}
template <DType kDType>
[[gnu::always_inline]] static inline void store_left(void* data, int64_t index, int64_t left,
                                                     __m256 values) {
  if (left >= kVectorFloats) {
    store<kDType>(data, index, values);
  } else {
    store_first<kDType>(data, index, left, values);
  }
}

// The sum of all lanes, always in the same order: halves, quarters, pairs.
[[gnu::always_inline]] static inline float sum_lanes(__m256 values) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// e^x within 0.9 units in the last place (0.892 over all floats). Below the smallest normal float
// it is 0, from 88.73 on infinity; exp of -infinity is 0, of a NaN a NaN. The same steps as in
// vector_avx512.h, bit for bit; 2^n is applied as the product of two powers, since 2^128 alone is
// not a float.
[[gnu::always_inline]] static inline __m256 exp_f32(__m256 x) {
  const __m256 smallest = _mm256_set1_ps(-0x1.5d589ep+6f);
  // min and max give their second operand when one is a NaN.
  const __m256 bounded = _mm256_max_ps(smallest, _mm256_min_ps(_mm256_set1_ps(89.0f), x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(0x1.715476p+0f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e43p-1f), bounded);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-0x1.05c61p-29f), r);
  __m256 p = _mm256_set1_ps(0x1.6a23c8p-10f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a2p-7f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_cvtps_epi32(n);
  const __m256i first = _mm256_srai_epi32(exponent, 1);
  const __m256i second = _mm256_sub_epi32(exponent, first);
  const __m256i bias = _mm256_set1_epi32(127);
  p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
  p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
  return _mm256_and_ps(p, _mm256_cmp_ps(x, smallest, _CMP_NLT_UQ));
}

}  // namespace gapless::avx2
