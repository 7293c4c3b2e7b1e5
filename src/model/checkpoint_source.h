// SPDX-License-Identifier: Apache-2.0
//
// CheckpointSource: rows of a checkpoint's mapped files, checked and packed, or converted, where
// they lie.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace gapless {

// Where rows of a matrix go in another type.
struct RowTarget {
  DType dtype = DType::kBf16;  // kBf16 or kS8
  std::byte* rows = nullptr;   // [count][stride]; what is behind a row's elements is left alone
  int64_t stride = 0;          // in elements
  float* scales = nullptr;     // [count], s8 only
};

class CheckpointSource final : public WeightSource {
 public:
  // Everything that the options ask for is there, in a type that can become theirs.
  static Result<CheckpointSource> open(std::shared_ptr<const Checkpoint> checkpoint,
                                       const WeightOptions& options);

  const ModelConfig& config() const { return checkpoint_->config(); }
  Result<std::vector<float>> read_norm(const WeightTensor& tensor) override;
  Result<void> pack_rows(const WeightTensor& tensor, RowRange rows, PackedMatrix& to,
                         int which) override;
  // The values that a PackedMatrix of that type would have. Several threads may do so at once.
  Result<void> read_rows(const WeightTensor& tensor, RowRange rows, const RowTarget& to) const;
  Result<EmbeddingTable> open_embedding(const WeightTensor& tensor) override;
  Result<void> finish_embedding(const WeightTensor& tensor, RowRange rows,
                                const EmbeddingTable& table) override;
  DType embedding_dtype() const;
  DType head_dtype() const override;
  int64_t embedding_bytes() const override { return 0; }

 private:
  explicit CheckpointSource(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}
  // Of stored s8 rows, checked.
  Result<const float*> stored_scales(const WeightTensor& tensor, RowRange rows) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
};

}  // namespace gapless
