// SPDX-License-Identifier: Apache-2.0

#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/mix_bits.h"
#include "kernels/sampling_levels.h"

namespace gapless {
namespace {

constexpr Candidate kNobody{-std::numeric_limits<float>::infinity(), -1};

int64_t find_above(CpuLevel level, std::span<const float> logits, int64_t begin, float threshold) {
  const int64_t count = static_cast<int64_t>(logits.size());
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return avx512::find_above(logits.data(), begin, count, threshold);
  if (level >= CpuLevel::kAvx2) return avx2::find_above(logits.data(), begin, count, threshold);
#endif
  static_cast<void>(level);
  return portable::find_above(logits.data(), begin, count, threshold);
}

// The candidates that top_k and the end of the list leave.
std::span<const Candidate> limited(std::span<const Candidate> candidates, int top_k) {
  size_t count = candidates.size();
  if (top_k > 0) count = std::min(count, static_cast<size_t>(top_k));
  size_t known = 0;
  while (known < count && candidates[known].token >= 0) ++known;
  return candidates.first(known);
}

// exp((logit - largest) / temperature): 1 for the first one. When the largest is +infinity only its
// equals have a weight.
double weight_of(float logit, float largest, double temperature) {
  if (logit == largest) return 1.0;
  if (std::isinf(largest)) return 0.0;
  return std::exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
}

// How much of the weight top_p leaves: the sum of the fewest first candidates that reach it.
double kept_weight(std::span<const Candidate> candidates, const SamplingOptions& options) {
  const float largest = candidates[0].logit;
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += weight_of(candidate.logit, largest, options.temperature);
  }
  if (options.top_p >= 1.0) return sum;
  const double wanted = options.top_p * sum;
  double kept = 0.0;
  for (const Candidate& candidate : candidates) {
    kept += weight_of(candidate.logit, largest, options.temperature);
    if (kept >= wanted) break;
  }
  return kept;
}

}  // namespace

bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.token < 0 || b.token < 0) return a.token >= 0 && b.token < 0;
  const bool a_is_nan = std::isnan(a.logit);
  const bool b_is_nan = std::isnan(b.logit);
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a.logit != b.logit) return a.logit > b.logit;
  return a.token < b.token;
}

// `top` is a heap while it is filled, the last of the first ones in front. Later logits have larger
// tokens: one that equals the last of a full heap does not displace it.
void take_top(CpuLevel level, std::span<const float> logits, int32_t first_token,
              std::span<Candidate> top) {
  if (top.empty()) return;
  const size_t filled = std::min(top.size(), logits.size());
  for (size_t i = 0; i < filled; ++i) top[i] = {logits[i], first_token + static_cast<int32_t>(i)};
  std::fill(top.begin() + static_cast<std::ptrdiff_t>(filled), top.end(), kNobody);
  const std::span<Candidate> heap = top.first(filled);
  std::make_heap(heap.begin(), heap.end(), comes_before);
  const int64_t count = static_cast<int64_t>(logits.size());
  int64_t i = static_cast<int64_t>(filled);
  while (i < count && !std::isnan(heap.front().logit)) {
    i = find_above(level, logits, i, heap.front().logit);
    if (i == count) break;
    std::pop_heap(heap.begin(), heap.end(), comes_before);
    heap.back() = {logits[static_cast<size_t>(i)], first_token + static_cast<int32_t>(i)};
    std::push_heap(heap.begin(), heap.end(), comes_before);
    ++i;
  }
  std::sort_heap(heap.begin(), heap.end(), comes_before);
}

// First how many of each list stay, then from the back, so that no copy is needed.
void merge_top(std::span<Candidate> into, std::span<const Candidate> other) {
  size_t from_into = 0;
  size_t from_other = 0;
  while (from_into + from_other < into.size()) {
    const bool take_other =
        from_other < other.size() && comes_before(other[from_other], into[from_into]);
    ++(take_other ? from_other : from_into);
  }
  for (size_t end = into.size(); from_other > 0; --end) {
    const bool take_into =
        from_into > 0 && comes_before(other[from_other - 1], into[from_into - 1]);
    into[end - 1] = take_into ? into[--from_into] : other[--from_other];
  }
}

int64_t lm_head_scratch_floats(int64_t m, int64_t panel_count) {
  return m * panel_count * kPanelRows;
}

void lm_head_tile(CpuLevel level, const MatmulArgs& args, int64_t first_panel, int64_t panel_count,
                  int top_k, float* scratch, Candidate* top) {
  GAPLESS_CHECK(args.weights->interleave() == Interleave::kNone);
  const int64_t first_column = first_panel * kPanelRows;
  const int64_t stride = panel_count * kPanelRows;
  const int64_t column_count = std::clamp<int64_t>(args.weights->n() - first_column, 0, stride);
  MatmulArgs tile = args;
  tile.output = {};
  tile.output.dtype = DType::kF32;
  tile.output.data = scratch;
  tile.output.row_stride = stride;
  tile.output.first_column = first_column;
  matmul_tile(level, tile, first_panel, panel_count);
  for (int64_t row = 0; row < args.rows.m; ++row) {
    take_top(level, {scratch + row * stride, static_cast<size_t>(column_count)},
             static_cast<int32_t>(first_column), {top + row * top_k, static_cast<size_t>(top_k)});
  }
}

Result<void> check_sampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0.0) || std::isinf(options.temperature))
    return fail(ErrorCode::kInvalidInput, "a temperature of {}; must be 0 or more and finite",
                options.temperature);
  if (options.top_k < 0)
    return fail(ErrorCode::kInvalidInput, "top-k of {}; must be 0 (all) or more", options.top_k);
  if (!(options.top_p >= 0.0 && options.top_p <= 1.0))
    return fail(ErrorCode::kInvalidInput, "top-p of {}; must be 0 to 1", options.top_p);
  return {};
}

double uniform_draw(uint64_t seed, uint64_t sequence, uint64_t step) {
  const uint64_t bits = mix_bits(mix_bits(mix_bits(seed) + sequence) + step);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

Result<int32_t> sample(std::span<const Candidate> candidates, const SamplingOptions& options,
                       uint64_t sequence, uint64_t step) {
  const Result<void> possible = check_sampling(options);
  if (!possible) return possible.error();
  const std::span<const Candidate> drawn_from = limited(candidates, options.top_k);
  if (drawn_from.empty())
    return fail(ErrorCode::kInvalidInput, "sequence {}, step {}: no token to draw", sequence, step);
  const float largest = drawn_from[0].logit;
  if (std::isnan(largest))
    return fail(ErrorCode::kInvalidInput, "sequence {}, step {}: the logit of token {} is NaN",
                sequence, step, drawn_from[0].token);
  if (largest == -std::numeric_limits<float>::infinity())
    return fail(ErrorCode::kInvalidInput, "sequence {}, step {}: all logits are -infinity",
                sequence, step);
  if (options.temperature == 0.0) return drawn_from[0].token;

  const double target =
      uniform_draw(options.seed, sequence, step) * kept_weight(drawn_from, options);
  double sum = 0.0;
  for (const Candidate& candidate : drawn_from) {
    sum += weight_of(candidate.logit, largest, options.temperature);
    if (sum > target) return candidate.token;
  }
  return drawn_from.back().token;  // not reached: the random number is below 1
}

}  // namespace gapless
