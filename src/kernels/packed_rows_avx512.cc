// SPDX-License-Identifier: Apache-2.0

#include "kernels/packed_rows_levels.h"
#include "kernels/vector_avx512.h"

namespace gapless::avx512 {
namespace {

template <DType kDType>
[[gnu::always_inline]] inline __m512 elements(const RowPart& part, int64_t i, __mmask16 mask) {
  const __m512 values = load<kDType>(part.data, i, mask);
  if (part.gamma == nullptr) return values;
  return values * load<DType::kF32>(part.gamma, i, mask);
}

// Calls the body for each vector of the part with its index, its elements and its mask.
template <DType kDType, typename F>
[[gnu::always_inline]] inline void over_vectors(const RowPart& part, F body) {
  for (int64_t i = 0; i < part.count; i += kVectorFloats) {
    const __mmask16 mask = lanes_left(part.count - i);
    body(i, elements<kDType>(part, i, mask), mask);
  }
}
template <typename F>
[[gnu::always_inline]] inline void over_elements(const RowPart& part, F body) {
  switch (part.dtype) {
    case DType::kBf16:
      return over_vectors<DType::kBf16>(part, body);
    case DType::kF16:
      return over_vectors<DType::kF16>(part, body);
    default:
      return over_vectors<DType::kF32>(part, body);
  }
}

uint32_t largest_magnitude(const RowPart& part) {
  const __m512i without_sign = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  over_elements(part, [&](int64_t, __m512 values, __mmask16) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(values), without_sign);
    largest = _mm512_max_epi32(largest, bits);
  });
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(largest));
}

int32_t quantize(const RowPart& part, float inverse, int8_t* to) {
  const __m512 factor = _mm512_set1_ps(inverse);
  __m512i sums = _mm512_setzero_si512();
  over_elements(part, [&](int64_t i, __m512 values, __mmask16 mask) {
    const __m512i rounded = _mm512_cvtps_epi32(values * factor);  // to nearest even
    const __m512i bounded = _mm512_max_epi32(_mm512_set1_epi32(-127),
                                             _mm512_min_epi32(_mm512_set1_epi32(127), rounded));
    sums = _mm512_add_epi32(sums, bounded);
    _mm512_mask_cvtepi32_storeu_epi8(to + i, mask, bounded);
  });
  return _mm512_reduce_add_epi32(sums);
}

void cast_to_bf16(const RowPart& part, uint16_t* to) {
  over_elements(part, [&](int64_t i, __m512 values, __mmask16 mask) {
    store<DType::kBf16>(to, i, mask, values);
  });
}

void cast_through(const RowPart& part, DType dtype, float* to) {
  over_elements(part, [&](int64_t i, __m512 values, __mmask16 mask) {
    if (dtype == DType::kBf16) values = bf16_to_f32(f32_to_bf16(values));
    if (dtype == DType::kF16) values = f16_to_f32(f32_to_f16(values));
    store<DType::kF32>(to, i, mask, values);
  });
}

}  // namespace

const RowLoops& row_loops() {
  static constexpr RowLoops kLoops = {.largest_magnitude = largest_magnitude,
                                      .quantize = quantize,
                                      .cast_to_bf16 = cast_to_bf16,
                                      .cast_through = cast_through};
  return kLoops;
}

}  // namespace gapless::avx512
