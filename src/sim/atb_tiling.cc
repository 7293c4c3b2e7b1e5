// SPDX-License-Identifier: Apache-2.0

#include "sim/atb_tiling.h"

#include <algorithm>
#include <cstddef>

namespace gapless {
namespace {

constexpr int64_t kLongTokens = 4096;  // from here on the sequence is always split
constexpr int64_t kMaxHeadSplit = 32;  // heads of an item
constexpr int64_t kSpecialBatch = 16;  // with kSpecialHeads the head split is kSpecialSplit
constexpr int64_t kSpecialHeads = 32;
constexpr int64_t kSpecialSplit = 8;
constexpr int64_t kMaxTailItems = 16;  // the tail is cut finer below this
constexpr int64_t kBlockTokens = 128;
constexpr int64_t kBlockElements = 128 * 128;
constexpr int64_t kSplitBlockDim = 256;
constexpr int64_t kPassRows = 16;
constexpr int64_t kBufferElements = 65536;  // of a core, for s, p and o
constexpr int64_t kMinBufferBytes = 16;
constexpr int kMaxHeads = 4096;
constexpr int64_t kMaxCores = 65536;
constexpr int kMaxTokens = 1 << 20;
constexpr size_t kMaxSequences = 65536;

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t round_up(int64_t value, int64_t step) { return ceil_div(value, step) * step; }

// int(0.8 x cores)
int64_t most_of(int64_t core_count) { return core_count * 4 / 5; }

int64_t batch_of(const AtbProblem& problem) { return static_cast<int64_t>(problem.lengths.size()); }

int64_t longest_of(const AtbProblem& problem) {
  return *std::max_element(problem.lengths.begin(), problem.lengths.end());
}

int64_t group_move_of(int64_t head_split, const AtbProblem& problem) {
  const int64_t group = problem.q_heads / problem.kv_heads;
  if (head_split % group == 0) return group;
  if (head_split < group && (problem.kv_heads == 1 || group % head_split == 0)) return head_split;
  return 1;
}

// Whole rounds of the cores keep the head split; the sequences that remain get a finer one.
void split_tail(AtbTiling& tiling, const AtbProblem& problem, int64_t parts) {
  const int64_t batch = batch_of(problem);
  const int64_t rounds = parts * batch / problem.core_count;
  const int64_t former = rounds * problem.core_count / parts;
  const int64_t tail = batch - former;
  if (tail == 0 || tail * parts >= kMaxTailItems) return;
  const bool is_grouped = problem.q_heads != problem.kv_heads && problem.kv_heads != 1;
  if (is_grouped && tail > problem.core_count / 2) return;
  tiling.former_batch = former;
  tiling.tail_batch = tail;
  tiling.tail_head_split =
      std::min(ceil_div(problem.q_heads, ceil_div(problem.core_count, tail)), kMaxHeadSplit);
  tiling.tail_group_move = group_move_of(tiling.tail_head_split, problem);
}

// BN: items are (sequence, heads).
void split_heads(AtbTiling& tiling, const AtbProblem& problem) {
  const int64_t batch = batch_of(problem);
  const int64_t cores_per_sequence = ceil_div(problem.core_count, batch);
  int64_t head_split = std::min(ceil_div(problem.q_heads, cores_per_sequence), kMaxHeadSplit);
  if (batch == kSpecialBatch && problem.q_heads == kSpecialHeads) head_split = kSpecialSplit;
  const int64_t parts = ceil_div(problem.q_heads, head_split);
  tiling.former_head_split = head_split;
  tiling.active_cores = std::min(problem.core_count, parts * batch);
  tiling.kv_split_tokens = round_up(longest_of(problem), problem.page_tokens);
  tiling.kv_split_count = 1;
  if (parts * batch > problem.core_count) split_tail(tiling, problem, parts);
}

// BNS: items are (sequence, heads, part of the tokens). Where sequences are long the parts depend
// on the cores alone, not on how many sequences share them.
void split_tokens(AtbTiling& tiling, const AtbProblem& problem, bool is_long) {
  const int64_t batch = batch_of(problem);
  const int64_t tokens = round_up(longest_of(problem), problem.page_tokens);
  const int64_t pages = tokens / problem.page_tokens;
  const int64_t sharers = is_long ? problem.core_count : ceil_div(problem.core_count, batch);
  tiling.kv_split_tokens = ceil_div(pages, sharers) * problem.page_tokens;
  tiling.kv_split_count = ceil_div(tokens, tiling.kv_split_tokens);
  const int64_t splits = batch * tiling.kv_split_count;
  const int64_t cores_per_split =
      splits < problem.core_count ? ceil_div(problem.core_count, splits) : 1;
  tiling.former_head_split = std::min(ceil_div(problem.q_heads, cores_per_split), kMaxHeadSplit);
  const int64_t parts = ceil_div(problem.q_heads, tiling.former_head_split);
  tiling.active_cores = std::min(problem.core_count, parts * splits);
}

AtbTiling make_tiling(const AtbProblem& problem) {
  AtbTiling tiling;
  tiling.former_batch = batch_of(problem);
  tiling.group = problem.q_heads / problem.kv_heads;
  const bool is_long = longest_of(problem) >= kLongTokens;
  tiling.is_kv_split_rule =
      is_long || 5 * batch_of(problem) * problem.q_heads < 4 * problem.core_count;
  if (tiling.is_kv_split_rule) {
    split_tokens(tiling, problem, is_long);
  } else {
    split_heads(tiling, problem);
  }
  tiling.former_group_move = group_move_of(tiling.former_head_split, problem);
  const int64_t page = problem.page_tokens;
  const bool is_split_block = page >= kBlockTokens && problem.head_dim == kSplitBlockDim;
  tiling.block_tokens = page;
  if (page <= kBlockTokens / 2 && page * 2 * problem.head_dim <= kBlockElements)
    tiling.block_tokens = page * 2;
  if (is_split_block) tiling.block_tokens = kBlockTokens;
  tiling.key =
      (is_split_block ? 128 : 0) + (tiling.kv_split_count > 1 ? 16 : 0) + (problem.is_bf16 ? 1 : 0);
  tiling.is_key_handled = !is_split_block;
  return tiling;
}

AtbWorkspace make_workspace(const AtbProblem& problem, const AtbTiling& tiling) {
  const int64_t cores = problem.core_count;
  const int64_t heads = problem.q_heads;
  const int64_t dim = problem.head_dim;
  AtbWorkspace workspace;
  workspace.s = cores * kBufferElements * 4;
  workspace.p = cores * kBufferElements * 2;
  workspace.o_tmp = 2 * workspace.s;
  workspace.go = workspace.s;
  workspace.o_core = std::max(kMinBufferBytes, most_of(cores) * heads * cores * dim * 4);
  workspace.l = std::max(kMinBufferBytes, most_of(cores) * heads * cores * 4);
  workspace.k16 = 2 * cores * 256 * heads * dim * 2;
  workspace.v16 = workspace.k16;
  if (tiling.kv_split_count == 1) return workspace;
  // Places are given to every sequence that has tokens, as many as the longest one needs.
  const int64_t live =
      batch_of(problem) - std::count(problem.lengths.begin(), problem.lengths.end(), 0);
  workspace.l_needed = live * tiling.kv_split_count * heads * 4;
  workspace.o_core_needed = workspace.l_needed * dim;
  return workspace;
}

// A sequence's items in their order, added to the cores whose turn it is.
class Dealer {
 public:
  Dealer(const AtbProblem& problem, const AtbTiling& tiling)
      : problem_(problem),
        tiling_(tiling),
        costs_(static_cast<size_t>(tiling.active_cores)),
        items_(static_cast<size_t>(tiling.active_cores)) {}

  void add_sequence(int64_t tokens, int64_t head_split, int64_t group_move) {
    for (int64_t head = 0; head < problem_.q_heads; head += head_split) {
      const int64_t heads = std::min(head_split, problem_.q_heads - head);
      for (int64_t split = 0; split < tiling_.kv_split_count; ++split) {
        const int64_t left = tokens - split * tiling_.kv_split_tokens;
        add_item(std::clamp<int64_t>(left, 0, tiling_.kv_split_tokens), heads, group_move);
      }
    }
    loads_.shared_cost += round_up(tokens, tiling_.block_tokens) * problem_.kv_heads;
  }

  AtbLoads finish() {
    loads_.largest_core_cost = *std::max_element(costs_.begin(), costs_.end());
    loads_.largest_core_items = *std::max_element(items_.begin(), items_.end());
    return loads_;
  }

 private:
  void add_item(int64_t tokens, int64_t heads, int64_t group_move) {
    const size_t core = static_cast<size_t>(loads_.item_count % tiling_.active_cores);
    ++loads_.item_count;
    ++items_[core];
    if (tokens == 0) ++loads_.empty_item_count;
    const int64_t passes = ceil_div(heads, group_move);
    const int64_t blocks = ceil_div(tokens, tiling_.block_tokens);
    const int64_t cost = blocks * tiling_.block_tokens * passes;
    costs_[core] += cost;
    loads_.total_cost += cost;
    loads_.used_rows += blocks * heads;
    loads_.padded_rows += blocks * passes * round_up(group_move, kPassRows);
  }

  const AtbProblem& problem_;
  const AtbTiling& tiling_;
  AtbLoads loads_;
  std::vector<int64_t> costs_;
  std::vector<int64_t> items_;
};

AtbLoads deal_items(const AtbProblem& problem, const AtbTiling& tiling) {
  std::vector<int32_t> lengths = problem.lengths;
  std::sort(lengths.begin(), lengths.end());
  Dealer dealer(problem, tiling);
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    if (static_cast<int64_t>(rank) < tiling.former_batch) {
      dealer.add_sequence(lengths[rank], tiling.former_head_split, tiling.former_group_move);
    } else {
      dealer.add_sequence(lengths[rank], tiling.tail_head_split, tiling.tail_group_move);
    }
  }
  return dealer.finish();
}

Result<void> check_problem(const AtbProblem& problem) {
  if (problem.core_count < 1 || problem.core_count > kMaxCores)
    return fail(ErrorCode::kInvalidInput, "{} cube cores; the rules are for 1 to {}",
                problem.core_count, kMaxCores);
  if (problem.kv_heads < 1 || problem.q_heads < 1 || problem.q_heads > kMaxHeads ||
      problem.q_heads % problem.kv_heads != 0)
    return fail(ErrorCode::kInvalidInput,
                "{} query heads over {} kv heads; must be a multiple of them, and {} at most",
                problem.q_heads, problem.kv_heads, kMaxHeads);
  if (problem.head_dim < 16 || problem.head_dim > kSplitBlockDim || problem.head_dim % 16 != 0)
    return fail(ErrorCode::kInvalidInput, "head_dim {}: a multiple of 16 from 16 to {} is needed",
                problem.head_dim, kSplitBlockDim);
  if (problem.page_tokens < 16 || problem.page_tokens > 256 || problem.page_tokens % 16 != 0)
    return fail(ErrorCode::kInvalidInput,
                "pages of {} tokens: a multiple of 16 from 16 to 256 is needed",
                problem.page_tokens);
  if (problem.lengths.size() > kMaxSequences)
    return fail(ErrorCode::kInvalidInput, "a batch of {} sequences; the rules are for 1 to {}",
                problem.lengths.size(), kMaxSequences);
  for (size_t i = 0; i < problem.lengths.size(); ++i) {
    if (problem.lengths[i] < 0 || problem.lengths[i] > kMaxTokens)
      return fail(ErrorCode::kInvalidInput, "sequence {} has {} tokens; the rules are for 0 to {}",
                  i, problem.lengths[i], kMaxTokens);
  }
  if (problem.lengths.empty() || longest_of(problem) == 0)
    return fail(ErrorCode::kInvalidInput, "no token in a batch of {}; the rules need one",
                problem.lengths.size());
  return {};
}

}  // namespace

double AtbPlan::imbalance() const {
  return static_cast<double>(loads.largest_core_cost) * static_cast<double>(core_count) /
         static_cast<double>(loads.total_cost);
}

double AtbPlan::read_factor() const {
  return static_cast<double>(loads.total_cost) / static_cast<double>(loads.shared_cost);
}

Result<AtbPlan> plan_atb_attention(const AtbProblem& problem) {
  GAPLESS_TRY(check_problem(problem));
  AtbPlan plan;
  plan.core_count = problem.core_count;
  plan.tiling = make_tiling(problem);
  const int64_t parts = ceil_div(problem.q_heads, plan.tiling.former_head_split);
  const int64_t items = batch_of(problem) * parts * plan.tiling.kv_split_count;
  if (items > kMaxAtbItems)
    return fail(ErrorCode::kInvalidInput, "{} items; at most {} are dealt", items, kMaxAtbItems);
  plan.workspace = make_workspace(problem, plan.tiling);
  plan.loads = deal_items(problem, plan.tiling);
  return plan;
}

}  // namespace gapless
