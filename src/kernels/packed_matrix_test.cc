// SPDX-License-Identifier: Apache-2.0

#include "kernels/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/kernel_test_support.h"
#include "kernels/matmul_test_support.h"

namespace gapless {
namespace {

struct Extent {
  int64_t n = 0;
  int64_t k = 0;
};
constexpr Extent kExtents[] = {{1, 1},   {1, 2},   {2, 3},   {15, 4},  {16, 5},
                               {17, 63}, {33, 64}, {48, 65}, {97, 130}};

std::string case_text(DType dtype, Extent extent) {
  return std::string(dtype_name(dtype)) + " n " + std::to_string(extent.n) + " k " +
         std::to_string(extent.k);
}

PackedMatrix make_matrix(DType dtype, Extent extent, Interleave interleave = Interleave::kNone) {
  Result<PackedMatrix> matrix = PackedMatrix::create(dtype, extent.n, extent.k, interleave);
  if (!matrix.has_value()) ADD_FAILURE() << matrix.error().message;
  return std::move(matrix).value();
}

std::vector<int8_t> random_s8(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> distribution(-128, 127);
  std::vector<int8_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int8_t>(distribution(random)));
  return values;
}

template <typename T>
T read_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The element of a panel as the header's table says where it lies.
float panel_element(DType dtype, const std::byte* panel, int64_t row, int64_t k) {
  switch (dtype) {
    case DType::kS8:
      return static_cast<float>(read_at<uint8_t>(panel + (k / 4 * 16 + row) * 4 + k % 4)) - 128.0f;
    case DType::kBf16:
      return to_float(read_at<Bf16>(panel + ((k / 2 * 16 + row) * 2 + k % 2) * 2));
    case DType::kF16:
      return to_float(read_at<F16>(panel + (k * 16 + row) * 2));
    default:
      return read_at<float>(panel + (k * 16 + row) * 4);
  }
}

TEST(PackedMatrix, HoldsWhatWasSetFromEveryFloatType) {
  for (const DType dtype : kFloatTypes) {
    for (const DType source_dtype : kFloatTypes) {
      for (const Extent extent : kExtents) {
        SCOPED_TRACE(case_text(dtype, extent));
        const std::vector<float> values = normal_values(extent.n * extent.k, 1);
        const std::vector<std::byte> source = as_dtype(source_dtype, values);
        PackedMatrix matrix = make_matrix(dtype, extent);
        matrix.set_rows(0, extent.n, source_dtype, source.data());
        for (int64_t row = 0; row < extent.n; ++row) {
          for (int64_t k = 0; k < extent.k; ++k) {
            const float given = load_as_float(source_dtype, source.data(), row * extent.k + k);
            ASSERT_EQ(matrix.value(row, k), cast_through(dtype, given)) << row << ", " << k;
          }
        }
      }
    }
  }
}

TEST(PackedMatrix, HoldsQuantizedRowsWithTheirScales) {
  for (const Extent extent : kExtents) {
    SCOPED_TRACE(case_text(DType::kS8, extent));
    const std::vector<int8_t> values = random_s8(extent.n * extent.k, 2);
    const std::vector<float> scales = uniform_values(extent.n, 0.001f, 2.0f, 3);
    PackedMatrix matrix = make_matrix(DType::kS8, extent);
    matrix.set_quantized_rows(0, extent.n, values.data(), scales.data());
    for (int64_t row = 0; row < extent.n; ++row) {
      const float scale = scales[static_cast<size_t>(row)];
      EXPECT_EQ(matrix.panel_scales()[row], scale);
      for (int64_t k = 0; k < extent.k; ++k) {
        const int8_t value = values[static_cast<size_t>(row * extent.k + k)];
        ASSERT_EQ(matrix.value(row, k), static_cast<float>(value) * scale) << row << ", " << k;
      }
    }
  }
}

TEST(PackedMatrix, ElementsLieAsTheHeaderSays) {
  for (const DType dtype : kWeightTypes) {
    for (const Extent extent : kExtents) {
      SCOPED_TRACE(case_text(dtype, extent));
      PackedMatrix matrix = make_matrix(dtype, extent);
      const std::vector<float> values = normal_values(extent.n * extent.k, 4);
      matrix.set_rows(0, extent.n, DType::kF32, values.data());
      ASSERT_EQ(matrix.panel_count(), (extent.n + 15) / 16);
      ASSERT_EQ(matrix.line_count(), (extent.k + line_k(dtype) - 1) / line_k(dtype));
      for (int64_t row = 0; row < extent.n; ++row) {
        const float scale = dtype == DType::kS8 ? matrix.panel_scales()[row] : 1.0f;
        for (int64_t k = 0; k < extent.k; ++k) {
          const float stored = panel_element(dtype, matrix.panel(row / 16), row % 16, k);
          ASSERT_EQ(matrix.value(row, k), stored * scale) << row << ", " << k;
        }
      }
    }
  }
}

// Also when the padding's neighbours are NaN or as large as can be.
TEST(PackedMatrix, PaddingHasNoWeight) {
  for (const DType dtype : kWeightTypes) {
    for (const Extent extent : kExtents) {
      SCOPED_TRACE(case_text(dtype, extent));
      PackedMatrix matrix = make_matrix(dtype, extent);
      const float filler = dtype == DType::kS8 ? 127.0f : kNan;
      const std::vector<float> values(static_cast<size_t>(extent.n * extent.k), filler);
      matrix.set_rows(0, extent.n, DType::kF32, values.data());
      const int64_t padded_k = matrix.line_count() * line_k(dtype);
      for (int64_t row = 0; row < matrix.panel_count() * 16; ++row) {
        const int64_t first = row < extent.n ? extent.k : 0;
        for (int64_t k = first; k < padded_k; ++k) {
          ASSERT_EQ(panel_element(dtype, matrix.panel(row / 16), row % 16, k), 0.0f)
              << row << ", " << k;
        }
        if (dtype == DType::kS8 && row >= extent.n) {
          EXPECT_EQ(matrix.panel_scales()[row], 0.0f);
        }
      }
    }
  }
}

TEST(PackedMatrix, PairsLieGateUpGateUp) {
  for (const DType dtype : kWeightTypes) {
    for (const Extent extent : kExtents) {
      SCOPED_TRACE(case_text(dtype, extent));
      const std::vector<float> gate = normal_values(extent.n * extent.k, 5);
      const std::vector<float> up = normal_values(extent.n * extent.k, 6);
      PackedMatrix pair = make_matrix(dtype, extent, Interleave::kPairs);
      pair.set_rows(0, extent.n, DType::kF32, up.data(), 1);
      pair.set_rows(0, extent.n, DType::kF32, gate.data(), 0);
      PackedMatrix alone[2] = {make_matrix(dtype, extent), make_matrix(dtype, extent)};
      alone[0].set_rows(0, extent.n, DType::kF32, gate.data());
      alone[1].set_rows(0, extent.n, DType::kF32, up.data());

      ASSERT_EQ(pair.n(), extent.n);
      ASSERT_EQ(pair.panel_count(), alone[0].panel_count() * 2);
      EXPECT_EQ(pair.weight_bytes(), alone[0].weight_bytes() * 2);
      const size_t bytes = static_cast<size_t>(pair.line_count() * kLineBytes);
      for (int64_t panel = 0; panel < pair.panel_count(); ++panel) {
        const PackedMatrix& half = alone[panel % 2];
        ASSERT_EQ(std::memcmp(pair.panel(panel), half.panel(panel / 2), bytes), 0) << panel;
        for (int64_t i = 0; dtype == DType::kS8 && i < 16; ++i)
          ASSERT_EQ(pair.panel_scales()[panel * 16 + i], half.panel_scales()[panel / 2 * 16 + i]);
      }
      for (int which = 0; which < 2; ++which)
        for (int64_t row = 0; row < extent.n; ++row)
          ASSERT_EQ(pair.value(row, extent.k - 1, which), alone[which].value(row, extent.k - 1));
    }
  }
}

// value / scale is rounded, so a value may be a rounding error further away than half a scale.
TEST(PackedMatrix, QuantizingIsOffByAtMostHalfAScale) {
  constexpr Extent kExtent = {40, 333};
  const std::vector<float> values = normal_values(kExtent.n * kExtent.k, 7, 3.0f);
  PackedMatrix matrix = make_matrix(DType::kS8, kExtent);
  matrix.set_rows(0, kExtent.n, DType::kF32, values.data());
  for (int64_t row = 0; row < kExtent.n; ++row) {
    const float scale = matrix.panel_scales()[row];
    float amax = 0.0f;
    for (int64_t k = 0; k < kExtent.k; ++k) {
      const float value = values[static_cast<size_t>(row * kExtent.k + k)];
      amax = std::max(amax, std::abs(value));
      const float stored = panel_element(DType::kS8, matrix.panel(row / 16), row % 16, k);
      ASSERT_LE(std::abs(stored), 127.0f);
      ASSERT_LE(std::abs(stored * scale - value), scale * 0.5f * (1.0f + 0x1p-16f));
    }
    EXPECT_EQ(scale, amax / 127.0f);
  }
}

TEST(PackedMatrix, QuantizingRoundsTiesToEven) {
  const std::vector<float> row = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127.0f, 126.5f};
  const std::vector<float> expected = {127, 0, 2, 2, 0, -2, -2, -127, 126};
  PackedMatrix matrix = make_matrix(DType::kS8, {1, 9});
  matrix.set_rows(0, 1, DType::kF32, row.data());
  ASSERT_EQ(matrix.panel_scales()[0], 1.0f);
  for (size_t k = 0; k < row.size(); ++k)
    EXPECT_EQ(matrix.value(0, static_cast<int64_t>(k)), expected[k]) << row[k];
}

// The definition, without the packing's way to round.
int8_t quantized_by_definition(float value, float scale) {
  const float scaled = std::nearbyint(value / scale);
  return std::isnan(scaled) ? int8_t{0} : static_cast<int8_t>(std::clamp(scaled, -127.0f, 127.0f));
}

// Rows of every length about a block's and a vector's, and of every magnitude: below the smallest
// normal number a scale has lost bits, and at the end there is nothing left of it.
TEST(PackedMatrix, QuantizesRowsAsTheDefinitionSays) {
  for (const int64_t k : {1, 15, 16, 17, 255, 256, 257, 700}) {
    for (const float size : {1.0f, 1e30f, 1e-30f, 1e-36f, 1e-39f, 1e-43f, 1e-45f}) {
      const std::vector<float> values = normal_values(k, 10, size);
      for (const DType dtype : kFloatTypes) {
        const std::vector<std::byte> source = as_dtype(dtype, values);
        float amax = 0.0f;
        for (int64_t i = 0; i < k; ++i)
          amax = std::max(amax, std::abs(load_as_float(dtype, source.data(), i)));
        EXPECT_EQ(largest_magnitude(dtype, source.data(), k), amax);
        if (std::isinf(amax)) continue;  // 1e30 as f16
        std::vector<int8_t> quantized(static_cast<size_t>(k), 99);
        const float scale = quantize_row(dtype, source.data(), k, quantized.data());
        ASSERT_EQ(scale, amax == 0.0f ? 1.0f : amax / 127.0f);
        PackedMatrix matrix = make_matrix(DType::kS8, {1, k});
        matrix.set_rows(0, 1, dtype, source.data());
        ASSERT_EQ(matrix.panel_scales()[0], scale);
        for (int64_t i = 0; i < k; ++i) {
          const float value = load_as_float(dtype, source.data(), i);
          const int8_t expected = quantized_by_definition(value, scale);
          ASSERT_EQ(quantized[static_cast<size_t>(i)], expected) << size << ", " << i;
          ASSERT_EQ(panel_element(DType::kS8, matrix.panel(0), 0, i), expected);
        }
      }
    }
  }
}

TEST(PackedMatrix, TheLargestMagnitudeIsNotFiniteWhenAnElementIsNot) {
  for (const DType dtype : kFloatTypes) {
    for (const int64_t count : {1, 7, 16, 33}) {
      for (int64_t at = 0; at < count; ++at) {
        std::vector<float> values(static_cast<size_t>(count), -3.0f);
        EXPECT_EQ(largest_magnitude(dtype, as_dtype(dtype, values).data(), count), 3.0f);
        values[static_cast<size_t>(at)] = -kInfinity;
        EXPECT_EQ(largest_magnitude(dtype, as_dtype(dtype, values).data(), count), kInfinity);
        values[0] = -kNan;
        EXPECT_TRUE(std::isnan(largest_magnitude(dtype, as_dtype(dtype, values).data(), count)));
      }
    }
  }
}

TEST(PackedMatrix, ARowOfZerosHasZerosAndAFiniteScale) {
  const std::vector<float> zeros(5, 0.0f);
  PackedMatrix matrix = make_matrix(DType::kS8, {2, 5});
  matrix.set_rows(0, 1, DType::kF32, zeros.data());
  EXPECT_EQ(matrix.panel_scales()[0], 1.0f);
  for (int64_t k = 0; k < 5; ++k) EXPECT_EQ(matrix.value(0, k), 0.0f);
}

TEST(PackedMatrix, ARowThatIsNotFiniteIsNanAndItsNeighboursAreNot) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (int64_t at = 0; at < 7; ++at) {
      std::vector<float> rows(3 * 7, 1.0f);
      rows[static_cast<size_t>(7 + at)] = bad;
      PackedMatrix matrix = make_matrix(DType::kS8, {3, 7});
      matrix.set_rows(0, 3, DType::kF32, rows.data());
      EXPECT_FALSE(std::isnan(matrix.panel_scales()[0]));
      EXPECT_TRUE(std::isnan(matrix.panel_scales()[1]));
      EXPECT_FALSE(std::isnan(matrix.panel_scales()[2]));
      EXPECT_TRUE(std::isnan(matrix.value(1, 3)));
      EXPECT_EQ(matrix.value(2, at), 1.0f);
    }
  }
}

TEST(PackedMatrix, FloatTypesKeepNanAndInfinity) {
  const std::vector<float> row = {kNan, kInfinity, -kInfinity, -0.0f, 0x1p-149f};
  for (const DType dtype : kFloatTypes) {
    PackedMatrix matrix = make_matrix(dtype, {1, 5});
    matrix.set_rows(0, 1, DType::kF32, row.data());
    EXPECT_TRUE(std::isnan(matrix.value(0, 0)));
    EXPECT_EQ(matrix.value(0, 1), kInfinity);
    EXPECT_EQ(matrix.value(0, 2), -kInfinity);
    EXPECT_TRUE(std::signbit(matrix.value(0, 3)));
    EXPECT_EQ(matrix.value(0, 4), cast_through(dtype, 0x1p-149f));
  }
}

TEST(PackedMatrix, CountsTheBytesThatAMatmulReads) {
  // 7 panels of 33, 65, 65 and 130 lines; s8 also has 112 scales.
  EXPECT_EQ(make_matrix(DType::kS8, {97, 130}).weight_bytes(), 7 * 33 * 64 + 112 * 4);
  EXPECT_EQ(make_matrix(DType::kBf16, {97, 130}).weight_bytes(), 7 * 65 * 64);
  EXPECT_EQ(make_matrix(DType::kF16, {97, 130}).weight_bytes(), 7 * 65 * 64);
  EXPECT_EQ(make_matrix(DType::kF32, {97, 130}).weight_bytes(), 7 * 130 * 64);
}

// Panels begin at lines and never 4 KiB apart, whatever k is.
TEST(PackedMatrix, PanelsAreAlignedAndDoNotShareSets) {
  for (const int64_t k : {1024, 4096, 5120}) {
    const PackedMatrix matrix = make_matrix(DType::kS8, {32, k});
    EXPECT_EQ(std::bit_cast<uintptr_t>(matrix.panel(0)) % 64, 0u);
    EXPECT_EQ(matrix.panel(1) - matrix.panel(0), matrix.panel_stride());
    EXPECT_EQ(matrix.panel_stride() % 64, 0);
    EXPECT_NE(matrix.panel_stride() % 4096, 0);
  }
}

TEST(PackedMatrix, RowsMayBeSetInPartsAndByThreads) {
  static constexpr Extent kExtent = {61, 37};
  for (const DType dtype : kWeightTypes) {
    const std::vector<float> values = normal_values(kExtent.n * kExtent.k, 8);
    PackedMatrix whole = make_matrix(dtype, kExtent);
    whole.set_rows(0, kExtent.n, DType::kF32, values.data());
    PackedMatrix parts = make_matrix(dtype, kExtent);
    std::vector<std::thread> threads;
    for (int64_t first = 0; first < 4; ++first) {
      // Neighbouring rows share lines: each thread takes every fourth row, the last one first.
      threads.emplace_back([&parts, &values, first] {
        for (int64_t row = kExtent.n - 1 - first; row >= 0; row -= 4)
          parts.set_rows(row, 1, DType::kF32, values.data() + row * kExtent.k);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const size_t bytes = static_cast<size_t>(whole.panel_count() * whole.panel_stride());
    EXPECT_EQ(std::memcmp(whole.panel(0), parts.panel(0), bytes), 0) << dtype_name(dtype);
    for (int64_t i = 0; dtype == DType::kS8 && i < kExtent.n; ++i)
      EXPECT_EQ(whole.panel_scales()[i], parts.panel_scales()[i]);
  }
}

TEST(PackedMatrix, ReadsNothingOutsideItsSource) {
  for (const GuardSide side : {GuardSide::kEnd, GuardSide::kBegin}) {
    for (const DType dtype : kWeightTypes) {
      for (const DType source_dtype : kFloatTypes) {
        for (const int64_t k : {1, 3, 6}) {
          const std::vector<float> values = normal_values(3 * k, 9);
          const std::vector<std::byte> bytes = as_dtype(source_dtype, values);
          const GuardedArray<std::byte> source(bytes, side);
          PackedMatrix matrix = make_matrix(dtype, {3, k});
          matrix.set_rows(0, 3, source_dtype, source.data());
          const float last = load_as_float(source_dtype, bytes.data(), 3 * k - 1);
          if (dtype == DType::kS8)
            EXPECT_NEAR(matrix.value(2, k - 1), last, matrix.panel_scales()[2]);
          else
            EXPECT_EQ(matrix.value(2, k - 1), cast_through(dtype, last));
        }
      }
    }
  }
}

std::string create_error(DType dtype, int64_t n, int64_t k) {
  const Result<PackedMatrix> matrix = PackedMatrix::create(dtype, n, k);
  return matrix.has_value() ? "created" : matrix.error().message;
}

TEST(PackedMatrix, RefusesTypesAndSizesThatItCannotHold) {
  EXPECT_EQ(create_error(DType::kS32, 4, 4), "weights are s8, bf16, f16 or f32, not s32");
  EXPECT_EQ(create_error(DType::kU8, 4, 4), "weights are s8, bf16, f16 or f32, not u8");
  EXPECT_EQ(create_error(DType::kF32, 0, 4),
            "weights of n = 0, k = 4 are not between 1 and 2147483648");
  EXPECT_EQ(create_error(DType::kF32, 4, -1),
            "weights of n = 4, k = -1 are not between 1 and 2147483648");
  EXPECT_EQ(create_error(DType::kF32, 2147483649, 4),
            "weights of n = 2147483649, k = 4 are not between 1 and 2147483648");
}

// 2^64 bytes and a bit: the product must not wrap around to something small.
TEST(PackedMatrix, RefusesMoreBytesThanThereAreAddresses) {
  constexpr int64_t kMost = int64_t{1} << 31;
  EXPECT_NE(create_error(DType::kF32, kMost, kMost).find("cannot map"), std::string::npos);
  EXPECT_NE(create_error(DType::kS8, kMost, kMost).find("cannot map"), std::string::npos);
}

}  // namespace
}  // namespace gapless
