// SPDX-License-Identifier: Apache-2.0
//
// Models of a few thousand weights that nobody trained, decoders on them, and the logits of token
// lists. The sizes are awkward on purpose: five query heads a kv head, widths that are no multiple
// of a panel or a tile.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/result.h"
#include "model/cpu_decoder.h"
#include "model/random_values.h"
#include "model/weights.h"
#include "runtime/cpu_device.h"

namespace gapless {

inline constexpr DType kWeightTypes[] = {DType::kS8, DType::kBf16, DType::kF16, DType::kF32};
inline constexpr DType kCacheTypes[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kS8};

// The value of something that must work for the test to make sense.
template <typename T>
T must(Result<T> result) {
  if (!result) ADD_FAILURE() << result.error().message;
  GAPLESS_CHECK(result.has_value());
  return std::move(*result);
}

inline ModelConfig tiny_config() {
  return {.name = "tiny",
          .layers = 2,
          .hidden = 72,
          .intermediate = 104,
          .q_heads = 10,
          .kv_heads = 2,
          .head_dim = 64,
          .vocabulary = 250,
          .max_positions = 512,
          .rope_theta = 1e4,
          .rms_eps = 1e-6,
          .tied_embeddings = false,
          .dtype = DType::kBf16};
}

inline ModelWeights tiny_weights(DType dtype, bool dual_gate_up = true,
                                 const ModelConfig& config = tiny_config()) {
  return must(make_synthetic_weights(
      config, 7, {.dtype = dtype, .dual_gate_up = dual_gate_up, .thread_count = 1}));
}

inline std::unique_ptr<CpuDevice> make_device(int worker_count = 1) {
  return must(CpuDevice::create({.worker_count = worker_count, .pin_workers = false}));
}

// All fusions that the weights allow, the best level of this machine, and a small cache.
inline CpuDecoderOptions tiny_options(const ModelWeights& weights) {
  Fusions fusions = default_fusions(weights.dtype);
  fusions.dual_gate_up = weights.dual_gate_up;
  return {.fusions = fusions,
          .level = usable_cpu_levels().back(),
          .kv_dtype = DType::kBf16,
          .page_tokens = 16,
          .chunk_tokens = 32,
          .max_sequences = 8,
          .max_length = 160};
}

inline std::vector<int32_t> random_tokens(uint64_t seed, size_t count, int vocabulary) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(
        static_cast<int32_t>(mix_bits(mix_bits(seed) + i) % static_cast<uint64_t>(vocabulary)));
  return tokens;
}

// The rows of one step, all logits of all of them: [rows][vocabulary].
inline Result<std::vector<float>> try_step(Decoder& decoder, std::span<const StepRow> rows) {
  std::vector<int> head_rows;
  for (size_t i = 0; i < rows.size(); ++i) head_rows.push_back(static_cast<int>(i));
  const StepResult result = GAPLESS_TRY(
      decoder.step({.rows = rows, .head_rows = head_rows, .head = HeadOutput::kLogits}));
  return std::vector<float>(result.logits.begin(), result.logits.end());
}

// Results that are held against each other only could be the same because nothing was computed.
inline void expect_numbers(std::span<const float> values) {
  for (const float value : values) ASSERT_TRUE(std::isfinite(value));
  ASSERT_FALSE(values.empty());
  ASSERT_LT(std::ranges::min(values), std::ranges::max(values));
}

inline std::vector<float> step_logits(Decoder& decoder, std::span<const StepRow> rows) {
  std::vector<float> logits = must(try_step(decoder, rows));
  expect_numbers(logits);
  return logits;
}

// The tokens of one sequence, `chunk` of them in each step: [tokens][vocabulary].
inline std::vector<float> append_tokens(Decoder& decoder, int sequence,
                                        std::span<const int32_t> tokens, size_t chunk) {
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    std::vector<StepRow> rows;
    for (const int32_t token : tokens.subspan(begin, std::min(chunk, tokens.size() - begin)))
      rows.push_back({.sequence = sequence, .token = token});
    const std::vector<float> some = step_logits(decoder, rows);
    logits.insert(logits.end(), some.begin(), some.end());
  }
  return logits;
}

// The same in a sequence of its own, which is released.
inline std::vector<float> logits_alone(Decoder& decoder, std::span<const int32_t> tokens,
                                       size_t chunk = 64) {
  const int sequence = must(decoder.add_sequence());
  std::vector<float> logits = append_tokens(decoder, sequence, tokens, chunk);
  decoder.release(sequence);
  return logits;
}

}  // namespace gapless
