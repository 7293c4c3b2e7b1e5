// SPDX-License-Identifier: Apache-2.0
//
// The sixteen floats that attention_vector.h works on at levels avx512 and avx512-bf16.
//
// For level files only: everything is in an anonymous namespace.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_vector.h"
#include "kernels/vector_avx512.h"

namespace gapless {
namespace {

struct Vector512 {
  using Floats = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;

  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats values) { _mm512_storeu_ps(to, values); }
  static void store_as(DType dtype, void* to, int64_t index, Floats values) {
    if (dtype == DType::kBf16) return avx512::store<DType::kBf16>(to, index, values);
    if (dtype == DType::kF16) return avx512::store<DType::kF16>(to, index, values);
    avx512::store<DType::kF32>(to, index, values);
  }
  static Floats set(float value) { return _mm512_set1_ps(value); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  // The second one when one is a NaN.
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats exp(Floats x) { return avx512::exp_f32(x); }
  static Floats keep_first(Floats values, int count, Floats others) {
    return _mm512_mask_mov_ps(others, avx512::lanes_left(count), values);
  }
  static float first_lane(Floats values) { return _mm512_cvtss_f32(values); }
  static float sum_lanes(Floats values) { return avx512::sum_lanes(values); }
  static float max_lanes(Floats values) { return _mm512_reduce_max_ps(values); }
};

}  // namespace
}  // namespace gapless
