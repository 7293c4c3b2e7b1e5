// SPDX-License-Identifier: Apache-2.0
//
// WeightSource: where weights come from, and pack_weights, which makes ModelWeights of them. What
// load_weights and make_synthetic_weights have in common.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/packed_matrix.h"
#include "model/model_config.h"
#include "model/stored_rows.h"
#include "model/weights.h"

namespace gapless {

enum class WeightRole : uint8_t {
  kNorm,        // one row
  kProjection,  // q, k, v, gate, up
  kResidual,    // out and down, whose result is added to the stream
  kEmbedding,
  kHead,
};

struct WeightTensor {
  std::string name;
  WeightRole role = WeightRole::kNorm;
  int64_t rows = 1;
  int64_t columns = 0;
};

WeightTensor layer_tensor(const ModelConfig& config, int layer, LayerWeight weight);
WeightTensor embedding_tensor(const ModelConfig& config);
WeightTensor final_norm_tensor(const ModelConfig& config);
// The embedding when the two are tied.
WeightTensor head_tensor(const ModelConfig& config);

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual Result<std::vector<float>> read_norm(const WeightTensor& tensor) = 0;
  // Packs rows of a matrix as half `which` of `to`. Several threads may do so at once.
  virtual Result<void> pack_rows(const WeightTensor& tensor, RowRange rows, PackedMatrix& to,
                                 int which) = 0;
  // The table. Its rows can be used once finish_embedding has had them.
  virtual Result<EmbeddingTable> open_embedding(const WeightTensor& tensor) = 0;
  // Makes the rows, or checks those that are there. Several threads may do so at once.
  virtual Result<void> finish_embedding(const WeightTensor& tensor, RowRange rows,
                                        const EmbeddingTable& table) = 0;
  // Of a head beside s8 weights.
  virtual DType head_dtype() const = 0;
  // Memory that the embedding takes, beside the packed weights.
  virtual int64_t embedding_bytes() const = 0;
};

// A type that weights can have, layers that the model has, a number of threads.
Result<void> check_weight_options(const ModelConfig& config, const WeightOptions& options);

// `config` has been checked.
Result<ModelWeights> pack_weights(const ModelConfig& config, const WeightOptions& options,
                                  WeightSource& source);

}  // namespace gapless
