// SPDX-License-Identifier: Apache-2.0
//
// Text generation over a Decoder, in tokens: prefill in chunks, then one step for all sequences
// that have not ended, until each has ended.
//
// A prefill step takes rows of as many prompts as fit; the head runs for the last token of each
// prompt only. Choosing costs nothing beside the step, but for sampling without a top-k, which
// needs all logits and sorts them: 17 ms for each token with Qwen3's vocabulary of 151,936.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/sampling.h"
#include "model/decoder.h"

namespace gapless {

struct GenerateOptions {
  SamplingOptions sampling = {.temperature = 0.0};
  int max_tokens = 128;                  // of each sequence, the end token included
  std::vector<int32_t> end_tokens = {};  // each ends its sequence
  int prefill_rows = 0;                  // tokens of a prompt in one step; 0: as many as fit
};

enum class FinishReason : uint8_t {
  kEndToken,
  kMaxTokens,
  kFullContext,  // the sequence has as many tokens as the cache holds
  kStopped,      // by the callback
};
std::string_view finish_reason_name(FinishReason reason);

struct Generation {
  std::vector<int32_t> tokens;  // what was generated, the end token included
  FinishReason reason = FinishReason::kMaxTokens;
};

struct GenerationTimes {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill_s = 0.0;
  double first_token_s = 0.0;       // from the begin to the first token (TTFT)
  std::vector<double> step_s = {};  // of each decode step behind the first token (TPOT)
};

struct GenerationResult {
  std::vector<Generation> sequences;  // as the prompts came
  GenerationTimes times;
};

// Called for each token as it is chosen; false ends that sequence.
using TokenCallback = std::function<bool(int sequence, int32_t token)>;

// Error when there is no prompt, or more of them than rows in a step, or one that is empty or
// longer than the cache. generate() asks this too; who loads a model for it may ask before.
Result<void> check_prompts(std::span<const std::vector<int32_t>> prompts, int max_rows,
                           int max_length);

// Sequence i draws with the number i: its text does not depend on the others. The decoder's
// sequences are released, each when it has ended, all of them on an error.
Result<GenerationResult> generate(Decoder& decoder, std::span<const std::vector<int32_t>> prompts,
                                  const GenerateOptions& options,
                                  const TokenCallback& on_token = {});

// Puts all of `tokens` (at least one) behind `sequence`, in chunks of at most chunk_rows (0: as
// many as fit). `head` is what is wanted of the last one; it is valid until the next step. On an
// error the sequence is as it was.
Result<StepResult> prefill(Decoder& decoder, int sequence, std::span<const int32_t> tokens,
                           int chunk_rows, HeadOutput head, int top_k);

}  // namespace gapless
