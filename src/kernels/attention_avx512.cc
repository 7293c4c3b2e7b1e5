// SPDX-License-Identifier: Apache-2.0
//
// The attention on 512 bits.

#include "kernels/attention_avx512_vector.h"

namespace gapless {

namespace {

struct F32Element {
  static constexpr int kBytes = 4;
  static constexpr int kGroup = 1;
  static constexpr bool kHasScales = false;
  static __m512 cast_operand(__m512 values) { return values; }
  template <int kPart>
  static __m512 load(const std::byte* at) {
    return _mm512_loadu_ps(at);
  }
};

struct F16Element {
  static constexpr int kBytes = 2;
  static constexpr int kGroup = 1;
  static constexpr bool kHasScales = false;
  static __m512 cast_operand(__m512 values) { return values; }
  template <int kPart>
  static __m512 load(const std::byte* at) {
    return avx512::f16_to_f32(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at)));
  }
};

// Two neighbours in one lane: a shift makes a float of the first, a mask of the second.
struct Bf16Element {
  static constexpr int kBytes = 2;
  static constexpr int kGroup = 2;
  static constexpr bool kHasScales = false;
  static __m512 cast_operand(__m512 values) {
    return avx512::bf16_to_f32(avx512::f32_to_bf16(values));
  }
  template <int kPart>
  static __m512 load(const std::byte* at) {
    const __m512i both = _mm512_loadu_si512(at);
    if constexpr (kPart == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
  }
};

struct S8Element {
  static constexpr int kBytes = 1;
  static constexpr int kGroup = 1;
  static constexpr bool kHasScales = true;
  static __m512 cast_operand(__m512 values) { return values; }
  template <int kPart>
  static __m512 load(const std::byte* at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
};

}  // namespace

void avx512::attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next) {
  switch (chunk.dtype) {
    case DType::kF32:
      return walk<FloatKernel<Vector512, F32Element>>(chunk, next);
    case DType::kF16:
      return walk<FloatKernel<Vector512, F16Element>>(chunk, next);
    case DType::kBf16:
      return walk<FloatKernel<Vector512, Bf16Element>>(chunk, next);
    default:
      return walk<FloatKernel<Vector512, S8Element>>(chunk, next);
  }
}

void avx512::merge_partials(const AttentionMerge& merge) {
  for (int head = 0; head < merge.group_heads; ++head) merge_head<Vector512>(merge, head);
}

}  // namespace gapless
