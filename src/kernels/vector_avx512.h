// SPDX-License-Identifier: Apache-2.0
//
// Sixteen floats at a time: loads, stores, casts, exp and sums that the AVX-512 forms share.
//
// For files compiled with the AVX-512 flags only. Everything is static and always inlined, so that
// no copy of it can end up in code that runs on machines without AVX-512. A mask stands for the
// first elements of a vector; what it leaves out is neither read nor written, even where memory
// ends. Casts give the bits of base/half.h (elementwise_test.cc).

#pragma once

#include <cstdint>

// GCC 12 warns of its own _mm512_undefined_ps() wherever these are inlined (its bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "base/dtype.h"

namespace gapless::avx512 {

constexpr int kVectorFloats = 16;
constexpr __mmask16 kAllLanes = 0xffff;

// The first `count` lanes, 0 <= count <= 16.
[[gnu::always_inline]] static inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((1u << static_cast<unsigned>(count)) - 1u);
}
// The first lanes of a vector that begins `left` elements before the end; all when there is room.
[[gnu::always_inline]] static inline __mmask16 lanes_left(int64_t left) {
  return left >= kVectorFloats ? kAllLanes : first_lanes(left);
}

[[gnu::always_inline]] static inline __m512 bf16_to_f32(__m256i values) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

// Round to nearest even; a NaN stays a NaN. The instruction that does it (vcvtneps2bf16) is not in
// every AVX-512 machine and loses denormals.
[[gnu::always_inline]] static inline __m256i f32_to_bf16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i rounded =
      _mm512_mask_or_epi32(_mm512_add_epi32(bits, half), is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

[[gnu::always_inline]] static inline __m512 f16_to_f32(__m256i values) {
  return _mm512_cvtph_ps(values);
}
[[gnu::always_inline]] static inline __m256i f32_to_f16(__m512 values) {
  return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Elements [index, index + 16) of an array of kF32, kBf16 or kF16, as f32. Lanes that the mask
// leaves out are zero.
template <DType kDType>
[[gnu::always_inline]] static inline __m512 load(const void* data, int64_t index) {
  if constexpr (kDType == DType::kF32) {
    return _mm512_loadu_ps(static_cast<const float*>(data) + index);
  } else {
    const __m256i bits = _mm256_loadu_si256(
        reinterpret_cast<const __m256i_u*>(static_cast<const uint16_t*>(data) + index));
    return kDType == DType::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}
template <DType kDType>
[[gnu::always_inline]] static inline __m512 load(const void* data, int64_t index, __mmask16 mask) {
  if constexpr (kDType == DType::kF32) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(data) + index);
  } else {
    const __m256i bits = _mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(data) + index);
    return kDType == DType::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

template <DType kDType>
[[gnu::always_inline]] static inline void store(void* data, int64_t index, __m512 values) {
  if constexpr (kDType == DType::kF32) {
    _mm512_storeu_ps(static_cast<float*>(data) + index, values);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(static_cast<uint16_t*>(data) + index),
                        kDType == DType::kBf16 ? f32_to_bf16(values) : f32_to_f16(values));
  }
}
template <DType kDType>
[[gnu::always_inline]] static inline void store(void* data, int64_t index, __mmask16 mask,
                                                __m512 values) {
  if constexpr (kDType == DType::kF32) {
    _mm512_mask_storeu_ps(static_cast<float*>(data) + index, mask, values);
  } else {
    _mm256_mask_storeu_epi16(static_cast<uint16_t*>(data) + index, mask,
                             kDType == DType::kBf16 ? f32_to_bf16(values) : f32_to_f16(values));
  }
}

// The sum of all lanes, always in the same order: halves, quarters, eighths, pairs.
[[gnu::always_inline]] static inline float sum_lanes(__m512 values) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(values), _mm512_extractf32x8_ps(values, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// e^x within 0.9 units in the last place (0.892 over all floats). Below the smallest normal float
// it is 0, from 88.73 on infinity; exp of -infinity is 0, of a NaN a NaN. e^x = 2^n e^r with |r| <=
// ln(2) / 2, and e^r by a polynomial (minimax of the relative error, 3.6e-9).
[[gnu::always_inline]] static inline __m512 exp_f32(__m512 x) {
  const __m512 smallest = _mm512_set1_ps(-0x1.5d589ep+6f);
  // min and max give their second operand when one is a NaN.
  const __m512 bounded = _mm512_max_ps(smallest, _mm512_min_ps(_mm512_set1_ps(89.0f), x));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(bounded, _mm512_set1_ps(0x1.715476p+0f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e43p-1f), bounded);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-0x1.05c61p-29f), r);
  __m512 p = _mm512_set1_ps(0x1.6a23c8p-10f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a2p-7f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __mmask16 is_not_tiny = _mm512_cmp_ps_mask(x, smallest, _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(is_not_tiny, p, n);
}

}  // namespace gapless::avx512
