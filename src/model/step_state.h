// SPDX-License-Identifier: Apache-2.0
//
// StepState: what one step is about. Tasks read it through a pointer, so that a recorded graph
// stays the same while tokens, lengths and pages change.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "graph/task.h"
#include "kernels/attention.h"
#include "kernels/attention_plan.h"

namespace gapless {

struct StepState {
  std::vector<int32_t> tokens;      // [rows]
  std::vector<int32_t> lengths;     // [rows]: tokens that a row attends to, itself included
  std::vector<int32_t> page_table;  // [rows][page_table_stride]
  int64_t page_table_stride = 0;
  std::vector<int32_t> head_rows;  // rows whose logits are wanted
  // The attention's items, dealt to the blocks of its task: block b has items
  // [block_begins[b], block_begins[b + 1]).
  std::vector<AttentionItem> items;
  std::vector<int32_t> block_begins;
  std::vector<int64_t> first_partial;
  std::vector<CostHint> block_costs;  // of the attention, by block: pages read, multiply-adds

  // The page and the place in it of a row's own token.
  int32_t page_of(int64_t row, int page_tokens) const {
    const int32_t position = lengths[static_cast<size_t>(row)] - 1;
    return page_table[static_cast<size_t>(row * page_table_stride + position / page_tokens)];
  }
  int place_of(int64_t row, int page_tokens) const {
    return (lengths[static_cast<size_t>(row)] - 1) % page_tokens;
  }
};

// Plans the attention of state.lengths and deals its items to `block_count` blocks: costly ones
// first, each to the block that has least. Gives the plan, without its items.
Result<AttentionPlan> plan_step_attention(const AttentionProblem& problem, int block_count,
                                          StepState& state);

}  // namespace gapless
