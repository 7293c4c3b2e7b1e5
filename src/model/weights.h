// SPDX-License-Identifier: Apache-2.0
//
// ModelWeights: a model's weights in the order in which the CPU kernels stream them.
//
// They come from a checkpoint (bf16, f16, f32, or s8 with a scale for each row, as `gapless
// quantize` writes it) or from a seed. Packing is done once, by several threads, row by row; s8 is
// made from the stored weights where they are not s8 already. A weight that is not finite is an
// error that names the tensor and the place: int8 would hide it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/huge_buffer.h"
#include "base/result.h"
#include "kernels/packed_matrix.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace gapless {

struct LayerWeights {
  std::vector<float> input_norm;
  std::vector<float> q_norm;
  std::vector<float> k_norm;
  std::vector<float> post_norm;
  PackedMatrix q;
  PackedMatrix k;
  PackedMatrix v;
  PackedMatrix out;
  // Gate and up panel by panel in one, or one each: WeightOptions::dual_gate_up.
  PackedMatrix gate_up;
  PackedMatrix gate;
  PackedMatrix up;
  PackedMatrix down;

  int64_t weight_bytes() const;  // of the matrices that are there, as the kernels read them
};

// [vocabulary][hidden] row by row, as gather_embedding reads it: in the mapped checkpoint, or ours.
struct EmbeddingTable {
  DType dtype = DType::kBf16;
  const void* rows = nullptr;
  HugeBuffer storage;                         // synthetic
  std::shared_ptr<const Checkpoint> mapping;  // from a checkpoint
};

struct ModelWeights {
  ModelConfig config;          // its `layers` are those that are here
  DType dtype = DType::kBf16;  // of the projections: kS8, kBf16, kF16 or kF32
  bool dual_gate_up = true;
  std::vector<LayerWeights> layers;
  // Only with WeightOptions::with_head. The head is never s8: bf16, f16 or f32.
  bool has_head = false;
  EmbeddingTable embedding;
  std::vector<float> final_norm;
  PackedMatrix head;
};

struct WeightOptions {
  DType dtype = DType::kBf16;  // kS8, kBf16, kF16 or kF32
  bool dual_gate_up = true;
  int layers = 0;          // the first so many; 0: all
  bool with_head = true;   // embedding, final norm and head too
  int thread_count = 0;    // 0: one for each CPU we may use
  Progress progress = {};  // counts bytes of packed weights
};

// Memory that can be had without swapping, in this container where it is one; the largest number
// where the system does not say.
int64_t available_memory_bytes();

Result<ModelWeights> load_weights(std::shared_ptr<const Checkpoint> checkpoint,
                                  const WeightOptions& options);

// Weights that nobody trained: a function of the seed and the place of each, the same for every
// dtype (s8 is the quantised bf16) and number of threads. Matrices have the scale that keeps
// activations near 1 through any number of layers; norms are 1 +- 0.1.
Result<ModelWeights> make_synthetic_weights(const ModelConfig& config, uint64_t seed,
                                            const WeightOptions& options);

}  // namespace gapless
