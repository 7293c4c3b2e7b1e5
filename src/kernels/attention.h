// SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention: one query token a sequence, grouped-query heads, any page table.
//
// Work is cut into items (sequence, kv head, chunk of tokens); all query heads of a kv head go
// through an item together, so that K and V are read once. An item keeps a running maximum and sum
// (online softmax, f32) and leaves a partial result, or the result itself when the sequence is one
// chunk long; attention_combine merges the partials of a head in the order of their chunks. The
// chunk size is the caller's constant: what a sequence gives depends on its own tokens only, bit
// for bit, not on the batch it is in nor on who runs which item.
//
// Cast points: with bf16 pages q and the probabilities are cast to bf16 before they are multiplied
// (as Ascend does), and the sum of the probabilities is that of the cast ones. With f16, f32 and
// s8 pages everything stays f32. Sequences of length 0 give zeros.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/cpu_level.h"
#include "kernels/kv_cache.h"

namespace gapless {

inline constexpr int kMaxGroupHeads = 16;  // query heads of one kv head
inline constexpr int kDefaultChunkTokens = 512;

struct AttentionArgs {
  KvPages pages;
  int q_heads = 0;  // a multiple of kv_heads; their ratio at most kMaxGroupHeads
  int chunk_tokens = kDefaultChunkTokens;  // a multiple of 16
  int64_t batch = 0;
  float scale = 0.0f;                   // on the scores; 1 / sqrt(head_dim) in Qwen3
  const float* q = nullptr;             // [batch][q_heads][head_dim]
  const int32_t* lengths = nullptr;     // [batch], tokens including the new one
  const int32_t* page_table = nullptr;  // [batch][page_table_stride]
  int64_t page_table_stride = 0;
  // Where the partials of a sequence begin: partial (sequence, kv head, chunk) is number
  // first_partial[sequence] + kv_head * chunks of the sequence + chunk. Not read for sequences of
  // one chunk. attention_plan.h makes it.
  const int64_t* first_partial = nullptr;
  float* partials = nullptr;         // partial_floats() each, at 64 bytes
  DType output_dtype = DType::kF32;  // kF32, kBf16 or kF16
  void* output = nullptr;            // [batch][q_heads][head_dim]
};

struct AttentionItem {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  int32_t chunk = 0;
  bool operator==(const AttentionItem&) const = default;
};

// Floats of one partial: group x (head_dim sums, then maximum, then sum), rounded up to 64 bytes.
int64_t partial_floats(int q_heads, const KvShape& shape);
int64_t chunk_count(int64_t length, int chunk_tokens);  // 0 for length 0

// Shapes, lengths and page numbers; says which is wrong. Costs a pass over the page table.
Result<void> check_attention(const AttentionArgs& args);

// `next`, when the caller knows it, is the item it will run after this one: its first keys are
// fetched while this item's last values are multiplied. It has no effect on any result.
void attention_item(CpuLevel level, const AttentionArgs& args, const AttentionItem& item,
                    const AttentionItem* next = nullptr);
// For every sequence that is not exactly one chunk long (zeros for length 0).
void attention_combine(CpuLevel level, const AttentionArgs& args, int64_t sequence, int kv_head);

}  // namespace gapless
