// SPDX-License-Identifier: Apache-2.0

#include "model/step_state.h"

#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "model/random_values.h"

namespace gapless {
namespace {

AttentionProblem small_problem(int chunk_tokens = 32) {
  return {.kv = {.dtype = DType::kBf16, .kv_heads = 2, .head_dim = 64, .page_tokens = 16},
          .q_heads = 10,
          .core_count = 2,
          .chunk_tokens = chunk_tokens,
          .output_dtype = DType::kF32};
}

using ItemKey = std::tuple<int32_t, int32_t, int32_t>;

std::vector<ItemKey> sorted_keys(const std::vector<AttentionItem>& items) {
  std::vector<ItemKey> keys;
  for (const AttentionItem& item : items)
    keys.emplace_back(item.sequence, item.kv_head, item.chunk);
  std::sort(keys.begin(), keys.end());
  return keys;
}

// From the definition: every chunk of every kv head of every row.
std::vector<ItemKey> expected_keys(const AttentionProblem& problem,
                                   const std::vector<int32_t>& lengths) {
  std::vector<ItemKey> keys;
  for (int32_t row = 0; row < std::ssize(lengths); ++row)
    for (int32_t head = 0; head < problem.kv.kv_heads; ++head)
      for (int32_t chunk = 0; chunk * problem.chunk_tokens < lengths[static_cast<size_t>(row)];
           ++chunk)
        keys.emplace_back(row, head, chunk);
  return keys;
}

int64_t cost_of(const AttentionProblem& problem, const StepState& state,
                const AttentionItem& item) {
  const int64_t left = state.lengths[static_cast<size_t>(item.sequence)] -
                       int64_t{item.chunk} * problem.chunk_tokens;
  return attention_item_cost(std::min<int64_t>(left, problem.chunk_tokens));
}

// The cost of each block, the items in it looked up by block_begins.
std::vector<int64_t> block_costs(const AttentionProblem& problem, const StepState& state) {
  std::vector<int64_t> costs;
  for (size_t block = 0; block + 1 < state.block_begins.size(); ++block) {
    EXPECT_LE(state.block_begins[block], state.block_begins[block + 1]);
    int64_t cost = 0;
    for (int32_t i = state.block_begins[block]; i < state.block_begins[block + 1]; ++i)
      cost += cost_of(problem, state, state.items[static_cast<size_t>(i)]);
    costs.push_back(cost);
  }
  return costs;
}

std::vector<int32_t> random_lengths(uint64_t seed) {
  std::vector<int32_t> lengths(1 + mix_bits(seed) % 64);
  for (size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<int32_t>(1 + mix_bits(seed * 1000 + i) % 300);
  return lengths;
}

TEST(StepState, DealsEveryItemOnce) {
  for (uint64_t seed = 0; seed < test_effort(50); ++seed) {
    const AttentionProblem problem = small_problem(16 << seed % 4);
    const int block_count = 1 + static_cast<int>(seed % 30);
    StepState state;
    state.lengths = random_lengths(seed);
    ASSERT_TRUE(plan_step_attention(problem, block_count, state).has_value());
    ASSERT_EQ(std::ssize(state.block_begins), block_count + 1);
    EXPECT_EQ(state.block_begins.front(), 0);
    EXPECT_EQ(state.block_begins.back(), std::ssize(state.items));
    EXPECT_EQ(sorted_keys(state.items), expected_keys(problem, state.lengths));
  }
}

// An item goes to the block with the least, so no block is ahead of another by more than an item.
TEST(StepState, MakesBlocksEven) {
  for (uint64_t seed = 0; seed < test_effort(50); ++seed) {
    const AttentionProblem problem = small_problem();
    StepState state;
    state.lengths = random_lengths(seed);
    ASSERT_TRUE(plan_step_attention(problem, 24, state).has_value());
    const std::vector<int64_t> costs = block_costs(problem, state);
    ASSERT_EQ(costs.size(), 24u);
    const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
    EXPECT_LE(*most - *least, attention_item_cost(problem.chunk_tokens)) << seed;
  }
}

TEST(StepState, PutsCostlyItemsOfABlockFirst) {
  const AttentionProblem problem = small_problem();
  StepState state;
  state.lengths = random_lengths(3);
  ASSERT_TRUE(plan_step_attention(problem, 5, state).has_value());
  for (size_t block = 0; block < 5; ++block)
    for (int32_t i = state.block_begins[block] + 1; i < state.block_begins[block + 1]; ++i)
      EXPECT_GE(cost_of(problem, state, state.items[static_cast<size_t>(i) - 1]),
                cost_of(problem, state, state.items[static_cast<size_t>(i)]));
}

// What an earlier step left in the state does not matter.
TEST(StepState, DependsOnTheLengthsOnly) {
  const AttentionProblem problem = small_problem();
  StepState once;
  once.lengths = random_lengths(11);
  ASSERT_TRUE(plan_step_attention(problem, 24, once).has_value());
  StepState again;
  again.lengths = random_lengths(12);
  ASSERT_TRUE(plan_step_attention(problem, 7, again).has_value());
  again.lengths = once.lengths;
  ASSERT_TRUE(plan_step_attention(problem, 24, again).has_value());
  EXPECT_EQ(again.items, once.items);
  EXPECT_EQ(again.block_begins, once.block_begins);
  EXPECT_EQ(again.first_partial, once.first_partial);
}

// Only rows of several chunks leave partials, and no two share one.
TEST(StepState, GivesEachPartialAPlaceOfItsOwn) {
  const AttentionProblem problem = small_problem();
  StepState state;
  state.lengths = {100, 32, 33, 1, 64};
  const Result<AttentionPlan> plan = plan_step_attention(problem, 4, state);
  ASSERT_TRUE(plan.has_value());
  std::vector<bool> taken(static_cast<size_t>(plan->partial_count));
  EXPECT_EQ(plan->partial_count, 2 * (4 + 2 + 2));
  for (const AttentionItem& item : state.items) {
    const size_t row = static_cast<size_t>(item.sequence);
    const int64_t chunks = chunk_count(state.lengths[row], problem.chunk_tokens);
    if (chunks == 1) continue;
    const size_t place =
        static_cast<size_t>(state.first_partial[row] + item.kv_head * chunks + item.chunk);
    ASSERT_LT(place, taken.size());
    EXPECT_FALSE(taken[place]);
    taken[place] = true;
  }
  EXPECT_EQ(plan->workspace_bytes,
            plan->partial_count * partial_floats(problem.q_heads, problem.kv) * 4);
  EXPECT_TRUE(plan->items.empty());
}

TEST(StepState, FindsThePageAndPlaceOfARow) {
  StepState state;
  state.lengths = {1, 16, 17, 40};
  state.page_table_stride = 3;
  state.page_table = {9, 0, 0, 8, 0, 0, 7, 6, 0, 5, 4, 3};
  const int32_t pages[] = {9, 8, 6, 3};
  const int places[] = {0, 15, 0, 7};
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(state.page_of(row, 16), pages[row]);
    EXPECT_EQ(state.place_of(row, 16), places[row]);
  }
}

TEST(StepState, LeavesBlocksWithoutItemsEmpty) {
  StepState state;
  state.lengths = {5};
  ASSERT_TRUE(plan_step_attention(small_problem(), 24, state).has_value());
  EXPECT_EQ(state.items.size(), 2u);
  EXPECT_EQ(state.block_begins.front(), 0);
  EXPECT_EQ(state.block_begins.back(), 2);
  EXPECT_EQ(std::count(state.block_begins.begin(), state.block_begins.end(), 2), 23);
}

}  // namespace
}  // namespace gapless
