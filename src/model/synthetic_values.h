// SPDX-License-Identifier: Apache-2.0
//
// SyntheticValues: weights that are a function of (seed, tensor, row, column), without state, so
// that any thread, and a GPU, can make any row.
//
//   row key = mix(tensor key + row * step)
//   bits    = mix(row key + column / 4 * step)
//   element = table[16 bits of `bits` at 16 * (column % 4), modulo 4096]
//
// where mix(x) is the high half of x * (x ^ twist), of 128 bits, xor the low one. A table has the
// normal distribution's quantiles, scaled and already bf16. About 0.5 ns an element.
//
// The scales: what goes into a projection has been normed, so weights of deviation 1 / sqrt(k) give
// results near 1. What out and down add to the stream is a quarter of that, so that the stream
// grows with the square root of an eighth of the layers at most: by a factor of 2 to 3 in all.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "base/half.h"
#include "model/model_config.h"
#include "model/stored_rows.h"
#include "model/weight_source.h"

namespace gapless {

inline constexpr size_t kSyntheticTableSize = 4096;
// Odd numbers with bits set all over: the golden ratio, and one without structure.
inline constexpr uint64_t kSyntheticStep = 0x9e3779b97f4a7c15u;
inline constexpr uint64_t kSyntheticTwist = 0xd6e8feb86659fd93u;

using SyntheticTable = std::array<Bf16, kSyntheticTableSize>;

class SyntheticValues {
 public:
  SyntheticValues(const ModelConfig& config, uint64_t seed);

  // Every tensor has numbers of its own, wherever it stands among the others.
  uint64_t tensor_key(const WeightTensor& tensor) const;
  // Of a matrix. Tensors of one deviation have the same table.
  const SyntheticTable& table(const WeightTensor& tensor) const;
  // [count][columns]; of a matrix.
  void make_rows(const WeightTensor& tensor, RowRange rows, Bf16* out) const;
  // 1 +- 0.1.
  std::vector<float> make_norm(const WeightTensor& tensor) const;

 private:
  double deviation(const WeightTensor& tensor) const;

  bool tied_embeddings_;
  uint64_t seed_;
  std::map<double, SyntheticTable> tables_;  // by deviation
};

}  // namespace gapless
