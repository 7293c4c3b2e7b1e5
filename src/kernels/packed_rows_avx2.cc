// SPDX-License-Identifier: Apache-2.0

#include "kernels/packed_rows_levels.h"
#include "kernels/vector_avx2.h"

namespace gapless::avx2 {
namespace {

template <DType kDType>
[[gnu::always_inline]] inline __m256 elements(const RowPart& part, int64_t i) {
  const __m256 values = load<kDType>(part.data, i);
  return part.gamma == nullptr ? values : values * load<DType::kF32>(part.gamma, i);
}
template <DType kDType>
[[gnu::always_inline]] inline __m256 first_elements(const RowPart& part, int64_t i, int64_t count) {
  const __m256 values = load_first<kDType>(part.data, i, count);
  return part.gamma == nullptr ? values : values * load_first<DType::kF32>(part.gamma, i, count);
}

// Calls the body for each vector of the part with its index, its elements and how many they are.
template <DType kDType, typename F>
[[gnu::always_inline]] inline void over_vectors(const RowPart& part, F body) {
  int64_t i = 0;
  for (; i + kVectorFloats <= part.count; i += kVectorFloats)
    body(i, elements<kDType>(part, i), int64_t{kVectorFloats});
  const int64_t left = part.count - i;
  if (left > 0) body(i, first_elements<kDType>(part, i, left), left);
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

template <DType kDType>
[[gnu::always_inline]] inline void store_some(void* to, int64_t i, int64_t count, __m256 values) {
  if (count == kVectorFloats) return store<kDType>(to, i, values);
  store_first<kDType>(to, i, count, values);
}

uint32_t largest_magnitude(const RowPart& part) {
  const __m256i without_sign = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  over_elements(part, [&](int64_t, __m256 values, int64_t) {
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(values), without_sign);
    largest = _mm256_max_epi32(largest, bits);
  });
  alignas(32) uint32_t lanes[kVectorFloats];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  uint32_t result = 0;
  for (const uint32_t lane : lanes) result = lane > result ? lane : result;
  return result;
}

int32_t quantize(const RowPart& part, float inverse, int8_t* to) {
  const __m256 factor = _mm256_set1_ps(inverse);
  int32_t sum = 0;
  over_elements(part, [&](int64_t i, __m256 values, int64_t count) {
    const __m256i rounded = _mm256_cvtps_epi32(values * factor);  // to nearest even
    const __m256i bounded = _mm256_max_epi32(_mm256_set1_epi32(-127),
                                             _mm256_min_epi32(_mm256_set1_epi32(127), rounded));
    alignas(32) int32_t lanes[kVectorFloats];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), bounded);
    for (int64_t lane = 0; lane < count; ++lane) {
      to[i + lane] = static_cast<int8_t>(lanes[lane]);
      sum += lanes[lane];
    }
  });
  return sum;
}

void cast_to_bf16(const RowPart& part, uint16_t* to) {
  over_elements(part, [&](int64_t i, __m256 values, int64_t count) {
    store_some<DType::kBf16>(to, i, count, values);
  });
}

void cast_through(const RowPart& part, DType dtype, float* to) {
  over_elements(part, [&](int64_t i, __m256 values, int64_t count) {
    if (dtype == DType::kBf16) values = bf16_to_f32(f32_to_bf16(values));
    if (dtype == DType::kF16) values = f16_to_f32(f32_to_f16(values));
    store_some<DType::kF32>(to, i, count, values);
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

}  // namespace gapless::avx2
