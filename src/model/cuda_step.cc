// SPDX-License-Identifier: Apache-2.0
//
// Kernels and memory of a step. Its launches are in cuda_nodes.cc.

#include "model/cuda_step.h"

#include <algorithm>
#include <utility>

#include "cuda/kv_pages.h"
#include "cuda/rows.h"
#include "cuda/stream.h"
#include "kernels/norm.h"
#include "kernels/sampling.h"

namespace gapless {
namespace {

constexpr int64_t kRows = kMatmulMaxTokens;
constexpr int64_t kIndexBytes = kRows * int64_t{sizeof(int32_t)};

int64_t pages_of(int length, int page_tokens) { return (length + page_tokens - 1) / page_tokens; }

Result<DeviceBuffer> cleared(int64_t bytes, const char* what) {
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, what));
  if (bytes > 0) GAPLESS_TRY(buffer.fill(0));
  return buffer;
}

}  // namespace

Result<CudaStepModel> CudaStepModel::make(const CudaModelWeights& weights,
                                          const CudaStepOptions& options, CudaStream stream) {
  CudaStepModel model;
  model.weights_ = &weights;
  model.options_ = options;
  model.page_table_stride_ = pages_of(options.max_length, options.kv.page_tokens);
  GAPLESS_TRY(model.make_kernels());
  GAPLESS_TRY(model.make_buffers());
  GAPLESS_TRY(model.prepare(stream));
  // Memory was cleared and weights were copied on other streams than ours.
  GAPLESS_TRY(synchronize(nullptr));
  return model;
}

Result<std::optional<CudaStepMatmul>> CudaStepModel::make_matmul(const CudaMatrix& matrix,
                                                                 DType output) const {
  CudaMatmul matmul = GAPLESS_TRY(CudaMatmul::make(
      {.weights = matrix.shape, .output_dtype = output, .max_tokens = kMatmulMaxTokens},
      // Between two matmuls is a launch that waits for the first: whatever the second one brought
      // into L2 meanwhile would only be in the way of that one.
      {.read_ahead_kib = -1, .takes_sm = true}));
  DeviceBuffer workspace =
      GAPLESS_TRY(DeviceBuffer::allocate(matmul.workspace_bytes(), "sums of a matmul"));
  return std::optional<CudaStepMatmul>({std::move(matmul), std::move(workspace)});
}

Result<void> CudaStepModel::make_kernels() {
  const ModelConfig& config = weights_->config;
  // What goes into a bf16 matmul is stored as such; what is to be quantised stays f32 until then.
  const bool is_s8 = weights_->dtype == DType::kS8;
  const DType activation = is_s8 ? DType::kF32 : DType::kBf16;
  const bool casts_attended = is_s8 || options_.kv.dtype != DType::kBf16;
  attention_ =
      GAPLESS_TRY(CudaAttention::make({.kv = options_.kv,
                                       .q_heads = config.q_heads,
                                       .chunk_tokens = options_.chunk_tokens,
                                       .output_dtype = casts_attended ? DType::kF32 : DType::kBf16,
                                       .max_batch = kMatmulMaxTokens,
                                       .max_tokens = options_.max_length}));
  const CudaLayerWeights& layer = weights_->layers.front();
  qkv_proj_ = GAPLESS_TRY(make_matmul(layer.qkv, DType::kF32));
  out_proj_ = GAPLESS_TRY(make_matmul(layer.out, DType::kF32));
  down_proj_ = GAPLESS_TRY(make_matmul(layer.down, DType::kF32));
  if (weights_->dual_gate_up) {
    gate_up_ = GAPLESS_TRY(make_matmul(layer.gate_up, activation));
  } else {
    gate_proj_ = GAPLESS_TRY(make_matmul(layer.gate, DType::kF32));
    up_proj_ = GAPLESS_TRY(make_matmul(layer.up, DType::kF32));
  }
  if (weights_->has_head) head_ = GAPLESS_TRY(make_matmul(weights_->head, DType::kF32));
  return {};
}

Result<void> CudaStepModel::make_buffers() {
  const ModelConfig& config = weights_->config;
  const auto take = [](DeviceBuffer& buffer, int64_t bytes, const char* what) -> Result<void> {
    buffer = GAPLESS_TRY(cleared(bytes, what));
    return {};
  };
  for (int layer = 0; layer < config.layers; ++layer) {
    pages_.emplace_back();
    GAPLESS_TRY(take(pages_.back(), layer_page_bytes(), "pages of keys and values"));
  }
  const RopeTable rope(config.rope_theta, config.head_dim, options_.max_length);
  const int64_t rope_bytes = int64_t{options_.max_length} * config.head_dim * 4;
  GAPLESS_TRY(take(rope_, rope_bytes, "angles of the positions"));
  GAPLESS_TRY(rope_.copy_from_host(rope.cos(0), rope_bytes));

  const int64_t hidden_bytes = kRows * config.hidden * 4;
  const int64_t q_elements = kRows * config.q_heads * config.head_dim;
  const int64_t qkv_heads = config.q_heads + 2 * config.kv_heads;
  const int64_t mlp_elements = kRows * cuda_padded_k(config.intermediate);
  const int64_t widest = std::max({cuda_padded_k(config.hidden), cuda_padded_k(config.intermediate),
                                   int64_t{config.q_heads} * config.head_dim});
  GAPLESS_TRY(take(inputs_, input_bytes(kMatmulMaxTokens), "inputs of a step"));
  for (DeviceBuffer* buffer : {&hidden_in_, &x_, &h_, &projected_})
    GAPLESS_TRY(take(*buffer, hidden_bytes, "rows of a step"));
  const int64_t row_bytes = std::max(widest * dtype_bytes(weights_->dtype),
                                     cuda_padded_k(config.hidden) * dtype_bytes(DType::kBf16));
  GAPLESS_TRY(take(rows_, kRows * row_bytes, "rows of a matmul"));
  GAPLESS_TRY(take(factors_, kRows * 4, "scales of rows"));
  GAPLESS_TRY(take(qkv_, kRows * qkv_heads * config.head_dim * 4, "q, k and v of a step"));
  GAPLESS_TRY(take(q_, q_elements * 2, "queries of a step"));
  GAPLESS_TRY(take(attended_, q_elements * 4, "results of the attention"));
  if (!weights_->dual_gate_up)
    for (DeviceBuffer* buffer : {&gate_, &up_})
      GAPLESS_TRY(take(*buffer, mlp_elements * 4, "gate and up of a step"));
  GAPLESS_TRY(take(mlp_, mlp_elements * 4, "gated rows of a step"));
  if (weights_->has_head) {
    GAPLESS_TRY(take(logits_, kRows * config.vocabulary * 4, "logits"));
    GAPLESS_TRY(take(top_, kRows * int64_t{sizeof(Candidate)}, "largest logits"));
    GAPLESS_TRY(
        take(top_workspace_, top_workspace_bytes(static_cast<int>(kRows)), "logits' order"));
  }
  const int64_t workspace_bytes = cuda_attention_workspace_bytes(attention_->shape());
  GAPLESS_TRY(take(schedules_, attention_->schedule_bytes(), "schedules of the attention"));
  return take(attention_workspace_, workspace_bytes, "partial results of the attention");
}

Result<void> CudaStepModel::prepare(CudaStream stream) const {
  for (const std::optional<CudaStepMatmul>* matmul :
       {&qkv_proj_, &out_proj_, &gate_up_, &gate_proj_, &up_proj_, &down_proj_, &head_}) {
    if (!*matmul) continue;
    const DeviceBuffer& workspace = (*matmul)->workspace;
    GAPLESS_TRY((*matmul)->matmul.prepare(workspace.data(), workspace.bytes(), stream));
  }
  GAPLESS_TRY(clear_on_device(top_workspace_.data(), top_workspace_.bytes(), stream));
  return attention_->prepare(attention_workspace_.data(), attention_workspace_.bytes(), stream);
}

int64_t CudaStepModel::layer_page_bytes() const {
  const KvShape& kv = options_.kv;
  return options_.page_count * cuda_kv_page_bytes(kv.kv_heads, kv.head_dim, kv.page_tokens);
}

std::byte* CudaStepModel::pages(int layer) const {
  return pages_[static_cast<size_t>(layer)].data();
}

int64_t CudaStepModel::input_bytes(int rows) const {
  return 3 * kIndexBytes + int64_t{rows} * page_table_stride_ * int64_t{sizeof(int32_t)};
}

CudaStepInputs CudaStepModel::inputs_in(std::byte* block) const {
  const auto part = [block](int64_t at) { return reinterpret_cast<int32_t*>(block + at); };
  return {.tokens = part(0),
          .lengths = part(kIndexBytes),
          .head_rows = part(2 * kIndexBytes),
          .page_table = part(3 * kIndexBytes),
          .page_table_stride = page_table_stride_};
}

Result<void> CudaStepModel::check_launches(CudaStream stream) const {
  CudaAttentionArgs args;
  args.page_count = options_.page_count;
  args.page_table_stride = page_table_stride_;
  args.workspace = attention_workspace_.data();
  args.workspace_bytes = attention_workspace_.bytes();
  return attention_->check_launches(args, stream);
}

}  // namespace gapless
