// SPDX-License-Identifier: Apache-2.0
//
// How near the matmul is to its double-precision reference, and what it makes of NaN, infinities,
// denormals and numbers that are too large.
//
// The error of a sum in f32 is given in units of 2^-24 sum |x| |w|. With k products of random sign
// the partial sums stay small, and the error hardly depends on k; when all products are positive
// it grows with the square root of k.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise_reference.h"
#include "kernels/matmul_test_support.h"
#include "kernels/norm.h"

namespace gapless {
namespace {

constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64};
constexpr int64_t kDepths[] = {1, 2, 3, 4, 5, 7, 63, 64, 65, 130, 257};
constexpr int64_t kWidths[] = {1, 15, 16, 17, 31, 95, 96, 97, 112, 129, 145};
constexpr double kUnit = 0x1p-24;

// Bounds for products of random sign. Reached by the tests here: s8 1.8 (the sum is exact; its cast
// to f32 and two scales are rounded, a unit each), bf16 1.8, f16 3.9, f32 4.6.
double sum_units(DType weights) {
  switch (weights) {
    case DType::kS8:
      return 3.0;
    case DType::kBf16:
      return 5.0;
    case DType::kF16:
      return 7.0;
    default:
      return 9.0;
  }
}

// In units, of the worst element.
double worst_error(std::span<const float> y, std::span<const double> expected,
                   std::span<const double> magnitudes) {
  double worst = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double error = distance(static_cast<double>(y[i]), expected[i]);
    if (error > 0.0) worst = std::max(worst, error / (kUnit * magnitudes[i]));
  }
  return worst;
}

void expect_sums_within(const MatmulShape& shape, double units) {
  const MatmulCase of_case(shape);
  const MatmulReferenceArgs reference = of_case.reference();
  const std::vector<double> expected = matmul_reference(reference);
  const std::vector<double> magnitudes = matmul_magnitudes(reference);
  for (const CpuLevel level : usable_cpu_levels()) {
    const std::vector<float> y = run_matmul(level, of_case);
    ASSERT_LE(worst_error(y, expected, magnitudes), units) << shape_text(shape, level);
  }
}

TEST(MatmulAccuracy, EveryShapeIsWithinAFewRoundings) {
  for (const DType dtype : kWeightTypes) {
    uint32_t seed = 0;
    for (const int64_t m : kRowCounts) {
      for (const int64_t k : kDepths) {
        const int64_t n = kWidths[++seed % std::size(kWidths)];
        expect_sums_within({.weights = dtype, .m = m, .k = k, .n = n, .seed = seed},
                           sum_units(dtype));
      }
    }
  }
}

TEST(MatmulAccuracy, EveryWidthIsWithinAFewRoundings) {
  for (const DType dtype : kWeightTypes)
    for (const int64_t n : kWidths)
      for (const int64_t m : {1, 4, 5})
        expect_sums_within({.weights = dtype, .m = m, .k = 65, .n = n, .seed = 7},
                           sum_units(dtype));
}

TEST(MatmulAccuracy, TheErrorHardlyGrowsWithK) {
  for (const DType dtype : kWeightTypes)
    for (const int64_t k : {1030, 5120, 17408})
      expect_sums_within({.weights = dtype, .m = 5, .k = k, .n = 17, .seed = 8}, sum_units(dtype));
}

// Reached: 1.0 sqrt(k) for f32, 0.9 for f16, 0.7 for bf16; s8 as always.
TEST(MatmulAccuracy, PositiveProductsAreWithinTwiceTheRootOfK) {
  for (const DType dtype : kWeightTypes) {
    for (const int64_t k : {1, 3, 64, 1030, 5120}) {
      const double units =
          dtype == DType::kS8 ? sum_units(dtype) : 2.0 * std::sqrt(static_cast<double>(k));
      expect_sums_within(
          {.weights = dtype, .m = 5, .k = k, .n = 33, .is_positive = true, .seed = 9}, units);
    }
  }
}

// Largest relative error of a cast.
double cast_units(DType dtype) {
  return dtype == DType::kBf16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : kUnit;
}

// Sum, factor, residual and cast together: the error of the sum, a rounding each for the factor and
// for the residual, and the cast.
TEST(MatmulAccuracy, TheEpilogueAddsARoundingForEachStep) {
  const std::vector<float> row_factor = uniform_values(9, 0.1f, 2.0f, 11);
  for (const DType dtype : kWeightTypes) {
    const MatmulCase of_case({.weights = dtype, .m = 9, .k = 131, .n = 61, .seed = 10});
    const std::vector<float> residual = normal_values(9 * 61, 12);
    MatmulReferenceArgs reference = of_case.reference();
    reference.row_factor = row_factor.data();
    reference.residual = residual.data();
    const std::vector<double> expected = matmul_reference(reference);
    const std::vector<double> magnitudes = matmul_magnitudes(reference);
    for (const DType stored : kFloatTypes) {
      for (const CpuLevel level : usable_cpu_levels()) {
        const std::vector<float> y = run_matmul(
            level, of_case,
            {.output = stored, .row_factor = row_factor.data(), .residual = residual.data()});
        for (size_t i = 0; i < y.size(); ++i) {
          const double allowed = (sum_units(dtype) + 1.0) * kUnit * magnitudes[i] +
                                 (kUnit + cast_units(stored)) * std::abs(expected[i]);
          ASSERT_NEAR(static_cast<double>(y[i]), expected[i], allowed)
              << shape_text(of_case.shape, level) << " element " << i;
        }
      }
    }
  }
}

// Two plain matmuls with the halves of a pair.
struct Halves {
  std::vector<float> gate;
  std::vector<float> up;
};
Halves run_halves(CpuLevel level, const MatmulCase& pair) {
  std::vector<float> y[2];
  for (int which = 0; which < 2; ++which) {
    MatmulShape shape = pair.shape;
    shape.interleave = Interleave::kNone;
    MatmulCase half(shape);
    half.x = pair.x;
    half.values[0] = pair.values[which];
    half.quantized[0] = pair.quantized[which];
    half.scales[0] = pair.scales[which];
    half.pack();
    y[which] = run_matmul(level, half);
  }
  return {y[0], y[1]};
}

// One matmul that stores SiLU(gate) x up, and two matmuls with silu_multiply after them, are the
// same operations.
TEST(MatmulAccuracy, DualOutputHasTheBitsOfTwoMatmulsAndSiluMultiply) {
  for (const DType dtype : kWeightTypes) {
    const MatmulCase pair({.weights = dtype,
                           .m = 5,
                           .k = 131,
                           .n = 101,
                           .interleave = Interleave::kPairs,
                           .seed = 17});
    for (const CpuLevel level : usable_cpu_levels()) {
      const Halves halves = run_halves(level, pair);
      std::vector<float> expected(halves.gate.size());
      silu_multiply(level, halves.gate.data(), halves.up.data(), 1.0f,
                    static_cast<int64_t>(expected.size()), DType::kF32, expected.data());
      ASSERT_TRUE(all_same(run_matmul(level, pair), expected)) << shape_text(pair.shape, level);
    }
  }
}

// x gamma is packed and multiplied, 1/rms comes in the epilogue: the same as packing the normed
// row, but for the casts, which then act on other values.
TEST(MatmulAccuracy, TheNormMayBePutOffPastTheProjection) {
  constexpr int64_t kK = 640;
  const std::vector<float> gamma = uniform_values(kK, 0.5f, 1.5f, 18);
  for (const DType dtype : kWeightTypes) {
    const MatmulCase of_case({.weights = dtype, .m = 3, .k = kK, .n = 70, .seed = 19});
    // Half a unit of each cast of x, for s8 half a step of about 3 sigma / 127, times |w|.
    const double cast_error = dtype == DType::kS8     ? 0.02
                              : dtype == DType::kBf16 ? 0x1p-7
                              : dtype == DType::kF16  ? 0x1p-10
                                                      : 0x1p-20;
    for (const CpuLevel level : usable_cpu_levels()) {
      MatmulCase normed({.weights = dtype, .m = 3, .k = kK, .n = 70, .seed = 19});
      std::vector<float> factors;
      for (int64_t row = 0; row < 3; ++row) {
        const float* x = of_case.x.data() + row * kK;
        rms_norm(level, x, gamma.data(), kK, 1e-6f, DType::kF32, normed.x.data() + row * kK);
        factors.push_back(inverse_rms(level, x, kK, 1e-6f));
      }
      const GuardedRows rows(dtype, level, 3, kK);
      pack_rows(level, {.data = of_case.x.data(), .row_stride = kK, .gamma = gamma.data()}, 0, 3,
                rows.rows);
      const GuardedOutput y(DType::kF32, 3, 70, 0);
      MatmulArgs args = {.weights = of_case.matrix.get(), .rows = rows.rows, .output = y.output()};
      args.output.row_factor = factors.data();
      run_tiles(level, args, 0);
      const std::vector<float> direct = run_matmul(level, normed);
      const std::vector<float> deferred = y.values();
      const std::vector<double> magnitudes = matmul_magnitudes(normed.reference());
      for (size_t i = 0; i < direct.size(); ++i)
        ASSERT_NEAR(deferred[i], direct[i], cast_error * magnitudes[i])
            << shape_text(of_case.shape, level) << " element " << i;
    }
  }
}

// e^-g (2 units at most), 1 + e, 1 / e, g times that, times up: six units. Reached: 2.9. Below
// g = -88.7 the result is 0, because e^-g is an infinity.
TEST(MatmulAccuracy, DualOutputIsTwoMatmulsAndSilu) {
  for (const DType dtype : kWeightTypes) {
    for (const int64_t m : {1, 3, 4, 9}) {
      for (const int64_t n : {1, 16, 17, 97}) {
        MatmulCase pair({.weights = dtype,
                         .m = m,
                         .k = 130,
                         .n = n,
                         .interleave = Interleave::kPairs,
                         .seed = 13});
        for (float& value : pair.x) value *= 3.0f;  // gates up to about +-100
        for (const CpuLevel level : usable_cpu_levels()) {
          const Halves halves = run_halves(level, pair);
          const std::vector<float> y = run_matmul(level, pair);
          for (size_t i = 0; i < y.size(); ++i) {
            const double up = static_cast<double>(halves.up[i]);
            const double expected = silu_reference(static_cast<double>(halves.gate[i])) * up;
            const double allowed = 6.0 * kUnit * std::abs(expected) + 1e-36 * std::abs(up);
            ASSERT_NEAR(static_cast<double>(y[i]), expected, allowed)
                << shape_text(pair.shape, level) << " element " << i << " gate " << halves.gate[i];
          }
        }
      }
    }
  }
}

// The slope of SiLU is at most 1.1, so an error of the gate comes through times 1.1 |up|.
TEST(MatmulAccuracy, DualOutputIsNearItsReference) {
  constexpr int64_t kM = 6;
  constexpr int64_t kN = 49;
  const std::vector<float> row_factor = uniform_values(kM, 0.05f, 0.2f, 15);
  const std::vector<float> residual = normal_values(kM * kN, 16);
  for (const DType dtype : kWeightTypes) {
    const MatmulCase pair({.weights = dtype,
                           .m = kM,
                           .k = 67,
                           .n = kN,
                           .interleave = Interleave::kPairs,
                           .seed = 14});
    MatmulReferenceArgs gate = pair.reference(0);
    MatmulReferenceArgs up = pair.reference(1);
    gate.row_factor = up.row_factor = row_factor.data();
    MatmulReferenceArgs both = gate;
    both.up = &up.weights;
    both.residual = residual.data();
    const std::vector<double> expected = matmul_reference(both);
    const std::vector<double> gates = matmul_reference(gate);
    const std::vector<double> ups = matmul_reference(up);
    const std::vector<double> gate_magnitudes = matmul_magnitudes(gate);
    const std::vector<double> up_magnitudes = matmul_magnitudes(up);
    for (const CpuLevel level : usable_cpu_levels()) {
      const std::vector<float> y = run_matmul(
          level, pair, {.row_factor = row_factor.data(), .residual = residual.data(), .gap = 3});
      for (size_t i = 0; i < y.size(); ++i) {
        const double sum_error = (sum_units(dtype) + 1.0) * kUnit;
        const double silu = std::abs(silu_reference(gates[i]));
        const double allowed =
            sum_error * (1.1 * gate_magnitudes[i] * std::abs(ups[i]) + up_magnitudes[i] * silu) +
            7.0 * kUnit * (silu * std::abs(ups[i]) + std::abs(expected[i]));
        ASSERT_NEAR(static_cast<double>(y[i]), expected[i], allowed)
            << shape_text(pair.shape, level) << " element " << i;
      }
    }
  }
}

// Whether exactly the columns (or rows) of `is_bad` are NaN and all others as in `clean`.
template <typename IsBad>
testing::AssertionResult only_bad_are_nan(std::span<const float> y, std::span<const float> clean,
                                          int64_t n, IsBad is_bad) {
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / n;
    const int64_t column = static_cast<int64_t>(i) % n;
    const float expected = is_bad(row, column) ? kNan : clean[i];
    if (!is_same_float(y[i], expected))
      return testing::AssertionFailure()
             << "row " << row << " column " << column << " is " << y[i] << ", not " << expected;
  }
  return testing::AssertionSuccess();
}

TEST(MatmulAccuracy, ANanInAWeightRowReachesItsColumnOnly) {
  for (const Interleave interleave : {Interleave::kNone, Interleave::kPairs}) {
    for (const DType dtype : kWeightTypes) {
      MatmulCase of_case(
          {.weights = dtype, .m = 6, .k = 19, .n = 37, .interleave = interleave, .seed = 17});
      const int which = of_case.matrix_count() - 1;
      for (const int64_t bad : {0, 15, 16, 36}) {
        MatmulCase changed(of_case.shape);
        if (dtype == DType::kS8)
          changed.scales[which][static_cast<size_t>(bad)] = kNan;
        else
          changed.values[which][static_cast<size_t>(bad * 19 + 18)] = kNan;
        changed.pack();
        for (const CpuLevel level : usable_cpu_levels()) {
          EXPECT_TRUE(only_bad_are_nan(run_matmul(level, changed), run_matmul(level, of_case), 37,
                                       [bad](int64_t, int64_t column) { return column == bad; }))
              << shape_text(of_case.shape, level);
        }
      }
    }
  }
}

TEST(MatmulAccuracy, ANanInARowReachesThatRowOnly) {
  for (const Interleave interleave : {Interleave::kNone, Interleave::kPairs}) {
    for (const DType dtype : kWeightTypes) {
      const MatmulCase of_case(
          {.weights = dtype, .m = 9, .k = 19, .n = 33, .interleave = interleave, .seed = 18});
      for (const int64_t bad : {0, 3, 4, 8}) {
        MatmulCase changed(of_case.shape);
        changed.x[static_cast<size_t>(bad * 19 + 7)] = kNan;
        for (const CpuLevel level : usable_cpu_levels()) {
          EXPECT_TRUE(only_bad_are_nan(run_matmul(level, changed), run_matmul(level, of_case), 33,
                                       [bad](int64_t row, int64_t) { return row == bad; }))
              << shape_text(of_case.shape, level);
        }
      }
    }
  }
}

// An infinity times a weight is an infinity of its sign, times 0 a NaN. s8 rows cannot hold one:
// the row is NaN.
TEST(MatmulAccuracy, AnInfinityInARowGoesWhereTheReferenceSays) {
  for (const DType dtype : kWeightTypes) {
    MatmulCase of_case({.weights = dtype, .m = 5, .k = 21, .n = 20, .seed = 19});
    of_case.x[21 * 2 + 20] = kInfinity;
    if (dtype != DType::kS8) of_case.values[0][21 * 6 + 20] = 0.0f;
    of_case.pack();
    const std::vector<double> expected = matmul_reference(of_case.reference());
    EXPECT_TRUE(std::isnan(expected[20 * 2 + 6]));
    for (const CpuLevel level : usable_cpu_levels())
      EXPECT_TRUE(all_near(run_matmul(level, of_case), expected, {1e-3, 0.0}))
          << shape_text(of_case.shape, level);
  }
}

// Sums beyond the largest float, all of one sign; and what only the cast makes too large.
TEST(MatmulAccuracy, TooLargeIsAnInfinityAndNotANan) {
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    MatmulCase of_case({.weights = dtype, .m = 3, .k = 6, .n = 18, .is_positive = true});
    for (float& value : of_case.x) value = 0x1p100f;
    for (float& value : of_case.values[0]) value = -0x1p26f;
    of_case.pack();
    for (const CpuLevel level : usable_cpu_levels())
      for (const DType stored : kFloatTypes)
        for (const float y : run_matmul(level, of_case, {.output = stored}))
          ASSERT_EQ(y, -kInfinity) << shape_text(of_case.shape, level);
  }
  // 1e5 as a value and as a sum is too large for f16 alone.
  MatmulCase of_case({.weights = DType::kF16, .m = 3, .k = 2, .n = 18});
  for (float& value : of_case.x) value = 1000.0f;
  for (float& value : of_case.values[0]) value = 50.0f;
  of_case.pack();
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const float y : run_matmul(level, of_case)) ASSERT_EQ(y, 100000.0f);
    for (const float y : run_matmul(level, of_case, {.output = DType::kF16}))
      ASSERT_EQ(y, kInfinity) << shape_text(of_case.shape, level);
  }
}

// vdpbf16ps takes denormal operands as zero and gives zero for denormal sums; all else keeps them.
TEST(MatmulAccuracy, DenormalsAreKeptButForBf16Products) {
  struct Product {
    float x = 0.0f;
    float weight = 0.0f;
  };
  constexpr Product kProducts[] = {{1.0f, 0x1p-130f},      // a denormal weight and sum
                                   {0x1p20f, 0x1p-130f},   // a denormal weight, the sum is not
                                   {0x1p-130f, 0x1p20f},   // a denormal element
                                   {0x1p-70f, 0x1p-65f}};  // a denormal sum
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    for (const Product& product : kProducts) {
      MatmulCase of_case({.weights = dtype, .m = 2, .k = 1, .n = 17});
      for (float& value : of_case.x) value = product.x;
      for (float& value : of_case.values[0]) value = product.weight;
      of_case.pack();
      for (const CpuLevel level : usable_cpu_levels()) {
        const bool is_flushed = row_format(dtype, level) == RowFormat::kBf16x2;
        const float expected = is_flushed ? 0.0f : product.x * product.weight;
        for (const float y : run_matmul(level, of_case))
          ASSERT_EQ(y, expected) << shape_text(of_case.shape, level);
      }
    }
  }
  // f16 denormals are ordinary numbers in f32: kept at every level.
  MatmulCase of_case({.weights = DType::kF16, .m = 2, .k = 3, .n = 17});
  for (float& value : of_case.x) value = 0x1p-24f;
  for (float& value : of_case.values[0]) value = 0x1p-24f;
  of_case.pack();
  for (const CpuLevel level : usable_cpu_levels())
    for (const float y : run_matmul(level, of_case)) ASSERT_EQ(y, 3.0f * 0x1p-48f);
}

}  // namespace
}  // namespace gapless
