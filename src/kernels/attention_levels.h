// SPDX-License-Identifier: Apache-2.0
//
// What a CpuLevel gives to the attention: the partial result of a chunk of tokens, and the merge of
// partials into the output.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace gapless {

// An item with everything looked up.
struct AttentionChunk {
  DType dtype = DType::kF32;
  int group_heads = 0;
  int head_dim = 0;
  int page_tokens = 0;
  const std::byte* heads = nullptr;     // this kv head's K block in page 0
  int64_t page_bytes = 0;               // from page to page
  int64_t block_bytes = 0;              // from K to V, from V to the scales
  const int32_t* page_table = nullptr;  // of the sequence
  int64_t first_token = 0;              // a multiple of 16
  int64_t token_count = 0;              // at least 1
  float scale = 0.0f;
  const float* q = nullptr;  // [group_heads][head_dim]
  // The partial: sums of probability x value, the largest score, and the sum of the probabilities,
  // which are relative to that score.
  float* sums = nullptr;    // [group_heads][head_dim]
  float* maxima = nullptr;  // [group_heads]
  float* totals = nullptr;  // [group_heads]
};

struct AttentionMerge {
  int group_heads = 0;
  int head_dim = 0;
  int64_t partial_count = 0;        // at least 1
  const float* partials = nullptr;  // [partial_count][partial_stride]: sums, maxima, totals
  int64_t partial_stride = 0;
  DType output_dtype = DType::kF32;
  void* output = nullptr;  // [group_heads][head_dim]
};

// `next`, when it is there, is what the caller expects to do next: its first keys are prefetched.
namespace portable {
void attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next);
void merge_partials(const AttentionMerge& merge);
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
void attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next);
void merge_partials(const AttentionMerge& merge);
}  // namespace avx2

namespace avx512 {
void attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next);
void merge_partials(const AttentionMerge& merge);
}  // namespace avx512

namespace avx512_bf16 {
void attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next);  // bf16 pages only
}  // namespace avx512_bf16
#endif

}  // namespace gapless
