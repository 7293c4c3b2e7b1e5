// SPDX-License-Identifier: Apache-2.0
//
// Weights from a seed (cuda_weight_loader.cc has those of a checkpoint): the tables and keys come
// from the host, the numbers are made where they lie.

#include "model/cuda_weights.h"

#include <map>
#include <vector>

#include "cuda/fill.h"
#include "model/cuda_weight_plan.h"
#include "model/synthetic_values.h"

namespace gapless {
namespace {

static_assert(kFillTableSize == kSyntheticTableSize);

class SyntheticFiller final : public CudaWeightFiller {
 public:
  SyntheticFiller(const ModelConfig& config, uint64_t seed) : values_(config, seed) {}

  Result<std::vector<float>> read_norm(const WeightTensor& tensor) override {
    return values_.make_norm(tensor);
  }

  Result<void> fill_matrix(const CudaMatrixPlan& plan, CudaMatrix& matrix,
                           const BytesDone& bytes_done) override {
    std::vector<FillPart> parts;
    for (const WeightTensor& part : plan.parts)
      parts.push_back({.key = values_.tensor_key(part), .rows = part.rows});
    const bool is_s8 = plan.shape.dtype == DType::kS8;
    // All parts have the table of the first: they are of one role and one k.
    const CudaFillWeightsArgs args = {
        .shape = plan.shape,
        .columns = plan.columns(),
        .numbers = GAPLESS_TRY(numbers_of(plan.parts.front())),
        .parts = parts,
        .weights = matrix.weights.data(),
        .scales = is_s8 ? reinterpret_cast<float*>(matrix.scales.data()) : nullptr};
    GAPLESS_TRY(launch_fill_weights(args, nullptr));
    GAPLESS_TRY(synchronize(nullptr));
    bytes_done(matrix.weights.bytes());
    return {};
  }

  DType embedding_dtype() const override { return DType::kBf16; }

  Result<void> fill_embedding(const WeightTensor& tensor, DeviceBuffer& embedding) override {
    const CudaFillRowsArgs args = {.columns = tensor.columns,
                                   .numbers = GAPLESS_TRY(numbers_of(tensor)),
                                   .part = {.key = values_.tensor_key(tensor), .rows = tensor.rows},
                                   .rows = embedding.data()};
    GAPLESS_TRY(launch_fill_rows(args, nullptr));
    return synchronize(nullptr);
  }

 private:
  // The table is uploaded when it is first needed.
  Result<CudaFillNumbers> numbers_of(const WeightTensor& tensor) {
    const SyntheticTable& table = values_.table(tensor);
    DeviceBuffer& buffer = tables_[&table];
    if (buffer.bytes() == 0) {
      buffer = GAPLESS_TRY(DeviceBuffer::allocate(sizeof(table), "tables of numbers"));
      GAPLESS_TRY(buffer.copy_from_host(table.data(), sizeof(table)));
    }
    return CudaFillNumbers{.table = buffer.data(),
                           .hash = {.step = kSyntheticStep, .twist = kSyntheticTwist}};
  }

  SyntheticValues values_;
  std::map<const SyntheticTable*, DeviceBuffer> tables_;
};

int64_t buffer_bytes(const CudaMatrix& matrix) {
  return matrix.weights.bytes() + matrix.scales.bytes();
}

}  // namespace

int64_t CudaLayerWeights::weight_bytes() const {
  int64_t bytes = 0;
  for (const CudaMatrix* matrix : {&qkv, &out, &gate_up, &gate, &up, &down})
    bytes += matrix->weight_bytes();
  return bytes;
}

int64_t CudaModelWeights::device_bytes() const {
  int64_t bytes = embedding.bytes() + final_norm.bytes() + buffer_bytes(head);
  for (const CudaLayerWeights& layer : layers) {
    bytes += layer.norms.bytes();
    for (const CudaMatrix* matrix :
         {&layer.qkv, &layer.out, &layer.gate_up, &layer.gate, &layer.up, &layer.down})
      bytes += buffer_bytes(*matrix);
  }
  return bytes;
}

Result<CudaModelWeights> make_synthetic_cuda_weights(const ModelConfig& config, uint64_t seed,
                                                     const WeightOptions& options) {
  GAPLESS_TRY(check_model_config(config, config.name.empty() ? "model" : config.name));
  SyntheticFiller filler(config, seed);
  return build_cuda_weights(config, options, filler);
}

}  // namespace gapless
