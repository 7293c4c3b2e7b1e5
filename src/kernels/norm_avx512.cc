// SPDX-License-Identifier: Apache-2.0
//
// The norms with AVX-512: x is read twice (the second time from L1 or L2) and y written once; the
// put-off form reads once. Four sums side by side hide the latency of the multiply-add.

#include "kernels/norm_levels.h"
#include "kernels/vector_avx512.h"

namespace gapless::avx512 {
namespace {

// Passes x in vectors to take(vector, index, lanes) and sums the squares of what that gives back:
// whole groups of four vectors into four sums, the rest into the first, so that the order depends
// on k only.
template <typename Take>
[[gnu::always_inline]] inline float sum_squares_of(const float* x, int64_t k, Take take) {
  __m512 sum_0 = _mm512_setzero_ps();
  __m512 sum_1 = _mm512_setzero_ps();
  __m512 sum_2 = _mm512_setzero_ps();
  __m512 sum_3 = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 4 * kVectorFloats <= k; i += 4 * kVectorFloats) {
    const __m512 x_0 = take(load<DType::kF32>(x, i), i, kAllLanes);
    const __m512 x_1 = take(load<DType::kF32>(x, i + 16), i + 16, kAllLanes);
    const __m512 x_2 = take(load<DType::kF32>(x, i + 32), i + 32, kAllLanes);
    const __m512 x_3 = take(load<DType::kF32>(x, i + 48), i + 48, kAllLanes);
    sum_0 = _mm512_fmadd_ps(x_0, x_0, sum_0);
    sum_1 = _mm512_fmadd_ps(x_1, x_1, sum_1);
    sum_2 = _mm512_fmadd_ps(x_2, x_2, sum_2);
    sum_3 = _mm512_fmadd_ps(x_3, x_3, sum_3);
  }
  for (; i < k; i += kVectorFloats) {
    const __mmask16 lanes = lanes_left(k - i);
    const __m512 x_0 = take(load<DType::kF32>(x, i, lanes), i, lanes);
    sum_0 = _mm512_fmadd_ps(x_0, x_0, sum_0);
  }
  return sum_lanes(_mm512_add_ps(_mm512_add_ps(sum_0, sum_1), _mm512_add_ps(sum_2, sum_3)));
}

float sum_squares(const float* x, int64_t k) {
  return sum_squares_of(
      x, k,
      [](__m512 values, int64_t, __mmask16) __attribute__((always_inline)) { return values; });
}

template <DType kDType>
void scale_row_to(const float* x, float factor, const float* gamma, int64_t k, void* y) {
  const __m512 factors = _mm512_set1_ps(factor);
  int64_t i = 0;
  for (; i + kVectorFloats <= k; i += kVectorFloats) {
    const __m512 scaled = _mm512_mul_ps(load<DType::kF32>(x, i), factors);
    store<kDType>(y, i, _mm512_mul_ps(scaled, load<DType::kF32>(gamma, i)));
  }
  if (i == k) return;
  const __mmask16 lanes = first_lanes(k - i);
  const __m512 scaled = _mm512_mul_ps(load<DType::kF32>(x, i, lanes), factors);
  store<kDType>(y, i, lanes, _mm512_mul_ps(scaled, load<DType::kF32>(gamma, i, lanes)));
}

void scale_row(const float* x, float factor, const float* gamma, int64_t k, DType dtype, void* y) {
  if (dtype == DType::kBf16) return scale_row_to<DType::kBf16>(x, factor, gamma, k, y);
  if (dtype == DType::kF16) return scale_row_to<DType::kF16>(x, factor, gamma, k, y);
  scale_row_to<DType::kF32>(x, factor, gamma, k, y);
}

template <DType kDType>
float multiply_row_to(const float* x, const float* gamma, int64_t k, void* y) {
  return sum_squares_of(
      x, k,
      [ gamma, y ](__m512 values, int64_t index, __mmask16 lanes) __attribute__((always_inline)) {
        const __m512 weights = load<DType::kF32>(gamma, index, lanes);
        store<kDType>(y, index, lanes, _mm512_mul_ps(values, weights));
        return values;
      });
}

float multiply_row(const float* x, const float* gamma, int64_t k, DType dtype, void* y) {
  if (dtype == DType::kBf16) return multiply_row_to<DType::kBf16>(x, gamma, k, y);
  if (dtype == DType::kF16) return multiply_row_to<DType::kF16>(x, gamma, k, y);
  return multiply_row_to<DType::kF32>(x, gamma, k, y);
}

struct Pair {
  __m512 a;
  __m512 b;
};
[[gnu::always_inline]] inline Pair turn(Pair x, __m512 cos, __m512 sin) {
  return {_mm512_fmsub_ps(x.a, cos, _mm512_mul_ps(x.b, sin)),
          _mm512_fmadd_ps(x.b, cos, _mm512_mul_ps(x.a, sin))};
}

void rope_head(const float* x, int head_dim, const float* cos, const float* sin, float* y) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; i += kVectorFloats) {
    const __mmask16 lanes = lanes_left(half - i);
    const Pair pair = {load<DType::kF32>(x, i, lanes), load<DType::kF32>(x, half + i, lanes)};
    const Pair turned =
        turn(pair, load<DType::kF32>(cos, i, lanes), load<DType::kF32>(sin, i, lanes));
    store<DType::kF32>(y, i, lanes, turned.a);
    store<DType::kF32>(y, half + i, lanes, turned.b);
  }
}

// The scaling of scale_row and the turn of rope_head in one pass.
void scale_and_turn_head(const HeadNorm& args, float factor, float* y) {
  const __m512 factors = _mm512_set1_ps(factor);
  const int64_t half = args.head_dim / 2;
  for (int64_t i = 0; i < half; i += kVectorFloats) {
    const __mmask16 lanes = lanes_left(half - i);
    const __m512 a = _mm512_mul_ps(load<DType::kF32>(y, i, lanes), factors);
    const __m512 b = _mm512_mul_ps(load<DType::kF32>(y, half + i, lanes), factors);
    const Pair normed = {_mm512_mul_ps(a, load<DType::kF32>(args.gamma, i, lanes)),
                         _mm512_mul_ps(b, load<DType::kF32>(args.gamma, half + i, lanes))};
    const Pair turned =
        turn(normed, load<DType::kF32>(args.cos, i, lanes), load<DType::kF32>(args.sin, i, lanes));
    store<DType::kF32>(y, i, lanes, turned.a);
    store<DType::kF32>(y, half + i, lanes, turned.b);
  }
}

void norm_heads(const HeadNorm& args, const float* x, float* y) {
  const __m512 factors = _mm512_set1_ps(args.factor);
  for (int64_t head = 0; head < args.head_count; ++head) {
    float* const to = y + head * args.stride;
    const float sum = sum_squares_of(
        x + head * args.stride, args.head_dim,
        [ factors, to ](__m512 values, int64_t index, __mmask16 lanes)
            __attribute__((always_inline)) {
              const __m512 scaled = _mm512_mul_ps(values, factors);
              store<DType::kF32>(to, index, lanes, scaled);
              return scaled;
            });
    const float factor = inverse_root_of_mean(sum, args.head_dim, args.eps);
    if (args.cos == nullptr) {
      scale_row_to<DType::kF32>(to, factor, args.gamma, args.head_dim, to);
    } else {
      scale_and_turn_head(args, factor, to);
    }
  }
}

}  // namespace

const NormForms kNormForms = {sum_squares, scale_row, multiply_row, rope_head, norm_heads};

}  // namespace gapless::avx512
