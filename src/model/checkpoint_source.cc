// SPDX-License-Identifier: Apache-2.0

#include "model/checkpoint_source.h"

#include <cmath>
#include <cstring>
#include <string>

#include <fmt/core.h>

#include "base/check.h"
#include "base/half.h"
#include "kernels/cpu_level.h"
#include "kernels/elementwise.h"
#include "model/stored_rows.h"

namespace gapless {
namespace {

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

// From kBf16, kF16 or kF32.
void cast_to_bf16(DType dtype, const std::byte* from, int64_t count, std::byte* to) {
  const CpuLevel level = usable_cpu_levels().back();
  if (dtype == DType::kBf16) {
    std::memcpy(to, from, static_cast<size_t>(count * dtype_bytes(dtype)));
  } else if (dtype == DType::kF32) {
    cast_row(level, DType::kF32, from, count, DType::kBf16, to);
  } else {
    std::vector<float> values(static_cast<size_t>(count));
    cast_row(level, dtype, from, count, DType::kF32, values.data());
    cast_row(level, DType::kF32, values.data(), count, DType::kBf16, to);
  }
}

}  // namespace

Result<CheckpointSource> CheckpointSource::open(std::shared_ptr<const Checkpoint> checkpoint,
                                                const WeightOptions& options) {
  if (checkpoint->config().quantized && options.dtype != DType::kS8) {
    return fail(ErrorCode::kInvalidInput,
                "{}: its weights are s8 ({}) and cannot be {} again; ask for s8, or give the "
                "checkpoint that they were made from",
                checkpoint->folder(), kQuantMethod, dtype_name(options.dtype));
  }
  GAPLESS_TRY(check_tensors(*checkpoint, options));
  return CheckpointSource(std::move(checkpoint));
}

Result<std::vector<float>> CheckpointSource::read_norm(const WeightTensor& tensor) {
  const StoredTensor& stored = *checkpoint_->find(tensor.name);
  GAPLESS_TRY(check_finite(*checkpoint_, stored, {.row = 0, .count = 1}, DType::kF32));
  std::vector<float> values;
  for (int64_t i = 0; i < tensor.columns; ++i)
    values.push_back(load_as_float(*stored.dtype, stored.bytes.data(), i));
  return values;
}

Result<void> CheckpointSource::pack_rows(const WeightTensor& tensor, RowRange rows,
                                         PackedMatrix& to, int which) {
  const StoredTensor& stored = *checkpoint_->find(tensor.name);
  const std::byte* data = row_data(stored, rows.row);
  if (*stored.dtype == DType::kS8) {
    const float* scales = GAPLESS_TRY(stored_scales(tensor, rows));
    to.set_quantized_rows(rows.row, rows.count, reinterpret_cast<const int8_t*>(data), scales,
                          which);
    return {};
  }
  GAPLESS_TRY(check_finite(*checkpoint_, stored, rows, to.dtype()));
  to.set_rows(rows.row, rows.count, *stored.dtype, data, which);
  return {};
}

Result<void> CheckpointSource::read_rows(const WeightTensor& tensor, RowRange rows,
                                         const RowTarget& to) const {
  GAPLESS_CHECK(to.dtype == DType::kBf16 || to.dtype == DType::kS8);
  const StoredTensor& stored = *checkpoint_->find(tensor.name);
  const float* scales = nullptr;
  if (*stored.dtype == DType::kS8) {
    GAPLESS_CHECK(to.dtype == DType::kS8);
    scales = GAPLESS_TRY(stored_scales(tensor, rows));
  } else {
    GAPLESS_TRY(check_finite(*checkpoint_, stored, rows, to.dtype));
  }
  for (int64_t i = 0; i < rows.count; ++i) {
    const std::byte* from = row_data(stored, rows.row + i);
    std::byte* row = to.rows + i * to.stride * dtype_bytes(to.dtype);
    if (to.dtype == DType::kBf16) {
      cast_to_bf16(*stored.dtype, from, tensor.columns, row);
    } else if (scales != nullptr) {
      std::memcpy(row, from, static_cast<size_t>(tensor.columns));
      to.scales[i] = scales[i];
    } else {
      int8_t* const quantized = reinterpret_cast<int8_t*>(row);
      to.scales[i] = quantize_row(*stored.dtype, from, tensor.columns, quantized);
    }
  }
  return {};
}

Result<EmbeddingTable> CheckpointSource::open_embedding(const WeightTensor& tensor) {
  const StoredTensor& stored = *checkpoint_->find(tensor.name);
  EmbeddingTable table;
  table.dtype = *stored.dtype;
  table.rows = stored.bytes.data();
  table.mapping = checkpoint_;
  return table;
}

Result<void> CheckpointSource::finish_embedding(const WeightTensor& tensor, RowRange rows,
                                                const EmbeddingTable& /*table*/) {
  // As the head they are checked when they are packed.
  if (checkpoint_->config().tied_embeddings) return {};
  return check_finite(*checkpoint_, *checkpoint_->find(tensor.name), rows, DType::kF32);
}

DType CheckpointSource::embedding_dtype() const {
  return *checkpoint_->find(embedding_tensor(config()).name)->dtype;
}

DType CheckpointSource::head_dtype() const {
  return *checkpoint_->find(head_tensor(config()).name)->dtype;
}

Result<const float*> CheckpointSource::stored_scales(const WeightTensor& tensor,
                                                     RowRange rows) const {
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
  return scales;
}

}  // namespace gapless
