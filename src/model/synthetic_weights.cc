// SPDX-License-Identifier: Apache-2.0
//
// Weights that are a function of (seed, tensor, row, column): no state, so any thread can make any
// row. 64 bits of a counter's hash give four elements, each a look-up of 12 bits in a table of the
// normal distribution's quantiles, scaled and already bf16. About 0.5 ns an element.
//
// The scales: what goes into a projection has been normed, so weights of deviation 1 / sqrt(k) give
// results near 1. What out and down add to the stream is a quarter of that, so that the stream
// grows with the square root of an eighth of the layers at most: by a factor of 2 to 3 in all.

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/half.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace gapless {
namespace {

constexpr size_t kTableBits = 12;
constexpr size_t kTableSize = size_t{1} << kTableBits;
constexpr int64_t kElementsPerHash = 4;
constexpr double kResidualScale = 0.25;
constexpr double kNormSpread = 0.1;
// Odd numbers with bits set all over: the golden ratio, and one without structure.
constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
constexpr uint64_t kTwist = 0xd6e8feb86659fd93u;

using NormalTable = std::array<Bf16, kTableSize>;

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

// Every bit of the result depends on every bit of `value`.
uint64_t mix(uint64_t value) {
  const Wide product = static_cast<Wide>(value) * (value ^ kTwist);
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
std::array<double, kTableSize> make_quantiles() {
  std::array<double, kTableSize> quantiles = {};
  double x = 0.0;
  for (size_t i = kTableSize / 2; i < kTableSize; ++i) {
    x = normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(kTableSize), x);
    quantiles[i] = x;
    quantiles[kTableSize - 1 - i] = -x;
  }
  return quantiles;
}

class SyntheticSource final : public WeightSource {
 public:
  SyntheticSource(const ModelConfig& config, uint64_t seed) : config_(config), seed_(seed) {
    const std::array<double, kTableSize> quantiles = make_quantiles();
    for (const LayerWeight weight : {LayerWeight::kQ, LayerWeight::kOut, LayerWeight::kDown})
      add_table(quantiles, layer_tensor(config, 0, weight));
    add_table(quantiles, embedding_tensor(config));
    add_table(quantiles, head_tensor(config));
  }

  Result<std::vector<float>> read_norm(const WeightTensor& tensor) override {
    const uint64_t key = tensor_key(tensor);
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.columns; ++i) {
      const uint64_t bits = mix(key + static_cast<uint64_t>(i) * kStep);
      const double uniform = static_cast<double>(bits) * 0x1p-63 - 1.0;
      values.push_back(cast_through(DType::kBf16, static_cast<float>(1.0 + kNormSpread * uniform)));
    }
    return values;
  }

  Result<void> pack_rows(const WeightTensor& tensor, RowRange rows, PackedMatrix& to,
                         int which) override {
    std::vector<Bf16> values(static_cast<size_t>(rows.count * tensor.columns));
    make_rows(tensor, rows, values.data());
    to.set_rows(rows.row, rows.count, DType::kBf16, values.data(), which);
    return {};
  }

  Result<EmbeddingTable> open_embedding(const WeightTensor& /*tensor*/) override {
    EmbeddingTable table;
    table.dtype = DType::kBf16;
    table.storage = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(embedding_bytes())));
    table.rows = table.storage.data();
    return table;
  }

  Result<void> finish_embedding(const WeightTensor& tensor, RowRange rows,
                                const EmbeddingTable& table) override {
    Bf16* const data = reinterpret_cast<Bf16*>(table.storage.data());
    make_rows(tensor, rows, data + rows.row * tensor.columns);
    return {};
  }

  DType head_dtype() const override { return DType::kBf16; }
  int64_t embedding_bytes() const override {
    return int64_t{config_.vocabulary} * config_.hidden * dtype_bytes(DType::kBf16);
  }

 private:
  // Of a tensor's elements. An embedding that is also the head must not make logits of its own
  // length; otherwise the stream begins near 1.
  double deviation(const WeightTensor& tensor) const {
    if (tensor.role == WeightRole::kEmbedding && !config_.tied_embeddings) return 1.0;
    const double factor = tensor.role == WeightRole::kResidual ? kResidualScale : 1.0;
    return factor / std::sqrt(static_cast<double>(tensor.columns));
  }

  void add_table(const std::array<double, kTableSize>& quantiles, const WeightTensor& tensor) {
    const double scale = deviation(tensor);
    NormalTable& table = tables_[scale];
    for (size_t i = 0; i < kTableSize; ++i)
      table[i] = to_bf16(static_cast<float>(quantiles[i] * scale));
  }

  // Every tensor has numbers of its own, wherever it stands among the others.
  uint64_t tensor_key(const WeightTensor& tensor) const {
    uint64_t key = mix(seed_ + kStep);
    for (const char letter : tensor.name)
      key = mix(key + static_cast<unsigned char>(letter) + kStep);
    return key;
  }

  void make_rows(const WeightTensor& tensor, RowRange rows, Bf16* out) const {
    const NormalTable& table = tables_.at(deviation(tensor));
    const uint64_t key = tensor_key(tensor);
    for (int64_t i = 0; i < rows.count; ++i) {
      const uint64_t row_key = mix(key + static_cast<uint64_t>(rows.row + i) * kStep);
      make_row(table, row_key, tensor.columns, out + i * tensor.columns);
    }
  }

  static void make_row(const NormalTable& table, uint64_t key, int64_t columns, Bf16* out) {
    constexpr uint64_t kMask = kTableSize - 1;
    int64_t column = 0;
    for (; column + kElementsPerHash <= columns; column += kElementsPerHash, key += kStep) {
      const uint64_t bits = mix(key);
      out[column] = table[bits & kMask];
      out[column + 1] = table[(bits >> 16) & kMask];
      out[column + 2] = table[(bits >> 32) & kMask];
      out[column + 3] = table[(bits >> 48) & kMask];
    }
    for (uint64_t bits = mix(key); column < columns; ++column, bits >>= 16)
      out[column] = table[bits & kMask];
  }

  const ModelConfig& config_;
  uint64_t seed_;
  std::map<double, NormalTable> tables_;  // by deviation
};

}  // namespace

Result<ModelWeights> make_synthetic_weights(const ModelConfig& config, uint64_t seed,
                                            const WeightOptions& options) {
  GAPLESS_TRY(check_model_config(config, config.name.empty() ? "model" : config.name));
  SyntheticSource source(config, seed);
  return pack_weights(config, options, source);
}

}  // namespace gapless
