// SPDX-License-Identifier: Apache-2.0
//
// The element by element operations in plain C++, for every machine.

#include <cmath>

#include "base/half.h"
#include "kernels/elementwise_levels.h"

namespace gapless {
namespace {

template <DType kDType>
void silu_multiply_to(const float* gate, const float* up, float factor, int64_t count, void* y) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i] * factor;
    // Where exp overflows, the quotient is -0: nothing has to be caught.
    const float silu = g / (1.0f + std::exp(-g));
    store_from_float<kDType>(y, i, silu * (up[i] * factor));
  }
}

void silu_multiply(const float* gate, const float* up, float factor, int64_t count, DType dtype,
                   void* y) {
  if (dtype == DType::kBf16) return silu_multiply_to<DType::kBf16>(gate, up, factor, count, y);
  if (dtype == DType::kF16) return silu_multiply_to<DType::kF16>(gate, up, factor, count, y);
  silu_multiply_to<DType::kF32>(gate, up, factor, count, y);
}

void add_rows(const float* x, const float* delta, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] + delta[i];
}

template <DType kFrom>
void cast_to_f32_from(const void* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = load_as_float<kFrom>(x, i);
}

void cast_to_f32(DType from, const void* x, int64_t count, float* y) {
  if (from == DType::kBf16) return cast_to_f32_from<DType::kBf16>(x, count, y);
  if (from == DType::kF16) return cast_to_f32_from<DType::kF16>(x, count, y);
  cast_to_f32_from<DType::kF32>(x, count, y);
}

template <DType kTo>
void cast_from_f32_to(const float* x, int64_t count, void* y) {
  for (int64_t i = 0; i < count; ++i) store_from_float<kTo>(y, i, x[i]);
}

void cast_from_f32(const float* x, int64_t count, DType to, void* y) {
  if (to == DType::kBf16) return cast_from_f32_to<DType::kBf16>(x, count, y);
  if (to == DType::kF16) return cast_from_f32_to<DType::kF16>(x, count, y);
  cast_from_f32_to<DType::kF32>(x, count, y);
}

void exp_row(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = std::exp(x[i]);
}

}  // namespace

const ElementwiseForms portable::kElementwiseForms = {silu_multiply, add_rows, cast_to_f32,
                                                      cast_from_f32, exp_row};

}  // namespace gapless
