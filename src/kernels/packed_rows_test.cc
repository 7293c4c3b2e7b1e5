// SPDX-License-Identifier: Apache-2.0

#include "kernels/packed_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/kernel_test_support.h"
#include "kernels/matmul_reference.h"
#include "kernels/matmul_test_support.h"
#include "kernels/packed_matrix.h"

namespace gapless {
namespace {

constexpr DType kSourceTypes[] = {DType::kF32, DType::kBf16, DType::kF16};
// Below, at and above every vector and unit; the last ones are several pieces of 1,024 and a rest.
constexpr int64_t kSmallK[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130};
constexpr int64_t kLargeK[] = {1023, 1024, 1025, 1027, 2048, 2049, 3075};

struct Source {
  Source(DType dtype, std::span<const float> values, GuardSide side = GuardSide::kEnd)
      : bytes(as_dtype(dtype, values), side),
        floats(as_floats(dtype, bytes.data(), static_cast<int64_t>(values.size()))) {}
  GuardedArray<std::byte> bytes;
  std::vector<float> floats;  // what the elements are once more as f32
};

// Where the header says that element (row, k) lies, in elements of its format.
int64_t place_of(const PackedRows& rows, int64_t row, int64_t k) {
  const int64_t per_line = line_k(rows.weights);
  const int64_t lines = (rows.k + per_line - 1) / per_line;
  const int64_t group = row / kRowGroup;
  const int64_t group_rows = std::min<int64_t>(kRowGroup, rows.m - group * kRowGroup);
  const int64_t group_at = group * kRowGroup * lines * per_line;
  const int64_t line = k / per_line;
  const int64_t in_line = k % per_line;
  if (rows.format == RowFormat::kF32)
    return group_at + (line * per_line + in_line) * group_rows + row % kRowGroup;
  return group_at + (line * group_rows + row % kRowGroup) * per_line + in_line;
}

float element_of(const PackedRows& rows, int64_t row, int64_t k) {
  const int64_t at = place_of(rows, row, k);
  switch (rows.format) {
    case RowFormat::kS8x4:
      return static_cast<float>(std::bit_cast<int8_t>(rows.data[at]));
    case RowFormat::kBf16x2:
      return load_as_float(DType::kBf16, rows.data, at);
    default:
      return load_as_float(DType::kF32, rows.data, at);
  }
}

// Every element of every row, the padding and, for s8, scale and sum.
testing::AssertionResult rows_are(const PackedRows& rows, std::span<const float> x,
                                  const float* gamma) {
  for (int64_t row = 0; row < rows.m; ++row) {
    std::vector<float> values(x.begin() + row * rows.k, x.begin() + (row + 1) * rows.k);
    for (size_t i = 0; gamma != nullptr && i < values.size(); ++i) values[i] *= gamma[i];
    const QuantizedRow quantized = quantize_row_reference(values);
    const bool is_s8 = rows.weights == DType::kS8;
    if (is_s8 &&
        (!is_same_float(rows.scales[row], quantized.scale) || rows.sums[row] != quantized.sum))
      return testing::AssertionFailure()
             << "row " << row << " has scale " << rows.scales[row] << " and sum " << rows.sums[row]
             << ", not " << quantized.scale << " and " << quantized.sum;
    const int64_t padded =
        (rows.k + line_k(rows.weights) - 1) / line_k(rows.weights) * line_k(rows.weights);
    for (int64_t k = 0; k < padded; ++k) {
      const size_t i = static_cast<size_t>(k);
      float expected = 0.0f;
      if (k < rows.k)
        expected = is_s8 ? quantized.values[i] : cast_through(rows.weights, values[i]);
      if (!is_same_float(element_of(rows, row, k), expected))
        return testing::AssertionFailure() << "element " << k << " of row " << row << " is "
                                           << element_of(rows, row, k) << ", not " << expected;
    }
  }
  return testing::AssertionSuccess();
}

std::string case_text(DType weights, CpuLevel level, int64_t m, int64_t k) {
  return std::string(dtype_name(weights)) + " " + std::string(cpu_level_name(level)) + " m " +
         std::to_string(m) + " k " + std::to_string(k);
}

// Packs at every level and for all weights, with guards on `side`.
void expect_packed(int64_t m, int64_t k, DType source_dtype, std::span<const float> values,
                   const float* gamma = nullptr, GuardSide side = GuardSide::kEnd) {
  const Source source(source_dtype, values, side);
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const DType weights : kWeightTypes) {
      const GuardedRows memory(weights, level, m, k, side);
      const RowSource from = {
          .dtype = source_dtype, .data = source.bytes.data(), .row_stride = k, .gamma = gamma};
      pack_rows(level, from, 0, m, memory.rows);
      ASSERT_TRUE(rows_are(memory.rows, source.floats, gamma)) << case_text(weights, level, m, k);
    }
  }
}

TEST(PackedRows, EveryFormatIsLaidOutAsTheHeaderSays) {
  for (int64_t m = 1; m <= 9; ++m)
    for (const int64_t k : kSmallK) expect_packed(m, k, DType::kF32, normal_values(m * k, 1));
}

TEST(PackedRows, RowsLongerThanAPieceAreWhole) {
  for (const int64_t k : kLargeK)
    for (const int64_t m : {1, 3, 6}) expect_packed(m, k, DType::kF32, normal_values(m * k, 2));
}

TEST(PackedRows, SourcesOfEveryTypeAreReadWithinTheirMemory) {
  for (const GuardSide side : {GuardSide::kEnd, GuardSide::kBegin})
    for (const DType dtype : kSourceTypes)
      for (const int64_t k : {1, 3, 8, 13, 16, 21, 33, 130, 1029})
        expect_packed(5, k, dtype, normal_values(5 * k, 3), nullptr, side);
}

TEST(PackedRows, GammaIsMultipliedInF32BeforeTheCast) {
  for (const DType dtype : kSourceTypes) {
    for (const int64_t k : {1, 5, 8, 17, 64, 1030}) {
      const GuardedArray<float> gamma(uniform_values(k, 0.5f, 2.0f, 4));
      expect_packed(3, k, dtype, normal_values(3 * k, 5), gamma.data());
    }
  }
}

// Ties in both directions, the largest values, a row of one value only.
TEST(PackedRows, QuantizingRoundsTiesToEvenAndReachesBothEnds) {
  std::vector<float> row = {127.0f, -127.0f};
  for (int i = 0; i < 127; ++i) {
    row.push_back(static_cast<float>(i) + 0.5f);
    row.push_back(-static_cast<float>(i) - 0.5f);
    row.push_back(std::nextafter(static_cast<float>(i) + 0.5f, 0.0f));
    row.push_back(std::nextafter(static_cast<float>(i) + 0.5f, 128.0f));
  }
  const QuantizedRow quantized = quantize_row_reference(row);
  EXPECT_EQ(quantized.scale, 1.0f);
  EXPECT_EQ(quantized.values[0], 127);
  EXPECT_EQ(quantized.values[1], -127);
  EXPECT_EQ(quantized.values[2], 0);   // 0.5
  EXPECT_EQ(quantized.values[6], 2);   // 1.5
  EXPECT_EQ(quantized.values[10], 2);  // 2.5
  expect_packed(1, static_cast<int64_t>(row.size()), DType::kF32, row);
  for (const float value : {1.0f, -1.0f, 3e38f, -3e38f, 0.3f})
    expect_packed(1, 67, DType::kF32, std::vector<float>(67, value));
}

// x * (127 / amax) may come out above 127: many amax, each with its own rounding errors.
TEST(PackedRows, QuantizingStaysWithin127) {
  const std::vector<float> amax = uniform_values(200, 1e-3f, 10.0f, 6);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    const GuardedRows memory(DType::kS8, level, 1, 9);
    for (const float value : amax) {
      std::vector<float> row(9, value);
      row[3] = -value;
      pack_rows(level, {.data = row.data(), .row_stride = 9}, 0, 1, memory.rows);
      ASSERT_TRUE(rows_are(memory.rows, row, nullptr));
      ASSERT_EQ(element_of(memory.rows, 0, 0), 127.0f) << value;
      ASSERT_EQ(element_of(memory.rows, 0, 3), -127.0f) << value;
    }
  }
}

TEST(PackedRows, SmallRowsAreScaledAsIfTheirLargestWere1e4) {
  for (const float amax : {0.0f, -0.0f, 0x1p-149f, 1e-30f, 5e-5f, 9.9999e-5f, 1e-4f, 1.0001e-4f}) {
    std::vector<float> row(21, 0.0f);
    row[4] = amax;
    row[5] = -amax / 2.0f;
    expect_packed(1, 21, DType::kF32, row);
  }
  const QuantizedRow quantized = quantize_row_reference(std::vector<float>(3, 5e-5f));
  EXPECT_EQ(quantized.scale, 1e-4f / 127.0f);
  EXPECT_EQ(quantized.values[0], 64);  // 63.5 to even
}

// The row before and the row after must not notice.
TEST(PackedRows, ARowThatIsNotFiniteHasTheScaleNan) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const int64_t at : {0, 6, 7, 8, 15, 16, 18, 1026}) {
      const int64_t k = at < 19 ? 19 : 1027;
      std::vector<float> x = normal_values(3 * k, 7);
      x[static_cast<size_t>(k + at)] = bad;
      expect_packed(3, k, DType::kF32, x);
    }
  }
}

TEST(PackedRows, AProductWithGammaThatOverflowsIsNotFinite) {
  std::vector<float> x(2 * 20, 1.0f);
  x[5] = 3e38f;
  std::vector<float> gamma(20, 1.0f);
  gamma[5] = 4.0f;
  expect_packed(2, 20, DType::kF32, x, gamma.data());
  EXPECT_TRUE(std::isnan(quantize_row_reference(std::vector<float>{kInfinity}).scale));
}

// Casts: too large for f16 is infinity, denormals stay.
TEST(PackedRows, CastsKeepTheEdgesOfTheirTypes) {
  expect_packed(1, 12, DType::kF32,
                std::vector<float>{65504.0f, 65519.0f, 65520.0f, -1e30f, 0x1p-24f, 0x1p-25f,
                                   0x1.8p-25f, 0x1p-149f, 0x1p-130f, -0.0f, 3.4e38f, 1.0f});
}

TEST(PackedRows, RowsMayBePackedOneByOne) {
  constexpr int64_t kM = 7;
  constexpr int64_t kK = 37;
  const std::vector<float> x = normal_values(kM * kK, 8);
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const DType weights : kWeightTypes) {
      const GuardedRows memory(weights, level, kM, kK);
      const RowSource source = {.data = x.data(), .row_stride = kK};
      for (const int64_t row : {6, 0, 3}) pack_rows(level, source, row, 1, memory.rows);
      pack_rows(level, source, 4, 2, memory.rows);
      pack_rows(level, source, 1, 2, memory.rows);
      EXPECT_TRUE(rows_are(memory.rows, x, nullptr)) << case_text(weights, level, kM, kK);
    }
  }
}

// Rows that lie further apart than they are long; what lies between them is not read: it is NaN.
TEST(PackedRows, TheRowStrideSkipsWhatLiesBetween) {
  constexpr int64_t kM = 3;
  constexpr int64_t kK = 21;
  constexpr int64_t kStride = 30;
  const std::vector<float> x = normal_values(kM * kK, 9);
  for (const DType dtype : kSourceTypes) {
    std::vector<float> apart((kM - 1) * kStride + kK, kNan);
    for (int64_t row = 0; row < kM; ++row)
      std::copy_n(x.begin() + row * kK, kK, apart.begin() + row * kStride);
    const Source source(dtype, apart);
    const Source dense(dtype, x);
    for (const CpuLevel level : usable_cpu_levels()) {
      for (const DType weights : kWeightTypes) {
        const GuardedRows memory(weights, level, kM, kK);
        pack_rows(level, {.dtype = dtype, .data = source.bytes.data(), .row_stride = kStride}, 0,
                  kM, memory.rows);
        EXPECT_TRUE(rows_are(memory.rows, dense.floats, nullptr))
            << case_text(weights, level, kM, kK);
      }
    }
  }
}

TEST(PackedRows, ABlockHoldsDataScalesAndSumsWithoutOverlap) {
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const DType weights : kWeightTypes) {
      for (const int64_t m : {1, 5, 16, 64}) {
        const int64_t k = 67;
        const int64_t bytes = packed_rows_block_bytes(weights, level, m, k);
        EXPECT_EQ(bytes % 64, 0);
        const GuardedArray<std::byte> block(bytes);
        const PackedRows rows = packed_rows_in(block.data(), weights, level, m, k);
        const std::vector<float> x = normal_values(m * k, 10);
        pack_rows(level, {.data = x.data(), .row_stride = k}, 0, m, rows);
        EXPECT_TRUE(rows_are(rows, x, nullptr)) << case_text(weights, level, m, k);
        EXPECT_EQ(rows.scales != nullptr, weights == DType::kS8);
      }
    }
  }
}

TEST(PackedRows, OnlyBf16WeightsHaveAFormatOfTheirOwnLevel) {
  EXPECT_EQ(row_format(DType::kS8, CpuLevel::kPortable), RowFormat::kS8x4);
  EXPECT_EQ(row_format(DType::kS8, CpuLevel::kAvx512Bf16), RowFormat::kS8x4);
  EXPECT_EQ(row_format(DType::kBf16, CpuLevel::kAvx512), RowFormat::kF32);
  EXPECT_EQ(row_format(DType::kBf16, CpuLevel::kAvx512Bf16), RowFormat::kBf16x2);
  EXPECT_EQ(row_format(DType::kF16, CpuLevel::kAvx512Bf16), RowFormat::kF32);
  EXPECT_EQ(packed_rows_bytes(DType::kS8, CpuLevel::kPortable, 5, 9), 5 * 3 * 4);
  EXPECT_EQ(packed_rows_bytes(DType::kBf16, CpuLevel::kAvx512Bf16, 5, 9), 5 * 5 * 4);
  EXPECT_EQ(packed_rows_bytes(DType::kBf16, CpuLevel::kPortable, 5, 9), 5 * 10 * 4);
  EXPECT_EQ(packed_rows_bytes(DType::kF16, CpuLevel::kPortable, 5, 9), 5 * 10 * 4);
  EXPECT_EQ(packed_rows_bytes(DType::kF32, CpuLevel::kPortable, 5, 9), 5 * 9 * 4);
}

}  // namespace
}  // namespace gapless
