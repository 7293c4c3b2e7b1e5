// SPDX-License-Identifier: Apache-2.0
//
// What every decoder is asked about the golden checkpoints.

#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "model/decoder.h"
#include "model/decoder_test_support.h"
#include "tests/golden_test_support.h"

namespace gapless {

inline double rms_difference(std::span<const float> a, std::span<const float> b) {
  GAPLESS_CHECK(a.size() == b.size());
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Greedy tokens behind a prompt, as many as transformers generated: the prompt in one step, then
// a step a token, through the candidates.
inline std::vector<int32_t> continue_greedily(Decoder& decoder, const GoldenPrompt& golden) {
  const int sequence = must(decoder.add_sequence());
  std::vector<StepRow> rows;
  for (const int32_t token : golden.prompt) rows.push_back({.sequence = sequence, .token = token});
  std::vector<int32_t> tokens;
  while (tokens.size() < golden.greedy.size()) {
    const int last = static_cast<int>(rows.size()) - 1;
    const StepResult result = must(decoder.step({.rows = rows, .head_rows = {&last, 1}}));
    tokens.push_back(result.top[0].token);
    rows = {{.sequence = sequence, .token = tokens.back()}};
  }
  decoder.release(sequence);
  return tokens;
}

}  // namespace gapless
