// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the attention on a GPU share: batches by their numbers, and what is expected of
// them, the formula in double or the bits of another launch.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/attention_test_support.h"
#include "cuda/gpu_test_support.h"

namespace gapless::attention_test {

using Bytes = std::vector<std::byte>;

class CudaAttentionOnDevice : public GpuTest {};

inline constexpr DType kTypes[] = {DType::kBf16, DType::kF16};

inline CudaBatchOptions options_of(DType dtype, int kv_heads, int group, int head_dim,
                                   int page_tokens, std::vector<int32_t> lengths) {
  CudaBatchOptions options;
  options.shape.kv = {
      .dtype = dtype, .kv_heads = kv_heads, .head_dim = head_dim, .page_tokens = page_tokens};
  options.shape.q_heads = kv_heads * group;
  options.shape.output_dtype = DType::kF32;
  options.lengths = std::move(lengths);
  return options;
}

// Lengths as a server has them, in small: chunks of 64 tokens, and pairs longer and shorter than
// what a block takes.
inline CudaBatchOptions ragged_options(uint32_t seed, int kv_heads) {
  std::mt19937 random(seed);
  std::vector<int32_t> lengths = {0, 1, 1300};
  while (lengths.size() < 16) lengths.push_back(static_cast<int32_t>(random() % 1300) + 1);
  std::shuffle(lengths.begin(), lengths.end(), random);
  CudaBatchOptions options = options_of(DType::kBf16, kv_heads, 5, 128, 64, lengths);
  options.shape.chunk_tokens = 64;
  options.seed = seed;
  return options;
}

inline std::string name_of(const CudaBatchOptions& options) {
  const KvShape& kv = options.shape.kv;
  return std::string(dtype_name(kv.dtype)) + " kv " + std::to_string(kv.kv_heads) + " q " +
         std::to_string(options.shape.q_heads) + " dim " + std::to_string(kv.head_dim) + " page " +
         std::to_string(kv.page_tokens);
}

// ---- The formula.

// Relative to the norm of the reference. A cast of the probabilities to 8 (bf16) or 11 bits errs by
// 2^-9 or 2^-12 of each at most, and the errors are independent: 2e-3 and 3e-4 are never reached.
inline double tolerance(DType dtype, DType output_dtype) {
  if (output_dtype != DType::kF32) return dtype == DType::kBf16 ? 4e-3 : 6e-4;
  return dtype == DType::kBf16 ? 2e-3 : 3e-4;
}

inline void expect_close(const std::vector<float>& output, const std::vector<double>& expected,
                         double bound, const std::string& what) {
  ASSERT_EQ(output.size(), expected.size());
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < output.size(); ++i) {
    ASSERT_FALSE(std::isnan(output[i])) << what << " element " << i;
    error += (output[i] - expected[i]) * (output[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(error), bound * std::sqrt(norm)) << what;
}

// Of one sequence of a batch that gave this output.
inline void expect_formula(const CudaBatchOptions& options, const CudaAttentionBatch& batch,
                           const Bytes& output, int sequence, const std::string& what) {
  const double bound = tolerance(options.shape.kv.dtype, options.shape.output_dtype);
  for (int head = 0; head < options.shape.kv.kv_heads; ++head) {
    const std::string where = what + " sequence " + std::to_string(sequence) + " of " +
                              std::to_string(options.lengths[static_cast<size_t>(sequence)]) +
                              " tokens, head " + std::to_string(head);
    expect_close(batch.output_of(output, sequence, head), batch.reference(sequence, head), bound,
                 where);
  }
}

inline void expect_reference(const CudaBatchOptions& options, const std::string& what) {
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << what << ": " << batch.error().message;
  const Result<Bytes> output = batch->run();
  ASSERT_TRUE(output) << what << ": " << output.error().message;
  for (int sequence = 0; sequence < static_cast<int>(options.lengths.size()); ++sequence) {
    expect_formula(options, *batch, *output, sequence, what);
  }
}

// ---- Bits.

inline void expect_written(const CudaBatchOptions& options, const Bytes& output) {
  ASSERT_TRUE(is_written(output, dtype_bytes(options.shape.output_dtype)));
}

inline Result<Bytes> bits_of(const CudaBatchOptions& options) {
  CudaAttentionBatch batch = GAPLESS_TRY(CudaAttentionBatch::make(options));
  return batch.run();
}

// As between launches.
inline void expect_no_counts(const CudaAttentionBatch& batch, const std::string& what) {
  const Result<std::vector<uint32_t>> counters = batch.counters();
  ASSERT_TRUE(counters) << what << ": " << counters.error().message;
  for (const uint32_t counter : *counters) ASSERT_EQ(counter, 0u) << what;
}

// Of five launches, of which two start early; counters are 0 behind them.
inline void expect_bits(const CudaBatchOptions& options, const Bytes& expected,
                        const std::string& what) {
  expect_written(options, expected);
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Result<Bytes> output = batch->run(repeat % 2 == 1);
    ASSERT_TRUE(output) << output.error().message;
    ASSERT_EQ(*output, expected) << what;
  }
  expect_no_counts(*batch, what);
}

// A sequence of a batch that gave this output has the same bits alone, in three launches.
inline void expect_bits_alone(const CudaBatchOptions& options, const CudaAttentionBatch& batch,
                              const Bytes& output, int sequence, const std::string& what) {
  expect_written(options, output);
  CudaBatchOptions alone_options = options;
  alone_options.lengths = {options.lengths[static_cast<size_t>(sequence)]};
  Result<CudaAttentionBatch> alone = CudaAttentionBatch::make(alone_options);
  ASSERT_TRUE(alone) << what << ": " << alone.error().message;
  alone->copy_sequence(batch, sequence, 0);
  const Result<void> filled = alone->fill_device();
  ASSERT_TRUE(filled) << what << ": " << filled.error().message;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Result<Bytes> bits = alone->run(repeat == 1);
    ASSERT_TRUE(bits) << what << ": " << bits.error().message;
    for (int head = 0; head < options.shape.kv.kv_heads; ++head) {
      ASSERT_EQ(batch.output_bits(output, sequence, head), alone->output_bits(*bits, 0, head))
          << what << " sequence " << sequence << " of " << alone_options.lengths[0]
          << " tokens, head " << head;
    }
  }
  expect_no_counts(*alone, what);
}

}  // namespace gapless::attention_test
