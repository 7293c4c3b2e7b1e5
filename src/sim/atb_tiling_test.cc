// SPDX-License-Identifier: Apache-2.0

#include "sim/atb_tiling.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

AtbProblem equal_lengths(int batch, int q_heads, int32_t tokens) {
  return {.lengths = std::vector<int32_t>(static_cast<size_t>(batch), tokens),
          .q_heads = q_heads,
          .kv_heads = 8};
}

AtbPlan plan_of(const AtbProblem& problem) {
  const Result<AtbPlan> plan = plan_atb_attention(problem);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  return plan ? *plan : AtbPlan();
}

std::string error_of(const AtbProblem& problem) {
  const Result<AtbPlan> plan = plan_atb_attention(problem);
  return plan ? "" : plan.error().message;
}

// What the upstream function was seen to return for f16, 8 kv heads and 24 cores.
struct Published {
  int batch;
  int q_heads;
  int32_t tokens;
  int64_t key;
  int64_t active_cores;
  int64_t head_split;
  int64_t group_move;
  int64_t kv_split_tokens;
  int64_t kv_split_count;
};

TEST(AtbTiling, MakesThePublishedTable) {
  for (const Published& row :
       {Published{1, 32, 128, 0, 16, 2, 2, 128, 1}, Published{4, 32, 512, 0, 24, 6, 1, 512, 1},
        Published{1, 32, 4096, 16, 24, 16, 4, 256, 16},
        Published{1, 32, 16384, 16, 24, 16, 4, 768, 22},
        Published{16, 40, 4096, 16, 24, 32, 1, 256, 16},
        Published{16, 40, 3968, 0, 24, 20, 5, 3968, 1},
        Published{32, 40, 4096, 16, 24, 32, 1, 256, 16},
        Published{24, 40, 8192, 16, 24, 32, 1, 384, 22}}) {
    SCOPED_TRACE(testing::Message() << row.batch << ", " << row.q_heads << ", " << row.tokens);
    const AtbTiling tiling = plan_of(equal_lengths(row.batch, row.q_heads, row.tokens)).tiling;
    EXPECT_EQ(tiling.key, row.key);
    EXPECT_EQ(tiling.active_cores, row.active_cores);
    EXPECT_EQ(tiling.former_head_split, row.head_split);
    EXPECT_EQ(tiling.former_group_move, row.group_move);
    EXPECT_EQ(tiling.kv_split_tokens, row.kv_split_tokens);
    EXPECT_EQ(tiling.kv_split_count, row.kv_split_count);
    EXPECT_TRUE(tiling.is_key_handled);
  }
}

TEST(AtbTiling, ChangesEverythingAt4096Tokens) {
  const AtbPlan below = plan_of(equal_lengths(16, 40, 4095));
  EXPECT_FALSE(below.tiling.is_kv_split_rule);
  EXPECT_EQ(below.tiling.former_group_move, 5);
  EXPECT_EQ(below.tiling.former_batch, 12);
  EXPECT_EQ(below.tiling.tail_batch, 4);
  EXPECT_EQ(below.tiling.tail_head_split, 7);
  EXPECT_EQ(below.tiling.tail_group_move, 1);
  const AtbPlan from = plan_of(equal_lengths(16, 40, 4096));
  EXPECT_TRUE(from.tiling.is_kv_split_rule);
  EXPECT_EQ(from.tiling.tail_batch, 0);
  EXPECT_EQ(from.loads.item_count, 512);
  EXPECT_DOUBLE_EQ(from.read_factor(), 5.0) << "five heads share nothing";
  EXPECT_EQ(from.loads.used_rows * 16, from.loads.padded_rows) << "one row of 16 is used";
}

TEST(AtbTiling, OverflowsItsWorkspaceFromTheSameBatchesOn) {
  for (const int q_heads : {32, 40}) {
    EXPECT_FALSE(plan_of(equal_lengths(28, q_heads, 4096)).workspace.overflows());
    EXPECT_TRUE(plan_of(equal_lengths(29, q_heads, 4096)).workspace.overflows());
    EXPECT_FALSE(plan_of(equal_lengths(20, q_heads, 8192)).workspace.overflows());
    EXPECT_TRUE(plan_of(equal_lengths(21, q_heads, 8192)).workspace.overflows());
    EXPECT_FALSE(plan_of(equal_lengths(64, q_heads, 3968)).workspace.overflows()) << "no split";
  }
  const AtbWorkspace workspace = plan_of(equal_lengths(32, 40, 4096)).workspace;
  EXPECT_EQ(workspace.o_core, 9'338'880);
  EXPECT_EQ(workspace.o_core_needed, 10'485'760);
}

TEST(AtbTiling, ReservesThePublishedWorkspace) {
  EXPECT_EQ(plan_of(equal_lengths(1, 32, 4096)).workspace.total() >> 20, 226);
  EXPECT_EQ(plan_of(equal_lengths(1, 40, 4096)).workspace.total() >> 20, 275) << "275.98";
}

TEST(AtbTiling, HasAKeyForDim256ThatNoKernelHandles) {
  AtbProblem problem = equal_lengths(4, 32, 512);
  problem.head_dim = 256;
  const AtbTiling tiling = plan_of(problem).tiling;
  EXPECT_EQ(tiling.key, 128);
  EXPECT_FALSE(tiling.is_key_handled);
  problem.is_bf16 = true;
  problem.lengths.assign(4, 4096);
  EXPECT_EQ(plan_of(problem).tiling.key, 128 + 16 + 1);
}

TEST(AtbTiling, SplitsHeadsSpeciallyFor16SequencesOf32) {
  EXPECT_EQ(plan_of(equal_lengths(16, 32, 1024)).tiling.former_head_split, 8);
  EXPECT_EQ(plan_of(equal_lengths(15, 32, 1024)).tiling.former_head_split, 16);
}

TEST(AtbTiling, SplitsShortSequencesWhereHeadsDoNotFillTheCores) {
  AtbProblem problem = {.lengths = {1024, 1024}, .q_heads = 8, .kv_heads = 8};
  const AtbTiling tiling = plan_of(problem).tiling;
  EXPECT_TRUE(tiling.is_kv_split_rule) << "16 heads are less than 0.8 x 24";
  EXPECT_EQ(tiling.kv_split_tokens, 128);
  EXPECT_EQ(tiling.kv_split_count, 8);
  EXPECT_EQ(tiling.former_head_split, 4) << "16 splits for 24 cores";
}

TEST(AtbTiling, TakesTwoPagesAtOnceWhereTheyFit) {
  AtbProblem problem = equal_lengths(4, 32, 512);
  problem.page_tokens = 64;
  EXPECT_EQ(plan_of(problem).tiling.block_tokens, 128);
  problem.head_dim = 256;
  EXPECT_EQ(plan_of(problem).tiling.block_tokens, 64) << "two would be 32768 elements";
  EXPECT_EQ(plan_of(problem).tiling.key, 0);
}

// Two sequences and two cores: one item of each kind can be followed by hand.
TEST(AtbTiling, DealsItemsInACycleFromTheShortestSequenceOn) {
  const AtbPlan plan =
      plan_of({.lengths = {4096, 100, 0}, .q_heads = 4, .kv_heads = 2, .core_count = 2});
  EXPECT_EQ(plan.tiling.kv_split_tokens, 2048);
  EXPECT_EQ(plan.tiling.kv_split_count, 2);
  EXPECT_EQ(plan.tiling.former_head_split, 4);
  EXPECT_EQ(plan.loads.item_count, 6);
  EXPECT_EQ(plan.loads.empty_item_count, 3) << "both of the empty one, the second of the short";
  // Two passes each: 128 and 2048 tokens on the first core, 2048 on the second.
  EXPECT_EQ(plan.loads.total_cost, 2 * (128 + 4096));
  EXPECT_EQ(plan.loads.largest_core_cost, 2 * (128 + 2048));
  EXPECT_EQ(plan.loads.largest_core_items, 3);
  EXPECT_DOUBLE_EQ(plan.read_factor(), 1.0);
  EXPECT_EQ(plan.workspace.l_needed, 2 * 2 * 4 * 4) << "none for the empty one";
}

TEST(AtbTiling, RefusesWhatTheRulesDoNotTake) {
  EXPECT_EQ(error_of({.lengths = {}, .q_heads = 8, .kv_heads = 8}),
            "no token in a batch of 0; the rules need one");
  AtbProblem problem = equal_lengths(2, 32, 0);
  EXPECT_EQ(error_of(problem), "no token in a batch of 2; the rules need one");
  problem.lengths = {5, -1};
  EXPECT_EQ(error_of(problem), "sequence 1 has -1 tokens; the rules are for 0 to 1048576");
  problem.lengths = {5};
  problem.q_heads = 41;
  EXPECT_EQ(error_of(problem),
            "41 query heads over 8 kv heads; must be a multiple of them, and 4096 at most");
  problem.q_heads = 40;
  problem.head_dim = 512;
  EXPECT_EQ(error_of(problem), "head_dim 512: a multiple of 16 from 16 to 256 is needed");
  problem.head_dim = 128;
  problem.page_tokens = 17;
  EXPECT_EQ(error_of(problem), "pages of 17 tokens: a multiple of 16 from 16 to 256 is needed");
  problem.page_tokens = 128;
  problem.core_count = 0;
  EXPECT_EQ(error_of(problem), "0 cube cores; the rules are for 1 to 65536");
}

}  // namespace
}  // namespace gapless
