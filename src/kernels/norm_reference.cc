// SPDX-License-Identifier: Apache-2.0

#include "kernels/norm_reference.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace gapless {
namespace {

double inverse_root_mean_square(std::span<const double> x, float eps) {
  double sum = 0.0;
  for (const double value : x) sum += value * value;
  return 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(eps));
}

std::vector<double> norm_of(std::span<const double> x, const float* gamma, float eps) {
  const double factor = inverse_root_mean_square(x, eps);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor * static_cast<double>(gamma[i]);
  return y;
}

}  // namespace

double inverse_rms_reference(std::span<const float> x, float eps) {
  return inverse_root_mean_square(std::vector<double>(x.begin(), x.end()), eps);
}

std::vector<double> rms_norm_reference(std::span<const float> x, std::span<const float> gamma,
                                       float eps) {
  GAPLESS_CHECK(gamma.size() == x.size());
  return norm_of(std::vector<double>(x.begin(), x.end()), gamma.data(), eps);
}

std::vector<double> rope_reference(std::span<const double> head, std::span<const float> cos,
                                   std::span<const float> sin) {
  const size_t half = head.size() / 2;
  GAPLESS_CHECK(cos.size() == half);
  GAPLESS_CHECK(sin.size() == half);
  std::vector<double> y(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double c = static_cast<double>(cos[i]);
    const double s = static_cast<double>(sin[i]);
    y[i] = head[i] * c - head[half + i] * s;
    y[half + i] = head[half + i] * c + head[i] * s;
  }
  return y;
}

std::vector<double> norm_heads_reference(const HeadNorm& args, const float* x) {
  const size_t half = static_cast<size_t>(args.head_dim / 2);
  std::vector<double> y;
  for (int64_t head = 0; head < args.head_count; ++head) {
    const float* const from = x + head * args.stride;
    std::vector<double> values(from, from + args.head_dim);
    for (double& value : values) value *= static_cast<double>(args.factor);
    values = norm_of(values, args.gamma, args.eps);
    if (args.cos != nullptr) {
      values = rope_reference(values, std::span(args.cos, half), std::span(args.sin, half));
    }
    y.insert(y.end(), values.begin(), values.end());
  }
  return y;
}

}  // namespace gapless
