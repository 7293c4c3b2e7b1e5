// SPDX-License-Identifier: Apache-2.0
//
// AttentionPlan: how the attention of one decode step is cut into items, and what it will take.
//
// The cut is fixed by the chunk size alone; core_count changes only what balance is expected. Items
// come with the costly ones first, so that workers which take them in order end together. Planning
// takes a pass over the sequences and one over the items (2.6 million of them in 15 ms).

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/kv_cache.h"

namespace gapless {

// Limits of a plan; beyond them it is an error and not a lack of memory.
inline constexpr int kMaxPlanSequences = 65536;
inline constexpr int kMaxPlanTokens = 1 << 20;  // of one sequence
inline constexpr int64_t kMaxPlanItems = int64_t{1} << 26;

// Tokens that an item is charged on top of those it reads: taking it, and its part of the combine.
inline constexpr int kItemOverheadTokens = 8;
// The kernels read K in vectors of this many tokens; the last one may be partly used.
inline constexpr int kTokenVector = 16;

struct AttentionProblem {
  KvShape kv;
  int q_heads = 0;
  int core_count = 1;
  int chunk_tokens = kDefaultChunkTokens;
  DType output_dtype = DType::kBf16;
};

struct AttentionPlan {
  std::vector<AttentionItem> items;    // costly first; equal ones by sequence, head, chunk
  std::vector<int64_t> first_partial;  // for AttentionArgs, one a sequence
  // (sequence, kv head) pairs that need attention_combine: all that are not exactly one chunk long.
  int64_t combine_count = 0;
  int64_t partial_count = 0;
  int64_t workspace_bytes = 0;  // exactly what AttentionArgs::partials needs
  int64_t token_count = 0;      // of all sequences
  int64_t kv_bytes = 0;         // read from pages: whole tokens of all heads, K, V and s8 scales
  int64_t q_bytes = 0;          // read; of sequences that have tokens
  int64_t output_bytes = 0;
  int64_t partial_bytes = 0;  // written and read again: twice the workspace
  double flops = 0.0;         // two multiply-adds a token, query head and dimension
  // Costs, in tokens: those read (in whole vectors) and kItemOverheadTokens an item. Items are
  // dealt in order, each to the core that is free first (core_loads.h).
  int64_t total_cost = 0;
  int64_t largest_item_cost = 0;
  int64_t largest_core_cost = 0;
  double balance = 1.0;             // mean core cost / largest core cost
  double largest_item_share = 0.0;  // of the mean core cost; above 1 it bounds the balance
};

// Every number that the kernels cannot do is an error with that number. Empty lengths are allowed.
Result<AttentionPlan> plan_attention(const AttentionProblem& problem,
                                     std::span<const int32_t> lengths);

// What an item of this many tokens (above 0) is charged.
constexpr int64_t attention_item_cost(int64_t tokens) {
  return (tokens + kTokenVector - 1) / kTokenVector * kTokenVector + kItemOverheadTokens;
}

}  // namespace gapless
