// SPDX-License-Identifier: Apache-2.0
//
// What of the matmul needs no GPU: how weights are packed, what a launch takes, and errors.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/device_test_support.h"
#include "cuda/matmul.h"
#include "cuda/matmul_pack.h"
#include "cuda/matmul_test_support.h"

namespace gapless {
namespace {

using Bytes = std::vector<std::byte>;

CudaLimits h200() { return all_test_devices().front(); }

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

// Goal: lane (g, t) of a warp finds in its 16 bytes what the matrix instruction takes from it.
// Method: every 4 bytes of the matrix are numbered, and looked for by the header's words.
void expect_order(int tile_rows) {
  const CudaWeightShape shape = {
      .dtype = DType::kS8, .columns = 144, .k = 192, .is_gated = false, .tile_rows = tile_rows};
  std::vector<uint32_t> matrix(144 * 192 / 4);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint32_t>(i + 1);
  Bytes packed(static_cast<size_t>(cuda_weight_bytes(shape)));
  ASSERT_EQ(packed.size(), 2u * 3u * 8192u);
  ASSERT_TRUE(pack_cuda_weights({shape, matrix.data(), nullptr}, packed));
  std::vector<uint32_t> words(packed.size() / 4);
  std::memcpy(words.data(), packed.data(), packed.size());
  const size_t warps = static_cast<size_t>(tile_rows / 16);
  for (size_t at = 0; at < words.size(); ++at) {
    const size_t brick = at / 256 / warps, warp = at / 256 % warps, step = at / 128 % 2;
    const size_t lane = at / 4 % 32, word = at % 4;
    const size_t mma_row = lane / 4 + 8 * (word % 2);
    const size_t row = brick / 3 * 16 * warps + warp * 16 + mma_row % 8 * 2 + mma_row / 8;
    const size_t column = brick % 3 * 16 + step * 8 + word / 2 * 4 + lane % 4;
    const uint32_t expected = row < 144 ? static_cast<uint32_t>(row * 48 + column + 1) : 0u;
    ASSERT_EQ(words[at], expected) << "word " << at;
  }
}
TEST(CudaWeights, LieAsTheMatrixInstructionTakesThem) {
  expect_order(128);
  expect_order(64);
}

// A loader packs 128 of them at a time.
TEST(CudaWeights, Have128RowsTogetherWhateverTheirTile) {
  for (const int tile_rows : {128, 64}) {
    CudaWeightShape shape = {
        .dtype = DType::kS8, .columns = 208, .k = 128, .is_gated = false, .tile_rows = tile_rows};
    Bytes matrix(208 * 128);
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<std::byte>(i * 37 >> 4);
    Bytes all(static_cast<size_t>(cuda_weight_bytes(shape)));
    ASSERT_TRUE(pack_cuda_weights({shape, matrix.data(), nullptr}, all));
    for (const int64_t row : {0, 128}) {
      shape.columns = row == 0 ? 128 : 208 - 128;
      Bytes part(128 * 128);
      ASSERT_TRUE(pack_cuda_weights({shape, matrix.data() + row * 128, nullptr}, part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + row * 128)) << row;
    }
  }
}

TEST(CudaWeights, PutGateAndUpOfOneColumnEightRowsApart) {
  const CudaWeightShape shape = {.dtype = DType::kS8, .columns = 72, .k = 64, .is_gated = true};
  EXPECT_EQ(cuda_weight_rows(shape), 256);
  for (int64_t column = 0; column < 72; ++column) {
    const int64_t row = column / 8 * 16 + column % 8;
    EXPECT_EQ(cuda_weight_source(shape, row).row, column);
    EXPECT_FALSE(cuda_weight_source(shape, row).is_up);
    EXPECT_EQ(cuda_weight_source(shape, row + 8).row, column);
    EXPECT_TRUE(cuda_weight_source(shape, row + 8).is_up);
  }
  std::vector<float> gate(72, 1.0f), up(72, 2.0f), packed(256, 9.0f);
  ASSERT_TRUE(pack_cuda_scales({shape, gate.data(), up.data()}, packed));
  EXPECT_EQ(packed[7], 1.0f);
  EXPECT_EQ(packed[8], 2.0f);
  EXPECT_EQ(packed[144], 0.0f) << "rows beyond the matrix";
}

TEST(CudaWeights, ThatCannotBePackedAreErrorsWithNumbers) {
  CudaWeightShape shape = {.dtype = DType::kS8, .columns = 24, .k = 64, .is_gated = false};
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "24 columns; plain weights on a GPU have a multiple of 16");
  shape.is_gated = true;
  EXPECT_TRUE(check_cuda_weights(shape));
  shape.k = 96;
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "k of 96; s8 weights on a GPU have a multiple of 64, at most 65536");
  shape.dtype = DType::kBf16;
  EXPECT_TRUE(check_cuda_weights(shape));
  shape.dtype = DType::kF16;
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "weights of f16; the matmul on a GPU takes bf16 and s8");
  shape.dtype = DType::kBf16;
  shape.tile_rows = 96;
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "tiles of 96 rows; weights on a GPU have 128 or 64");
  shape.tile_rows = 64;
  shape.is_gated = false;
  shape.k = 65536;
  shape.columns = int64_t{1} << 30;
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "1073741824 columns of 65536 are 34359738368 bricks of 64 rows; at most 2147483647");
  shape.is_gated = true;
  shape.columns = (int64_t{1} << 32) + 16;
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "4294967312 columns; gated weights on a GPU have at most 1073741759");
  shape.is_gated = false;
  shape.columns = INT64_MAX / 16 * 16;
  EXPECT_EQ(error_of(check_cuda_weights(shape)),
            "9223372036854775792 columns; plain weights on a GPU have at most 2147483519");
  shape.is_gated = true;
  shape.k = 96;
  shape.columns = 24;
  Bytes room(100);
  const int64_t value = 0;
  EXPECT_EQ(error_of(pack_cuda_weights({shape, &value, nullptr}, room)),
            "gated weights to pack without up weights");
  EXPECT_EQ(error_of(pack_cuda_weights({shape, &value, &value}, room)),
            "100 bytes for packed weights; 24576 are needed");
}

TEST(CudaMatmulConfig, LeavesRoomForTheNextLaunchOnAnSm) {
  for (const int tokens : kAllTokens) {
    const CudaMatmulCase c = case_of(DType::kS8, 17408, 5120, true, tokens);
    const Result<CudaMatmulConfig> config = configure_cuda_matmul(c.shape, tokens, h200());
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->blocks, 132);
    EXPECT_GE(config->form.token_tiles * 8, tokens);
    if (tokens <= 16) {
      EXPECT_LE(2 * (config->shared_bytes + 1024), 228 << 10);
    }
    EXPECT_GE(config->ring_slots * config->stage_bricks * 8192, 64 << 10) << "bytes in flight";
  }
}

TEST(CudaMatmulConfig, ReadsASixteenthOfABlockAheadWithinBounds) {
  const auto kib = [](int64_t columns, int64_t k, const CudaMatmulTuning& tuning) {
    const CudaMatmulCase c = case_of(DType::kS8, columns, k, false, 16);
    return configure_cuda_matmul(c.shape, 16, h200(), tuning)->read_ahead_bytes / 1024;
  };
  EXPECT_EQ(kib(7168, 5120, {}), 24);   // 33 bricks a block
  EXPECT_EQ(kib(5120, 17408, {}), 40);  // 82
  EXPECT_EQ(kib(34816, 5120, {}), 48);  // 164
  EXPECT_EQ(kib(7168, 5120, {.read_ahead_kib = 7}), 7);
  EXPECT_EQ(kib(7168, 5120, {.read_ahead_kib = -1}), 0);
}

// Where two or three blocks for 128 rows leave few SMs idle and have little to read each.
TEST(CudaMatmulConfig, TilesOfShortBlocksAreSmall) {
  const auto config = [](DType dtype, int64_t columns, int64_t k, int tile_rows = 0) {
    CudaMatmulCase c = case_of(dtype, columns, k, false, 16);
    c.shape.weights.tile_rows = tile_rows > 0 ? tile_rows : best_tile_rows(c.shape.weights, h200());
    return *configure_cuda_matmul(c.shape, 16, h200());
  };
  const CudaMatmulConfig qkv = config(DType::kS8, 7168, 5120);
  EXPECT_EQ(qkv.form.tile_rows, 64);
  EXPECT_EQ(qkv.blocks, 112);
  EXPECT_FALSE(qkv.cuts_tiles);
  EXPECT_GT(2 * qkv.shared_bytes, 228 << 10) << "one block an SM";
  const CudaMatmulConfig out = config(DType::kS8, 5120, 5120);
  EXPECT_EQ(out.form.tile_rows, 64);
  EXPECT_EQ(out.blocks, 120);
  EXPECT_TRUE(out.cuts_tiles);
  EXPECT_EQ(config(DType::kS8, 5120, 17408).form.tile_rows, 128) << "long blocks";
  EXPECT_EQ(config(DType::kBf16, 7168, 5120).form.tile_rows, 64);
  EXPECT_EQ(config(DType::kBf16, 7168, 8192).form.tile_rows, 128) << "long blocks";
  EXPECT_EQ(config(DType::kS8, 6400, 5120).form.tile_rows, 128) << "100 blocks on 132 SMs";
  EXPECT_EQ(config(DType::kS8, 4096, 1024).form.tile_rows, 128) << "4 blocks for 128 rows";
  const CudaMatmulConfig forced = config(DType::kS8, 7168, 5120, 128);
  EXPECT_EQ(forced.form.tile_rows, 128);
  EXPECT_EQ(forced.blocks, 132);
  EXPECT_EQ(config(DType::kBf16, 5120, 17408, 64).blocks, 132);
}

// As the kernels divide (matmul_stages.cuh).
uint32_t divided(uint32_t number, const MatmulDivisor& by) {
  const uint32_t quotient = static_cast<uint32_t>(uint64_t{number} * by.multiplier >> 32);
  return number - quotient * by.divisor < by.divisor ? quotient : quotient + 1;
}

TEST(CudaMatmulConfig, DividesByAMultiplication) {
  for (const int divisor : {1, 2, 3, 5, 7, 80, 160, 1439, 65535, 65536, 65537, 0x7fffffff}) {
    const MatmulDivisor by = matmul_divisor(divisor);
    const uint32_t d = static_cast<uint32_t>(divisor);
    for (const uint32_t near : {0u, d, 2 * d, 3 * d, 0x7fffffffu / d * d, 0x7fffffffu}) {
      for (uint32_t number = near - 2; number != near + 3; ++number) {
        if (number >= 1u << 31) continue;
        EXPECT_EQ(divided(number, by), number / d) << number << " / " << d;
      }
    }
  }
}

// Goal: a model's matmuls can be done on every device from sm_80 on.
// Method: all projections of Qwen3, as the decoder makes them, with the tiles that the device
// wants.
TEST(CudaMatmulConfig, FitsEveryDevice) {
  struct Sizes {
    int64_t hidden, intermediate, q_heads;
  };
  constexpr Sizes kModels[] = {{1024, 3072, 16},  {2048, 6144, 16},  {2560, 9728, 32},
                               {4096, 12288, 32}, {5120, 17408, 40}, {5120, 25600, 64}};
  for (const CudaLimits& limits : all_test_devices()) {
    for (const Sizes& m : kModels) {
      const CudaWeightShape all[] = {{.columns = (m.q_heads + 16) * 128, .k = m.hidden},
                                     {.columns = m.hidden, .k = m.q_heads * 128},
                                     {.columns = m.intermediate, .k = m.hidden, .is_gated = true},
                                     {.columns = m.intermediate, .k = m.hidden},
                                     {.columns = m.hidden, .k = m.intermediate},
                                     {.columns = 151936, .k = m.hidden}};
      for (CudaWeightShape weights : all) {
        for (const DType dtype : {DType::kS8, DType::kBf16}) {
          weights.dtype = dtype;
          weights.tile_rows = best_tile_rows(weights, limits);
          for (const int tokens : {8, 16, 32, 64}) {
            for (const bool takes_sm : {false, true}) {
              const Result<CudaMatmulConfig> config = configure_cuda_matmul(
                  {.weights = weights, .max_tokens = 64}, tokens, limits, {.takes_sm = takes_sm});
              ASSERT_TRUE(config) << config.error().message;
              EXPECT_LE(config->shared_bytes, limits.shared_block_bytes);
              EXPECT_GE(config->ring_slots, 3);
              EXPECT_GE(config->stage_bricks, 2) << limits.name;
            }
          }
        }
      }
    }
  }
}

TEST(CudaMatmulConfig, HalvesStagesOnlyWhereTheyDoNotFit) {
  const auto stage_kib = [](const CudaLimits& limits, int tokens, int tile_rows) {
    CudaMatmulCase c = case_of(DType::kS8, 7168, 5120, false, 64);
    c.shape.weights.tile_rows = tile_rows;
    return configure_cuda_matmul(c.shape, tokens, limits)->stage_bricks * tile_rows / 16;
  };
  const CudaLimits a100 = test_device("A100", 80, 108, 163);
  const CudaLimits l40s = test_device("L40S", 89, 142, 99);
  EXPECT_EQ(stage_kib(h200(), 64, 128), 32);
  EXPECT_EQ(stage_kib(h200(), 64, 64), 32);
  EXPECT_EQ(stage_kib(a100, 64, 128), 32);
  EXPECT_EQ(stage_kib(a100, 64, 64), 16);
  EXPECT_EQ(stage_kib(l40s, 8, 128), 16);
  EXPECT_EQ(stage_kib(l40s, 64, 128), 16);
  EXPECT_EQ(stage_kib(l40s, 64, 64), 8);
}

TEST(CudaMatmulConfig, SaysWhatDoesNotFit) {
  CudaMatmulCase c = case_of(DType::kS8, 128, 128, false, 64);
  EXPECT_EQ(configure_cuda_matmul(c.shape, 65, h200()).error().message,
            "65 tokens; the matmul on a GPU takes 1 to 64");
  EXPECT_EQ(configure_cuda_matmul(c.shape, 64, h200(), {.stage_bricks = 8, .ring_slots = 4})
                .error()
                .message,
            "a matmul of 64 tokens with 4 stages of 8 bricks needs 393312 bytes of shared memory a "
            "block; H200 has 232448");
  EXPECT_EQ(configure_cuda_matmul(c.shape, 64, h200(), {.ring_slots = 33}).error().message,
            "a matmul tuned to 0 bricks a stage (at most 64), 33 slots (at most 32) and 0 blocks");
  EXPECT_EQ(configure_cuda_matmul(c.shape, 64, h200(), {.stage_bricks = 65}).error().message,
            "a matmul tuned to 65 bricks a stage (at most 64), 0 slots (at most 32) and 0 blocks");
  EXPECT_EQ(configure_cuda_matmul(c.shape, 64, h200(), {.read_ahead_kib = 65537}).error().message,
            "a matmul tuned to read 65537 KiB ahead, at most 65536");
  EXPECT_EQ(best_tile_rows({.columns = 0, .k = 128}, h200()), 128) << "no tiles, no division";
  c.shape.output_dtype = DType::kF16;
  EXPECT_EQ(configure_cuda_matmul(c.shape, 1, h200()).error().message,
            "f16 output; the matmul on a GPU stores bf16 or f32");
}

}  // namespace
}  // namespace gapless
