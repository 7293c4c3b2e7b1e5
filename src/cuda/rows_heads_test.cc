// SPDX-License-Identifier: Apache-2.0
//
// Head norm, rope and cache write on the GPU against double precision; the form in two launches
// against the fused one, bit for bit. Pages are all 0xff before: whatever is not the newest token
// of a row must be so after.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "cuda/kv_pages.h"
#include "cuda/rows.h"
#include "cuda/rows_test_support.h"
#include "kernels/norm.h"
#include "kernels/norm_reference.h"

namespace gapless {
namespace {

class CudaHeadsOnDevice : public CudaRowsOnDevice {};

constexpr float kEps = 1e-6f;
constexpr uint16_t kPoison = 0xffff;

struct HeadsCase {
  KvShape kv = {.dtype = DType::kBf16, .kv_heads = 8, .head_dim = 128, .page_tokens = 128};
  int q_heads = 40;
  std::vector<int32_t> lengths;
  int64_t qkv_gap = 0;  // NaN behind each row
};

std::string name_of(const HeadsCase& c) {
  return std::string(dtype_name(c.kv.dtype)) + " head_dim " + std::to_string(c.kv.head_dim) + " " +
         std::to_string(c.q_heads) + ":" + std::to_string(c.kv.kv_heads) + " heads, " +
         std::to_string(c.lengths.size()) + " rows";
}

struct HeadsResult {
  std::vector<uint16_t> q;
  std::vector<uint16_t> pages;
  bool operator==(const HeadsResult&) const = default;
};

// Rows with pages of their own, in mixed order.
class HeadsRun {
 public:
  static constexpr int64_t kTableStride = 4;

  explicit HeadsRun(const HeadsCase& c)
      : c_(c),
        rope_(10000.0, c.kv.head_dim, kTableStride * c.kv.page_tokens),
        q_gamma_(random_floats(c.kv.head_dim, 3)),
        k_gamma_(random_floats(c.kv.head_dim, 4)),
        qkv_(random_floats(rows() * qkv_stride(), 5)),
        table_(static_cast<size_t>(rows() * kTableStride)) {
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t i = head_count() * c.kv.head_dim; i < qkv_stride(); ++i)
        qkv_[static_cast<size_t>(row * qkv_stride() + i)] = std::nanf("");
    }
    // 5 has no factor in common with any count of pages here.
    for (size_t i = 0; i < table_.size(); ++i)
      table_[i] = static_cast<int32_t>((i * 5 + 1) % table_.size());
  }

  int64_t rows() const { return static_cast<int64_t>(c_.lengths.size()); }
  int64_t head_count() const { return c_.q_heads + 2 * c_.kv.kv_heads; }
  int64_t qkv_stride() const { return head_count() * c_.kv.head_dim + c_.qkv_gap; }
  int64_t page_count() const { return rows() * kTableStride; }
  int64_t page_elements() const {
    return cuda_kv_page_bytes(c_.kv.kv_heads, c_.kv.head_dim, c_.kv.page_tokens) / 2;
  }
  std::vector<int32_t>& table() { return table_; }

  enum class Form { kFused, kTwoLaunches };
  HeadsResult run(Form form, const CudaRowsLaunch& launch = {}, int64_t rope_positions = 0) const {
    const DeviceArray<float> qkv(qkv_);
    const DeviceArray<float> q_gamma(q_gamma_);
    const DeviceArray<float> k_gamma(k_gamma_);
    const DeviceArray<float> rope(
        std::vector<float>(rope_.cos(0), rope_.cos(rope_.position_count())));
    const DeviceArray<int32_t> lengths(c_.lengths);
    const DeviceArray<int32_t> table(table_);
    const DeviceArray<uint16_t> pages =
        DeviceArray<uint16_t>::poisoned(page_count() * page_elements());
    const DeviceArray<uint16_t> q =
        DeviceArray<uint16_t>::poisoned(rows() * c_.q_heads * c_.kv.head_dim);
    CudaHeadsArgs args = {.qkv = qkv.data(),
                          .qkv_stride = qkv_stride(),
                          .rows = static_cast<int>(rows()),
                          .q_heads = c_.q_heads,
                          .kv = c_.kv,
                          .q_gamma = q_gamma.data(),
                          .k_gamma = k_gamma.data(),
                          .eps = kEps,
                          .rope = rope.data(),
                          .rope_positions = rope_positions,
                          .lengths = lengths.data(),
                          .page_table = table.data(),
                          .page_table_stride = kTableStride,
                          .pages = pages.data(),
                          .page_count = page_count(),
                          .q = q.data()};
    if (form == Form::kFused) {
      EXPECT_EQ(rows_error(launch_heads(args, launch)), "") << name_of(c_);
      EXPECT_TRUE(is_untouched(qkv, 0)) << name_of(c_);
    } else {
      EXPECT_EQ(rows_error(launch_head_norm(args, launch)), "") << name_of(c_);
      EXPECT_EQ(rows_error(launch_head_rope(args, launch)), "") << name_of(c_);
      EXPECT_TRUE(is_untouched(qkv, c_.q_heads + c_.kv.kv_heads)) << name_of(c_);
    }
    return {q.values(), pages.values()};
  }

  // The head after norm and rope; a v head as it is.
  std::vector<double> expected(int64_t row, int64_t head) const {
    const float* x = qkv_.data() + row * qkv_stride() + head * c_.kv.head_dim;
    if (head >= c_.q_heads + c_.kv.kv_heads) return std::vector<double>(x, x + c_.kv.head_dim);
    const int64_t position = c_.lengths[static_cast<size_t>(row)] - 1;
    const HeadNorm norm = {.head_count = 1,
                           .head_dim = c_.kv.head_dim,
                           .stride = c_.kv.head_dim,
                           .gamma = head < c_.q_heads ? q_gamma_.data() : k_gamma_.data(),
                           .eps = kEps,
                           .cos = rope_.cos(position),
                           .sin = rope_.sin(position)};
    return norm_heads_reference(norm, x);
  }

 private:
  // From that head of each row on, and between the rows.
  bool is_untouched(const DeviceArray<float>& qkv, int64_t first_head) const {
    const std::vector<float> after = qkv.values();
    const int64_t first = first_head * c_.kv.head_dim;
    for (int64_t row = 0; row < rows(); ++row) {
      const size_t begin = static_cast<size_t>(row * qkv_stride() + first);
      const size_t bytes = static_cast<size_t>(qkv_stride() - first) * sizeof(float);
      if (std::memcmp(after.data() + begin, qkv_.data() + begin, bytes) != 0) return false;
    }
    return true;
  }

  HeadsCase c_;
  RopeTable rope_;
  std::vector<float> q_gamma_;
  std::vector<float> k_gamma_;
  std::vector<float> qkv_;
  std::vector<int32_t> table_;
};

// Half a step of the type, and what f32 loses where two terms of rope cancel.
void expect_close(DType dtype, uint16_t bits, double expected, const std::string& where) {
  const double relative = dtype == DType::kBf16 ? 0.00392 : 0.00049;
  const double value = static_cast<double>(element_value(dtype, bits));
  ASSERT_NEAR(value, expected, relative * std::abs(expected) + 1e-5) << where;
}

void expect_queries(const HeadsCase& c, const HeadsRun& run, const HeadsResult& result,
                    int64_t row) {
  for (int64_t head = 0; head < c.q_heads; ++head) {
    const std::vector<double> expected = run.expected(row, head);
    for (int64_t i = 0; i < c.kv.head_dim; ++i) {
      const int64_t index = (row * c.q_heads + head) * c.kv.head_dim + i;
      expect_close(c.kv.dtype, result.q[static_cast<size_t>(index)],
                   expected[static_cast<size_t>(i)], name_of(c) + ": q");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Checks the row's token in its page and forgets it: makes poison of it again.
void expect_token(const HeadsCase& c, HeadsRun& run, HeadsResult& result, int64_t row) {
  const int32_t position = c.lengths[static_cast<size_t>(row)] - 1;
  const int64_t place = row * HeadsRun::kTableStride + position / c.kv.page_tokens;
  const int64_t page = run.table()[static_cast<size_t>(place)];
  const int64_t block = int64_t{c.kv.page_tokens} * c.kv.head_dim;
  for (int64_t head = 0; head < 2 * c.kv.kv_heads; ++head) {
    const std::vector<double> expected = run.expected(row, c.q_heads + head);
    const int64_t block_index = head % c.kv.kv_heads * 2 + head / c.kv.kv_heads;
    for (int i = 0; i < c.kv.head_dim; ++i) {
      const int64_t index = page * run.page_elements() + block_index * block +
                            cuda_kv_element(c.kv.head_dim, position % c.kv.page_tokens, i);
      uint16_t& bits = result.pages[static_cast<size_t>(index)];
      expect_close(c.kv.dtype, bits, expected[static_cast<size_t>(i)],
                   name_of(c) + ": k or v head " + std::to_string(head));
      if (::testing::Test::HasFatalFailure()) return;
      bits = kPoison;
    }
  }
}

bool is_poison(const std::vector<uint16_t>& elements) {
  return std::all_of(elements.begin(), elements.end(),
                     [](uint16_t bits) { return bits == kPoison; });
}

void expect_right(const HeadsCase& c) {
  HeadsRun run(c);
  HeadsResult result = run.run(HeadsRun::Form::kFused);
  EXPECT_EQ(result, run.run(HeadsRun::Form::kFused, {.starts_early = true})) << name_of(c);
  EXPECT_EQ(result, run.run(HeadsRun::Form::kTwoLaunches, {.starts_early = true})) << name_of(c);
  for (int64_t row = 0; row < run.rows(); ++row) {
    expect_queries(c, run, result, row);
    expect_token(c, run, result, row);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_TRUE(is_poison(result.pages)) << name_of(c) << ": a place of no token was written";
}

TEST_F(CudaHeadsOnDevice, AgreeWithTheFormulaAndInTwoLaunches) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const int head_dim : {64, 128, 256}) {
      HeadsCase c;
      c.kv = {.dtype = dtype, .kv_heads = 2, .head_dim = head_dim, .page_tokens = 48};
      c.q_heads = 10;
      c.lengths = {1, 48, 49, 150, 192, 7, 96};
      expect_right(c);
      c.lengths = {31};
      c.q_heads = 3;
      c.kv.kv_heads = 1;
      c.qkv_gap = 12;
      expect_right(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaHeadsOnDevice, AgreeForTheModelsShape) {
  for (const size_t rows : {1u, 3u, 16u}) {
    HeadsCase c;
    c.kv.page_tokens = 16;
    c.lengths.resize(rows);
    for (size_t i = 0; i < rows; ++i) c.lengths[i] = static_cast<int32_t>(1 + i * 37 % 64);
    expect_right(c);
  }
}

// Goal: a row without a place leaves no trace, and the others do not notice.
TEST_F(CudaHeadsOnDevice, RowsWithoutAPlaceStoreNothing) {
  HeadsCase c;
  c.kv = {.dtype = DType::kBf16, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  c.q_heads = 4;
  c.lengths = {0, -5, 65, 2'000'000'000, 20, 20, 20, 20};  // the table has room for 64
  HeadsRun run(c);
  const auto place_of = [](int64_t row) {
    return static_cast<size_t>(row * HeadsRun::kTableStride + 1);
  };
  run.table()[place_of(4)] = -1;
  run.table()[place_of(5)] = static_cast<int32_t>(run.page_count());
  run.table()[place_of(6)] = 2'000'000'000;
  HeadsResult result = run.run(HeadsRun::Form::kFused);
  EXPECT_EQ(result, run.run(HeadsRun::Form::kTwoLaunches));
  for (const int64_t row : {4, 5, 6, 7}) expect_queries(c, run, result, row);
  for (int64_t row = 0; row < 4; ++row) {
    const auto begin = result.q.begin() + row * c.q_heads * c.kv.head_dim;
    EXPECT_TRUE(is_poison({begin, begin + c.q_heads * c.kv.head_dim})) << "row " << row;
  }
  expect_token(c, run, result, 7);
  EXPECT_TRUE(is_poison(result.pages));
  // With angles for 19 positions only, there is none for the rows of 20.
  result = run.run(HeadsRun::Form::kFused, {}, 19);
  EXPECT_TRUE(is_poison(result.q));
  EXPECT_TRUE(is_poison(result.pages));
}

TEST_F(CudaHeadsOnDevice, RecordedHeadsHaveTheSameBits) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    HeadsCase c;
    c.kv.dtype = dtype;
    c.lengths = {5, 200, 17};
    const HeadsRun run(c);
    CudaHeadsArgs args;
    args.rows = 3;
    args.q_heads = c.q_heads;
    args.kv = c.kv;
    EXPECT_EQ(heads_blocks(args), 3 * 7);
    EXPECT_EQ(head_norm_blocks(args), 3 * 6);
    for (const RecordLevel level : {RecordLevel::kTasks, RecordLevel::kPhases}) {
      const OneLaunchRecorder recorder(heads_blocks(args), level);
      const CudaRowsLaunch launch = {.recorder = recorder.launch()};
      EXPECT_EQ(run.run(HeadsRun::Form::kFused, launch), run.run(HeadsRun::Form::kFused));
      recorder.expect_all_phases();
    }
  }
}

TEST(CudaHeads, WrongArgumentsAreErrorsWithNumbers) {
  alignas(16) static float values[64] = {};
  alignas(16) static int32_t numbers[4] = {};
  const CudaHeadsArgs good = {
      .qkv = values,
      .qkv_stride = 7168,
      .rows = 0,
      .q_heads = 40,
      .kv = {.dtype = DType::kBf16, .kv_heads = 8, .head_dim = 128, .page_tokens = 128},
      .q_gamma = values,
      .k_gamma = values,
      .rope = values,
      .lengths = numbers,
      .page_table = numbers,
      .page_table_stride = 1,
      .pages = values,
      .page_count = 1,
      .q = values};
  EXPECT_TRUE(launch_heads(good, {})) << "nothing to do is no error, with a GPU or without";
  CudaHeadsArgs args = good;
  args.kv.dtype = DType::kS8;
  EXPECT_EQ(rows_error(launch_heads(args, {})), "heads of s8; pages on a GPU are bf16 or f16");
  args = good;
  args.kv.head_dim = 96;
  EXPECT_NE(rows_error(launch_heads(args, {})).find("96"), std::string::npos);
  args = good;
  args.qkv_stride = 7167;
  EXPECT_EQ(rows_error(launch_head_norm(args, {})),
            "the stride of qkv of the heads of a row is 7167 elements; a multiple of 4 and at "
            "least 7168 is needed");
  args = good;
  args.q_heads = 0;
  EXPECT_EQ(rows_error(launch_heads(args, {})),
            "the heads of a row of 0 query heads; 1 to 1073741824 can be done");
  args = good;
  args.k_gamma = nullptr;
  EXPECT_EQ(rows_error(launch_heads(args, {})), "the heads of a row without k_gamma");
  EXPECT_TRUE(launch_head_rope(args, {})) << "which needs none";
  args = good;
  args.q = values + 1;
  EXPECT_EQ(rows_error(launch_head_rope(args, {})),
            "q of the heads of a row does not begin at a multiple of 16 bytes");
  args = good;
  args.page_count = -1;
  EXPECT_EQ(rows_error(launch_heads(args, {})), "the heads of a row with -1 pages and 0 positions");
}

}  // namespace
}  // namespace gapless
