// SPDX-License-Identifier: Apache-2.0

#include "model/step_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gapless {
namespace {

struct BlockLoad {
  int64_t cost = 0;
  int32_t block = 0;
};
// For a heap with the smallest load on top; the smaller number among equals.
bool has_more(const BlockLoad& a, const BlockLoad& b) {
  return a.cost != b.cost ? a.cost > b.cost : a.block > b.block;
}

int64_t tokens_of(const AttentionItem& item, std::span<const int32_t> lengths, int chunk_tokens) {
  const int64_t length = lengths[static_cast<size_t>(item.sequence)];
  return std::min<int64_t>(chunk_tokens, length - int64_t{item.chunk} * chunk_tokens);
}

// Every item reads tokens of one head; all of them together are what the plan says.
void set_block_costs(const AttentionPlan& plan, std::span<const int32_t> block_of, int block_count,
                     int chunk_tokens, StepState& state) {
  state.block_costs.assign(static_cast<size_t>(block_count), {});
  int64_t token_count = 0;
  for (const AttentionItem& item : plan.items)
    token_count += tokens_of(item, state.lengths, chunk_tokens);
  if (token_count == 0) return;
  const int64_t bytes = plan.kv_bytes / token_count;
  const int64_t flops = static_cast<int64_t>(plan.flops) / token_count;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    CostHint& cost = state.block_costs[static_cast<size_t>(block_of[i])];
    const int64_t tokens = tokens_of(plan.items[i], state.lengths, chunk_tokens);
    cost.bytes += tokens * bytes;
    cost.flops += tokens * flops;
  }
}

}  // namespace

Result<AttentionPlan> plan_step_attention(const AttentionProblem& problem, int block_count,
                                          StepState& state) {
  GAPLESS_CHECK(block_count > 0);
  AttentionPlan plan = GAPLESS_TRY(plan_attention(problem, state.lengths));
  std::vector<BlockLoad> loads(static_cast<size_t>(block_count));
  for (int32_t block = 0; block < block_count; ++block)
    loads[static_cast<size_t>(block)].block = block;
  std::vector<int32_t> block_of(plan.items.size());
  state.block_begins.assign(static_cast<size_t>(block_count) + 1, 0);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    std::pop_heap(loads.begin(), loads.end(), has_more);
    BlockLoad& least = loads.back();
    least.cost +=
        attention_item_cost(tokens_of(plan.items[i], state.lengths, problem.chunk_tokens));
    block_of[i] = least.block;
    ++state.block_begins[static_cast<size_t>(least.block) + 1];
    std::push_heap(loads.begin(), loads.end(), has_more);
  }
  for (size_t block = 1; block < state.block_begins.size(); ++block)
    state.block_begins[block] += state.block_begins[block - 1];
  set_block_costs(plan, block_of, block_count, problem.chunk_tokens, state);
  std::vector<int32_t> next(state.block_begins.begin(), state.block_begins.end() - 1);
  state.items.resize(plan.items.size());
  for (size_t i = 0; i < plan.items.size(); ++i) {
    int32_t& place = next[static_cast<size_t>(block_of[i])];
    state.items[static_cast<size_t>(place++)] = plan.items[i];
  }
  state.first_partial = std::move(plan.first_partial);
  plan.items.clear();
  return plan;
}

}  // namespace gapless
