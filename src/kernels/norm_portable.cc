// SPDX-License-Identifier: Apache-2.0
//
// The norms in plain C++, for every machine.

#include <array>

#include "base/half.h"
#include "kernels/norm_levels.h"

namespace gapless {
namespace {

// Sums side by side: the compiler may put them into a vector, and the error grows more slowly.
constexpr int kSums = 8;

float sum_squares(const float* x, int64_t k) {
  std::array<float, kSums> sums = {};
  int64_t i = 0;
  for (; i + kSums <= k; i += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      sums[static_cast<size_t>(lane)] += x[i + lane] * x[i + lane];
    }
  }
  for (size_t lane = 0; i < k; ++i, ++lane) sums[lane] += x[i] * x[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

template <DType kDType>
void scale_row_to(const float* x, float factor, const float* gamma, int64_t k, void* y) {
  for (int64_t i = 0; i < k; ++i) store_from_float<kDType>(y, i, x[i] * factor * gamma[i]);
}

void scale_row(const float* x, float factor, const float* gamma, int64_t k, DType dtype, void* y) {
  if (dtype == DType::kBf16) return scale_row_to<DType::kBf16>(x, factor, gamma, k, y);
  if (dtype == DType::kF16) return scale_row_to<DType::kF16>(x, factor, gamma, k, y);
  scale_row_to<DType::kF32>(x, factor, gamma, k, y);
}

template <DType kDType>
void multiply_row_to(const float* x, const float* gamma, int64_t k, void* y) {
  for (int64_t i = 0; i < k; ++i) store_from_float<kDType>(y, i, x[i] * gamma[i]);
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

void rope_head(const float* x, int head_dim, const float* cos, const float* sin, float* y) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    y[i] = a * cos[i] - b * sin[i];
    y[half + i] = b * cos[i] + a * sin[i];
  }
}

// The steps in turn and not fused, so that the compiler cannot contract them differently.
void norm_heads(const HeadNorm& args, const float* x, float* y) {
  for (int64_t head = 0; head < args.head_count; ++head) {
    const float* const from = x + head * args.stride;
    float* const to = y + head * args.stride;
    for (int i = 0; i < args.head_dim; ++i) to[i] = from[i] * args.factor;
    const float sum = sum_squares(to, args.head_dim);
    const float factor = inverse_root_of_mean(sum, args.head_dim, args.eps);
    scale_row(to, factor, args.gamma, args.head_dim, DType::kF32, to);
    if (args.cos != nullptr) rope_head(to, args.head_dim, args.cos, args.sin, to);
  }
}

}  // namespace

const NormForms portable::kNormForms = {sum_squares, scale_row, multiply_row, rope_head,
                                        norm_heads};

}  // namespace gapless
