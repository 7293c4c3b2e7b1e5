// SPDX-License-Identifier: Apache-2.0
//
// The attention of one kv head, in double precision and in the order of the formula: what
// attention.h is measured against. The cast points are those of attention.h.

#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/attention.h"

namespace gapless {

inline constexpr int64_t kAttentionBlockTokens = 128;

struct AttentionReferenceArgs {
  DType kv_dtype = DType::kF32;  // kBf16: q and the probabilities are cast to bf16
  int group_heads = 0;           // query heads that share this kv head
  int head_dim = 0;
  int64_t length = 0;
  // A probability is cast relative to the largest score so far: of its chunk of so many tokens, to
  // the end of its block of kAttentionBlockTokens.
  int64_t chunk_tokens = kDefaultChunkTokens;
  float scale = 0.0f;
  const float* q = nullptr;       // [group_heads][head_dim]
  const float* keys = nullptr;    // [length][head_dim], as read_kv gives them
  const float* values = nullptr;  // [length][head_dim]
  double* output = nullptr;       // [group_heads][head_dim]
};

// Zeros for length 0.
void attention_reference(const AttentionReferenceArgs& args);

}  // namespace gapless
