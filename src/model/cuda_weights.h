// SPDX-License-Identifier: Apache-2.0
//
// A model's weights on the GPU, packed for cuda/matmul.h: from a checkpoint, or made on the device
// from a seed (the same numbers, bit for bit, as make_synthetic_weights makes for the CPU).
//
// q, k and v are one matrix, in this order of rows. k is padded with zeros to a multiple of
// kCudaKPad; rows for these matmuls have that stride.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cuda/device.h"
#include "cuda/matmul_pack.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace gapless {

inline constexpr int64_t kCudaKPad = 64;
constexpr int64_t cuda_padded_k(int64_t k) { return (k + kCudaKPad - 1) / kCudaKPad * kCudaKPad; }

struct CudaMatrix {
  CudaWeightShape shape;  // k is the padded one
  DeviceBuffer weights;
  DeviceBuffer scales;  // s8: f32, in the order of the packed rows
  // As they are read: what a matmul must move.
  int64_t weight_bytes() const { return weights.bytes(); }
};

struct CudaLayerWeights {
  DeviceBuffer norms;  // f32: input [hidden], post [hidden], q [head_dim], k [head_dim]
  const float* input_norm = nullptr;  // into `norms`
  const float* post_norm = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  CudaMatrix qkv;
  CudaMatrix out;
  CudaMatrix gate_up;  // gated; or
  CudaMatrix gate;     // these two
  CudaMatrix up;
  CudaMatrix down;

  int64_t weight_bytes() const;
};

struct CudaModelWeights {
  ModelConfig config;          // its `layers` are those that are here
  DType dtype = DType::kBf16;  // of the projections: bf16 or s8
  bool dual_gate_up = true;
  std::vector<CudaLayerWeights> layers;
  bool has_head = false;
  DType embedding_dtype = DType::kBf16;  // bf16, f16 or f32
  DeviceBuffer embedding;                // [vocabulary][hidden]
  DeviceBuffer final_norm;
  CudaMatrix head;  // bf16

  int64_t device_bytes() const;
};

// What they take of the device's memory: padding, gaps between allocations and the embedding, which
// has the type it is stored in, included. The error is that of a shape that the matmuls cannot run.
Result<int64_t> cuda_weights_bytes(const ModelConfig& config, const WeightOptions& options,
                                   DType embedding_dtype = DType::kBf16);

// Weights of another dtype than bf16 and s8 are an error; what the device cannot hold is one that
// says how much was needed and is free. Options are those of weights.h; thread_count packs. All of
// Qwen3-14B is made from a seed in 0.05 s on an H200.
Result<CudaModelWeights> load_cuda_weights(std::shared_ptr<const Checkpoint> checkpoint,
                                           const WeightOptions& options);
Result<CudaModelWeights> make_synthetic_cuda_weights(const ModelConfig& config, uint64_t seed,
                                                     const WeightOptions& options);

}  // namespace gapless
