// SPDX-License-Identifier: Apache-2.0
//
// The norms with AVX2: as with AVX-512 (norm_avx512.cc), eight floats at a time. What is left of a
// row after whole vectors goes through masks.

#include "kernels/norm_levels.h"
#include "kernels/vector_avx2.h"

namespace gapless::avx2 {
namespace {

// Whole groups of four vectors go into four sums, the rest into the first, so that the order
// depends on k only.
float sum_squares(const float* x, int64_t k) {
  __m256 sum_0 = _mm256_setzero_ps();
  __m256 sum_1 = _mm256_setzero_ps();
  __m256 sum_2 = _mm256_setzero_ps();
  __m256 sum_3 = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 4 * kVectorFloats <= k; i += 4 * kVectorFloats) {
    const __m256 x_0 = load<DType::kF32>(x, i);
    const __m256 x_1 = load<DType::kF32>(x, i + 8);
    const __m256 x_2 = load<DType::kF32>(x, i + 16);
    const __m256 x_3 = load<DType::kF32>(x, i + 24);
    sum_0 = _mm256_fmadd_ps(x_0, x_0, sum_0);
    sum_1 = _mm256_fmadd_ps(x_1, x_1, sum_1);
    sum_2 = _mm256_fmadd_ps(x_2, x_2, sum_2);
    sum_3 = _mm256_fmadd_ps(x_3, x_3, sum_3);
  }
  for (; i < k; i += kVectorFloats) {
    const __m256 x_0 = load_left<DType::kF32>(x, i, k - i);
    sum_0 = _mm256_fmadd_ps(x_0, x_0, sum_0);
  }
  return sum_lanes(_mm256_add_ps(_mm256_add_ps(sum_0, sum_1), _mm256_add_ps(sum_2, sum_3)));
}

template <DType kDType>
void scale_row_to(const float* x, float factor, const float* gamma, int64_t k, void* y) {
  const __m256 factors = _mm256_set1_ps(factor);
  int64_t i = 0;
  for (; i + kVectorFloats <= k; i += kVectorFloats) {
    const __m256 scaled = _mm256_mul_ps(load<DType::kF32>(x, i), factors);
    store<kDType>(y, i, _mm256_mul_ps(scaled, load<DType::kF32>(gamma, i)));
  }
  if (i == k) return;
  const __m256 scaled = _mm256_mul_ps(load_first<DType::kF32>(x, i, k - i), factors);
  const __m256 weights = load_first<DType::kF32>(gamma, i, k - i);
  store_first<kDType>(y, i, k - i, _mm256_mul_ps(scaled, weights));
}

void scale_row(const float* x, float factor, const float* gamma, int64_t k, DType dtype, void* y) {
  if (dtype == DType::kBf16) return scale_row_to<DType::kBf16>(x, factor, gamma, k, y);
  if (dtype == DType::kF16) return scale_row_to<DType::kF16>(x, factor, gamma, k, y);
  scale_row_to<DType::kF32>(x, factor, gamma, k, y);
}

template <DType kDType>
void multiply_row_to(const float* x, const float* gamma, int64_t k, void* y) {
  int64_t i = 0;
  for (; i + kVectorFloats <= k; i += kVectorFloats) {
    store<kDType>(y, i, _mm256_mul_ps(load<DType::kF32>(x, i), load<DType::kF32>(gamma, i)));
  }
  if (i == k) return;
  const __m256 values = load_first<DType::kF32>(x, i, k - i);
  const __m256 weights = load_first<DType::kF32>(gamma, i, k - i);
  store_first<kDType>(y, i, k - i, _mm256_mul_ps(values, weights));
}

float multiply_row(const float* x, const float* gamma, int64_t k, DType dtype, void* y) {
  const float sum = sum_squares(x, k);
  if (dtype == DType::kBf16) {
    multiply_row_to<DType::kBf16>(x, gamma, k, y);
  } else if (dtype == DType::kF16) {
    multiply_row_to<DType::kF16>(x, gamma, k, y);
  } else {
    multiply_row_to<DType::kF32>(x, gamma, k, y);
  }
  return sum;
}

struct Pair {
  __m256 a;
  __m256 b;
};
[[gnu::always_inline]] inline Pair load_pair(const float* x, int64_t half, int64_t i,
                                             int64_t left) {
  return {load_left<DType::kF32>(x, i, left), load_left<DType::kF32>(x, half + i, left)};
}
[[gnu::always_inline]] inline void store_turned(Pair x, const float* cos, const float* sin,
                                                int64_t half, int64_t i, int64_t left, float* y) {
  const __m256 c = load_left<DType::kF32>(cos, i, left);
  const __m256 s = load_left<DType::kF32>(sin, i, left);
  store_left<DType::kF32>(y, i, left, _mm256_fmsub_ps(x.a, c, _mm256_mul_ps(x.b, s)));
  store_left<DType::kF32>(y, half + i, left, _mm256_fmadd_ps(x.b, c, _mm256_mul_ps(x.a, s)));
}

void rope_head(const float* x, int head_dim, const float* cos, const float* sin, float* y) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; i += kVectorFloats) {
    const int64_t left = half - i;
    store_turned(load_pair(x, half, i, left), cos, sin, half, i, left, y);
  }
}

// The scaling of scale_row and the turn of rope_head in one pass.
void scale_and_turn_head(const HeadNorm& args, float factor, float* y) {
  const __m256 factors = _mm256_set1_ps(factor);
  const int64_t half = args.head_dim / 2;
  for (int64_t i = 0; i < half; i += kVectorFloats) {
    const int64_t left = half - i;
    const Pair x = load_pair(y, half, i, left);
    const Pair gamma = load_pair(args.gamma, half, i, left);
    const Pair normed = {_mm256_mul_ps(_mm256_mul_ps(x.a, factors), gamma.a),
                         _mm256_mul_ps(_mm256_mul_ps(x.b, factors), gamma.b)};
    store_turned(normed, args.cos, args.sin, half, i, left, y);
  }
}

void norm_heads(const HeadNorm& args, const float* x, float* y) {
  const __m256 factors = _mm256_set1_ps(args.factor);
  for (int64_t head = 0; head < args.head_count; ++head) {
    const float* const from = x + head * args.stride;
    float* const to = y + head * args.stride;
    for (int64_t i = 0; i < args.head_dim; i += kVectorFloats) {
      const int64_t left = args.head_dim - i;
      const __m256 values = load_left<DType::kF32>(from, i, left);
      store_left<DType::kF32>(to, i, left, _mm256_mul_ps(values, factors));
    }
    const float sum = sum_squares(to, args.head_dim);
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

}  // namespace gapless::avx2
