// SPDX-License-Identifier: Apache-2.0
//
// A layer, and a whole model, in double precision from the formulas: what the decoder is measured
// against. Slow, obviously right, no cleverness.
//
// Cast points are those of the decoder and nothing else is rounded: what goes into a projection is
// cast to the weights' type (s8: quantised per token), keys and values are cast to the cache's
// type, q and the probabilities to bf16 with a bf16 cache. Sums, norms, softmax and 1 / rms are
// double. What the decoder keeps in an f32 buffer is rounded to f32 here too:
//
//   q, k, v (1 / rms included), q and k behind norm and rope, the attention's output, h1 = x + o,
//   gate and up, SiLU(gate) x up, and the carry x between layers

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "model/weights.h"

namespace gapless {

// Where a reference keeps keys and values. A row is one of the rows of the step.
class ReferenceCache {
 public:
  virtual ~ReferenceCache() = default;
  // The row's token, in f32; the cache casts it to its type.
  virtual void store(int layer, int row, int kv_head, const float* key, const float* value) = 0;
  // All tokens that the row attends to, itself included: [length][head_dim] each. Called by
  // `thread_count` threads at once.
  virtual void load(int layer, int row, int kv_head, float* keys, float* values) const = 0;
};

// A query or key head of the token at a position.
struct HeadPlace {
  bool is_key = false;
  int head = 0;  // among the q heads, or among the kv heads
  int position = 0;
};
// A normed head, turned by the angles of its position.
using TurnHead = std::function<std::vector<double>(const HeadPlace&, std::span<const double>)>;

struct LayerReferenceArgs {
  const ModelConfig* config = nullptr;
  const LayerWeights* weights = nullptr;
  int layer = 0;  // for the cache
  DType kv_dtype = DType::kBf16;
  int chunk_tokens = kDefaultChunkTokens;  // of the attention: see attention_reference.h
  bool deferred_norm = true;               // Fusions::deferred_norm: it moves a cast point
  std::span<const int32_t> lengths;  // of each row: tokens that it attends to; its position + 1
  const float* x = nullptr;          // [rows][hidden]
  ReferenceCache* cache = nullptr;
  int thread_count = 1;  // over output columns and heads; the result does not depend on it
  // Empty: NeoX halves by the config's theta. Tests put wrong ones here, to see them noticed.
  TurnHead turn_head = {};
};

// [rows][hidden]: what the layer makes of x, residual included. All rows are stored before any row
// loads. For 16 rows a Qwen3-14B layer takes one second on two threads (f16: two), and another one
// when each attends to 4096 tokens.
std::vector<double> layer_reference(const LayerReferenceArgs& args);

// Final norm and head: [rows][vocabulary]. The norm is not deferred unless asked for.
std::vector<double> head_reference(const ModelWeights& weights, std::span<const float> x,
                                   int thread_count, bool deferred_norm = false);

// All of a packed row, [k] as PackedMatrix::value gives it but for the scale, which is the result:
// s8 values are integers. 1 for other types.
float read_packed_row(const PackedMatrix& matrix, int64_t row, int which, double* values);

// How far `actual` is from `expected`: elements outside rtol = atol = tolerance, and what is NaN or
// infinite in `actual` but not in `expected` (which is outside as well). NaN equals NaN here.
struct Closeness {
  int64_t count = 0;
  int64_t outside_count = 0;
  int64_t not_finite_count = 0;
  double largest_difference = 0.0;  // infinity where only one of the two is a number
  double outside_share() const {
    return count == 0 ? 0.0 : static_cast<double>(outside_count) / static_cast<double>(count);
  }
};
Closeness compare_closely(std::span<const float> actual, std::span<const double> expected,
                          double tolerance);

// A model that decodes one sequence token by token.
class ReferenceModel {
 public:
  // The weights, which have a head, must outlive it. kF32, kF16, kBf16 or kS8 keys and values.
  ReferenceModel(const ModelWeights& weights, DType kv_dtype, bool deferred_norm,
                 int thread_count = 1);
  // The logits after this token, which is in the vocabulary: [vocabulary].
  std::vector<double> step(int32_t token);

 private:
  const ModelWeights& weights_;
  DType kv_dtype_;
  bool deferred_norm_;
  int thread_count_;
  int length_ = 0;
  std::vector<std::vector<float>> keys_;  // by layer: [token][kv head][head_dim]
  std::vector<std::vector<float>> values_;
};

}  // namespace gapless
