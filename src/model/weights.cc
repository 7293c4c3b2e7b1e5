// SPDX-License-Identifier: Apache-2.0
//
// Weights of a checkpoint: rows of the mapped files are checked and packed where they lie.

#include "model/weights.h"

#include <cmath>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/half.h"
#include "model/stored_rows.h"
#include "model/weight_source.h"

namespace gapless {
namespace {

class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}

  Result<std::vector<float>> read_norm(const WeightTensor& tensor) override {
    const StoredTensor& stored = *checkpoint_->find(tensor.name);
    GAPLESS_TRY(check_finite(*checkpoint_, stored, {.row = 0, .count = 1}, DType::kF32));
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.columns; ++i)
      values.push_back(load_as_float(*stored.dtype, stored.bytes.data(), i));
    return values;
  }

  Result<void> pack_rows(const WeightTensor& tensor, RowRange rows, PackedMatrix& to,
                         int which) override {
    const StoredTensor& stored = *checkpoint_->find(tensor.name);
    if (*stored.dtype == DType::kS8) return pack_quantized_rows(tensor, rows, to, which);
    GAPLESS_TRY(check_finite(*checkpoint_, stored, rows, to.dtype()));
    to.set_rows(rows.row, rows.count, *stored.dtype, row_data(stored, rows.row), which);
    return {};
  }

  Result<EmbeddingTable> open_embedding(const WeightTensor& tensor) override {
    const StoredTensor& stored = *checkpoint_->find(tensor.name);
    EmbeddingTable table;
    table.dtype = *stored.dtype;
    table.rows = stored.bytes.data();
    table.mapping = checkpoint_;
    return table;
  }

  Result<void> finish_embedding(const WeightTensor& tensor, RowRange rows,
                                const EmbeddingTable& /*table*/) override {
    // As the head they are checked when they are packed.
    if (checkpoint_->config().tied_embeddings) return {};
    return check_finite(*checkpoint_, *checkpoint_->find(tensor.name), rows, DType::kF32);
  }

  DType head_dtype() const override {
    return *checkpoint_->find(head_tensor(checkpoint_->config()).name)->dtype;
  }
  int64_t embedding_bytes() const override { return 0; }

 private:
  Result<void> pack_quantized_rows(const WeightTensor& tensor, RowRange rows, PackedMatrix& to,
                                   int which) {
    const StoredTensor& stored = *checkpoint_->find(tensor.name);
    const std::string name = scale_name(tensor.name);
    const float* scales =
        reinterpret_cast<const float*>(checkpoint_->find(name)->bytes.data()) + rows.row;
    for (int64_t i = 0; i < rows.count; ++i) {
      if (std::isfinite(scales[i]) && scales[i] >= 0.0f) continue;
      return fail(ErrorCode::kInvalidInput,
                  "{}: tensor {} has the scale {} for row {}; scales must be finite and not "
                  "negative",
                  checkpoint_->file_of(name).path(), quoted_name(name), number_text(scales[i]),
                  rows.row + i);
    }
    const std::byte* data = row_data(stored, rows.row);
    to.set_quantized_rows(rows.row, rows.count, reinterpret_cast<const int8_t*>(data), scales,
                          which);
    return {};
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
};

// That everything is there, before the first byte is packed.
Result<void> check_tensors(const Checkpoint& checkpoint, const WeightOptions& options) {
  ModelConfig config = checkpoint.config();
  if (options.layers > 0 && options.layers < config.layers) config.layers = options.layers;
  for (const ExpectedTensor& tensor : expected_weights(config)) {
    const bool is_of_layer = tensor.name.starts_with("model.layers.");
    if (is_of_layer || options.with_head) GAPLESS_TRY(checkpoint.require(tensor));
  }
  return {};
}

}  // namespace

Result<ModelWeights> load_weights(std::shared_ptr<const Checkpoint> checkpoint,
                                  const WeightOptions& options) {
  if (checkpoint->config().quantized && options.dtype != DType::kS8) {
    return fail(ErrorCode::kInvalidInput,
                "{}: its weights are s8 ({}) and cannot be {} again; ask for s8, or give the "
                "checkpoint that they were made from",
                checkpoint->folder(), kQuantMethod, dtype_name(options.dtype));
  }
  GAPLESS_TRY(check_tensors(*checkpoint, options));
  const ModelConfig config = checkpoint->config();
  CheckpointSource source(std::move(checkpoint));
  return pack_weights(config, options, source);
}

}  // namespace gapless
