// SPDX-License-Identifier: Apache-2.0
//
// A decode step on the GPU as launches in the order of a stream: what a CUDA graph is captured from
// (model/cuda_decoder.h), what the recorder names its records by, and what is said of each launch.
//
//   CudaStepModel   weights, kernels and memory that all steps of a decoder share
//   cuda_nodes()    the launches of a form of step
//
// Every launch may start while the one before it still runs (programmatic dependent launch) and
// then reads weights, or keys and values, ahead.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cuda/attention.h"
#include "cuda/device.h"
#include "cuda/matmul.h"
#include "cuda/recorder_launch.h"
#include "kernels/kv_cache.h"
#include "model/cuda_weights.h"
#include "model/fusions.h"
#include "model/step_graph.h"

namespace gapless {

// The norm is a launch of its own on a GPU: to put its factor off saves 0.3 us of an A8W8 layer of
// 156, and nothing of a bf16 one.
inline Fusions default_cuda_fusions() { return {.deferred_norm = false}; }

// How a launch of a step is started.
struct CudaNodeLaunch {
  CudaStream stream = nullptr;
  RecorderLaunch recorder = {};
};

struct CudaNode {
  std::string name;  // as layer_kernel_name() has it, or "qkv_proj", "embedding", "lm_head", "top"
  int layer = -1;    // -1: of none
  int blocks = 0;
  int64_t bytes = 0;         // read and written
  int64_t weight_bytes = 0;  // of those, weights or keys and values: what is not in a cache
  int64_t flops = 0;
  bool is_matmul = false;
  std::function<Result<void>(const CudaNodeLaunch&)> start = {};
};

struct CudaStepOptions {
  Fusions fusions = default_cuda_fusions();
  KvShape kv;  // bf16 or f16
  int chunk_tokens = kDefaultChunkTokens;
  int64_t page_count = 0;
  int max_length = 0;
  bool starts_early = true;
};

struct CudaStepForm {
  StepForm step;
  // Several rows of one sequence: its newer tokens are not older than the launch before the
  // attention, which then may not read them ahead.
  bool is_prefill = false;
  auto operator<=>(const CudaStepForm&) const = default;  // NOLINT: its own literal 0
};

// What changes from step to step, on the device; each row's numbers lie at its index.
struct CudaStepInputs {
  int32_t* tokens = nullptr;
  int32_t* lengths = nullptr;
  int32_t* head_rows = nullptr;
  int32_t* page_table = nullptr;  // [rows][page_table_stride]
  int64_t page_table_stride = 0;
};

// A matmul with the workspace that its launches share, of all layers.
struct CudaStepMatmul {
  CudaMatmul matmul;
  DeviceBuffer workspace;
};

class CudaStepModel {
 public:
  // Takes memory on the device for steps of up to kMaxMatmulRows rows. The weights outlive it.
  static Result<CudaStepModel> make(const CudaModelWeights& weights, const CudaStepOptions& options,
                                    CudaStream stream);

  // What that takes of the device's memory beside weights and pages, at most.
  static int64_t step_bytes(const ModelConfig& config, const WeightOptions& weights,
                            const CudaStepOptions& options);

  const CudaModelWeights& weights() const { return *weights_; }
  const CudaStepOptions& options() const { return options_; }
  int max_rows() const { return kMatmulMaxTokens; }

  // The inputs as one block of memory, for one copy: bytes of a step with so many rows, and where
  // the parts lie in any such block.
  int64_t input_bytes(int rows) const;
  CudaStepInputs inputs_in(std::byte* block) const;

  std::byte* inputs() const { return inputs_.data(); }
  std::byte* pages(int layer) const;
  int64_t layer_page_bytes() const;
  float* hidden_in() const { return floats(hidden_in_); }
  float* hidden_out() const { return floats(x_); }
  float* logits() const { return floats(logits_); }
  void* top() const { return top_.data(); }

  // Clears all workspaces: once, and after launches that failed.
  Result<void> prepare(CudaStream stream) const;
  // What the attention found wrong in lengths or pages since prepare(). Waits for the stream.
  Result<void> check_launches(CudaStream stream) const;

  // `lengths` are of the rows, for what the attention moves; empty: not known.
  std::vector<CudaNode> nodes(const CudaStepForm& form, std::span<const int32_t> lengths) const;

 private:
  friend class CudaNodeList;
  static float* floats(const DeviceBuffer& buffer) {
    return reinterpret_cast<float*>(buffer.data());
  }
  struct Buffer;
  static std::vector<Buffer> buffers_of(const ModelConfig& config, const WeightOptions& weights,
                                        const CudaStepOptions& options);
  static int64_t input_bytes_of(const CudaStepOptions& options, int64_t rows);
  Result<void> make_kernels();
  Result<void> make_buffers();
  Result<std::optional<CudaStepMatmul>> make_matmul(const CudaMatrix& matrix, DType output) const;

  const CudaModelWeights* weights_ = nullptr;
  CudaStepOptions options_;
  int64_t page_table_stride_ = 0;
  std::optional<CudaAttention> attention_;
  std::optional<CudaStepMatmul> qkv_proj_;
  std::optional<CudaStepMatmul> out_proj_;
  std::optional<CudaStepMatmul> gate_up_;
  std::optional<CudaStepMatmul> gate_proj_;
  std::optional<CudaStepMatmul> up_proj_;
  std::optional<CudaStepMatmul> down_proj_;
  std::optional<CudaStepMatmul> head_;

  std::vector<DeviceBuffer> pages_;  // by layer
  DeviceBuffer rope_;
  DeviceBuffer inputs_;
  DeviceBuffer hidden_in_;  // f32 [rows][hidden]
  DeviceBuffer x_;          // f32 [rows][hidden]: the stream of a layer and behind it
  DeviceBuffer h_;          // f32 [rows][hidden]: behind the attention
  DeviceBuffer projected_;  // f32 [rows][hidden]: without Fusions::residual
  DeviceBuffer rows_;       // for the next matmul, in the weights' type
  DeviceBuffer factors_;    // f32 [rows], of rows_
  DeviceBuffer qkv_;        // f32 [rows][q, k and v heads]
  DeviceBuffer q_;          // [rows][q_heads][head_dim], of the cache's type
  DeviceBuffer attended_;   // bf16 or f32, the same shape
  DeviceBuffer gate_;       // f32 [rows][intermediate]: without Fusions::dual_gate_up
  DeviceBuffer up_;         // f32, the same
  DeviceBuffer mlp_;        // bf16 or f32 [rows][padded intermediate]
  DeviceBuffer logits_;     // f32 [rows][vocabulary]
  DeviceBuffer top_;        // Candidate [rows]
  DeviceBuffer top_workspace_;
  DeviceBuffer attention_workspace_;
  DeviceBuffer schedules_;  // of the attention: the same in all layers of a step
};

}  // namespace gapless
