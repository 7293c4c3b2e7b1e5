// SPDX-License-Identifier: Apache-2.0
//
// AtbPlan: what the published tiling rules of the ATB paged attention (simpler's
// spmd_paged_attention_highperf) make of a decode step, and what it costs.
//
// The rules are reproduced as they are, with their cliff at 4096 tokens, their lost group sharing
// and their workspace without the batch, to be compared with our planner. Items go to the cores in
// a fixed cycle: item i to core i modulo the cores, kv splits first, then parts of the heads, then
// sequences from the shortest on.

#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace gapless {

inline constexpr int64_t kMaxAtbItems = int64_t{1} << 24;

struct AtbProblem {
  std::vector<int32_t> lengths;  // tokens of each sequence
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 128;
  int page_tokens = 128;
  bool is_bf16 = false;
  int64_t core_count = 24;  // cube cores
};

struct AtbTiling {
  bool is_kv_split_rule = false;  // BNS: along the sequence too; otherwise BN
  int64_t key = 0;                // split block << 7 | kv split << 4 | dtype
  bool is_key_handled = true;     // 0, 1, 16 and 17 only: others give no output and no error
  int64_t active_cores = 0;       // "effective block dim"
  int64_t former_batch = 0;
  int64_t former_head_split = 0;  // heads of an item
  int64_t former_group_move = 0;  // heads that go through one pass over K and V together
  int64_t tail_batch = 0;         // 0: all sequences are former
  int64_t tail_head_split = 0;
  int64_t tail_group_move = 0;
  int64_t group = 0;            // query heads of a kv head
  int64_t kv_split_tokens = 0;  // of an item
  int64_t kv_split_count = 0;   // of the longest sequence
  int64_t block_tokens = 0;     // of one step of the kernel
};

// Bytes. o_core and l hold the partial results of split sequences.
struct AtbWorkspace {
  int64_t s = 0;
  int64_t p = 0;
  int64_t o_tmp = 0;
  int64_t go = 0;
  int64_t o_core = 0;
  int64_t l = 0;
  int64_t k16 = 0;
  int64_t v16 = 0;
  int64_t o_core_needed = 0;
  int64_t l_needed = 0;
  int64_t total() const { return s + p + o_tmp + go + o_core + l + k16 + v16; }
  bool overflows() const { return o_core_needed > o_core || l_needed > l; }
};

// A pass takes group_move heads (padded to 16 rows) over the item's tokens; costs are tokens, in
// whole blocks, times passes.
struct AtbLoads {
  int64_t item_count = 0;
  int64_t empty_item_count = 0;  // splits beyond a sequence's end
  int64_t largest_core_items = 0;
  int64_t total_cost = 0;
  int64_t largest_core_cost = 0;
  int64_t shared_cost = 0;  // what total_cost would be if all heads of a group shared a pass
  int64_t used_rows = 0;    // of 16 for each block of each pass
  int64_t padded_rows = 0;
};

struct AtbPlan {
  AtbTiling tiling;
  AtbWorkspace workspace;
  AtbLoads loads;
  int64_t core_count = 0;
  // Largest core cost / mean over all cores, active or not.
  double imbalance() const;
  // Passes over K and V for each one that is needed.
  double read_factor() const;
};

// Error: a number that the rules do not take, or no tokens.
Result<AtbPlan> plan_atb_attention(const AtbProblem& problem);

}  // namespace gapless
