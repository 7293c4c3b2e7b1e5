// SPDX-License-Identifier: Apache-2.0
//
// The matmul on a GPU against the formula in double (s8: to the last bit). Without a GPU the tests
// are skipped and say so.

#include "cuda/matmul.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/gpu_test_support.h"
#include "cuda/matmul_test_support.h"
#include "cuda/recorder.h"
#include "cuda/recorder_test_support.h"

namespace gapless {
namespace {

using Bytes = std::vector<std::byte>;

class CudaMatmulOnDevice : public GpuTest {};

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

void expect_no_overflow(int tokens) {
  CudaMatmulCase c = case_of(DType::kS8, 272, 17408, false, tokens);
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  ASSERT_TRUE(run) << run.error().message;
  for (int64_t i = 0; i < 17408; ++i) {
    for (int64_t row = 0; row < 272; ++row) {
      run->weights().set(row, i, row % 2 == 0 ? 127.0f : -127.0f);
    }
    for (int64_t token = 0; token < tokens; ++token) {
      run->x().set(token, i, token % 3 == 0 ? -127.0f : 127.0f);
    }
  }
  ASSERT_TRUE(run->upload());
  const Result<Bytes> output = run->run();
  ASSERT_TRUE(output) << output.error().message;
  expect_exact(c, *run, *output);
}
TEST_F(CudaMatmulOnDevice, LargestSumsDoNotOverflow) {
  expect_no_overflow(16);
  expect_no_overflow(64);
}

// Residuals and scales of a block's second tile are loaded when the first one has been stored.
TEST_F(CudaMatmulOnDevice, BlocksOfSeveralTilesAddTheResidualsOfEach) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const int tokens : {16, 17, 64}) {
      for (const DType residual : {DType::kF32, DType::kBf16}) {
        CudaMatmulCase c = case_of(dtype, 1040, 2560, false, tokens);
        c.tuning.blocks = 3;
        c.has_residual = true;
        c.residual_dtype = residual;
        expect_right(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaMatmulOnDevice, SixteenBitTokensNeedNoScales) {
  for (const int tokens : {16, 17, 64}) {
    const CudaMatmulCase c = case_of(DType::kBf16, 144, 1088, false, tokens);
    Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
    ASSERT_TRUE(run) << run.error().message;
    for (float& scale : run->x().scales) scale = 1.0f;
    ASSERT_TRUE(run->upload());
    const Result<Bytes> expected = run->run();
    ASSERT_TRUE(expected) << expected.error().message;
    expect_close(c, *run, *expected);
    const Result<Bytes> output = run->run(false);
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_EQ(*output, *expected) << tokens << " tokens";
  }
}

// The cut of the weights is the same for one token and for 64, and whatever instruction multiplies
// (up to 16 tokens mma, from 17 on wgmma) adds in the same order.
TEST_F(CudaMatmulOnDevice, ATokenDoesNotSeeTheOthers) {
  for (const int form : {0, 1, 2, 3}) {
    CudaMatmulCase large = case_of(DType::kBf16, 1040, 5120, form % 2 == 1, 64);
    large.shape.weights.tile_rows = form < 2 ? 128 : 64;
    Result<CudaMatmulRun> all = CudaMatmulRun::make(large);
    ASSERT_TRUE(all) << all.error().message;
    const Result<Bytes> expected = all->run();
    ASSERT_TRUE(expected);
    ASSERT_TRUE(all->has_values(*expected));
    for (const int tokens : {1, 9, 16, 17, 32, 63}) {
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

// What six launches in a row make of one, each of which has the output of the one before as tokens.
Result<Bytes> chained(const CudaMatmulRun& run, bool starts_early) {
  constexpr int64_t kStride = 5120;
  Bytes output(16 * kStride * sizeof(Bf16));
  std::vector<DeviceBuffer> outputs;
  for (int i = 0; i < 2; ++i) {
    outputs.push_back(GAPLESS_TRY(DeviceBuffer::allocate(std::ssize(output), "outputs")));
    GAPLESS_TRY(outputs.back().fill(0xff));
  }
  CudaMatmulArgs args = run.args();
  args.output = outputs[0].data();
  args.output_stride = kStride;
  GAPLESS_TRY(run.matmul().launch(args, nullptr));
  GAPLESS_TRY(synchronize(nullptr));
  args.starts_early = starts_early;
  args.token_scales = nullptr;
  args.x_stride = kStride;
  for (size_t i = 0; i < 6; ++i) {
    args.x = outputs[i % 2].data();
    args.output = outputs[(i + 1) % 2].data();
    GAPLESS_TRY(run.matmul().launch(args, nullptr));
  }
  GAPLESS_TRY(synchronize(nullptr));
  GAPLESS_TRY(outputs[0].copy_to_host(output.data(), std::ssize(output)));
  return output;
}

TEST_F(CudaMatmulOnDevice, LaunchesThatStartEarlyWaitForTheirTokens) {
  CudaMatmulCase c = case_of(DType::kBf16, 5120, 5120, false, 16);
  c.shape.output_dtype = DType::kBf16;
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  ASSERT_TRUE(run) << run.error().message;
  const Result<Bytes> expected = chained(*run, false);
  ASSERT_TRUE(expected) << expected.error().message;
  for (size_t i = 0; i < expected->size(); i += sizeof(Bf16)) {
    Bf16 value;
    std::memcpy(&value, &(*expected)[i], sizeof(value));
    ASSERT_TRUE(std::isfinite(to_float(value)) && value.bits != 0) << "element " << i / 2;
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Result<Bytes> output = chained(*run, true);
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_EQ(*output, *expected);
  }
}

// A count of tokens is a test of its own: a sanitizer ends each within minutes.
class CudaMatmulCutOnDevice : public CudaMatmulOnDevice, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Of, CudaMatmulCutOnDevice, testing::Values(16, 24, 40),
                         testing::PrintToStringParamName());

TEST_P(CudaMatmulCutOnDevice, DoesNotChangeEightBitResults) {
  const CudaMatmulTuning tunings[] = {{.stage_bricks = 1, .ring_slots = 2, .blocks = 7},
                                      {.stage_bricks = 3, .ring_slots = 2, .blocks = 264},
                                      {.stage_bricks = 4, .ring_slots = 2, .blocks = 1},
                                      {.stage_bricks = 2, .ring_slots = 4, .blocks = 1},
                                      {.blocks = 40, .read_ahead_kib = -1},
                                      {.ring_slots = 2, .read_ahead_kib = 4096}};
  CudaMatmulCase c = case_of(DType::kS8, 1040, 5120, false, GetParam());
  for (const int tile_rows : {128, 64}) {
    c.shape.weights.tile_rows = tile_rows;
    for (const CudaMatmulTuning& tuning : tunings) {
      c.tuning = tuning;
      expect_right(c);
      if (HasFatalFailure()) return;
    }
  }
}

// They are cut over blocks, or each is a block's own.
TEST_F(CudaMatmulOnDevice, TilesMayBeSmall) {
  for (const Extent& extent : {Extent{16, 64}, Extent{144, 1088}, Extent{1040, 5120}}) {
    for (const int tokens : {1, 8, 15, 17, 64}) {
      const int tiles = static_cast<int>((extent.columns + 127) / 128) * 2;
      for (const int blocks : {0, tiles, tiles / 2 * 3}) {
        CudaMatmulCase c = case_of(DType::kS8, extent.columns, extent.k, false, tokens);
        c.shape.weights.tile_rows = 64;
        c.tuning.blocks = blocks;
        expect_right(c);
        c.shape.weights.dtype = DType::kBf16;
        c.has_residual = true;
        expect_right(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The shapes of the layer whose tiles are small on an H200.
TEST_F(CudaMatmulOnDevice, SmallTilesOfTheLayerAreExact) {
  for (const Extent& extent : {Extent{7168, 5120}, Extent{5120, 5120}}) {
    CudaMatmulCase c = case_of(DType::kS8, extent.columns, extent.k, false, 16);
    for (const int tile_rows : {128, 64}) {
      c.shape.weights.tile_rows = tile_rows;
      expect_right(c);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaMatmulOnDevice, SmallTilesGiveTheSameBitsOfEightBitGates) {
  for (const int tokens : {3, 16, 40}) {
    CudaMatmulCase c = case_of(DType::kS8, 1032, 2560, true, tokens);
    Bytes expected;
    for (const int tile_rows : {128, 64}) {
      c.shape.weights.tile_rows = tile_rows;
      Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
      ASSERT_TRUE(run) << run.error().message;
      const Result<Bytes> output = run->run();
      ASSERT_TRUE(output) << output.error().message;
      if (tile_rows == 128) {
        expect_close(c, *run, *output);
        expected = *output;
      }
      EXPECT_EQ(*output, expected) << tile_rows << " rows, " << tokens << " tokens";
    }
  }
}

void expect_right_in_place(int tokens, int blocks) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    CudaMatmulCase c = case_of(DType::kS8, 1040, 5120, false, tokens);
    c.shape.output_dtype = dtype;
    c.tuning.blocks = blocks;
    Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
    ASSERT_TRUE(run) << run.error().message;
    const int64_t bytes = run->output().bytes();
    std::vector<Bf16> values(static_cast<size_t>(bytes / 2));
    MatmulRandom random(7);
    for (Bf16& value : values) value = to_bf16(random.between(-2.0f, 2.0f));
    Result<DeviceBuffer> residual = DeviceBuffer::allocate(bytes, "residuals");
    Result<DeviceBuffer> in_place = DeviceBuffer::allocate(bytes, "residuals");
    ASSERT_TRUE(residual && in_place);
    ASSERT_TRUE(residual->copy_from_host(values.data(), bytes));
    ASSERT_TRUE(in_place->copy_from_host(values.data(), bytes));
    CudaMatmulArgs args = run->args();
    args.residual = residual->data();
    args.residual_dtype = dtype;
    args.residual_stride = args.output_stride;
    ASSERT_TRUE(run->matmul().launch(args, nullptr));
    args.residual = args.output = in_place->data();
    ASSERT_TRUE(run->matmul().launch(args, nullptr));
    ASSERT_TRUE(synchronize(nullptr));
    Bytes expected(static_cast<size_t>(bytes)), output(static_cast<size_t>(bytes));
    ASSERT_TRUE(run->output().copy_to_host(expected.data(), bytes));
    ASSERT_TRUE(in_place->copy_to_host(output.data(), bytes));
    for (int64_t token = 0; token < tokens; ++token) {
      const auto begin = expected.begin() + token * args.output_stride * dtype_bytes(dtype);
      const auto end = begin + 1040 * dtype_bytes(dtype);
      EXPECT_TRUE(std::equal(begin, end, output.begin() + (begin - expected.begin())))
          << "token " << token << " of " << tokens << ", " << blocks << " blocks";
    }
  }
}
TEST_F(CudaMatmulOnDevice, TheResidualMayBeTheOutput) {
  for (const int tokens : {16, 17, 64}) {
    for (const int blocks : {0, 3}) {
      expect_right_in_place(tokens, blocks);
      if (HasFatalFailure()) return;
    }
  }
}

// ---- Recorded.

struct BlockRecord {
  DeviceBlockHeader header;
  DeviceRecord records[kDeviceRoleCount][kRoleRecords];
};
static_assert(sizeof(BlockRecord) == kDeviceBlockBytes);

// Each role begins as it should, ends with kEnd, and its clock does not go back.
void expect_complete(const BlockRecord& block, uint32_t step) {
  ASSERT_EQ(block.header.step, step);
  EXPECT_GT(block.header.begin_ns, 0u);
  const DevicePhase first_phases[] = {DevicePhase::kSetUp, DevicePhase::kReadAhead};
  for (size_t role = 0; role < 2; ++role) {
    const int count =
        record_count(reinterpret_cast<const std::byte*>(&block), static_cast<int>(role));
    ASSERT_GE(count, 2);
    EXPECT_EQ(block.header.dropped[role], 0u);
    const DeviceRecord* records = block.records[role];
    EXPECT_EQ(records[0].phase(), first_phases[role]);
    EXPECT_EQ(records[count - 1].phase(), DevicePhase::kEnd);
    for (int i = 1; i < count; ++i) {
      EXPECT_LT(records[i].clock - records[i - 1].clock, 1u << 31) << "role " << role;
    }
  }
}

TEST_F(CudaMatmulOnDevice, LaunchesThatRecordTasksComputeTheSameAndSayWhenTheyRan) {
  for (int form = 0; form < 16; ++form) {
    const int tokens = std::array{5, 16, 24, 40}[static_cast<size_t>(form % 4)];
    const DType dtype = form / 4 % 2 == 0 ? DType::kBf16 : DType::kS8;
    CudaMatmulCase c = case_of(dtype, 1040, 5120, form % 3 == 0, tokens);
    c.shape.weights.tile_rows = form < 8 ? 128 : 64;
    Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
    ASSERT_TRUE(run) << run.error().message;
    const Result<Bytes> expected = run->run();
    ASSERT_TRUE(expected) << expected.error().message;
    const int blocks = run->matmul().config(tokens).blocks;
    const Result<CudaRecorder> recorder =
        CudaRecorder::make({{.name = "matmul", .blocks = blocks}}, 2, RecordLevel::kTasks);
    ASSERT_TRUE(recorder) << recorder.error().message;
    CudaMatmulArgs args = run->args();
    args.recorder = recorder->launch(0);
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(run->matmul().launch(args, nullptr));
    const Result<DeviceRecording> recording = recorder->read();
    ASSERT_TRUE(recording) << recording.error().message;
    Bytes output(expected->size());
    ASSERT_TRUE(run->output().copy_to_host(output.data(), static_cast<int64_t>(output.size())));
    EXPECT_EQ(output, *expected);
    EXPECT_EQ(recording->step_count, 2);
    EXPECT_EQ(expect_data_in_order(*recording), 2 * blocks);
    const Trace trace = device_trace(*recording);
    EXPECT_TRUE(trace.findings.empty());
    EXPECT_EQ(trace.tasks.size(), static_cast<size_t>(2 * blocks));
  }
}

TEST_F(CudaMatmulOnDevice, RecordedLaunchesComputeTheSameAndSayWhatTheyDid) {
  constexpr int64_t kSteps = 4096;  // bytes of the blocks' numbers, before the records
  for (const int form : {0, 1, 2, 3}) {
    CudaMatmulCase c = case_of(DType::kBf16, 1040, 5120, form % 2 == 1, 16);
    c.shape.weights.tile_rows = form < 2 ? 128 : 64;
    Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
    ASSERT_TRUE(run) << run.error().message;
    const Result<Bytes> expected = run->run();
    ASSERT_TRUE(expected) << expected.error().message;
    const int blocks = run->matmul().config(16).blocks;
    Result<DeviceBuffer> buffer =
        DeviceBuffer::allocate(kSteps + int64_t{2} * blocks * kDeviceBlockBytes, "records");
    ASSERT_TRUE(buffer) << buffer.error().message;
    ASSERT_TRUE(buffer->fill(0));
    const size_t counters = static_cast<size_t>(blocks) * kDeviceRoleCount;
    ASSERT_LE(counters * sizeof(uint32_t), static_cast<size_t>(kSteps));
    const std::vector<uint32_t> steps(counters, 1);  // of each role of each, so far
    ASSERT_TRUE(buffer->copy_from_host(steps.data(), std::ssize(steps) * 4));
    CudaMatmulArgs args = run->args();
    args.recorder = {.level = RecordLevel::kPhases,
                     .buffer = buffer->data() + kSteps,
                     .steps = reinterpret_cast<uint32_t*>(buffer->data()),
                     .step_capacity = 2,
                     .step_blocks = static_cast<uint32_t>(blocks),
                     .first_block = 0};
    ASSERT_TRUE(run->matmul().launch(args, nullptr));
    ASSERT_TRUE(synchronize(nullptr));
    Bytes output(expected->size());
    ASSERT_TRUE(run->output().copy_to_host(output.data(), static_cast<int64_t>(output.size())));
    EXPECT_EQ(output, *expected);
    std::vector<BlockRecord> records(static_cast<size_t>(blocks));
    ASSERT_TRUE(buffer->copy_to_host(records.data(), int64_t{blocks} * kDeviceBlockBytes,
                                     kSteps + int64_t{blocks} * kDeviceBlockBytes));
    for (const BlockRecord& block : records) expect_complete(block, 2);
  }
}

}  // namespace
}  // namespace gapless
