// SPDX-License-Identifier: Apache-2.0
//
// The matmul on a GPU against the formula in double (s8: to the last bit), and its packing and
// errors on the host. Without a GPU the tests of the former are skipped and say so.

#include "cuda/matmul.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/matmul_test_support.h"

namespace gapless {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kAllTokens[] = {1, 2, 4, 8, 15, 16, 17, 33, 64};

CudaLimits h200() {
  CudaLimits limits;
  limits.name = "H200";
  limits.sm_count = 132;
  limits.compute_capability = 90;
  limits.shared_block_bytes = 227 << 10;
  limits.shared_sm_bytes = 228 << 10;
  limits.shared_reserved_bytes = 1024;
  return limits;
}

CudaMatmulCase case_of(DType dtype, int64_t columns, int64_t k, bool is_gated, int tokens) {
  CudaMatmulCase c;
  c.shape.weights = {.dtype = dtype, .columns = columns, .k = k, .is_gated = is_gated};
  c.shape.output_dtype = DType::kF32;
  c.shape.max_tokens = tokens;
  c.tokens = tokens;
  return c;
}

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

// ---- On the host.

// Goal: lane (g, t) of a warp finds in its 16 bytes what the matrix instruction takes from it.
// Method: every 4 bytes of the matrix are numbered, and looked for by the header's words.
TEST(CudaWeights, LieAsTheMatrixInstructionTakesThem) {
  const CudaWeightShape shape = {.dtype = DType::kS8, .columns = 144, .k = 192, .is_gated = false};
  std::vector<uint32_t> matrix(144 * 192 / 4);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint32_t>(i + 1);
  Bytes packed(static_cast<size_t>(cuda_weight_bytes(shape)));
  ASSERT_EQ(packed.size(), 2u * 3u * 8192u);
  ASSERT_TRUE(pack_cuda_weights({shape, matrix.data(), nullptr}, packed));
  std::vector<uint32_t> words(packed.size() / 4);
  std::memcpy(words.data(), packed.data(), packed.size());
  for (size_t at = 0; at < words.size(); ++at) {
    const size_t brick = at / 2048, warp = at / 256 % 8, step = at / 128 % 2;
    const size_t lane = at / 4 % 32, word = at % 4;
    const size_t mma_row = lane / 4 + 8 * (word % 2);
    const size_t row = brick / 3 * 128 + warp * 16 + mma_row % 8 * 2 + mma_row / 8;
    const size_t column = brick % 3 * 16 + lane % 4 * 4 + step * 2 + word / 2;
    const uint32_t expected = row < 144 ? static_cast<uint32_t>(row * 48 + column + 1) : 0u;
    ASSERT_EQ(words[at], expected) << "word " << at;
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

TEST(CudaMatmulConfig, SaysWhatDoesNotFit) {
  CudaMatmulCase c = case_of(DType::kS8, 128, 128, false, 64);
  EXPECT_EQ(configure_cuda_matmul(c.shape, 65, h200()).error().message,
            "65 tokens; the matmul on a GPU takes 1 to 64");
  EXPECT_EQ(configure_cuda_matmul(c.shape, 64, h200(), {.stage_bricks = 8, .ring_slots = 4})
                .error()
                .message,
            "a matmul of 64 tokens with 4 stages of 8 bricks needs 409680 bytes of shared memory a "
            "block; H200 has 232448");
  c.shape.output_dtype = DType::kF16;
  EXPECT_EQ(configure_cuda_matmul(c.shape, 1, h200()).error().message,
            "f16 output; the matmul on a GPU stores bf16 or f32");
}

// ---- On the device.

class CudaMatmulOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<CudaLimits> limits = cuda_limits();
    if (!limits) GTEST_SKIP() << "NO GPU, NOTHING WAS TESTED: " << limits.error().message;
  }
};

// The first columns, the last ones and some between: all of a small matrix.
std::vector<int64_t> columns_to_check(const CudaMatmulCase& c) {
  const int64_t count = c.shape.weights.columns;
  const int64_t step = std::max<int64_t>(count * c.tokens * c.shape.weights.k / 20'000'000, 1);
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < count; ++i) {
    if (i % step == 0 || i + 16 >= count) columns.push_back(i);
  }
  return columns;
}

void expect_exact(const CudaMatmulCase& c, const CudaMatmulRun& run, const Bytes& output) {
  for (const int64_t column : columns_to_check(c)) {
    for (int64_t token = 0; token < c.tokens; ++token) {
      const float expected = static_cast<float>(run.expected(token, column));
      ASSERT_EQ(run.value_in(output, token, column), expected)
          << name_of(c) << ": token " << token << " column " << column;
    }
  }
}

// Sums of k products in f32 err by far less than the 1e-5 of their norm; bf16 output by 2^-9 of
// each element. SiLU on the GPU is within 1e-6.
void expect_close(const CudaMatmulCase& c, const CudaMatmulRun& run, const Bytes& output) {
  const double bound = c.shape.output_dtype == DType::kF32 ? 1e-5 : 3e-3;
  double error = 0.0;
  double norm = 0.0;
  for (const int64_t column : columns_to_check(c)) {
    for (int64_t token = 0; token < c.tokens; ++token) {
      const double value = static_cast<double>(run.value_in(output, token, column));
      const double expected = run.expected(token, column);
      ASSERT_TRUE(std::isfinite(value))
          << name_of(c) << ": token " << token << " column " << column;
      error += (value - expected) * (value - expected);
      norm += expected * expected;
    }
  }
  EXPECT_LE(std::sqrt(error), bound * std::sqrt(norm)) << name_of(c);
}

void expect_right(const CudaMatmulCase& c) {
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  ASSERT_TRUE(run) << name_of(c) << ": " << run.error().message;
  const bool is_exact = c.shape.weights.dtype == DType::kS8 && !c.shape.weights.is_gated &&
                        !c.has_residual && c.shape.output_dtype == DType::kF32;
  Bytes first;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Result<Bytes> output = run->run();
    ASSERT_TRUE(output) << name_of(c) << ": " << output.error().message;
    EXPECT_TRUE(run->has_clean_gaps(*output)) << name_of(c);
    if (repeat == 0) {
      first = *output;
      is_exact ? expect_exact(c, *run, first) : expect_close(c, *run, first);
    } else {
      EXPECT_EQ(first, *output) << name_of(c) << ": another result in run " << repeat;
    }
  }
}

struct Extent {
  int64_t columns;
  int64_t k;
};
// One brick; few bricks; tiles cut in 15; blocks of whole tiles; blocks of parts and whole tiles.
constexpr Extent kExtents[] = {{16, 64},     {48, 192},   {144, 1088},
                               {1040, 5120}, {2560, 512}, {25600, 192}};

TEST_F(CudaMatmulOnDevice, EightBitSumsAreExact) {
  for (const Extent& extent : kExtents) {
    for (const int tokens : kAllTokens) {
      expect_right(case_of(DType::kS8, extent.columns, extent.k, false, tokens));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaMatmulOnDevice, SixteenBitSumsAreClose) {
  for (const Extent& extent : kExtents) {
    for (const int tokens : kAllTokens) {
      expect_right(case_of(DType::kBf16, extent.columns, extent.k, false, tokens));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaMatmulOnDevice, GatesAndAddsResiduals) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Extent& extent : {Extent{72, 320}, Extent{1032, 2560}}) {
      for (const int tokens : kAllTokens) {
        CudaMatmulCase c = case_of(dtype, extent.columns, extent.k, true, tokens);
        c.shape.output_dtype = tokens % 2 == 0 ? DType::kBf16 : DType::kF32;
        expect_right(c);
        c.shape.weights.is_gated = false;
        c.shape.weights.columns = extent.columns / 16 * 16;
        c.has_residual = true;
        c.residual_dtype = tokens % 3 == 0 ? DType::kBf16 : DType::kF32;
        expect_right(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaMatmulOnDevice, LargestSumsDoNotOverflow) {
  CudaMatmulCase c = case_of(DType::kS8, 272, 17408, false, 16);
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  ASSERT_TRUE(run) << run.error().message;
  for (int64_t i = 0; i < 17408; ++i) {
    for (int64_t row = 0; row < 272; ++row) {
      run->weights().set(row, i, row % 2 == 0 ? 127.0f : -127.0f);
    }
    for (int64_t token = 0; token < 16; ++token) {
      run->x().set(token, i, token % 3 == 0 ? -127.0f : 127.0f);
    }
  }
  ASSERT_TRUE(run->upload());
  const Result<Bytes> output = run->run();
  ASSERT_TRUE(output) << output.error().message;
  expect_exact(c, *run, *output);
}

// The cut of the weights is the same for one token and for 64.
TEST_F(CudaMatmulOnDevice, ATokenDoesNotSeeTheOthers) {
  for (const bool is_gated : {false, true}) {
    const CudaMatmulCase large = case_of(DType::kBf16, 1040, 5120, is_gated, 64);
    Result<CudaMatmulRun> all = CudaMatmulRun::make(large);
    ASSERT_TRUE(all) << all.error().message;
    const Result<Bytes> expected = all->run();
    ASSERT_TRUE(expected);
    for (const int tokens : {1, 9, 16, 32}) {
      CudaMatmulCase c = large;
      c.tokens = tokens;
      Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
      ASSERT_TRUE(run);
      const Result<Bytes> output = run->run();
      ASSERT_TRUE(output);
      EXPECT_TRUE(std::equal(output->begin(), output->end(), expected->begin()))
          << tokens << " tokens";
    }
  }
}

TEST_F(CudaMatmulOnDevice, LaunchesThatStartEarlyWaitForTheirTokens) {
  CudaMatmulCase c = case_of(DType::kBf16, 5120, 5120, false, 16);
  c.shape.output_dtype = DType::kBf16;
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  ASSERT_TRUE(run) << run.error().message;
  Result<DeviceBuffer> buffer = DeviceBuffer::allocate(run->output().bytes(), "outputs");
  ASSERT_TRUE(buffer);
  std::vector<Bytes> results;
  for (const bool starts_early : {false, true, true}) {
    ASSERT_TRUE(buffer->fill(0xff));
    ASSERT_TRUE(run->run());
    CudaMatmulArgs args = run->args();  // from output to buffer and back
    args.starts_early = starts_early;
    args.token_scales = nullptr;
    args.x_stride = args.output_stride = 5120;
    for (int i = 0; i < 6; ++i) {
      args.x = i % 2 == 0 ? run->output().data() : buffer->data();
      args.output = i % 2 == 0 ? buffer->data() : run->output().data();
      ASSERT_TRUE(run->matmul().launch(args, nullptr));
    }
    ASSERT_TRUE(synchronize(nullptr));
    Bytes output(16 * 5120 * 2);
    ASSERT_TRUE(run->output().copy_to_host(output.data(), static_cast<int64_t>(output.size())));
    results.push_back(output);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_F(CudaMatmulOnDevice, HowItIsCutDoesNotChangeEightBitResults) {
  CudaMatmulCase c = case_of(DType::kS8, 1040, 5120, false, 16);
  for (const CudaMatmulTuning& tuning :
       {CudaMatmulTuning{1, 2, 7}, CudaMatmulTuning{3, 2, 264}, CudaMatmulTuning{4, 5, 1}}) {
    c.tuning = tuning;
    expect_right(c);
  }
}

TEST_F(CudaMatmulOnDevice, WrongArgumentsAreErrorsWithNumbers) {
  const CudaMatmulCase c = case_of(DType::kS8, 128, 128, false, 4);
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  ASSERT_TRUE(run) << run.error().message;
  CudaMatmulArgs args = run->args();
  args.tokens = 5;
  EXPECT_EQ(error_of(run->matmul().launch(args, nullptr)),
            "5 tokens; the matmul was made for at most 4");
  args = run->args();
  args.x_stride = 136;
  EXPECT_EQ(error_of(run->matmul().launch(args, nullptr)),
            "tokens of a matmul are 136 elements apart; a multiple of 16 and at least 128 is "
            "needed");
  args = run->args();
  args.token_scales = nullptr;
  EXPECT_EQ(error_of(run->matmul().launch(args, nullptr)), "a matmul without token scales");
  args = run->args();
  args.workspace_bytes = 100;
  EXPECT_NE(error_of(run->matmul().launch(args, nullptr)).find("a workspace of 100 bytes"),
            std::string::npos);
  args = run->args();
  args.tokens = 0;
  EXPECT_TRUE(run->matmul().launch(args, nullptr)) << "nothing to do is no error";
}

}  // namespace
}  // namespace gapless
