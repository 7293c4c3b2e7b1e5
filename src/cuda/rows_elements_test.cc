// SPDX-License-Identifier: Apache-2.0
//
// Embedding, pairs of rows and the first logit on the GPU against the CPU's kernels; a chain of
// launches that start early.

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "cuda/rows.h"
#include "cuda/rows_test_support.h"
#include "kernels/elementwise_reference.h"
#include "kernels/sampling.h"

namespace gapless {
namespace {

class CudaElementsOnDevice : public CudaRowsOnDevice {};
class CudaTopOnDevice : public CudaRowsOnDevice {};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- Embedding.

void expect_embedded(DType dtype, int64_t hidden, const std::vector<int32_t>& tokens,
                     RecordLevel level) {
  constexpr int64_t kVocabulary = 11;
  const std::vector<float> values = random_floats(kVocabulary * hidden, 9);
  std::vector<std::byte> table(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i)
    store_from_float(dtype, table.data(), static_cast<int64_t>(i), values[i]);
  const DeviceArray<std::byte> device_table(table);
  const DeviceArray<int32_t> device_tokens(tokens);
  const int rows = static_cast<int>(tokens.size());
  const DeviceArray<float> x = DeviceArray<float>::poisoned(rows * hidden);
  const CudaEmbedArgs args = {.table = device_table.data(),
                              .table_dtype = dtype,
                              .tokens = device_tokens.data(),
                              .rows = rows,
                              .hidden = hidden,
                              .x = x.data()};
  const OneLaunchRecorder recorder(embed_blocks(args), level);
  CudaRowsLaunch launch;
  if (level != RecordLevel::kNone) launch.recorder = recorder.launch();
  ASSERT_EQ(rows_error(launch_embed(args, launch)), "");
  const std::vector<float> result = x.values();
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t at =
        tokens[i / static_cast<size_t>(hidden)] * hidden + static_cast<int64_t>(i) % hidden;
    ASSERT_EQ(result[i], load_as_float(dtype, table.data(), at)) << dtype_name(dtype) << " " << i;
  }
  if (level != RecordLevel::kNone) recorder.expect_all_phases();
}

TEST_F(CudaElementsOnDevice, EmbeddingRowsAreThoseOfTheTable) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int64_t hidden : {1, 8, 37, 80, 2048, 2052, 5120}) {
      expect_embedded(dtype, hidden, {3}, RecordLevel::kNone);
      expect_embedded(dtype, hidden, {10, 0, 3, 3, 7}, RecordLevel::kTasks);
      expect_embedded(dtype, hidden, {10, 0, 3, 3, 7}, RecordLevel::kPhases);
      if (HasFatalFailure()) return;
    }
  }
}

// ---- Pairs.

struct PairCase {
  int rows = 1;
  int64_t columns = 0;
  int64_t gap = 0;
  bool is_in_place = false;
};

using PairOpLaunch = Result<void> (*)(const CudaPairArgs&, const CudaRowsLaunch&);

// y of poison, or in the place of a: then the gaps are those of a.
std::vector<float> run_pair(PairOpLaunch op, const PairCase& c, const std::vector<float>& a,
                            const std::vector<float>& b, const CudaRowsLaunch& launch = {}) {
  const DeviceArray<float> device_a(a);
  const DeviceArray<float> device_b(b);
  const DeviceArray<float> y = DeviceArray<float>::poisoned(static_cast<int64_t>(a.size()));
  const CudaPairArgs args = {.a = device_a.data(),
                             .b = device_b.data(),
                             .rows = c.rows,
                             .columns = c.columns,
                             .stride = c.columns + c.gap,
                             .y = c.is_in_place ? device_a.data() : y.data()};
  EXPECT_EQ(rows_error(op(args, launch)), "");
  return c.is_in_place ? device_a.values() : y.values();
}

// The CPU's silu in double; __expf is within 2 + 1.2 |x| units of the last place.
void expect_pairs(const PairCase& c) {
  const int64_t count = c.rows * (c.columns + c.gap);
  std::vector<float> a = random_floats(count, 21);
  const std::vector<float> b = random_floats(count, 22);
  for (float& value : a) value *= 6.0f;
  const std::vector<float> sum = run_pair(launch_add, c, a, b);
  const std::vector<float> product = run_pair(launch_silu_multiply, c, a, b);
  const std::vector<double> expected = silu_multiply_reference(a, b, 1.0f);
  for (size_t i = 0; i < a.size(); ++i) {
    if (static_cast<int64_t>(i) % (c.columns + c.gap) < c.columns) {
      ASSERT_EQ(sum[i], a[i] + b[i]) << i;
      ASSERT_NEAR(product[i], expected[i], 5e-6 * std::abs(expected[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(sum[i]), 0xffffffffu) << "between rows: " << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(product[i]), 0xffffffffu) << "between rows: " << i;
    }
  }
  PairCase in_place = c;
  in_place.is_in_place = true;
  const std::vector<float> written = run_pair(launch_silu_multiply, in_place, a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_gap = static_cast<int64_t>(i) % (c.columns + c.gap) >= c.columns;
    ASSERT_EQ(written[i], is_gap ? a[i] : product[i]) << i;
  }
}

TEST_F(CudaElementsOnDevice, PairsAgreeWithTheCpu) {
  for (const int64_t columns : {1, 4, 48, 1027, 5120, 17408}) {
    for (const int rows : {1, 3, 16}) {
      expect_pairs({.rows = rows, .columns = columns, .gap = rows == 3 ? 5 : 0});
      if (HasFatalFailure()) return;
    }
  }
  expect_pairs({.rows = 3, .columns = 1026, .gap = 2});
}

TEST_F(CudaElementsOnDevice, SiluHasItsLimits) {
  const std::vector<float> gate = {-100.0f, -1000.0f, kInfinity, -kInfinity, kNan, 0.0f};
  const std::vector<float> up(6, 2.0f);
  const PairCase c = {.rows = 1, .columns = 6};
  const std::vector<float> y = run_pair(launch_silu_multiply, c, gate, up);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 0.0f);
}

TEST_F(CudaElementsOnDevice, RecordedPairsHaveTheSameBits) {
  const PairCase c = {.rows = 3, .columns = 5120};
  const std::vector<float> a = random_floats(3 * 5120, 1);
  const std::vector<float> b = random_floats(3 * 5120, 2);
  for (const PairOpLaunch op : {launch_add, launch_silu_multiply}) {
    for (const RecordLevel level : {RecordLevel::kTasks, RecordLevel::kPhases}) {
      const OneLaunchRecorder recorder(pair_blocks({.rows = 3, .columns = 5120}), level);
      EXPECT_EQ(run_pair(op, c, a, b, {.recorder = recorder.launch()}), run_pair(op, c, a, b));
      recorder.expect_all_phases();
    }
  }
}

// Goal: no launch reads what the one before has not written yet. Method: 40 launches, each of which
// changes what the next one reads, and whose blocks take different times.
TEST_F(CudaElementsOnDevice, LaunchesThatStartEarlyWaitForTheirRows) {
  constexpr int64_t kColumns = 17408;
  constexpr int kRows = 16;
  std::vector<float> x(kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13);
  const DeviceArray<float> one(std::vector<float>(x.size(), 1.0f));
  const DeviceArray<float> first(x);
  const DeviceArray<float> second = DeviceArray<float>::poisoned(kRows * kColumns);
  for (int i = 0; i < 40; ++i) {
    const CudaPairArgs args = {.a = i % 2 == 0 ? first.data() : second.data(),
                               .b = one.data(),
                               .rows = kRows,
                               .columns = kColumns,
                               .stride = kColumns,
                               .y = i % 2 == 0 ? second.data() : first.data()};
    ASSERT_EQ(rows_error(launch_add(args, {.starts_early = true})), "");
  }
  const DeviceArray<int8_t> y = DeviceArray<int8_t>::poisoned(kRows * kColumns);
  const DeviceArray<float> scales = DeviceArray<float>::poisoned(kRows);
  const CudaRowsArgs rows = {.x = first.data(),
                             .x_stride = kColumns,
                             .rows = kRows,
                             .k = kColumns,
                             .dtype = DType::kS8,
                             .y = y.data(),
                             .k_stride = kColumns,
                             .factors = scales.data()};
  ASSERT_EQ(rows_error(launch_rows(rows, {.starts_early = true})), "");
  for (const float scale : scales.values()) EXPECT_EQ(scale, 52.0f / 127.0f);
  const std::vector<int8_t> quantised = y.values();
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(quantised[i], std::lround((x[i] + 40.0f) * 127.0f / 52.0f)) << i;
  }
}

// ---- The first logit.

class TopRun {
 public:
  explicit TopRun(int max_rows)
      : workspace_(std::vector<std::byte>(static_cast<size_t>(top_workspace_bytes(max_rows)))) {}

  // Rows of `logits` that are `stride` apart, as on the CPU; on one workspace, run after run.
  void expect_right(const std::vector<float>& logits, int rows, int64_t columns, int64_t stride,
                    RecordLevel level = RecordLevel::kNone) const {
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<Candidate> top = DeviceArray<Candidate>::poisoned(rows);
    const CudaTopArgs args = {.logits = device_logits.data(),
                              .stride = stride,
                              .rows = rows,
                              .columns = columns,
                              .top = top.data(),
                              .workspace = workspace_.data()};
    const OneLaunchRecorder recorder(top_blocks(args), level);
    CudaRowsLaunch launch = {.starts_early = true};
    if (level != RecordLevel::kNone) launch.recorder = recorder.launch();
    ASSERT_EQ(rows_error(launch_top(args, launch)), "");
    const std::vector<Candidate> result = top.values();
    for (int row = 0; row < rows; ++row) {
      const std::span<const float> row_logits = std::span(logits).subspan(
          static_cast<size_t>(row * stride), static_cast<size_t>(columns));
      Candidate expected;
      take_top(CpuLevel::kPortable, row_logits, 0, std::span(&expected, 1));
      const Candidate& found = result[static_cast<size_t>(row)];
      ASSERT_EQ(found.token, expected.token) << "row " << row << " of " << columns;
      ASSERT_EQ(std::bit_cast<uint32_t>(found.logit), std::bit_cast<uint32_t>(expected.logit));
    }
    if (level != RecordLevel::kNone) recorder.expect_all_phases();
  }

 private:
  DeviceArray<std::byte> workspace_;
};

TEST_F(CudaTopOnDevice, AgreesWithTheCpu) {
  const TopRun run(16);
  for (const int64_t columns : {1, 5, 48, 8191, 8192, 8193, 100'003, 151'936, 300'001}) {
    for (const int rows : {1, 3, 16, 2}) {
      if (rows == 16 && columns > 200'000) continue;
      const int64_t stride = columns + (rows == 3 ? 3 : 0);
      const std::vector<float> logits =
          random_floats(rows * stride, static_cast<uint64_t>(columns + rows));
      const RecordLevel level = rows == 2   ? RecordLevel::kPhases
                                : rows == 3 ? RecordLevel::kTasks
                                            : RecordLevel::kNone;
      run.expect_right(logits, rows, columns, stride, level);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaTopOnDevice, TiesGoToTheSmallerTokenAndNanComesFirst) {
  const TopRun run(9);
  constexpr int64_t kColumns = 20'004;
  std::vector<float> logits(9 * kColumns, -1.0f);
  const auto at = [&logits](int row, int64_t token) -> float& {
    return logits[static_cast<size_t>(row * kColumns + token)];
  };
  at(1, 17'000) = at(1, 9'001) = at(1, 19'999) = 3.0f;  // in several parts
  at(2, 8'002) = at(2, 8'001) = at(2, 8'000) = 3.0f;    // of one thread and its neighbour
  at(3, 5) = kInfinity;
  at(3, 19'000) = at(3, 18'999) = kNan;
  at(4, 11'000) = -0.0f;  // equal, and earlier
  at(4, 12'000) = 0.0f;
  at(5, 12'000) = -0.0f;
  at(5, 11'000) = 0.0f;
  for (int64_t i = 0; i < kColumns; ++i) {
    at(6, i) = -kInfinity;
    at(7, i) = -kNan;
    at(8, i) = i % 3 == 0 ? -3e38f : -kInfinity;
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    run.expect_right(logits, 9, kColumns, kColumns, kRecordLevels[repeat]);
    if (HasFatalFailure()) return;
  }
}

// ---- On the host.

TEST(CudaElements, WrongArgumentsAreErrorsWithNumbers) {
  alignas(256) static float values[64] = {};
  alignas(16) static int32_t tokens[4] = {};
  CudaEmbedArgs embed = {.table = values, .tokens = tokens, .rows = 0, .hidden = 8, .x = values};
  EXPECT_TRUE(launch_embed(embed, {})) << "nothing to do is no error, with a GPU or without";
  embed.table_dtype = DType::kS8;
  EXPECT_EQ(rows_error(launch_embed(embed, {})),
            "an embedding of s8; bf16, f16 and f32 can be done");
  embed.table_dtype = DType::kF32;
  embed.hidden = 0;
  EXPECT_EQ(rows_error(launch_embed(embed, {})),
            "an embedding of 0 columns; 1 to 1073741824 can be done");
  embed.hidden = 4096;
  embed.rows = 2'000'000'000;
  EXPECT_EQ(rows_error(launch_embed(embed, {})),
            "an embedding of 2000000000 rows; 0 to 1073741823 can be done");
  embed.rows = 1;
  embed.tokens = nullptr;
  EXPECT_EQ(rows_error(launch_embed(embed, {})), "an embedding without tokens");

  CudaPairArgs pair = {.a = values, .b = values, .rows = 0, .columns = 8, .stride = 8, .y = values};
  EXPECT_TRUE(launch_add(pair, {}));
  pair.stride = 7;
  EXPECT_EQ(rows_error(launch_add(pair, {})),
            "the stride of a sum is 7 elements; a multiple of 1 and at least 8 is needed");
  pair.stride = 8;
  pair.b = nullptr;
  EXPECT_EQ(rows_error(launch_silu_multiply(pair, {})), "a product with SiLU without b");
}

TEST(CudaTop, WrongArgumentsAreErrorsWithNumbers) {
  alignas(256) static float values[64] = {};
  const CudaTopArgs good = {
      .logits = values, .stride = 8, .rows = 0, .columns = 8, .top = values, .workspace = values};
  EXPECT_TRUE(launch_top(good, {})) << "nothing to do is no error, with a GPU or without";
  CudaTopArgs args = good;
  args.columns = 9;
  EXPECT_EQ(rows_error(launch_top(args, {})),
            "the stride of the first logit is 8 elements; a multiple of 1 and at least 9 is "
            "needed");
  args = good;
  args.workspace = values + 4;
  EXPECT_EQ(rows_error(launch_top(args, {})),
            "workspace of the first logit does not begin at a multiple of 256 bytes");
}

TEST(CudaRowsBlocks, AreManyEnoughForAnArgmaxAndFixedForAShape) {
  CudaTopArgs top = {.stride = 151'936, .rows = 16, .columns = 151'936};
  EXPECT_EQ(top_blocks(top), 16 * 19);
  top.columns = 1'000'000;
  EXPECT_EQ(top_blocks(top), 16 * 32);
  EXPECT_EQ(pair_blocks({.rows = 16, .columns = 17'408}), 16 * 17);
  EXPECT_EQ(embed_blocks({.rows = 16, .hidden = 5'120}), 16 * 3);
  EXPECT_EQ(rows_blocks({.rows = 16, .k = 5'120, .is_whole = true}), 16);
}

}  // namespace
}  // namespace gapless
