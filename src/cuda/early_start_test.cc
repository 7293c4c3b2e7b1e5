// SPDX-License-Identifier: Apache-2.0
//
// Launches that start early (programmatic dependent launch) behind one that is slow, and writes at
// the last moment what they wait for: the bits must be those of a launch that does not start early.
// Recorded launches show that they did begin before. Without a GPU every test here is skipped and
// says so.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/attention_expect_test_support.h"
#include "cuda/attention_test_support.h"
#include "cuda/code_version.h"
#include "cuda/gpu_test_support.h"
#include "cuda/late_copy_test_support.h"
#include "cuda/matmul_test_support.h"
#include "cuda/rows.h"
#include "kernels/norm.h"

namespace gapless {
namespace {

using Bytes = std::vector<std::byte>;

class CudaEarlyStartOnDevice : public GpuTest {};

// A shape is a test of its own: a sanitizer ends each within minutes.
struct EarlyShape {
  DType dtype;
  int head_dim;
};
class CudaEarlyStartOfAttentionOnDevice : public CudaEarlyStartOnDevice,
                                          public testing::WithParamInterface<EarlyShape> {};
INSTANTIATE_TEST_SUITE_P(Of, CudaEarlyStartOfAttentionOnDevice,
                         testing::Values(EarlyShape{DType::kBf16, 64},
                                         EarlyShape{DType::kBf16, 128},
                                         EarlyShape{DType::kBf16, 256},
                                         EarlyShape{DType::kF16, 128}),
                         [](const auto& test) {
                           return std::string(dtype_name(test.param.dtype)) + "Dim" +
                                  std::to_string(test.param.head_dim);
                         });

class CudaEarlyStartOfMatmulOnDevice : public CudaEarlyStartOnDevice,
                                       public testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Of, CudaEarlyStartOfMatmulOnDevice,
                         testing::Values(DType::kS8, DType::kBf16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

// Before a launch that starts early has set up, while it reads ahead, and long after.
constexpr uint32_t kDelaysNs[] = {0, 3'000, 60'000};
constexpr uint32_t kLongDelayNs = 200'000;

struct LateRun {
  uint32_t delay_ns = 0;
  RecorderLaunch recorder = {};
};
// One launch that starts early behind late inputs; its output.
using RunLate = std::function<Result<Bytes>(const LateRun&)>;

void expect_bits(const RunLate& run, const Bytes& expected, const std::string& what) {
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const uint32_t delay_ns : kDelaysNs) {
      const Result<Bytes> output = run({.delay_ns = delay_ns});
      ASSERT_TRUE(output) << what << ": " << output.error().message;
      ASSERT_TRUE(*output == expected) << what << ", " << delay_ns << " ns late";
    }
  }
}

// Whether a block of the recorded launch began before its inputs were written.
Result<bool> began_before(AttentionRecords& records, int blocks, uint64_t written_ns) {
  GAPLESS_TRY(records.read());
  for (int block = 0; block < blocks; ++block) {
    const DeviceBlockHeader header = records.header(block);
    if (header.step == 1 && header.begin_ns < written_ns) return true;
  }
  return false;
}

// Somebody else may keep the GPU from it for once, not five times in a row.
void expect_overlap(const RunLate& run, const LateInputs& inputs, int blocks, const Bytes& expected,
                    const std::string& what) {
  if (!runs_sm90_code()) return;  // the code for sm_80 knows no early launches
  bool overlapped = false;
  for (int attempt = 0; attempt < 5 && !overlapped; ++attempt) {
    Result<AttentionRecords> records = AttentionRecords::make(blocks);
    ASSERT_TRUE(records) << what << ": " << records.error().message;
    const Result<Bytes> output = run({.delay_ns = kLongDelayNs, .recorder = records->launch()});
    ASSERT_TRUE(output) << what << ": " << output.error().message;
    ASSERT_TRUE(*output == expected) << what << ", recorded";
    const Result<uint64_t> written_ns = inputs.written_ns();
    ASSERT_TRUE(written_ns) << what << ": " << written_ns.error().message;
    const Result<bool> began = began_before(*records, blocks, *written_ns);
    ASSERT_TRUE(began) << what << ": " << began.error().message;
    overlapped = *began;
  }
  EXPECT_TRUE(overlapped) << what << ": no block began before its inputs were written";
}

// ---- The attention.

// Pairs of up to 320 tiles, of which a block has some 40. The newest token is the first of its tile
// or the last one, or alone.
CudaBatchOptions long_options(DType dtype, int head_dim, int chunk_tokens) {
  CudaBatchOptions options = attention_test::options_of(
      dtype, 4, 5, head_dim, 64, {4800, 1, 3000, 17, 2048, 700, 0, 5120, 16, 1300, 33, 2500});
  options.shape.chunk_tokens = chunk_tokens;
  return options;
}

struct SchedulesOf {
  void* data = nullptr;
  bool are_there = false;
};

// `before` is started between what writes the inputs and the attention.
Result<Bytes> run_late(CudaAttentionBatch& batch, const LateInputs& inputs,
                       const SchedulesOf& schedules, const LateRun& late,
                       const LateInputs::Start& before = nullptr) {
  GAPLESS_TRY(batch.forget_results());
  CudaAttentionArgs args = batch.args();
  args.schedules = schedules.data;
  args.has_schedules = schedules.are_there;
  args.starts_early = true;
  args.recorder = late.recorder;
  const LateInputs::Start start = [&](CudaStream stream) -> Result<void> {
    if (before) GAPLESS_TRY(before(stream));
    return batch.attention().launch(args, stream);
  };
  Bytes output = GAPLESS_TRY(inputs.run(late.delay_ns, start));
  GAPLESS_TRY(batch.attention().check_launches(args, nullptr));
  return output;
}

void expect_attention_waits(const CudaBatchOptions& options) {
  const std::string name =
      attention_test::name_of(options) + " chunk " + std::to_string(options.shape.chunk_tokens);
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << name << ": " << batch.error().message;
  const Result<DeviceBuffer> schedules =
      DeviceBuffer::allocate(batch->attention().schedule_bytes(), "schedules");
  ASSERT_TRUE(schedules) << name << ": " << schedules.error().message;
  const Result<Bytes> expected = batch->run_scheduled(*schedules, false);
  ASSERT_TRUE(expected) << name << ": " << expected.error().message;
  attention_test::expect_written(options, *expected);
  const Result<LateInputs> inputs = LateInputs::make(batch->newest(), batch->output());
  ASSERT_TRUE(inputs) << name << ": " << inputs.error().message;
  for (const SchedulesOf& given : {SchedulesOf{}, SchedulesOf{schedules->data(), true}}) {
    const std::string what = name + (given.are_there ? ", with schedules" : "");
    const RunLate run = [&](const LateRun& late) { return run_late(*batch, *inputs, given, late); };
    expect_bits(run, *expected, what);
    expect_overlap(run, *inputs, batch->attention().blocks(batch->args()), *expected, what);
    attention_test::expect_no_counts(*batch, what);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(CudaEarlyStartOfAttentionOnDevice, WaitsForQueriesAndTheNewestTokens) {
  expect_attention_waits(long_options(GetParam().dtype, GetParam().head_dim, 512));
}

// Pairs of several rows of chunks.
TEST_P(CudaEarlyStartOfAttentionOnDevice, OfManyChunksWaitsForQueriesAndTheNewestTokens) {
  expect_attention_waits(long_options(GetParam().dtype, GetParam().head_dim, 64));
}

// Goal: the tests above would see a token that is read too soon, whichever it is. Method: all
// newest tokens are NaN, and so is then what every pair gives.
TEST_F(CudaEarlyStartOnDevice, ATokenThatIsNotThereShowsInEveryPair) {
  const CudaBatchOptions options = long_options(DType::kBf16, 128, 512);
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  std::vector<DeviceSpan> tokens = batch->newest();
  tokens.erase(tokens.begin());  // q
  const Result<LateInputs> inputs = LateInputs::make(tokens, batch->output());
  ASSERT_TRUE(inputs) << inputs.error().message;
  ASSERT_TRUE(inputs->forget(nullptr));
  const Result<Bytes> output = batch->run();
  ASSERT_TRUE(output) << output.error().message;
  for (int sequence = 0; sequence < static_cast<int>(options.lengths.size()); ++sequence) {
    const bool is_empty = options.lengths[static_cast<size_t>(sequence)] == 0;
    for (int head = 0; head < 4; ++head) {
      for (const float value : batch->output_of(*output, sequence, head)) {
        ASSERT_EQ(std::isnan(value), !is_empty) << "sequence " << sequence << " head " << head;
      }
    }
  }
}

// ---- The attention behind heads that let it start before they have waited.

// Norm, rope and cache write of the newest tokens, for the attention of the batch.
struct HeadsBefore {
  DeviceBuffer qkv;    // [rows][stride] of f32
  DeviceBuffer gamma;  // of q and k
  DeviceBuffer rope;
  CudaHeadsArgs args;

  static Result<HeadsBefore> make(const CudaBatchOptions& options,
                                  const CudaAttentionBatch& batch) {
    const KvShape& kv = options.shape.kv;
    const CudaAttentionArgs attention = batch.args();
    const int64_t stride = int64_t{options.shape.q_heads + 2 * kv.kv_heads} * kv.head_dim;
    const RopeTable table(10000.0, kv.head_dim, attention.page_table_stride * kv.page_tokens);
    const int64_t angles = table.position_count() * kv.head_dim;
    MatmulRandom random(5);
    std::vector<float> values(static_cast<size_t>(attention.batch * stride));
    for (float& value : values) value = random.between(-2.0f, 2.0f);
    const std::vector<float> ones(static_cast<size_t>(kv.head_dim), 1.0f);
    HeadsBefore heads;
    GAPLESS_TRY(heads.upload(heads.qkv, values.data(), static_cast<int64_t>(values.size())));
    GAPLESS_TRY(heads.upload(heads.gamma, ones.data(), kv.head_dim));
    GAPLESS_TRY(heads.upload(heads.rope, table.cos(0), angles));
    const float* gamma = reinterpret_cast<const float*>(heads.gamma.data());
    heads.args = {.qkv = reinterpret_cast<const float*>(heads.qkv.data()),
                  .qkv_stride = stride,
                  .rows = attention.batch,
                  .q_heads = options.shape.q_heads,
                  .kv = kv,
                  .q_gamma = gamma,
                  .k_gamma = gamma,
                  .eps = 1e-6f,
                  .rope = reinterpret_cast<const float*>(heads.rope.data()),
                  .lengths = attention.lengths,
                  .page_table = attention.page_table,
                  .page_table_stride = attention.page_table_stride,
                  .pages = const_cast<void*>(attention.pages),
                  .page_count = attention.page_count,
                  .q = const_cast<void*>(attention.q)};
    return heads;
  }

  // In one launch or in two, the last of which lets the next one start at once.
  Result<void> launch(CudaStream stream, bool is_fused) const {
    const CudaRowsLaunch first = {.stream = stream, .starts_early = true};
    CudaRowsLaunch last = first;
    last.lets_next_start = true;
    if (is_fused) return launch_heads(args, last);
    GAPLESS_TRY(launch_head_norm(args, first));
    return launch_head_rope(args, last);
  }

 private:
  static Result<void> upload(DeviceBuffer& buffer, const float* values, int64_t count) {
    const int64_t bytes = count * int64_t{sizeof(float)};
    buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "a test"));
    return buffer.copy_from_host(values, bytes);
  }
};

void expect_attention_behind_heads_waits(const CudaBatchOptions& options) {
  const std::string what = attention_test::name_of(options) + " behind heads";
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << what << ": " << batch.error().message;
  const Result<HeadsBefore> heads = HeadsBefore::make(options, *batch);
  ASSERT_TRUE(heads) << what << ": " << heads.error().message;
  const Result<DeviceBuffer> schedules =
      DeviceBuffer::allocate(batch->attention().schedule_bytes(), "schedules");
  ASSERT_TRUE(schedules) << what << ": " << schedules.error().message;
  // The norm of the form in two launches is in place: what it reads is written anew for each run.
  const Result<LateInputs> inputs =
      LateInputs::make({{heads->qkv.data(), heads->qkv.bytes()}}, batch->output(), batch->newest());
  ASSERT_TRUE(inputs) << what << ": " << inputs.error().message;
  ASSERT_TRUE(launch_heads(heads->args, {}));
  const Result<Bytes> expected = batch->run_scheduled(*schedules, false);
  ASSERT_TRUE(expected) << what << ": " << expected.error().message;
  attention_test::expect_written(options, *expected);
  for (const SchedulesOf& given : {SchedulesOf{}, SchedulesOf{schedules->data(), true}}) {
    for (const bool is_fused : {true, false}) {
      const std::string form =
          what + (is_fused ? "" : " in two launches") + (given.are_there ? ", with schedules" : "");
      const LateInputs::Start before = [&](CudaStream stream) {
        return heads->launch(stream, is_fused);
      };
      const RunLate run = [&](const LateRun& late) {
        return run_late(*batch, *inputs, given, late, before);
      };
      expect_bits(run, *expected, form);
      // Behind the form in two launches it begins when the first of them has waited.
      if (is_fused)
        expect_overlap(run, *inputs, batch->attention().blocks(batch->args()), *expected, form);
      attention_test::expect_no_counts(*batch, form);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaEarlyStartOfAttentionOnDevice, WaitsForHeadsThatLetItStartBeforeTheyHaveWaited) {
  expect_attention_behind_heads_waits(long_options(GetParam().dtype, GetParam().head_dim, 512));
}

// ---- The matmul.

void expect_matmul_waits(const CudaMatmulCase& c) {
  const std::string what = name_of(c) + " tile " + std::to_string(c.shape.weights.tile_rows);
  Result<CudaMatmulRun> matmul = CudaMatmulRun::make(c);
  ASSERT_TRUE(matmul) << what << ": " << matmul.error().message;
  const Result<Bytes> expected = matmul->run();
  ASSERT_TRUE(expected) << what << ": " << expected.error().message;
  ASSERT_TRUE(matmul->has_values(*expected)) << what;
  const DeviceBuffer& output = matmul->output();
  const Result<LateInputs> inputs =
      LateInputs::make(matmul->inputs(), {output.data(), output.bytes()});
  ASSERT_TRUE(inputs) << what << ": " << inputs.error().message;
  const RunLate run = [&](const LateRun& late) {
    CudaMatmulArgs args = matmul->args();
    args.starts_early = true;
    args.recorder = late.recorder;
    return inputs->run(late.delay_ns,
                       [&](CudaStream stream) { return matmul->matmul().launch(args, stream); });
  };
  expect_bits(run, *expected, what);
  expect_overlap(run, *inputs, matmul->matmul().config(c.tokens).blocks, *expected, what);
}

// Up to 16 tokens are copied by lanes, more by the copy engine. Tiles are cut over blocks.
TEST_P(CudaEarlyStartOfMatmulOnDevice, WaitsForTokensScalesAndResiduals) {
  for (const int tile_rows : {64, 128}) {
    for (const int tokens : {16, 17, 32, 33, 64}) {
      CudaMatmulCase c = case_of(GetParam(), 1040, 5120, false, tokens);
      c.shape.weights.tile_rows = tile_rows;
      c.has_residual = tokens % 2 == 1;
      c.residual_dtype = tokens == 17 ? DType::kBf16 : DType::kF32;
      expect_matmul_waits(c);
      if (HasFatalFailure()) return;
    }
  }
}

// Whether a launch behind the matmul begins before the matmul's inputs are written.
Result<bool> next_begins_early(const CudaMatmulRun& matmul, const LateInputs& inputs,
                               const CudaMatmulRun& next, int next_blocks, bool holds_next) {
  AttentionRecords records = GAPLESS_TRY(AttentionRecords::make(next_blocks));
  CudaMatmulArgs args = matmul.args();
  args.starts_early = true;
  args.holds_next = holds_next;
  CudaMatmulArgs next_args = next.args();
  next_args.starts_early = true;
  next_args.recorder = records.launch();
  const LateInputs::Start start = [&](CudaStream stream) -> Result<void> {
    GAPLESS_TRY(matmul.matmul().launch(args, stream));
    return next.matmul().launch(next_args, stream);
  };
  GAPLESS_TRY(inputs.run(kLongDelayNs, start));
  const uint64_t written_ns = GAPLESS_TRY(inputs.written_ns());
  return began_before(records, next_blocks, written_ns);
}

// Goal: what comes behind a matmul that holds it begins when the matmul has waited, which is what
// lets the attention read what older launches wrote. Method: the matmul waits for late inputs; the
// launch behind it begins before they are written where it is not held, and never where it is.
TEST_F(CudaEarlyStartOnDevice, AMatmulHoldsTheNextLaunchUntilItHasWaited) {
  if (!runs_sm90_code()) GTEST_SKIP() << "the code for sm_80 knows no early launches";
  for (const int tokens : {16, 40}) {  // copied by lanes, and by the copy engine
    // Few blocks: with 40 tokens two do not fit an SM, and the next launch needs SMs that are free.
    const CudaMatmulCase c = case_of(DType::kS8, 1040, 1024, false, tokens);
    const Result<CudaMatmulRun> matmul = CudaMatmulRun::make(c);
    const Result<CudaMatmulRun> next = CudaMatmulRun::make(c);
    ASSERT_TRUE(matmul) << matmul.error().message;
    ASSERT_TRUE(next) << next.error().message;
    const DeviceBuffer& output = matmul->output();
    const Result<LateInputs> inputs =
        LateInputs::make(matmul->inputs(), {output.data(), output.bytes()});
    ASSERT_TRUE(inputs) << inputs.error().message;
    const int blocks = next->matmul().config(tokens).blocks;
    bool began_free = false;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const Result<bool> held = next_begins_early(*matmul, *inputs, *next, blocks, true);
      const Result<bool> free = next_begins_early(*matmul, *inputs, *next, blocks, false);
      ASSERT_TRUE(held) << held.error().message;
      ASSERT_TRUE(free) << free.error().message;
      ASSERT_FALSE(*held) << tokens << " tokens, attempt " << attempt;
      began_free |= *free;
    }
    EXPECT_TRUE(began_free) << tokens << " tokens";
  }
}

// As the layer has them: many stages a block, and nothing brought into L2.
TEST_P(CudaEarlyStartOfMatmulOnDevice, OfALayerWaitsForTokensAndScales) {
  for (const int tile_rows : {64, 128}) {
    CudaMatmulCase c = case_of(GetParam(), 5120, 5120, false, 40);
    c.shape.weights.tile_rows = tile_rows;
    c.tuning = {.read_ahead_kib = -1, .takes_sm = true};
    expect_matmul_waits(c);
    if (HasFatalFailure()) return;
  }
}

// ---- Rows, pairs and the largest logit.

Result<DeviceBuffer> random_floats(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  MatmulRandom random(seed);
  for (float& value : values) value = random.between(-2.0f, 2.0f);
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(count * 4, "a test"));
  GAPLESS_TRY(buffer.copy_from_host(values.data(), count * 4));
  return buffer;
}

using LaunchRows = std::function<Result<void>(const CudaRowsLaunch& launch)>;

// A launch that reads all of `input` and writes all of `output`.
void expect_launch_waits(const DeviceBuffer& input, DeviceBuffer& output, int blocks,
                         const LaunchRows& launch, const std::string& what) {
  ASSERT_TRUE(output.fill(0xff)) << what;
  const Result<void> launched = launch({});
  ASSERT_TRUE(launched) << what << ": " << launched.error().message;
  Bytes expected(static_cast<size_t>(output.bytes()));
  ASSERT_TRUE(output.copy_to_host(expected.data(), output.bytes()));
  // Eight bytes at a time: in one of int8, 0xff is -1.
  ASSERT_TRUE(is_written(expected, 8)) << what;
  const Result<LateInputs> inputs =
      LateInputs::make({{input.data(), input.bytes()}}, {output.data(), output.bytes()});
  ASSERT_TRUE(inputs) << what << ": " << inputs.error().message;
  const RunLate run = [&](const LateRun& late) {
    return inputs->run(late.delay_ns, [&](CudaStream stream) {
      return launch({.stream = stream, .starts_early = true, .recorder = late.recorder});
    });
  };
  expect_bits(run, expected, what);
  expect_overlap(run, *inputs, blocks, expected, what);
}

const float* floats_of(const DeviceBuffer& buffer) {
  return reinterpret_cast<const float*>(buffer.data());
}

void expect_rows_wait(DType dtype, int64_t k, bool has_norm) {
  constexpr int kRows = 16;
  const Result<DeviceBuffer> x = random_floats(kRows * k, 3);
  const Result<DeviceBuffer> gamma = random_floats(k, 4);
  Result<DeviceBuffer> y = DeviceBuffer::allocate(kRows * k * dtype_bytes(dtype), "rows");
  const Result<DeviceBuffer> factors = DeviceBuffer::allocate(kRows * 4, "factors");
  ASSERT_TRUE(x && gamma && y && factors);
  const CudaRowsArgs args = {
      .x = floats_of(*x),
      .x_stride = k,
      .rows = kRows,
      .k = k,
      .gamma = has_norm ? floats_of(*gamma) : nullptr,
      .eps = 1e-6f,
      .dtype = dtype,
      .y = y->data(),
      .k_stride = k,
      .factors = dtype == DType::kS8 ? reinterpret_cast<float*>(factors->data()) : nullptr};
  expect_launch_waits(
      *x, *y, rows_blocks(args),
      [&](const CudaRowsLaunch& launch) { return launch_rows(args, launch); },
      std::string(dtype_name(dtype)) + (has_norm ? " norm" : "") + " k " + std::to_string(k));
}

// Rows of one block, of 4 and of 8.
TEST_F(CudaEarlyStartOnDevice, RowsWaitForWhatTheyCast) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const int64_t k : {2048, 5120, 17408}) {
      for (const bool has_norm : {true, false}) {
        expect_rows_wait(dtype, k, has_norm);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaEarlyStartOnDevice, PairsWaitForTheirFirstHalf) {
  constexpr int kRows = 16;
  constexpr int64_t kColumns = 5120;
  const Result<DeviceBuffer> a = random_floats(kRows * kColumns, 5);
  const Result<DeviceBuffer> b = random_floats(kRows * kColumns, 6);
  Result<DeviceBuffer> y = DeviceBuffer::allocate(kRows * kColumns * 4, "sums");
  ASSERT_TRUE(a && b && y);
  const CudaPairArgs args = {.a = floats_of(*a),
                             .b = floats_of(*b),
                             .rows = kRows,
                             .columns = kColumns,
                             .stride = kColumns,
                             .y = reinterpret_cast<float*>(y->data())};
  for (const bool is_silu : {true, false}) {
    expect_launch_waits(
        *a, *y, pair_blocks(args),
        [&](const CudaRowsLaunch& launch) {
          return is_silu ? launch_silu_multiply(args, launch) : launch_add(args, launch);
        },
        is_silu ? "SiLU" : "sum");
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaEarlyStartOnDevice, TheLargestLogitWaitsForAllOfThem) {
  constexpr int kRows = 3;
  constexpr int64_t kColumns = 32000;
  const Result<DeviceBuffer> logits = random_floats(kRows * kColumns, 7);
  Result<DeviceBuffer> top = DeviceBuffer::allocate(kRows * 8, "largest logits");
  Result<DeviceBuffer> workspace = DeviceBuffer::allocate(top_workspace_bytes(kRows), "workspaces");
  ASSERT_TRUE(logits && top && workspace);
  ASSERT_TRUE(workspace->fill(0));
  const CudaTopArgs args = {.logits = floats_of(*logits),
                            .stride = kColumns,
                            .rows = kRows,
                            .columns = kColumns,
                            .top = top->data(),
                            .workspace = workspace->data()};
  expect_launch_waits(
      *logits, *top, top_blocks(args),
      [&](const CudaRowsLaunch& launch) { return launch_top(args, launch); }, "top");
}

}  // namespace
}  // namespace gapless
