// SPDX-License-Identifier: Apache-2.0
//
// Where the attention on a GPU goes another way than for most: pairs of more chunks than are folded
// in a row, batches of more sequences than a warp has lanes or of as many as a block has threads.
// Without a GPU every test here is skipped and says so.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/attention.h"
#include "cuda/attention_expect_test_support.h"
#include "cuda/attention_test_support.h"
#include "cuda/device.h"

namespace gapless::attention_test {
namespace {

class CudaAttentionEdgesOnDevice : public CudaAttentionOnDevice {};

// ---- Rows of chunks.

constexpr int32_t kRow = kAttentionRowChunks;

struct RowsShape {
  int head_dim;
  int kv_heads;
  int32_t chunk_tokens;
  int group = 5;
};
// On 132 SMs blocks have 3 chunks or so, parts of rows; of the third shape 17, whole rows too. Of
// the last one there is room for 2 partials in shared memory, where a row has 8.
constexpr RowsShape kRowsShapes[] = {
    {128, 3, 16}, {256, 3, 16}, {64, 16, 16}, {128, 4, 64}, {256, 2, 16, 16}};

// No row, one, and up to five, the last of which is whole, one chunk or anything between.
CudaBatchOptions options_of_rows(const RowsShape& shape) {
  const int32_t chunk = shape.chunk_tokens;
  const std::vector<int32_t> lengths = {(2 * kRow + 1) * chunk,
                                        0,
                                        kRow * chunk,
                                        3 * kRow * chunk,
                                        1,
                                        kRow * chunk + 1,
                                        (4 * kRow + 1) * chunk + 7,
                                        2 * chunk + 8,
                                        2 * kRow * chunk,
                                        (3 * kRow + 5) * chunk - 3};
  CudaBatchOptions options =
      options_of(DType::kBf16, shape.kv_heads, shape.group, shape.head_dim, 64, lengths);
  options.shape.chunk_tokens = chunk;
  return options;
}

class CudaAttentionRowsOnDevice : public CudaAttentionOnDevice,
                                  public testing::WithParamInterface<RowsShape> {};
INSTANTIATE_TEST_SUITE_P(Of, CudaAttentionRowsOnDevice, testing::ValuesIn(kRowsShapes),
                         [](const auto& test) {
                           const RowsShape& shape = test.param;
                           return "Dim" + std::to_string(shape.head_dim) + "Kv" +
                                  std::to_string(shape.kv_heads) + "Chunk" +
                                  std::to_string(shape.chunk_tokens) + "Group" +
                                  std::to_string(shape.group);
                         });

TEST_P(CudaAttentionRowsOnDevice, AgreeWithTheFormulaAndRepeatBitForBit) {
  const CudaBatchOptions options = options_of_rows(GetParam());
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  const Result<Bytes> first = batch->run();
  ASSERT_TRUE(first) << first.error().message;
  for (int sequence = 0; sequence < static_cast<int>(options.lengths.size()); ++sequence) {
    expect_formula(options, *batch, *first, sequence, "rows");
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Result<Bytes> again = batch->run_again(repeat % 2 == 1);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(*again, *first) << "repeat " << repeat;
  }
  expect_no_counts(*batch, "rows");
}

TEST_P(CudaAttentionRowsOnDevice, GiveTheSameBitsAloneAndInARaggedBatch) {
  const CudaBatchOptions options = options_of_rows(GetParam());
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  const Result<Bytes> output = batch->run();
  ASSERT_TRUE(output) << output.error().message;
  for (int sequence = 0; sequence < static_cast<int>(options.lengths.size()); ++sequence) {
    expect_bits_alone(options, *batch, *output, sequence, "rows");
    if (HasFatalFailure()) return;
  }
}

// Goal: who folds a row, and who the rows, does not change a bit. What a pair counts as moves the
// cuts; the pace and the ring change who is last.
TEST_P(CudaAttentionRowsOnDevice, GiveTheSameBitsWhereverTheyAreCutAndAtEveryPace) {
  CudaBatchOptions options = options_of_rows(GetParam());
  options.tuning.pair_tiles = 0;
  const Result<Bytes> expected = bits_of(options);
  ASSERT_TRUE(expected) << expected.error().message;
  const CudaAttentionTuning tunings[] = {{.pair_tiles = 1},
                                         {.pair_tiles = 7},
                                         {.pair_tiles = 45},
                                         {.ring_slots = 1, .pair_tiles = 0},
                                         {.pair_tiles = 3, .due_share = 1e-3},
                                         {.pair_tiles = 3, .due_share = 1e6}};
  for (const CudaAttentionTuning& tuning : tunings) {
    options.tuning = tuning;
    expect_bits(options, *expected,
                "pairs + " + std::to_string(tuning.pair_tiles) + " share " +
                    std::to_string(tuning.due_share));
    if (HasFatalFailure()) return;
  }
}

// Goal: rows that one block folds in registers have the bits of rows that many blocks leave in
// memory. Method: as many pairs of one length as there are SMs, so that each is one block's; alone
// such a pair has a block for every chunk, as long as there are SMs.
TEST_F(CudaAttentionEdgesOnDevice, RowsOfChunksGiveTheSameBitsInOneBlockAndInMany) {
  const int count = std::min(cuda_limits()->sm_count, kAttentionMaxBatch);
  for (const int head_dim : {64, 128}) {
    for (const int32_t chunks : {kRow + 1, 2 * kRow, 2 * kRow + 1, 3 * kRow + 4}) {
      const std::vector<int32_t> lengths(static_cast<size_t>(count), 16 * chunks - 3);
      CudaBatchOptions options = options_of(DType::kBf16, 1, 5, head_dim, 64, lengths);
      options.shape.chunk_tokens = 16;
      Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
      ASSERT_TRUE(batch) << batch.error().message;
      const Result<Bytes> output = batch->run();
      ASSERT_TRUE(output) << output.error().message;
      const std::string what =
          "head_dim " + std::to_string(head_dim) + " chunks " + std::to_string(chunks);
      for (const int sequence : {0, count / 2, count - 1}) {
        expect_formula(options, *batch, *output, sequence, what);
        expect_bits_alone(options, *batch, *output, sequence, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Goal: a sum of 0 gives 0 and never -0, whoever folds it. Method: values of one dim are 0 in the
// first row of chunks and so small in the others, which weigh next to nothing, that they make it
// -0.
TEST_F(CudaAttentionEdgesOnDevice, RowsOfChunksGiveNoZeroWithASign) {
  constexpr int kChunk = 16;
  const int count = std::min(cuda_limits()->sm_count, kAttentionMaxBatch);
  const std::vector<int32_t> lengths(static_cast<size_t>(count), 3 * kRow * kChunk);
  CudaBatchOptions options = options_of(DType::kBf16, 1, 5, 64, 64, lengths);
  options.shape.chunk_tokens = kChunk;
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  batch->set_queries(0, 16.0f);
  for (int sequence = 0; sequence < count; ++sequence) {
    for (int token = 0; token < lengths[0]; ++token) {
      const bool is_first_row = token < kRow * kChunk;
      batch->set_token(sequence, token, 0, 0, is_first_row ? 16.0f : 0.0f,
                       is_first_row ? 0.0f : -std::numeric_limits<float>::min());
    }
  }
  const Result<void> filled = batch->fill_device();
  ASSERT_TRUE(filled) << filled.error().message;
  const Result<Bytes> output = batch->run();
  ASSERT_TRUE(output) << output.error().message;
  for (const int sequence : {0, count - 1}) {
    const float first = batch->output_of(*output, sequence, 0)[0];
    EXPECT_EQ(first, 0.0f);
    EXPECT_FALSE(std::signbit(first));
    expect_bits_alone(options, *batch, *output, sequence, "a column of zeros");
    if (HasFatalFailure()) return;
  }
}

// ---- Batches.

// Of 0 to 700 tokens: 11 chunks.
CudaBatchOptions options_of_batch(int count, DType dtype, int kv_heads, int head_dim) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(i * 37 % 701);
  CudaBatchOptions options = options_of(dtype, kv_heads, 4, head_dim, 16, lengths);
  options.shape.chunk_tokens = 64;
  return options;
}

// A warp knows the lengths of 32 sequences without asking memory.
TEST_F(CudaAttentionEdgesOnDevice, BatchesOfAboutAWarpAgreeWithTheFormula) {
  for (const DType dtype : kTypes) {
    for (const int head_dim : {64, 128, 256}) {
      for (const int count : {31, 32, 33, 65}) {
        const CudaBatchOptions options = options_of_batch(count, dtype, 2, head_dim);
        expect_reference(options,
                         attention_test::name_of(options) + " batch " + std::to_string(count));
      }
    }
  }
}

// With head_dim 256 a block has 256 threads, each of which has a sequence.
TEST_F(CudaAttentionEdgesOnDevice, TheLargestBatchesAgreeWithTheFormula) {
  for (const int head_dim : {128, 256}) {
    for (const int count : {255, 256}) {
      const CudaBatchOptions options = options_of_batch(count, DType::kBf16, 1, head_dim);
      expect_reference(options,
                       attention_test::name_of(options) + " batch " + std::to_string(count));
    }
  }
}

TEST_F(CudaAttentionEdgesOnDevice, LargerBatchesGiveTheBitsOf32Sequences) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int large_count : {33, 256}) {
      const CudaBatchOptions options = options_of_batch(large_count, DType::kBf16, 1, head_dim);
      Result<CudaAttentionBatch> large = CudaAttentionBatch::make(options);
      ASSERT_TRUE(large) << large.error().message;
      const Result<Bytes> expected = large->run();
      ASSERT_TRUE(expected) << expected.error().message;
      expect_written(options, *expected);
      Result<CudaAttentionBatch> batch =
          CudaAttentionBatch::make(options_of_batch(32, DType::kBf16, 1, head_dim));
      ASSERT_TRUE(batch) << batch.error().message;
      for (int sequence = 0; sequence < 32; ++sequence) {
        batch->copy_sequence(*large, sequence, sequence);
      }
      ASSERT_TRUE(batch->fill_device());
      const Result<Bytes> output = batch->run();
      ASSERT_TRUE(output) << output.error().message;
      ASSERT_LT(output->size(), expected->size());
      EXPECT_TRUE(std::equal(output->begin(), output->end(), expected->begin()))
          << "head_dim " << head_dim << " batch " << large_count;
    }
  }
}

}  // namespace
}  // namespace gapless::attention_test
