// SPDX-License-Identifier: Apache-2.0
//
// The matmul on 512 bits: s8 by vpdpbusd (exact), bf16, f16 and f32 by f32 multiply-adds.

#include "kernels/matmul_block_avx512.h"
#include "kernels/matmul_finish.h"
#include "kernels/vector_avx512.h"

namespace gapless::avx512 {
namespace {

struct S8Line {
  using Sum = __m512i;
  using Weights = __m512i;
  static constexpr int kSteps = 1;
  static Sum zero() { return _mm512_setzero_si512(); }
  static Sum load(const std::byte* from) { return _mm512_load_si512(from); }
  static void store(std::byte* to, Sum sum) { _mm512_store_si512(to, sum); }
  template <int kStep>
  static Weights weights(const std::byte* line) {
    return _mm512_load_si512(line);
  }
  static Weights broadcast(const std::byte* row) {
    return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(row));
  }
  static Sum add(Sum sum, Weights weights, Weights elements) {
    return _mm512_dpbusd_epi32(sum, weights, elements);
  }
};

struct FloatSums {
  using Sum = __m512;
  using Weights = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum load(const std::byte* from) { return _mm512_load_ps(from); }
  static void store(std::byte* to, Sum sum) { _mm512_store_ps(to, sum); }
  static Weights broadcast(const std::byte* row) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(row));
  }
  static Sum add(Sum sum, Weights weights, Weights elements) {
    return _mm512_fmadd_ps(weights, elements, sum);
  }
};

// The even k are the lower halves of the 32-bit lanes, the odd ones the upper halves.
struct Bf16Line : FloatSums {
  static constexpr int kSteps = 2;
  template <int kStep>
  static Weights weights(const std::byte* line) {
    const __m512i pairs = _mm512_load_si512(line);
    if constexpr (kStep == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
  }
};

struct F16Line : FloatSums {
  static constexpr int kSteps = 2;
  template <int kStep>
  static Weights weights(const std::byte* line) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(line + kStep * 32)));
  }
};

struct F32Line : FloatSums {
  static constexpr int kSteps = 1;
  template <int kStep>
  static Weights weights(const std::byte* line) {
    return _mm512_load_ps(line);
  }
};

struct FinishVector {
  using Floats = __m512;
  using Integers = __m512i;
  static constexpr int kLanes = 16;
  static Integers splat(int32_t value) { return _mm512_set1_epi32(value); }
  static Floats splat(float value) { return _mm512_set1_ps(value); }
  static Integers load(const int32_t* from) { return _mm512_loadu_si512(from); }
  static Integers add(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
  static Floats to_floats(Integers values) { return _mm512_cvtepi32_ps(values); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats load_left(const float* from, int64_t left) {
    return avx512::load<DType::kF32>(from, 0, lanes_left(left));
  }
  static Floats exp(Floats values) { return exp_f32(values); }
  template <DType kStored>
  static void store_left(void* data, int64_t index, int64_t left, Floats values) {
    store<kStored>(data, index, lanes_left(left), values);
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

}  // namespace gapless::avx512
