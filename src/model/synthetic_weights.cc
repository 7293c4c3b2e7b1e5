// SPDX-License-Identifier: Apache-2.0
//
// The values of synthetic_values.h as a source of weights.

#include <vector>

#include "base/half.h"
#include "model/synthetic_values.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace gapless {
namespace {

class SyntheticSource final : public WeightSource {
 public:
  SyntheticSource(const ModelConfig& config, uint64_t seed)
      : config_(config), values_(config, seed) {}

  Result<std::vector<float>> read_norm(const WeightTensor& tensor) override {
    return values_.make_norm(tensor);
  }

  Result<void> pack_rows(const WeightTensor& tensor, RowRange rows, PackedMatrix& to,
                         int which) override {
    std::vector<Bf16> values(static_cast<size_t>(rows.count * tensor.columns));
    values_.make_rows(tensor, rows, values.data());
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
    values_.make_rows(tensor, rows, data + rows.row * tensor.columns);
    return {};
  }

  DType head_dtype() const override { return DType::kBf16; }
  int64_t embedding_bytes() const override {
    return int64_t{config_.vocabulary} * config_.hidden * dtype_bytes(DType::kBf16);
  }

 private:
  const ModelConfig& config_;
  SyntheticValues values_;
};

}  // namespace

Result<ModelWeights> make_synthetic_weights(const ModelConfig& config, uint64_t seed,
                                            const WeightOptions& options) {
  GAPLESS_TRY(check_model_config(config, config.name.empty() ? "model" : config.name));
  SyntheticSource source(config, seed);
  return pack_weights(config, options, source);
}

}  // namespace gapless
