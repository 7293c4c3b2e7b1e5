// SPDX-License-Identifier: Apache-2.0
//
// The attention on 256 bits.

#include <cstddef>
#include <cstdint>

#include "kernels/attention_vector.h"
#include "kernels/vector_avx2.h"

namespace gapless {

namespace {

struct Vector256 {
  using Floats = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;

  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Floats values) { _mm256_storeu_ps(to, values); }
  static void store_as(DType dtype, void* to, int64_t index, Floats values) {
    if (dtype == DType::kBf16) return avx2::store<DType::kBf16>(to, index, values);
    if (dtype == DType::kF16) return avx2::store<DType::kF16>(to, index, values);
    avx2::store<DType::kF32>(to, index, values);
  }
  static Floats set(float value) { return _mm256_set1_ps(value); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  // The second one when one is a NaN.
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats exp(Floats x) { return avx2::exp_f32(x); }
  static Floats keep_first(Floats values, int count, Floats others) {
    return _mm256_blendv_ps(others, values, _mm256_castsi256_ps(avx2::first_lanes(count)));
  }
  static float first_lane(Floats values) { return _mm256_cvtss_f32(values); }
  static float sum_lanes(Floats values) { return avx2::sum_lanes(values); }
  static float max_lanes(Floats values) {
    const __m128 four =
        _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
};

struct F32Element {
  static constexpr int kBytes = 4;
  static constexpr int kGroup = 1;
  static constexpr bool kHasScales = false;
  static __m256 cast_operand(__m256 values) { return values; }
  template <int kPart>
  static __m256 load(const std::byte* at) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  }
};

struct F16Element {
  static constexpr int kBytes = 2;
  static constexpr int kGroup = 1;
  static constexpr bool kHasScales = false;
  static __m256 cast_operand(__m256 values) { return values; }
  template <int kPart>
  static __m256 load(const std::byte* at) {
    return avx2::f16_to_f32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at)));
  }
};

// Two neighbours in one lane: a shift makes a float of the first, a mask of the second.
struct Bf16Element {
  static constexpr int kBytes = 2;
  static constexpr int kGroup = 2;
  static constexpr bool kHasScales = false;
  static __m256 cast_operand(__m256 values) { return avx2::bf16_to_f32(avx2::f32_to_bf16(values)); }
  template <int kPart>
  static __m256 load(const std::byte* at) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at));
    if constexpr (kPart == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
  }
};

struct S8Element {
  static constexpr int kBytes = 1;
  static constexpr int kGroup = 1;
  static constexpr bool kHasScales = true;
  static __m256 cast_operand(__m256 values) { return values; }
  template <int kPart>
  static __m256 load(const std::byte* at) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(at));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
};

}  // namespace

void avx2::attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next) {
  switch (chunk.dtype) {
    case DType::kF32:
      return walk<FloatKernel<Vector256, F32Element>>(chunk, next);
    case DType::kF16:
      return walk<FloatKernel<Vector256, F16Element>>(chunk, next);
    case DType::kBf16:
      return walk<FloatKernel<Vector256, Bf16Element>>(chunk, next);
    default:
      return walk<FloatKernel<Vector256, S8Element>>(chunk, next);
  }
}

void avx2::merge_partials(const AttentionMerge& merge) {
  for (int head = 0; head < merge.group_heads; ++head) merge_head<Vector256>(merge, head);
}

}  // namespace gapless
