// SPDX-License-Identifier: Apache-2.0

#include "model/synthetic_values.h"

#include <cmath>

namespace gapless {
namespace {

constexpr int64_t kElementsPerHash = 4;
constexpr double kResidualScale = 0.25;
constexpr double kNormSpread = 0.1;

using Quantiles = std::array<double, kSyntheticTableSize>;

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

// Every bit of the result depends on every bit of `value`.
uint64_t mix(uint64_t value) {
  const Wide product = static_cast<Wide>(value) * (value ^ kSyntheticTwist);
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// The x below which a standard normal number is with probability p, by Newton's method from
// `start`, the quantile of a p nearby.
double normal_quantile(double p, double start) {
  constexpr double kDensityFactor = 0.3989422804014327;  // 1 / sqrt(2 pi)
  double x = start;
  for (int i = 0; i < 8; ++i) {
    const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
    x -= (below - p) / (kDensityFactor * std::exp(-0.5 * x * x));
  }
  return x;
}

// Quantiles of the middles of equal shares of probability.
Quantiles make_quantiles() {
  Quantiles quantiles = {};
  double x = 0.0;
  for (size_t i = kSyntheticTableSize / 2; i < kSyntheticTableSize; ++i) {
    x = normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(kSyntheticTableSize),
                        x);
    quantiles[i] = x;
    quantiles[kSyntheticTableSize - 1 - i] = -x;
  }
  return quantiles;
}

void make_row(const SyntheticTable& table, uint64_t key, int64_t columns, Bf16* out) {
  constexpr uint64_t kMask = kSyntheticTableSize - 1;
  int64_t column = 0;
  for (; column + kElementsPerHash <= columns; column += kElementsPerHash, key += kSyntheticStep) {
    const uint64_t bits = mix(key);
    out[column] = table[bits & kMask];
    out[column + 1] = table[(bits >> 16) & kMask];
    out[column + 2] = table[(bits >> 32) & kMask];
    out[column + 3] = table[(bits >> 48) & kMask];
  }
  for (uint64_t bits = mix(key); column < columns; ++column, bits >>= 16)
    out[column] = table[bits & kMask];
}

}  // namespace

SyntheticValues::SyntheticValues(const ModelConfig& config, uint64_t seed)
    : tied_embeddings_(config.tied_embeddings), seed_(seed) {
  const Quantiles quantiles = make_quantiles();
  const WeightTensor tensors[] = {
      layer_tensor(config, 0, LayerWeight::kQ), layer_tensor(config, 0, LayerWeight::kOut),
      layer_tensor(config, 0, LayerWeight::kDown), embedding_tensor(config), head_tensor(config)};
  for (const WeightTensor& tensor : tensors) {
    const double scale = deviation(tensor);
    SyntheticTable& table = tables_[scale];
    for (size_t i = 0; i < kSyntheticTableSize; ++i)
      table[i] = to_bf16(static_cast<float>(quantiles[i] * scale));
  }
}

// Of a tensor's elements. An embedding that is also the head must not make logits of its own
// length; otherwise the stream begins near 1.
double SyntheticValues::deviation(const WeightTensor& tensor) const {
  if (tensor.role == WeightRole::kEmbedding && !tied_embeddings_) return 1.0;
  const double factor = tensor.role == WeightRole::kResidual ? kResidualScale : 1.0;
  return factor / std::sqrt(static_cast<double>(tensor.columns));
}

uint64_t SyntheticValues::tensor_key(const WeightTensor& tensor) const {
  uint64_t key = mix(seed_ + kSyntheticStep);
  for (const char letter : tensor.name)
    key = mix(key + static_cast<unsigned char>(letter) + kSyntheticStep);
  return key;
}

const SyntheticTable& SyntheticValues::table(const WeightTensor& tensor) const {
  return tables_.at(deviation(tensor));
}

void SyntheticValues::make_rows(const WeightTensor& tensor, RowRange rows, Bf16* out) const {
  const SyntheticTable& values = table(tensor);
  const uint64_t key = tensor_key(tensor);
  for (int64_t i = 0; i < rows.count; ++i) {
    const uint64_t row_key = mix(key + static_cast<uint64_t>(rows.row + i) * kSyntheticStep);
    make_row(values, row_key, tensor.columns, out + i * tensor.columns);
  }
}

std::vector<float> SyntheticValues::make_norm(const WeightTensor& tensor) const {
  const uint64_t key = tensor_key(tensor);
  std::vector<float> values;
  for (int64_t i = 0; i < tensor.columns; ++i) {
    const uint64_t bits = mix(key + static_cast<uint64_t>(i) * kSyntheticStep);
    const double uniform = static_cast<double>(bits) * 0x1p-63 - 1.0;
    values.push_back(cast_through(DType::kBf16, static_cast<float>(1.0 + kNormSpread * uniform)));
  }
  return values;
}

}  // namespace gapless
