// SPDX-License-Identifier: Apache-2.0

#include "model/cuda_weight_plan.h"

#include <utility>

#include <fmt/core.h>

#include "cuda/matmul.h"

namespace gapless {
namespace {

constexpr double kGigabyte = 1e9;
// What the driver hands out: large pieces in whole steps, small ones side by side in such a step.
constexpr int64_t kLargeStep = int64_t{2} << 20;
constexpr int64_t kLargeBytes = int64_t{1} << 20;
constexpr int64_t kSmallStep = 512;

int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t allocation_bytes(int64_t bytes) {
  return rounded_up(bytes, bytes > kLargeBytes ? kLargeStep : kSmallStep);
}

int64_t scale_bytes(const CudaWeightShape& shape) {
  if (shape.dtype != DType::kS8) return 0;
  return cuda_weight_rows(shape) * static_cast<int64_t>(sizeof(float));
}

int64_t norm_count(const ModelConfig& config) {
  return int64_t{2} * config.hidden + int64_t{2} * config.head_dim;
}

CudaMatrixPlan make_plan(DType dtype, bool is_gated, std::vector<WeightTensor> parts) {
  int64_t rows = 0;
  for (const WeightTensor& part : parts) rows += part.rows;
  CudaMatrixPlan plan;
  plan.shape = {.dtype = dtype,
                .columns = is_gated ? rows / 2 : rows,
                .k = cuda_padded_k(parts.front().columns),
                .is_gated = is_gated};
  plan.parts = std::move(parts);
  return plan;
}

// Memory, and packed weights alone, which progress counts.
struct Needs {
  int64_t device_bytes = 0;
  int64_t packed_bytes = 0;
};

Result<Needs> add_matrix(const CudaMatrixPlan& plan, Needs needs) {
  const Result<void> checked = check_cuda_weights(plan.shape);
  if (!checked)
    return fail(checked.error().code, "{}: {}", plan.parts.front().name, checked.error().message);
  const int64_t bytes = cuda_weight_bytes(plan.shape);
  needs.packed_bytes += bytes;
  needs.device_bytes += allocation_bytes(bytes) + allocation_bytes(scale_bytes(plan.shape));
  return needs;
}

// `config` has the layers that are asked for.
Result<Needs> find_needs(const ModelConfig& config, const WeightOptions& options,
                         DType embedding_dtype) {
  Needs layer;
  for (const CudaMatrixPlan& plan : plan_cuda_layer(config, 0, options))
    layer = GAPLESS_TRY(add_matrix(plan, layer));
  layer.device_bytes += allocation_bytes(norm_count(config) * 4);
  Needs needs = {.device_bytes = layer.device_bytes * config.layers,
                 .packed_bytes = layer.packed_bytes * config.layers};
  if (!options.with_head) return needs;
  needs = GAPLESS_TRY(add_matrix(plan_cuda_head(config), needs));
  needs.device_bytes += allocation_bytes(int64_t{config.hidden} * 4);
  needs.device_bytes +=
      allocation_bytes(int64_t{config.vocabulary} * config.hidden * dtype_bytes(embedding_dtype));
  return needs;
}

ModelConfig with_layers(ModelConfig config, const WeightOptions& options) {
  if (options.layers > 0) config.layers = options.layers;
  return config;
}

Result<DeviceBuffer> upload(const std::vector<float>& values, const char* what) {
  const int64_t bytes = std::ssize(values) * static_cast<int64_t>(sizeof(float));
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, what));
  GAPLESS_TRY(buffer.copy_from_host(values.data(), bytes));
  return buffer;
}

class Builder {
 public:
  Builder(const WeightOptions& options, const CudaLimits& limits, CudaWeightFiller& filler,
          CudaModelWeights& weights)
      : options_(options), limits_(limits), filler_(filler), weights_(weights) {}

  Result<void> build_all(int64_t total_bytes) {
    total_bytes_ = total_bytes;
    report(0);
    for (int layer = 0; layer < weights_.config.layers; ++layer) GAPLESS_TRY(build_layer(layer));
    if (options_.with_head) GAPLESS_TRY(build_head());
    return {};
  }

 private:
  void report(int64_t bytes) const {
    if (options_.progress)
      options_.progress(static_cast<uint64_t>(done_bytes_ + bytes),
                        static_cast<uint64_t>(total_bytes_));
  }

  Result<void> build_layer(int layer) {
    CudaLayerWeights to;
    GAPLESS_TRY(build_norms(layer, to));
    for (const CudaMatrixPlan& plan : plan_cuda_layer(weights_.config, layer, options_))
      to.*plan.place = GAPLESS_TRY(build_matrix(plan));
    weights_.layers.push_back(std::move(to));
    return {};
  }

  // All in one piece, in the order of CudaLayerWeights.
  Result<void> build_norms(int layer, CudaLayerWeights& to) {
    std::vector<float> all;
    for (const LayerWeight weight : {LayerWeight::kInputNorm, LayerWeight::kPostNorm,
                                     LayerWeight::kQNorm, LayerWeight::kKNorm}) {
      const std::vector<float> norm =
          GAPLESS_TRY(filler_.read_norm(layer_tensor(weights_.config, layer, weight)));
      all.insert(all.end(), norm.begin(), norm.end());
    }
    to.norms = GAPLESS_TRY(upload(all, "norms"));
    to.input_norm = reinterpret_cast<const float*>(to.norms.data());
    to.post_norm = to.input_norm + weights_.config.hidden;
    to.q_norm = to.post_norm + weights_.config.hidden;
    to.k_norm = to.q_norm + weights_.config.head_dim;
    return {};
  }

  Result<CudaMatrix> build_matrix(CudaMatrixPlan plan) {
    plan.shape.tile_rows = best_tile_rows(plan.shape, limits_);
    CudaMatrix matrix;
    matrix.shape = plan.shape;
    const int64_t bytes = cuda_weight_bytes(plan.shape);
    matrix.weights = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "weights"));
    matrix.scales = GAPLESS_TRY(DeviceBuffer::allocate(scale_bytes(plan.shape), "scales"));
    GAPLESS_TRY(filler_.fill_matrix(plan, matrix, [&](int64_t done) { report(done); }));
    done_bytes_ += bytes;
    return matrix;
  }

  Result<void> build_head() {
    const ModelConfig& config = weights_.config;
    const std::vector<float> norm = GAPLESS_TRY(filler_.read_norm(final_norm_tensor(config)));
    weights_.final_norm = GAPLESS_TRY(upload(norm, "norms"));
    const WeightTensor tensor = embedding_tensor(config);
    weights_.embedding_dtype = filler_.embedding_dtype();
    const int64_t bytes = tensor.rows * tensor.columns * dtype_bytes(weights_.embedding_dtype);
    weights_.embedding = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "embeddings"));
    GAPLESS_TRY(filler_.fill_embedding(tensor, weights_.embedding));
    weights_.head = GAPLESS_TRY(build_matrix(plan_cuda_head(config)));
    weights_.has_head = true;
    return {};
  }

  const WeightOptions& options_;
  const CudaLimits& limits_;
  CudaWeightFiller& filler_;
  CudaModelWeights& weights_;
  int64_t total_bytes_ = 0;
  int64_t done_bytes_ = 0;
};

}  // namespace

std::vector<CudaMatrixPlan> plan_cuda_layer(const ModelConfig& config, int layer,
                                            const WeightOptions& options) {
  const auto tensor = [&](LayerWeight weight) { return layer_tensor(config, layer, weight); };
  std::vector<CudaMatrixPlan> plans;
  const auto add = [&](CudaMatrix CudaLayerWeights::*place, bool is_gated,
                       std::vector<WeightTensor> parts) {
    plans.push_back(make_plan(options.dtype, is_gated, std::move(parts)));
    plans.back().place = place;
  };
  const WeightTensor gate = tensor(LayerWeight::kGate);
  const WeightTensor up = tensor(LayerWeight::kUp);
  add(&CudaLayerWeights::qkv, false,
      {tensor(LayerWeight::kQ), tensor(LayerWeight::kK), tensor(LayerWeight::kV)});
  add(&CudaLayerWeights::out, false, {tensor(LayerWeight::kOut)});
  if (options.dual_gate_up) {
    add(&CudaLayerWeights::gate_up, true, {gate, up});
  } else {
    add(&CudaLayerWeights::gate, false, {gate});
    add(&CudaLayerWeights::up, false, {up});
  }
  add(&CudaLayerWeights::down, false, {tensor(LayerWeight::kDown)});
  return plans;
}

CudaMatrixPlan plan_cuda_head(const ModelConfig& config) {
  return make_plan(DType::kBf16, false, {head_tensor(config)});
}

Result<void> check_cuda_weight_dtype(DType dtype) {
  if (dtype == DType::kBf16 || dtype == DType::kS8) return {};
  return fail(ErrorCode::kInvalidInput, "the GPU runs bf16 and a8w8 (s8) weights, not {}",
              dtype_name(dtype));
}

Result<void> check_cuda_memory(const ModelConfig& config, DType dtype, int64_t needed_bytes,
                               const CudaMemory& memory) {
  if (needed_bytes <= memory.free_bytes) return {};
  return fail(ErrorCode::kSystem,
              "{} layers of {} in {} take {:.1f} GB of GPU memory, and {:.1f} of {:.1f} GB are "
              "free; take fewer layers{}",
              config.layers, config.name.empty() ? "the model" : config.name, dtype_name(dtype),
              static_cast<double>(needed_bytes) / kGigabyte,
              static_cast<double>(memory.free_bytes) / kGigabyte,
              static_cast<double>(memory.total_bytes) / kGigabyte,
              dtype == DType::kS8 ? "" : " or s8");
}

Result<int64_t> cuda_weights_bytes(const ModelConfig& config, const WeightOptions& options,
                                   DType embedding_dtype) {
  GAPLESS_TRY(check_cuda_weight_dtype(options.dtype));
  GAPLESS_TRY(check_weight_options(config, options));
  const Needs needs =
      GAPLESS_TRY(find_needs(with_layers(config, options), options, embedding_dtype));
  return needs.device_bytes;
}

Result<CudaModelWeights> build_cuda_weights(const ModelConfig& config, const WeightOptions& options,
                                            CudaWeightFiller& filler) {
  GAPLESS_TRY(check_cuda_weight_dtype(options.dtype));
  GAPLESS_TRY(check_weight_options(config, options));
  CudaModelWeights weights;
  weights.config = with_layers(config, options);
  weights.dtype = options.dtype;
  weights.dual_gate_up = options.dual_gate_up;
  const DType embedding_dtype = options.with_head ? filler.embedding_dtype() : DType::kBf16;
  const Needs needs = GAPLESS_TRY(find_needs(weights.config, options, embedding_dtype));
  const CudaMemory memory = GAPLESS_TRY(cuda_memory());
  GAPLESS_TRY(check_cuda_memory(weights.config, options.dtype, needs.device_bytes, memory));
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  GAPLESS_TRY(Builder(options, limits, filler, weights).build_all(needs.packed_bytes));
  return weights;
}

}  // namespace gapless
