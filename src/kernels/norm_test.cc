// SPDX-License-Identifier: Apache-2.0

#include "kernels/norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/test_effort.h"
#include "kernels/kernel_test_support.h"
#include "kernels/norm_reference.h"

namespace gapless {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kEps = 1e-6f;
constexpr int64_t kWidths[] = {1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 129, 1000, 5120, 17408};
constexpr DType kFloatTypes[] = {DType::kF32, DType::kBf16, DType::kF16};
constexpr GuardSide kSides[] = {GuardSide::kEnd, GuardSide::kBegin};

// The factor's error: half of that of a sum of k squares, in 8 or more sums side by side.
constexpr double kFactorError = 4e-7;
// Two more products.
constexpr Tolerance kNormTolerance = {.absolute = 1e-38, .relative = kFactorError + 1.2e-7};

std::vector<double> as_doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

TEST(InverseRms, IsNearTheReference) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const int64_t k : kWidths) {
      for (const GuardSide side : kSides) {
        const GuardedArray<float> x(normal_values(k, static_cast<uint32_t>(k), 2.5f), side);
        const double expected = inverse_rms_reference(x.span(), kEps);
        const double actual = static_cast<double>(inverse_rms(level, x.data(), k, kEps));
        EXPECT_NEAR(actual / expected, 1.0, kFactorError) << k;
      }
    }
  }
}

TEST(InverseRms, StaysAccurateWhenAllSquaresAreEqual) {
  // The worst case of a running sum: each addition is as small as it can be next to the sum.
  constexpr int64_t kCount = 65536;
  const std::vector<float> x(kCount, 1.1f);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    const double actual = static_cast<double>(inverse_rms(level, x.data(), kCount, 0.0f));
    // 8192 additions a sum in the portable form; 4e-7 with AVX-512.
    EXPECT_NEAR(actual / inverse_rms_reference(x, 0.0f), 1.0, 2e-5);
  }
}

TEST(InverseRms, OfZerosIsThatOfEps) {
  const std::vector<float> x(100, 0.0f);
  for (const CpuLevel level : usable_cpu_levels()) {
    EXPECT_NEAR(inverse_rms(level, x.data(), 100, kEps), 1000.0, 1e-3);
    EXPECT_EQ(inverse_rms(level, x.data(), 100, 0.0f), kInfinity);
  }
}

TEST(InverseRms, GivesTheSameBitsWhereverTheRowLies) {
  const std::vector<float> x = normal_values(5120, 7);
  for (const CpuLevel level : usable_cpu_levels()) {
    const float expected = inverse_rms(level, x.data(), 5120, kEps);
    for (size_t shift = 1; shift < 20; ++shift) {
      std::vector<float> moved(shift + x.size());
      std::copy(x.begin(), x.end(), moved.data() + shift);
      EXPECT_EQ(inverse_rms(level, moved.data() + shift, 5120, kEps), expected);
    }
  }
}

void expect_norm_near(CpuLevel level, int64_t k, DType dtype, GuardSide side) {
  const GuardedArray<float> x(normal_values(k, 100 + static_cast<uint32_t>(k), 1.7f), side);
  const GuardedArray<float> gamma(uniform_values(k, 0.5f, 1.5f, 200), side);
  const GuardedArray<std::byte> y(k * dtype_bytes(dtype), side);
  rms_norm(level, x.data(), gamma.data(), k, kEps, dtype, y.data());
  EXPECT_TRUE(all_near(as_floats(dtype, y.data(), k),
                       rms_norm_reference(x.span(), gamma.span(), kEps),
                       with_cast(dtype, kNormTolerance)))
      << "k = " << k << ", " << dtype_name(dtype);
}

TEST(RmsNorm, IsNearTheReference) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const int64_t k : kWidths) {
      for (const DType dtype : kFloatTypes) {
        for (const GuardSide side : kSides) expect_norm_near(level, k, dtype, side);
      }
    }
  }
}

TEST(RmsNorm, OfTinyAndOfDenormalRowsIsNearTheReference) {
  const std::vector<float> gamma(50, 1.0f);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    // Squares of the second kind vanish next to eps, in double too.
    for (const float deviation : {1e-3f, 1e-25f, 1e-40f}) {
      const std::vector<float> x = normal_values(50, 9, deviation);
      std::vector<float> y(50);
      rms_norm(level, x.data(), gamma.data(), 50, kEps, DType::kF32, y.data());
      EXPECT_TRUE(all_near(y, rms_norm_reference(x, gamma, kEps),
                           {.absolute = 0x1p-149, .relative = kNormTolerance.relative}));
    }
  }
}

TEST(RmsNorm, PassesOnNansAndInfinities) {
  const std::vector<float> gamma(40, 1.0f);
  std::vector<float> y(40);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const size_t place : {size_t{0}, size_t{17}, size_t{39}}) {
      std::vector<float> x = normal_values(40, 13);
      for (const float broken : {kNan, kInfinity, -kInfinity}) {
        x[place] = broken;
        rms_norm(level, x.data(), gamma.data(), 40, kEps, DType::kF32, y.data());
        EXPECT_TRUE(all_near(y, rms_norm_reference(x, gamma, kEps), {}));
        EXPECT_TRUE(std::isnan(y[place]));
      }
    }
  }
}

TEST(RmsNorm, MakesZerosOfRowsWhoseSquaresOverflow) {
  const std::vector<float> x(40, 1e25f);
  const std::vector<float> gamma(40, 1.0f);
  for (const CpuLevel level : usable_cpu_levels()) {
    std::vector<float> y(40, 1.0f);
    rms_norm(level, x.data(), gamma.data(), 40, kEps, DType::kF32, y.data());
    EXPECT_EQ(y, std::vector<float>(40, 0.0f));
  }
}

TEST(RmsNorm, WorksInPlace) {
  const std::vector<float> gamma = uniform_values(1000, 0.5f, 1.5f, 4);
  const std::vector<float> x = normal_values(1000, 5);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    std::vector<float> apart(1000);
    rms_norm(level, x.data(), gamma.data(), 1000, kEps, DType::kF32, apart.data());
    std::vector<float> in_place = x;
    rms_norm(level, in_place.data(), gamma.data(), 1000, kEps, DType::kF32, in_place.data());
    EXPECT_EQ(bits_of(in_place), bits_of(apart));

    const float factor =
        rms_norm_deferred(level, x.data(), gamma.data(), 1000, kEps, DType::kF32, apart.data());
    in_place = x;
    EXPECT_EQ(rms_norm_deferred(level, in_place.data(), gamma.data(), 1000, kEps, DType::kF32,
                                in_place.data()),
              factor);
    EXPECT_EQ(bits_of(in_place), bits_of(apart));
  }
}

void expect_deferred_equals_direct(CpuLevel level, int64_t k, DType dtype) {
  const GuardedArray<float> x(normal_values(k, 300 + static_cast<uint32_t>(k), 0.6f));
  const GuardedArray<float> gamma(uniform_values(k, 0.5f, 1.5f, 201));
  const GuardedArray<std::byte> direct(k * dtype_bytes(dtype));
  const GuardedArray<std::byte> deferred(k * dtype_bytes(dtype));
  rms_norm(level, x.data(), gamma.data(), k, kEps, dtype, direct.data());
  const float factor =
      rms_norm_deferred(level, x.data(), gamma.data(), k, kEps, dtype, deferred.data());
  EXPECT_EQ(factor, inverse_rms(level, x.data(), k, kEps));
  for (int64_t i = 0; i < k; ++i) {
    ASSERT_EQ(load_as_float(dtype, deferred.data(), i), cast_through(dtype, x[i] * gamma[i]));
  }
  std::vector<float> scaled = as_floats(dtype, deferred.data(), k);
  for (float& value : scaled) value *= factor;
  // Each side rounds twice in f32 and once in the cast.
  const Tolerance once = with_cast(dtype, {.absolute = 1e-38, .relative = 1e-7});
  EXPECT_TRUE(all_near(scaled, as_doubles(as_floats(dtype, direct.data(), k)),
                       {.absolute = 2 * once.absolute, .relative = 2 * once.relative}))
      << "k = " << k << ", " << dtype_name(dtype);
}

TEST(RmsNorm, PutOffTimesItsFactorEqualsTheDirectForm) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const int64_t k : kWidths) {
      for (const DType dtype : kFloatTypes) expect_deferred_equals_direct(level, k, dtype);
    }
  }
}

TEST(RmsNormDeathTest, RefusesRowsOfNothingAndTypesThatAreNotFloats) {
  float x = 1.0f;
  EXPECT_DEATH(inverse_rms(CpuLevel::kPortable, &x, 0, kEps), "check failed: k > 0");
  EXPECT_DEATH(rms_norm(CpuLevel::kPortable, &x, &x, 1, kEps, DType::kS8, &x), "check failed");
}

TEST(RopeTable, IsNearLongDouble) {
  constexpr long double kTheta = 1e6L;
  constexpr int64_t kPositions = 4096;
  for (const int head_dim : {64, 128, 256}) {
    const RopeTable table(static_cast<double>(kTheta), head_dim, kPositions);
    EXPECT_EQ(table.head_dim(), head_dim);
    EXPECT_EQ(table.position_count(), kPositions);
    for (int64_t position = 0; position < kPositions; position += kSanitized ? 333 : 13) {
      for (int i = 0; i < head_dim / 2; ++i) {
        const long double angle = static_cast<long double>(position) *
                                  std::pow(kTheta, -2.0L * i / static_cast<long double>(head_dim));
        // Half a step of the floats below 1.
        ASSERT_NEAR(table.cos(position)[i], static_cast<double>(std::cos(angle)), 0x1.001p-25);
        ASSERT_NEAR(table.sin(position)[i], static_cast<double>(std::sin(angle)), 0x1.001p-25);
      }
    }
  }
}

TEST(RopeTable, StaysAccurateFarOut) {
  constexpr int64_t kPositions = 131072;
  const RopeTable table(1e6, 4, kPositions);
  for (const int64_t position : {int64_t{65537}, int64_t{100003}, kPositions - 1}) {
    const long double slow = static_cast<long double>(position) * 1e-3L;
    const long double quick = static_cast<long double>(position);
    EXPECT_NEAR(table.cos(position)[0], static_cast<double>(std::cos(quick)), 0x1.001p-25);
    EXPECT_NEAR(table.sin(position)[1], static_cast<double>(std::sin(slow)), 0x1.001p-25);
  }
}

// One turn: two products and a sum of numbers up to the length of (a, b).
constexpr double kTurnError = 1.3e-7;

TEST(Rope, TurnsEachHeadByThePositionsAngles) {
  constexpr int kHeads = 3;
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const int head_dim : {2, 16, 30, 34, 64, 128, 256}) {
      const RopeTable table(1e4, head_dim, 1000);
      const int64_t stride = head_dim + 5;
      const size_t half = static_cast<size_t>(head_dim / 2);
      const GuardedArray<float> x(uniform_values(2 * stride + head_dim, -1.0f, 1.0f, 61));
      const GuardedArray<float> y(x.size());
      for (const int64_t position : {0, 1, 77, 999}) {
        rope(level, x.data(), kHeads, head_dim, stride, table.cos(position), table.sin(position),
             y.data());
        for (int64_t head = 0; head < kHeads; ++head) {
          const std::span<float> values(x.data() + head * stride, 2 * half);
          const std::vector<double> expected =
              rope_reference(as_doubles(values), std::span(table.cos(position), half),
                             std::span(table.sin(position), half));
          const std::span<float> actual(y.data() + head * stride, 2 * half);
          EXPECT_TRUE(all_near(actual, expected, {.absolute = kTurnError})) << head_dim;
        }
      }
      EXPECT_EQ(y[head_dim], 0.0f);  // between the heads nothing is written
    }
  }
}

TEST(Rope, IsTheIdentityAtPositionZeroAndWorksInPlace) {
  const RopeTable table(1e6, 128, 10);
  const std::vector<float> x = normal_values(256, 62);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    std::vector<float> y(256);
    rope(level, x.data(), 2, 128, 128, table.cos(0), table.sin(0), y.data());
    EXPECT_EQ(y, x);
    rope(level, x.data(), 2, 128, 128, table.cos(9), table.sin(9), y.data());
    std::vector<float> in_place = x;
    rope(level, in_place.data(), 2, 128, 128, table.cos(9), table.sin(9), in_place.data());
    EXPECT_EQ(bits_of(in_place), bits_of(y));
    EXPECT_NE(y, x);
  }
}

struct HeadCase {
  int head_count;
  int head_dim;
  int64_t gap;
  float factor;
  int64_t position;
};

constexpr HeadCase kHeadCases[] = {
    {5, 128, 0, 1.0f, 3},  {5, 128, 0, 0.031f, 977}, {1, 64, 0, 1.0f, 1},   {40, 128, 0, 0.7f, 999},
    {8, 64, 24, 1.9f, 50}, {4, 256, 1, 1.0f, 512},   {3, 34, 3, 1.25f, 12}, {2, 2, 0, 1.0f, 5},
};

void expect_heads_near(CpuLevel level, const HeadCase& shape) {
  const RopeTable table(1e6, shape.head_dim, 1000);
  const size_t width = static_cast<size_t>(shape.head_dim);
  const int64_t stride = shape.head_dim + shape.gap;
  const GuardedArray<float> gamma(uniform_values(shape.head_dim, 0.5f, 1.5f, 71));
  const GuardedArray<float> cos(std::span(table.cos(shape.position), width / 2));
  const GuardedArray<float> sin(std::span(table.sin(shape.position), width / 2));
  const GuardedArray<float> x(normal_values((shape.head_count - 1) * stride + shape.head_dim, 72));
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t head = i / stride;
    x[i] *= static_cast<float>(1 + head);
  }
  const HeadNorm args = {.head_count = shape.head_count,
                         .head_dim = shape.head_dim,
                         .stride = stride,
                         .gamma = gamma.data(),
                         .eps = kEps,
                         .factor = shape.factor,
                         .cos = cos.data(),
                         .sin = sin.data()};
  const std::vector<double> expected = norm_heads_reference(args, x.data());
  const GuardedArray<float> y(x.size());
  norm_heads(level, args, x.data(), y.data());
  for (int64_t head = 0; head < shape.head_count; ++head) {
    const std::span<float> actual(y.data() + head * stride, width);
    const std::span<const double> wanted(expected.data() + head * shape.head_dim, width);
    // The norm's relative error of numbers up to about 5, and the turn.
    EXPECT_TRUE(all_near(actual, wanted, {.absolute = 1.5e-6})) << "head " << head;
  }
}

TEST(NormHeads, IsNearTheReferenceInEachHead) {
  // Goal: each head is turned by its token's own angles, whatever the number of heads.
  // Method: heads of different sizes and values (a norm that mixed them up would show), several
  // positions, each head compared by itself. A fused multi-head RoPE elsewhere broadcast the cos
  // and sin rows wrongly over a group of 5 query heads, which one head alone does not show.
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const HeadCase& shape : kHeadCases) expect_heads_near(level, shape);
  }
}

// The two steps that norm_heads does in one; x * factor first when there is a factor.
std::vector<float> norm_then_rope(CpuLevel level, const HeadNorm& args, std::vector<float> x) {
  for (int64_t head = 0; head < args.head_count; ++head) {
    float* const values = x.data() + head * args.stride;
    for (int i = 0; i < args.head_dim; ++i) values[i] *= args.factor;
    rms_norm(level, values, args.gamma, args.head_dim, args.eps, DType::kF32, values);
  }
  if (args.cos == nullptr) return x;
  rope(level, x.data(), args.head_count, args.head_dim, args.stride, args.cos, args.sin, x.data());
  return x;
}

TEST(NormHeads, GivesTheBitsOfTheTwoStepsInTurn) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const HeadCase& shape : kHeadCases) {
      const RopeTable table(1e6, shape.head_dim, 1000);
      const std::vector<float> gamma = uniform_values(shape.head_dim, 0.5f, 1.5f, 81);
      HeadNorm args = {.head_count = shape.head_count,
                       .head_dim = shape.head_dim,
                       .stride = shape.head_dim + shape.gap,
                       .gamma = gamma.data(),
                       .eps = kEps,
                       .factor = shape.factor};
      const std::vector<float> x = normal_values(shape.head_count * args.stride, 82);
      for (const bool has_rope : {false, true}) {
        if (has_rope) args.cos = table.cos(shape.position);
        if (has_rope) args.sin = table.sin(shape.position);
        std::vector<float> y = x;  // what lies between the heads stays as it is
        norm_heads(level, args, x.data(), y.data());
        EXPECT_EQ(bits_of(y), bits_of(norm_then_rope(level, args, x))) << shape.head_dim;
        std::vector<float> in_place = x;
        norm_heads(level, args, in_place.data(), in_place.data());
        EXPECT_EQ(bits_of(in_place), bits_of(y)) << shape.head_dim;
      }
    }
  }
}

TEST(NormHeads, KeepsABrokenHeadToItself) {
  const RopeTable table(1e6, 64, 10);
  const std::vector<float> gamma(64, 1.0f);
  std::vector<float> x = normal_values(3 * 64, 91);
  x[64 + 20] = kNan;
  const HeadNorm args = {.head_count = 3,
                         .head_dim = 64,
                         .stride = 64,
                         .gamma = gamma.data(),
                         .eps = kEps,
                         .cos = table.cos(4),
                         .sin = table.sin(4)};
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    std::vector<float> y(x.size());
    norm_heads(level, args, x.data(), y.data());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 64 == 1) << i;
  }
}

}  // namespace
}  // namespace gapless
