// SPDX-License-Identifier: Apache-2.0
//
// The matmul on 256 bits without VNNI. s8 goes through 16-bit products added in pairs (vpmaddwd),
// which are exact: the 8-bit form (vpmaddubsw) saturates and is not used.

#include "kernels/matmul_block_avx2.h"
#include "kernels/matmul_finish.h"
#include "kernels/vector_avx2.h"

namespace gapless::avx2 {
namespace {

struct S8Line {
  using Sum = __m256i;
  struct Weights {  // of the even and the odd k, as 16 bits
    __m256i even;
    __m256i odd;
  };
  using Element = Weights;
  static constexpr int kSteps = 1;
  static Sum zero() { return _mm256_setzero_si256(); }
  static Sum load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::byte* to, Sum sum) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sum);
  }
  template <int kStep, int kHalf>
  static Weights weights(const std::byte* line, std::integral_constant<int, kHalf>) {
    const __m256i bytes = load(line + kHalf * kHalfLine);  // unsigned
    return {_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(bytes, 8)};
  }
  static Element element(const std::byte* row) {
    const __m256i bytes = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(row));
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
  }
  static Sum add(Sum sum, const Weights& weights, const Element& element) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(weights.even, element.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights.odd, element.odd));
  }
};

struct FloatSums {
  using Sum = __m256;
  using Weights = __m256;
  using Element = __m256;
  static Sum zero() { return _mm256_setzero_ps(); }
  static Sum load(const std::byte* from) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  }
  static void store(std::byte* to, Sum sum) { _mm256_storeu_ps(reinterpret_cast<float*>(to), sum); }
  static Element element(const std::byte* row) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(row));
  }
  static Sum add(Sum sum, Weights weights, Element element) {
    return _mm256_fmadd_ps(weights, element, sum);
  }
};

struct Bf16Line : FloatSums {
  static constexpr int kSteps = 2;
  template <int kStep, int kHalf>
  static Weights weights(const std::byte* line, std::integral_constant<int, kHalf>) {
    const __m256i pairs = S8Line::load(line + kHalf * kHalfLine);
    if constexpr (kStep == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
  }
};

struct F16Line : FloatSums {
  static constexpr int kSteps = 2;
  template <int kStep, int kHalf>
  static Weights weights(const std::byte* line, std::integral_constant<int, kHalf>) {
    return gapless::avx2::load<DType::kF16>(line + kStep * kHalfLine, kHalf * 8);
  }
};

struct F32Line : FloatSums {
  static constexpr int kSteps = 1;
  template <int kStep, int kHalf>
  static Weights weights(const std::byte* line, std::integral_constant<int, kHalf>) {
    return gapless::avx2::load<DType::kF32>(line, kHalf * 8);
  }
};

struct FinishVector {
  using Floats = __m256;
  using Integers = __m256i;
  static constexpr int kLanes = 8;
  static Integers splat(int32_t value) { return _mm256_set1_epi32(value); }
  static Floats splat(float value) { return _mm256_set1_ps(value); }
  static Integers load(const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Integers add(Integers a, Integers b) { return _mm256_add_epi32(a, b); }
  static Floats to_floats(Integers values) { return _mm256_cvtepi32_ps(values); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static Floats load_left(const float* from, int64_t left) {
    return left >= kLanes ? load(from) : load_first<DType::kF32>(from, 0, left);
  }
  static Floats exp(Floats values) { return exp_f32(values); }
  template <DType kStored>
  static void store_left(void* data, int64_t index, int64_t left, Floats values) {
    if (left >= kLanes) return store<kStored>(data, index, values);
    store_first<kStored>(data, index, left, values);
  }
};

}  // namespace

void sum_panels(const PanelSums& job) {
  switch (job.weights) {
    case DType::kS8:
      return sum_panels_with<S8Line>(job);
    case DType::kBf16:
      return sum_panels_with<Bf16Line>(job);
    case DType::kF16:
      return sum_panels_with<F16Line>(job);
    default:
      return sum_panels_with<F32Line>(job);
  }
}

void finish_panels(const PanelOutput& job) { finish_panels_with<FinishVector>(job); }

}  // namespace gapless::avx2
