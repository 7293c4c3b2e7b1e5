// SPDX-License-Identifier: Apache-2.0
//
// The element by element operations with AVX-512, sixteen at a time. SiLU is bound by the exp and
// the division, the others by memory.

#include "kernels/elementwise_levels.h"
#include "kernels/vector_avx512.h"

namespace gapless::avx512 {
namespace {

// Where exp overflows, the quotient is -0: nothing has to be caught.
[[gnu::always_inline]] inline __m512 silu(__m512 g) {
  const __m512 minus_g = _mm512_xor_ps(g, _mm512_set1_ps(-0.0f));
  return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), exp_f32(minus_g)));
}

template <DType kDType>
void silu_multiply_to(const float* gate, const float* up, float factor, int64_t count, void* y) {
  const __m512 factors = _mm512_set1_ps(factor);
  int64_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const __m512 g = _mm512_mul_ps(load<DType::kF32>(gate, i), factors);
    const __m512 u = _mm512_mul_ps(load<DType::kF32>(up, i), factors);
    store<kDType>(y, i, _mm512_mul_ps(silu(g), u));
  }
  if (i == count) return;
  const __mmask16 lanes = first_lanes(count - i);
  const __m512 g = _mm512_mul_ps(load<DType::kF32>(gate, i, lanes), factors);
  const __m512 u = _mm512_mul_ps(load<DType::kF32>(up, i, lanes), factors);
  store<kDType>(y, i, lanes, _mm512_mul_ps(silu(g), u));
}

void silu_multiply(const float* gate, const float* up, float factor, int64_t count, DType dtype,
                   void* y) {
  if (dtype == DType::kBf16) return silu_multiply_to<DType::kBf16>(gate, up, factor, count, y);
  if (dtype == DType::kF16) return silu_multiply_to<DType::kF16>(gate, up, factor, count, y);
  silu_multiply_to<DType::kF32>(gate, up, factor, count, y);
}

void add_rows(const float* x, const float* delta, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const __m512 sum = _mm512_add_ps(load<DType::kF32>(x, i), load<DType::kF32>(delta, i));
    store<DType::kF32>(y, i, sum);
  }
  if (i == count) return;
  const __mmask16 lanes = first_lanes(count - i);
  const __m512 sum =
      _mm512_add_ps(load<DType::kF32>(x, i, lanes), load<DType::kF32>(delta, i, lanes));
  store<DType::kF32>(y, i, lanes, sum);
}

template <DType kFrom, DType kTo>
void cast_between(const void* x, int64_t count, void* y) {
  int64_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) store<kTo>(y, i, load<kFrom>(x, i));
  if (i == count) return;
  const __mmask16 lanes = first_lanes(count - i);
  store<kTo>(y, i, lanes, load<kFrom>(x, i, lanes));
}

void cast_to_f32(DType from, const void* x, int64_t count, float* y) {
  if (from == DType::kBf16) return cast_between<DType::kBf16, DType::kF32>(x, count, y);
  if (from == DType::kF16) return cast_between<DType::kF16, DType::kF32>(x, count, y);
  cast_between<DType::kF32, DType::kF32>(x, count, y);
}

void cast_from_f32(const float* x, int64_t count, DType to, void* y) {
  if (to == DType::kBf16) return cast_between<DType::kF32, DType::kBf16>(x, count, y);
  if (to == DType::kF16) return cast_between<DType::kF32, DType::kF16>(x, count, y);
  cast_between<DType::kF32, DType::kF32>(x, count, y);
}

void exp_row(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += kVectorFloats) {
    const __mmask16 lanes = lanes_left(count - i);
    store<DType::kF32>(y, i, lanes, exp_f32(load<DType::kF32>(x, i, lanes)));
  }
}

}  // namespace

const ElementwiseForms kElementwiseForms = {silu_multiply, add_rows, cast_to_f32, cast_from_f32,
                                            exp_row};

}  // namespace gapless::avx512
