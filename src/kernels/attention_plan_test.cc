// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

// Qwen3-14B: 40 query heads over 8 kv heads.
AttentionProblem qwen3(int core_count) {
  AttentionProblem problem;
  problem.kv = {.dtype = DType::kBf16, .kv_heads = 8, .head_dim = 128, .page_tokens = 128};
  problem.q_heads = 40;
  problem.core_count = core_count;
  return problem;
}

AttentionPlan plan_or_die(const AttentionProblem& problem, const std::vector<int32_t>& lengths) {
  Result<AttentionPlan> plan = plan_attention(problem, lengths);
  if (!plan) ADD_FAILURE() << plan.error().message;
  return plan ? std::move(plan).value() : AttentionPlan{};
}

std::string error_of(const AttentionProblem& problem, const std::vector<int32_t>& lengths = {17}) {
  const Result<AttentionPlan> plan = plan_attention(problem, lengths);
  return plan ? "none" : plan.error().message;
}

int64_t tokens_of(const AttentionItem& item, const std::vector<int32_t>& lengths, int chunk) {
  const int64_t length = lengths[static_cast<size_t>(item.sequence)];
  return std::min<int64_t>(chunk, length - int64_t{item.chunk} * chunk);
}

std::vector<int32_t> random_lengths(std::mt19937& random, int batch, int32_t largest) {
  std::vector<int32_t> lengths(static_cast<size_t>(batch));
  // Ragged in two ways: anything, or many short ones and a few long ones.
  const bool few_long = random() % 2 == 0;
  for (int32_t& length : lengths) {
    const int32_t limit = few_long && random() % 8 != 0 ? 100 : largest;
    length = std::uniform_int_distribution<int32_t>(0, limit)(random);
  }
  return lengths;
}

// Every item is within its sequence, no item comes twice, they come in the stated order, and their
// tokens add up to the sequences' tokens: each is covered exactly once.
void expect_covers_every_token_once(const AttentionProblem& problem,
                                    const std::vector<int32_t>& lengths) {
  const AttentionPlan plan = plan_or_die(problem, lengths);
  const int chunk = problem.chunk_tokens;
  int64_t tokens = 0;
  int64_t expected = 0;
  for (const int64_t length : lengths) expected += length * problem.kv.kv_heads;
  std::tuple<int64_t, int, int, int> before{-(int64_t{1} << 40), 0, 0, 0};
  for (const AttentionItem& item : plan.items) {
    ASSERT_GE(item.sequence, 0);
    ASSERT_LT(item.sequence, static_cast<int>(lengths.size()));
    ASSERT_GE(item.kv_head, 0);
    ASSERT_LT(item.kv_head, problem.kv.kv_heads);
    ASSERT_GE(item.chunk, 0);
    const int64_t item_tokens = tokens_of(item, lengths, chunk);
    ASSERT_GT(item_tokens, 0);
    const std::tuple<int64_t, int, int, int> key{-attention_item_cost(item_tokens), item.sequence,
                                                 item.kv_head, item.chunk};
    ASSERT_LT(before, key) << "costly first, then sequence, head, chunk; no item twice";
    before = key;
    tokens += item_tokens;
  }
  EXPECT_EQ(tokens, expected);
}

TEST(AttentionPlan, CoversEveryTokenOfEverySequenceAndHeadOnce) {
  std::mt19937 random(20260402);
  for (uint32_t round = 0; round < test_effort(200); ++round) {
    AttentionProblem problem = qwen3(std::uniform_int_distribution<int>(1, 72)(random));
    problem.kv.kv_heads = 1 << random() % 4;
    problem.q_heads = problem.kv.kv_heads * std::uniform_int_distribution<int>(1, 16)(random);
    problem.chunk_tokens = 16 * std::uniform_int_distribution<int>(1, 64)(random);
    const int batch = std::uniform_int_distribution<int>(0, 40)(random);
    expect_covers_every_token_once(problem, random_lengths(random, batch, 20000));
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionPlan, ListsASmallBatchAsAPersonWould) {
  AttentionProblem problem = qwen3(2);
  problem.kv.kv_heads = 2;
  problem.q_heads = 4;
  const AttentionPlan plan = plan_or_die(problem, {600, 0, 510, 512, 1});
  const std::vector<AttentionItem> expected = {{0, 0, 0}, {0, 1, 0}, {2, 0, 0}, {2, 1, 0},
                                               {3, 0, 0}, {3, 1, 0},   // 512, 510 and 512 tokens
                                               {0, 0, 1}, {0, 1, 1},   // 88
                                               {4, 0, 0}, {4, 1, 0}};  // 1
  EXPECT_EQ(plan.items, expected);
  EXPECT_EQ(plan.partial_count, 4) << "only the sequence of 600 has two chunks, for two heads";
  EXPECT_EQ(plan.combine_count, 4) << "that sequence, and the empty one that must become zeros";
  EXPECT_EQ(plan.first_partial, (std::vector<int64_t>{0, 4, 4, 4, 4}));
  EXPECT_EQ(plan.workspace_bytes, 4 * partial_floats(4, problem.kv) * 4);
  EXPECT_EQ(plan.token_count, 1623);
  EXPECT_EQ(plan.kv_bytes, 1623 * 2 * 128 * 2 * 2);
  EXPECT_EQ(plan.q_bytes, 4 * 4 * 128 * 4);
  EXPECT_EQ(plan.output_bytes, 5 * 4 * 128 * 2);
  EXPECT_DOUBLE_EQ(plan.flops, 4.0 * 1623 * 4 * 128);
  EXPECT_EQ(plan.total_cost, 6 * 520 + 2 * 104 + 2 * 24);
  EXPECT_EQ(plan.largest_core_cost, plan.total_cost / 2);
  EXPECT_DOUBLE_EQ(plan.balance, 1.0);
}

TEST(AttentionPlan, CountsTheScalesOfS8Pages) {
  AttentionProblem problem = qwen3(1);
  problem.kv.dtype = DType::kS8;
  EXPECT_EQ(plan_or_die(problem, {100}).kv_bytes, 100 * 8 * 2 * (128 + 4));
}

TEST(AttentionPlan, OfNothingIsEmpty) {
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{}, {0}, {0, 0, 0}}) {
    const AttentionPlan plan = plan_or_die(qwen3(24), lengths);
    EXPECT_TRUE(plan.items.empty());
    EXPECT_EQ(plan.workspace_bytes, 0);
    EXPECT_EQ(plan.kv_bytes, 0);
    EXPECT_EQ(plan.combine_count, static_cast<int64_t>(lengths.size()) * 8);
    EXPECT_EQ(plan.output_bytes, static_cast<int64_t>(lengths.size()) * 40 * 128 * 2);
    EXPECT_DOUBLE_EQ(plan.balance, 1.0);
    EXPECT_DOUBLE_EQ(plan.largest_item_share, 0.0);
  }
}

// Whenever there is work enough, ten of the largest items for each core, the balance is 0.9.
int64_t enough_work_count = 0;
void expect_balanced_when_enough(const AttentionProblem& problem,
                                 const std::vector<int32_t>& lengths, const char* what) {
  const AttentionPlan plan = plan_or_die(problem, lengths);
  const double mean = static_cast<double>(plan.total_cost) / problem.core_count;
  if (mean < 10.0 * static_cast<double>(plan.largest_item_cost)) return;
  ++enough_work_count;
  EXPECT_GE(plan.balance, 0.9) << what << ", " << lengths.size() << " sequences, longest "
                               << *std::max_element(lengths.begin(), lengths.end()) << ", "
                               << problem.core_count << " cores";
}

constexpr int32_t kLengths[] = {1,     15,    16,    17,    100,   511,    512,    513,   1000,
                                1024,  1025,  2047,  4096,  4097,  8191,   10000,  16384, 20001,
                                32768, 40000, 65535, 65536, 65537, 100000, 131071, 131072};

TEST(AttentionPlan, IsBalancedForEveryBatchUpTo256) {
  enough_work_count = 0;
  std::mt19937 random(20260403);
  for (const int core_count : {1, 2, 24, 48, 72}) {
    const AttentionProblem problem = qwen3(core_count);
    for (int batch = 1; batch <= 256; batch += kSanitized ? 37 : 1) {
      // Equal lengths and one long with many short ones; the longest are left to fewer batches.
      for (const int32_t length : kLengths) {
        if (length > 5000 && batch % 16 != 1) continue;
        std::vector<int32_t> lengths(static_cast<size_t>(batch), length);
        expect_balanced_when_enough(problem, lengths, "equal");
        std::fill(lengths.begin() + 1, lengths.end(), 33);
        expect_balanced_when_enough(problem, lengths, "one long");
      }
      expect_balanced_when_enough(problem, random_lengths(random, batch, 8000), "ragged");
    }
  }
  EXPECT_GT(enough_work_count, kSanitized ? 100 : 5000) << "the test tests something";
}

TEST(AttentionPlan, IsBalancedForLongRaggedBatches) {
  std::mt19937 random(20260404);
  enough_work_count = 0;
  for (const int core_count : {1, 2, 24, 48, 72}) {
    for (const int batch : {1, 2, 3, 7, 16, 64, 255, 256}) {
      expect_balanced_when_enough(qwen3(core_count), random_lengths(random, batch, 131072), "long");
    }
  }
  EXPECT_GT(enough_work_count, 20);
}

// One token more on each sequence adds to an item one vector of tokens, or makes an item of one
// vector, and a core has its share of these. A core that has a chunk less than others has more of
// the short items than its share: four more vectors at most, in all that is tried here.
int64_t largest_step(const AttentionProblem& problem, int64_t batch) {
  const int64_t grown_items = batch * problem.kv.kv_heads;
  const int64_t share = (grown_items + problem.core_count - 1) / problem.core_count;
  return share * (kTokenVector + kItemOverheadTokens) + 4 * kTokenVector;
}

void expect_small_step(const AttentionProblem& problem, const std::vector<int32_t>& lengths) {
  const int64_t heads = static_cast<int64_t>(lengths.size()) * problem.kv.kv_heads;
  std::vector<int32_t> longer = lengths;
  for (int32_t& length : longer) ++length;
  const AttentionPlan before = plan_or_die(problem, lengths);
  const AttentionPlan after = plan_or_die(problem, longer);
  const int64_t chunks = chunk_count(longer[0], problem.chunk_tokens);
  ASSERT_EQ(static_cast<int64_t>(after.items.size()), heads * chunks);
  ASSERT_EQ(after.partial_count, chunks > 1 ? heads * chunks : 0);
  if (lengths[0] % kTokenVector != 0) {
    ASSERT_EQ(after.largest_core_cost, before.largest_core_cost) << "the same vectors";
  }
  const int64_t bound = largest_step(problem, static_cast<int64_t>(lengths.size()));
  ASSERT_LE(after.largest_core_cost, before.largest_core_cost + bound)
      << problem.core_count << " cores, " << lengths.size() << " sequences of " << lengths[0];
  ASSERT_GE(after.total_cost, before.total_cost);
  ASSERT_GT(after.kv_bytes, before.kv_bytes);
  ASSERT_GT(after.flops, before.flops);
  ASSERT_GE(after.workspace_bytes, before.workspace_bytes);
}

TEST(AttentionPlan, HasNoCliffBetweenNeighbouringLengths) {
  for (const int core_count : {1, 2, 24, 48, 72}) {
    for (const size_t batch : {1, 3, 5, 16, 17, 64}) {
      // Costs change behind multiples of a vector; the others are looked at now and then.
      const int32_t longest = batch > 16 ? 4200 : 20000;
      for (int32_t length = 16; length <= longest; length += kSanitized ? 16 * 13 : 16) {
        expect_small_step(qwen3(core_count), std::vector<int32_t>(batch, length));
        if (length % 160 == 0) {
          expect_small_step(qwen3(core_count), std::vector<int32_t>(batch, length + 7));
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Adds up what the plan says where partials lie: all distinct, none outside the workspace, and no
// byte of it unused.
void expect_workspace_is_needed(const AttentionProblem& problem,
                                const std::vector<int32_t>& lengths) {
  const AttentionPlan plan = plan_or_die(problem, lengths);
  const int64_t bytes = partial_floats(problem.q_heads, problem.kv) * 4;
  std::set<int64_t> used;
  for (const AttentionItem& item : plan.items) {
    const size_t sequence = static_cast<size_t>(item.sequence);
    const int64_t chunks = chunk_count(lengths[sequence], problem.chunk_tokens);
    if (chunks == 1) continue;
    const int64_t partial = plan.first_partial[sequence] + item.kv_head * chunks + item.chunk;
    ASSERT_GE(partial, 0);
    ASSERT_LE((partial + 1) * bytes, plan.workspace_bytes);
    ASSERT_TRUE(used.insert(partial).second) << "partial " << partial << " is used twice";
  }
  EXPECT_EQ(static_cast<int64_t>(used.size()) * bytes, plan.workspace_bytes);
  EXPECT_EQ(plan.partial_bytes, 2 * plan.workspace_bytes);
}

TEST(AttentionPlan, GivesTheWorkspaceThatIsNeeded) {
  expect_workspace_is_needed(qwen3(24), std::vector<int32_t>(16, 4096));
  // The published kernel had room for 9.34 MB here and wrote 10.49.
  expect_workspace_is_needed(qwen3(24), std::vector<int32_t>(32, 4096));
  std::mt19937 random(20260405);
  for (uint32_t round = 0; round < test_effort(40); ++round) {
    AttentionProblem problem = qwen3(1);
    problem.chunk_tokens = 16 * std::uniform_int_distribution<int>(1, 40)(random);
    expect_workspace_is_needed(problem, random_lengths(random, 20, 5000));
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionPlan, DoesNotOverflow) {
  AttentionProblem problem = qwen3(48);
  problem.kv = {.dtype = DType::kF32, .kv_heads = 40, .head_dim = 256, .page_tokens = 256};
  const AttentionPlan plan = plan_or_die(problem, std::vector<int32_t>(256, 131072));
  EXPECT_EQ(static_cast<int64_t>(plan.items.size()), 256 * 256 * 40);
  EXPECT_EQ(plan.kv_bytes, int64_t{256} * 131072 * 40 * 256 * 4 * 2);
  EXPECT_EQ(plan.partial_count, 256 * 256 * 40);
  EXPECT_EQ(plan.workspace_bytes, int64_t{256} * 256 * 40 * partial_floats(40, problem.kv) * 4);
  EXPECT_EQ(plan.total_cost, int64_t{256} * 256 * 40 * 520);
  EXPECT_GE(plan.balance, 0.99);
}

TEST(AttentionPlan, RefusesWhatTheKernelsCannotDoWithTheNumber) {
  using Change = void (*)(AttentionProblem&);
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](AttentionProblem& p) { p.kv.head_dim = 96; }, "96"},
      {[](AttentionProblem& p) { p.kv.page_tokens = 8; }, "8"},
      {[](AttentionProblem& p) { p.kv.page_tokens = 17; }, "17"},
      {[](AttentionProblem& p) { p.kv.page_tokens = 512; }, "512"},
      {[](AttentionProblem& p) { p.kv.kv_heads = 0; }, "0"},
      {[](AttentionProblem& p) { p.kv.dtype = DType::kS32; }, "s32"},
      {[](AttentionProblem& p) { p.q_heads = 41; },
       "41 query heads; must be a multiple of the 8 kv heads"},
      {[](AttentionProblem& p) { p.q_heads = 0; }, "0 query heads"},
      {[](AttentionProblem& p) { p.q_heads = -8; }, "-8 query heads"},
      {[](AttentionProblem& p) { p.q_heads = 136; }, "17 to one; the attention takes at most 16"},
      {[](AttentionProblem& p) { p.chunk_tokens = 0; }, "a chunk of 0 tokens"},
      {[](AttentionProblem& p) { p.chunk_tokens = 100; }, "a chunk of 100 tokens"},
      {[](AttentionProblem& p) { p.chunk_tokens = -16; }, "a chunk of -16 tokens"},
      {[](AttentionProblem& p) { p.core_count = 0; }, "0 cores"},
      {[](AttentionProblem& p) { p.core_count = 65537; }, "65537 cores; a plan is for 1 to 65536"},
      {[](AttentionProblem& p) { p.output_dtype = DType::kS8; }, "not s8"},
  };
  for (const auto& [change, text] : cases) {
    AttentionProblem problem = qwen3(24);
    change(problem);
    EXPECT_NE(error_of(problem).find(text), std::string::npos) << text << ": " << error_of(problem);
  }
}

TEST(AttentionPlan, RefusesLengthsWithTheirNumber) {
  EXPECT_EQ(error_of(qwen3(2), {1, -1}), "sequence 1 has -1 tokens; a plan is for 0 to 1048576");
  EXPECT_EQ(error_of(qwen3(2), {1048577}),
            "sequence 0 has 1048577 tokens; a plan is for 0 to 1048576");
  EXPECT_EQ(error_of(qwen3(2), {1048576}), "none");
  EXPECT_EQ(error_of(qwen3(2), std::vector<int32_t>(65537, 1)),
            "a batch of 65537 sequences; a plan is for at most 65536");
  AttentionProblem problem = qwen3(2);
  problem.chunk_tokens = 16;
  EXPECT_EQ(error_of(problem, std::vector<int32_t>(129, 1048576)),
            "8454144 chunks of 16 tokens x 8 kv heads; a plan has at most 67108864 items");
}

}  // namespace
}  // namespace gapless
