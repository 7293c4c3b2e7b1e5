// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention_plan.h"

#include <algorithm>

#include "kernels/core_loads.h"

namespace gapless {
namespace {

Result<void> check_problem(const AttentionProblem& problem) {
  const Result<void> shape = check_kv_shape(problem.kv);
  if (!shape) return shape.error();
  const int kv_heads = problem.kv.kv_heads;
  if (problem.q_heads < 1 || problem.q_heads % kv_heads != 0)
    return fail(ErrorCode::kInvalidInput, "{} query heads; must be a multiple of the {} kv heads",
                problem.q_heads, kv_heads);
  if (problem.q_heads / kv_heads > kMaxGroupHeads)
    return fail(ErrorCode::kInvalidInput,
                "{} query heads over {} kv heads are {} to one; the attention takes at most {}",
                problem.q_heads, kv_heads, problem.q_heads / kv_heads, kMaxGroupHeads);
  if (problem.chunk_tokens < kTokenVector || problem.chunk_tokens % kTokenVector != 0)
    return fail(ErrorCode::kInvalidInput, "a chunk of {} tokens is not a multiple of {}",
                problem.chunk_tokens, kTokenVector);
  if (problem.core_count < 1 || problem.core_count > kMaxPlanCores)
    return fail(ErrorCode::kInvalidInput, "{} cores; a plan is for 1 to {}", problem.core_count,
                kMaxPlanCores);
  const DType output = problem.output_dtype;
  if (output != DType::kF32 && output != DType::kBf16 && output != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "the attention stores f32, bf16 or f16, not {}",
                dtype_name(output));
  return {};
}

Result<void> check_lengths(const AttentionProblem& problem, std::span<const int32_t> lengths) {
  if (lengths.size() > kMaxPlanSequences)
    return fail(ErrorCode::kInvalidInput, "a batch of {} sequences; a plan is for at most {}",
                lengths.size(), kMaxPlanSequences);
  int64_t chunks = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > kMaxPlanTokens)
      return fail(ErrorCode::kInvalidInput, "sequence {} has {} tokens; a plan is for 0 to {}", i,
                  lengths[i], kMaxPlanTokens);
    chunks += chunk_count(lengths[i], problem.chunk_tokens);
  }
  if (chunks > kMaxPlanItems / problem.kv.kv_heads)
    return fail(ErrorCode::kInvalidInput,
                "{} chunks of {} tokens x {} kv heads; a plan has at most {} items", chunks,
                problem.chunk_tokens, problem.kv.kv_heads, kMaxPlanItems);
  return {};
}

// How many items there are of each number of token vectors: costs are equal within one, and there
// are few of them.
using ItemCounts = std::vector<int64_t>;

size_t vectors_of(int64_t tokens) {
  return static_cast<size_t>((tokens + kTokenVector - 1) / kTokenVector);
}

ItemCounts count_items(const AttentionProblem& problem, std::span<const int32_t> lengths) {
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const int64_t chunk = problem.chunk_tokens;
  ItemCounts counts(vectors_of(std::min(longest, chunk)) + 1, 0);
  for (const int64_t length : lengths) {
    const int64_t tail = length % chunk;
    if (length >= chunk) counts[vectors_of(chunk)] += length / chunk * problem.kv.kv_heads;
    if (tail > 0) counts[vectors_of(tail)] += problem.kv.kv_heads;
  }
  return counts;
}

// A counting sort: `next` says where the next item of each number of vectors goes.
std::vector<AttentionItem> sort_items(const AttentionProblem& problem,
                                      std::span<const int32_t> lengths, const ItemCounts& counts) {
  std::vector<size_t> next(counts.size(), 0);
  size_t item_count = 0;
  for (size_t vectors = counts.size(); vectors-- > 0;) {
    next[vectors] = item_count;
    item_count += static_cast<size_t>(counts[vectors]);
  }
  std::vector<AttentionItem> items(item_count);
  const int64_t chunk_tokens = problem.chunk_tokens;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int32_t full_count = static_cast<int32_t>(lengths[i] / chunk_tokens);
    const int64_t tail = lengths[i] % chunk_tokens;
    for (int32_t head = 0; head < problem.kv.kv_heads; ++head) {
      const int32_t sequence = static_cast<int32_t>(i);
      for (int32_t chunk = 0; chunk < full_count; ++chunk) {
        items[next[vectors_of(chunk_tokens)]++] = {sequence, head, chunk};
      }
      if (tail > 0) items[next[vectors_of(tail)]++] = {sequence, head, full_count};
    }
  }
  return items;
}

void plan_partials(const AttentionProblem& problem, std::span<const int32_t> lengths,
                   AttentionPlan& plan) {
  plan.first_partial.reserve(lengths.size());
  for (const int64_t length : lengths) {
    plan.first_partial.push_back(plan.partial_count);
    const int64_t chunks = chunk_count(length, problem.chunk_tokens);
    if (chunks != 1) plan.combine_count += problem.kv.kv_heads;
    if (chunks > 1) plan.partial_count += chunks * problem.kv.kv_heads;
  }
  const int64_t partial_bytes = partial_floats(problem.q_heads, problem.kv) * int64_t{4};
  plan.workspace_bytes = plan.partial_count * partial_bytes;
  plan.partial_bytes = 2 * plan.workspace_bytes;
}

void add_up_bytes(const AttentionProblem& problem, std::span<const int32_t> lengths,
                  AttentionPlan& plan) {
  int64_t sequences_with_tokens = 0;
  for (const int64_t length : lengths) {
    plan.token_count += length;
    sequences_with_tokens += length > 0 ? 1 : 0;
  }
  const KvShape& kv = problem.kv;
  const int64_t scale_bytes = kv.dtype == DType::kS8 ? 4 : 0;
  const int64_t row_bytes = kv.head_dim * dtype_bytes(kv.dtype) + scale_bytes;
  const int64_t q_elements = int64_t{problem.q_heads} * kv.head_dim;  // of one sequence
  plan.kv_bytes = plan.token_count * kv.kv_heads * 2 * row_bytes;
  plan.q_bytes = sequences_with_tokens * q_elements * 4;
  plan.output_bytes =
      static_cast<int64_t>(lengths.size()) * q_elements * dtype_bytes(problem.output_dtype);
  plan.flops = 4.0 * static_cast<double>(plan.token_count) * static_cast<double>(q_elements);
}

void deal_items(const AttentionProblem& problem, const ItemCounts& counts, AttentionPlan& plan) {
  CoreLoads loads(problem.core_count);
  for (size_t vectors = counts.size(); vectors-- > 1;) {
    if (counts[vectors] == 0) continue;
    const int64_t cost = attention_item_cost(static_cast<int64_t>(vectors) * kTokenVector);
    plan.largest_item_cost = std::max(plan.largest_item_cost, cost);
    loads.add(cost, counts[vectors]);
  }
  plan.total_cost = loads.total();
  plan.largest_core_cost = loads.largest();
  plan.balance = loads.balance();
  if (loads.total() > 0) {
    plan.largest_item_share = static_cast<double>(plan.largest_item_cost) / loads.mean();
  }
}

}  // namespace

Result<AttentionPlan> plan_attention(const AttentionProblem& problem,
                                     std::span<const int32_t> lengths) {
  const Result<void> possible = check_problem(problem);
  if (!possible) return possible.error();
  const Result<void> lengths_possible = check_lengths(problem, lengths);
  if (!lengths_possible) return lengths_possible.error();

  AttentionPlan plan;
  const ItemCounts counts = count_items(problem, lengths);
  plan.items = sort_items(problem, lengths, counts);
  plan_partials(problem, lengths, plan);
  add_up_bytes(problem, lengths, plan);
  deal_items(problem, counts, plan);
  return plan;
}

}  // namespace gapless
