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
// Sums that blocks of matmuls leave for each other, graphs, and the code of the kernels: more than
// we have seen them take.
constexpr int64_t kKernelBytes = int64_t{256} << 20;

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

namespace {

// What goes into a bf16 matmul is stored as such; what is to be quantised stays f32 until then.
CudaAttentionShape attention_shape(const ModelConfig& config, DType weights,
                                   const CudaStepOptions& options) {
  const bool is_cast_later = weights == DType::kS8 || options.kv.dtype != DType::kBf16;
  return {.kv = options.kv,
          .q_heads = config.q_heads,
          .chunk_tokens = options.chunk_tokens,
          .output_dtype = is_cast_later ? DType::kF32 : DType::kBf16,
          .max_batch = kMatmulMaxTokens,
          .max_tokens = options.max_length};
}

}  // namespace

Result<void> CudaStepModel::make_kernels() {
  const DType activation = weights_->dtype == DType::kS8 ? DType::kF32 : DType::kBf16;
  attention_ = GAPLESS_TRY(
      CudaAttention::make(attention_shape(weights_->config, weights_->dtype, options_)));
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

// All but the pages, and the schedules, whose size the device has a say in.
struct CudaStepModel::Buffer {
  DeviceBuffer CudaStepModel::*place;
  int64_t bytes;
  const char* what;
};
std::vector<CudaStepModel::Buffer> CudaStepModel::buffers_of(const ModelConfig& config,
                                                             const WeightOptions& weights,
                                                             const CudaStepOptions& options) {
  const int64_t hidden_bytes = kRows * config.hidden * 4;
  const int64_t q_elements = kRows * config.q_heads * config.head_dim;
  const int64_t qkv_heads = config.q_heads + 2 * config.kv_heads;
  const int64_t mlp_bytes = kRows * cuda_padded_k(config.intermediate) * 4;
  const int64_t widest = std::max({cuda_padded_k(config.hidden), cuda_padded_k(config.intermediate),
                                   int64_t{config.q_heads} * config.head_dim});
  const int64_t row_bytes = std::max(widest * dtype_bytes(weights.dtype),
                                     cuda_padded_k(config.hidden) * dtype_bytes(DType::kBf16));
  std::vector<Buffer> buffers = {
      {&CudaStepModel::rope_, int64_t{options.max_length} * config.head_dim * 4,
       "angles of the positions"},
      {&CudaStepModel::inputs_, input_bytes_of(options, kRows), "inputs of a step"},
      {&CudaStepModel::hidden_in_, hidden_bytes, "rows of a step"},
      {&CudaStepModel::x_, hidden_bytes, "rows of a step"},
      {&CudaStepModel::h_, hidden_bytes, "rows of a step"},
      {&CudaStepModel::projected_, hidden_bytes, "rows of a step"},
      {&CudaStepModel::rows_, kRows * row_bytes, "rows of a matmul"},
      {&CudaStepModel::factors_, kRows * 4, "scales of rows"},
      {&CudaStepModel::qkv_, kRows * qkv_heads * config.head_dim * 4, "q, k and v of a step"},
      {&CudaStepModel::q_, q_elements * 2, "queries of a step"},
      {&CudaStepModel::attended_, q_elements * 4, "results of the attention"},
      {&CudaStepModel::mlp_, mlp_bytes, "gated rows of a step"},
      {&CudaStepModel::attention_workspace_,
       cuda_attention_workspace_bytes(attention_shape(config, weights.dtype, options)),
       "partial results of the attention"}};
  if (!weights.dual_gate_up) {
    buffers.push_back({&CudaStepModel::gate_, mlp_bytes, "gate of a step"});
    buffers.push_back({&CudaStepModel::up_, mlp_bytes, "up of a step"});
  }
  if (weights.with_head) {
    buffers.push_back({&CudaStepModel::logits_, kRows * config.vocabulary * 4, "logits"});
    buffers.push_back({&CudaStepModel::top_, kRows * int64_t{sizeof(Candidate)}, "largest logits"});
    buffers.push_back({&CudaStepModel::top_workspace_, top_workspace_bytes(static_cast<int>(kRows)),
                       "logits' order"});
  }
  return buffers;
}

int64_t CudaStepModel::step_bytes(const ModelConfig& config, const WeightOptions& weights,
                                  const CudaStepOptions& options) {
  int64_t bytes = kKernelBytes;
  for (const Buffer& buffer : buffers_of(config, weights, options)) bytes += buffer.bytes;
  return bytes;
}

Result<void> CudaStepModel::make_buffers() {
  const ModelConfig& config = weights_->config;
  for (int layer = 0; layer < config.layers; ++layer)
    pages_.push_back(GAPLESS_TRY(cleared(layer_page_bytes(), "pages of keys and values")));
  const WeightOptions weights = {.dtype = weights_->dtype,
                                 .dual_gate_up = weights_->dual_gate_up,
                                 .with_head = weights_->has_head};
  for (const Buffer& buffer : buffers_of(config, weights, options_))
    this->*buffer.place = GAPLESS_TRY(cleared(buffer.bytes, buffer.what));
  schedules_ = GAPLESS_TRY(cleared(attention_->schedule_bytes(), "schedules of the attention"));
  const RopeTable rope(config.rope_theta, config.head_dim, options_.max_length);
  return rope_.copy_from_host(rope.cos(0), rope_.bytes());
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

int64_t CudaStepModel::input_bytes_of(const CudaStepOptions& options, int64_t rows) {
  const int64_t stride = pages_of(options.max_length, options.kv.page_tokens);
  return 3 * kIndexBytes + rows * stride * int64_t{sizeof(int32_t)};
}

int64_t CudaStepModel::input_bytes(int rows) const { return input_bytes_of(options_, rows); }

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
