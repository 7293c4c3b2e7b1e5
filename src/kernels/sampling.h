// SPDX-License-Identifier: Apache-2.0
//
// From the last hidden row to a token: the largest logits without storing all of them, and drawing
// one of them.
//
// lm_head_tile runs a tile of the lm_head matmul into a scratch row block, keeps the k largest of
// each row and forgets the rest; merge_top adds tiles together. Ties go to the smaller token,
// whatever the tiles were. A NaN logit beats everything: a broken model must not look healthy.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cpu_level.h"
#include "kernels/matmul.h"

namespace gapless {

struct Candidate {
  float logit = 0.0f;
  int32_t token = -1;
  bool operator==(const Candidate&) const = default;
};
// Larger logit first, then the smaller token; NaN first of all, nobody (token -1) last of all.
bool comes_before(const Candidate& a, const Candidate& b);

// The `top.size()` first of `logits` (token = first_token + index), in order. The rest of `top`
// gets token -1 and logit -infinity when there are fewer logits. Costs one compare a vector of
// logits, and log(top.size()) steps for each logit that is among the first so far.
void take_top(CpuLevel level, std::span<const float> logits, int32_t first_token,
              std::span<Candidate> top);
// Merges two ordered lists into `into`, which keeps its size. No token may be in both.
void merge_top(std::span<Candidate> into, std::span<const Candidate> other);

// Scratch floats that lm_head_tile needs.
int64_t lm_head_scratch_floats(int64_t m, int64_t panel_count);
// The `top_k` first of each row of x W^T among this tile's columns: top[row * top_k + i].
// args.output is not used; the weights are not interleaved.
void lm_head_tile(CpuLevel level, const MatmulArgs& args, int64_t first_panel, int64_t panel_count,
                  int top_k, float* scratch, Candidate* top);

struct SamplingOptions {
  double temperature = 1.0;  // 0: greedy
  int top_k = 0;             // 0: all
  double top_p = 1.0;        // the smallest set of most likely tokens that holds this much
  uint64_t seed = 0;
};
Result<void> check_sampling(const SamplingOptions& options);

// Draws from ordered candidates (those that can be drawn: all tokens, or the top_k first; token -1
// ends them). top_k, then temperature, then top_p; probabilities in double. The first candidate can
// always be drawn. Several logits of +infinity share all of the probability. `step` counts the
// draws of a sequence: the same seed, sequence, step and candidates give the same token on any
// machine whose exp() rounds alike. Error when a logit is NaN, all are -infinity or there are none.
Result<int32_t> sample(std::span<const Candidate> candidates, const SamplingOptions& options,
                       uint64_t sequence, uint64_t step);

// The random number behind a draw, in [0, 1) with 53 bits: a function of its arguments and nothing
// else, mix_bits(mix_bits(mix_bits(seed) + sequence) + step) >> 11, times 2^-53 (base/mix_bits.h).
double uniform_draw(uint64_t seed, uint64_t sequence, uint64_t step);

}  // namespace gapless
