// SPDX-License-Identifier: Apache-2.0
//
// Which tensors make up which matrix on the GPU, what all of them take, and the one walk over them
// that load_cuda_weights and make_synthetic_cuda_weights share.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "cuda/device.h"
#include "cuda/matmul_pack.h"
#include "model/cuda_weights.h"
#include "model/weight_source.h"

namespace gapless {

struct CudaMatrixPlan {
  CudaWeightShape shape;            // k is the padded one; tile_rows is found when it is built
  std::vector<WeightTensor> parts;  // rows, one part below the other; gated: gate and up
  CudaMatrix CudaLayerWeights::*place = nullptr;  // nothing: the head

  int64_t columns() const { return parts.front().columns; }  // of all parts: k without padding
};

std::vector<CudaMatrixPlan> plan_cuda_layer(const ModelConfig& config, int layer,
                                            const WeightOptions& options);
CudaMatrixPlan plan_cuda_head(const ModelConfig& config);

// bf16 or s8.
Result<void> check_cuda_weight_dtype(DType dtype);
// Whether so much is free.
Result<void> check_cuda_memory(const ModelConfig& config, DType dtype, int64_t needed_bytes,
                               const CudaMemory& memory);

// Where the numbers come from. What is filled has its memory already.
class CudaWeightFiller {
 public:
  using BytesDone = std::function<void(int64_t bytes)>;  // of the matrix, as it is packed

  virtual ~CudaWeightFiller() = default;
  virtual Result<std::vector<float>> read_norm(const WeightTensor& tensor) = 0;
  virtual Result<void> fill_matrix(const CudaMatrixPlan& plan, CudaMatrix& matrix,
                                   const BytesDone& bytes_done) = 0;
  virtual DType embedding_dtype() const = 0;
  virtual Result<void> fill_embedding(const WeightTensor& tensor, DeviceBuffer& embedding) = 0;
};

// `config` has been checked.
Result<CudaModelWeights> build_cuda_weights(const ModelConfig& config, const WeightOptions& options,
                                            CudaWeightFiller& filler);

}  // namespace gapless
