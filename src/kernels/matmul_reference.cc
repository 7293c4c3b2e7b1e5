// SPDX-License-Identifier: Apache-2.0

#include "kernels/matmul_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/elementwise_reference.h"

namespace gapless {
namespace {

std::vector<float> row_with_gamma(const MatmulReferenceArgs& args, int64_t row) {
  std::vector<float> values(args.x + row * args.k, args.x + (row + 1) * args.k);
  if (args.gamma == nullptr) return values;
  for (size_t i = 0; i < values.size(); ++i) values[i] *= args.gamma[i];
  return values;
}

// The row as the sums see it: cast to the weights' type, or s8 integers with a scale.
struct Activation {
  std::vector<double> values;
  double scale = 1.0;
};
Activation activation_of(const MatmulReferenceArgs& args, int64_t row) {
  const std::vector<float> values = row_with_gamma(args, row);
  Activation activation;
  if (args.weights.dtype == DType::kS8) {
    const QuantizedRow quantized = quantize_row_reference(values);
    activation.values.assign(quantized.values.begin(), quantized.values.end());
    activation.scale = static_cast<double>(quantized.scale);
    return activation;
  }
  for (const float value : values)
    activation.values.push_back(static_cast<double>(cast_through(args.weights.dtype, value)));
  return activation;
}

double weight(const ReferenceWeights& weights, int64_t index) {
  return weights.dtype == DType::kS8 ? static_cast<double>(weights.quantized[index])
                                     : static_cast<double>(weights.values[index]);
}

// Products of s8 and their sums stay far below 2^53: for them double is exact.
double dot(const Activation& activation, const ReferenceWeights& weights, int64_t column) {
  const int64_t k = static_cast<int64_t>(activation.values.size());
  double sum = 0.0;
  for (int64_t i = 0; i < k; ++i)
    sum += activation.values[static_cast<size_t>(i)] * weight(weights, column * k + i);
  const double column_scale =
      weights.dtype == DType::kS8 ? static_cast<double>(weights.scales[column]) : 1.0;
  return sum * column_scale * activation.scale;
}

double magnitude(const Activation& activation, const ReferenceWeights& weights, int64_t column) {
  const int64_t k = static_cast<int64_t>(activation.values.size());
  double sum = 0.0;
  for (int64_t i = 0; i < k; ++i)
    sum += std::abs(activation.values[static_cast<size_t>(i)] * weight(weights, column * k + i));
  const double column_scale =
      weights.dtype == DType::kS8 ? static_cast<double>(weights.scales[column]) : 1.0;
  return std::abs(sum * column_scale * activation.scale);
}

double row_factor(const MatmulReferenceArgs& args, int64_t row) {
  return args.row_factor == nullptr ? 1.0 : static_cast<double>(args.row_factor[row]);
}

}  // namespace

QuantizedRow quantize_row_reference(std::span<const float> row) {
  QuantizedRow quantized;
  quantized.values.assign(row.size(), int8_t{0});
  float amax = 1e-4f;
  for (const float value : row) {
    if (!std::isfinite(value)) {
      quantized.scale = std::numeric_limits<float>::quiet_NaN();
      return quantized;
    }
    amax = std::max(amax, std::abs(value));
  }
  const float inverse = 127.0f / amax;
  quantized.scale = amax / 127.0f;
  for (size_t i = 0; i < row.size(); ++i) {
    const float rounded = std::nearbyint(row[i] * inverse);
    quantized.values[i] = static_cast<int8_t>(std::clamp(rounded, -127.0f, 127.0f));
    quantized.sum += quantized.values[i];
  }
  return quantized;
}

std::vector<double> matmul_reference(const MatmulReferenceArgs& args) {
  std::vector<double> y;
  for (int64_t row = 0; row < args.m; ++row) {
    const Activation activation = activation_of(args, row);
    const double factor = row_factor(args, row);
    for (int64_t column = 0; column < args.n; ++column) {
      double value = dot(activation, args.weights, column) * factor;
      if (args.up != nullptr)
        value = silu_reference(value) * (dot(activation, *args.up, column) * factor);
      if (args.residual != nullptr)
        value += static_cast<double>(args.residual[row * args.n + column]);
      y.push_back(value);
    }
  }
  return y;
}

std::vector<double> matmul_magnitudes(const MatmulReferenceArgs& args) {
  std::vector<double> magnitudes;
  for (int64_t row = 0; row < args.m; ++row) {
    const Activation activation = activation_of(args, row);
    const double factor = std::abs(row_factor(args, row));
    for (int64_t column = 0; column < args.n; ++column)
      magnitudes.push_back(magnitude(activation, args.weights, column) * factor);
  }
  return magnitudes;
}

}  // namespace gapless
