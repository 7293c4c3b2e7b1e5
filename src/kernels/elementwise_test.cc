// SPDX-License-Identifier: Apache-2.0

#include "kernels/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/test_effort.h"
#include "kernels/elementwise_reference.h"
#include "kernels/kernel_test_support.h"

namespace gapless {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kCounts[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 5120, 17408};
constexpr DType kFloatTypes[] = {DType::kF32, DType::kBf16, DType::kF16};
constexpr GuardSide kSides[] = {GuardSide::kEnd, GuardSide::kBegin};

// Floats from all over: every `stride`-th, and those next to where a cast to 16 bits changes.
std::vector<float> floats_of_all_kinds(uint64_t stride) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += stride) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (uint32_t bits = 0; bits < 0x10000; bits += kSanitized ? 17 : 1) {
    const float f16 = to_float(F16{static_cast<uint16_t>(bits)});
    for (const uint32_t middle : {(bits << 16) | 0x8000u, std::bit_cast<uint32_t>(f16) | 0x1000u}) {
      for (const uint32_t offset : {0xffffffffu, 0u, 1u}) {
        values.push_back(std::bit_cast<float>(middle + offset));
      }
    }
  }
  return values;
}

TEST(CastRow, GivesTheBitsOfHalfForFloatsOfAllKinds) {
  const std::vector<float> x = floats_of_all_kinds(kSanitized ? 1000003 : 20011);
  const int64_t count = static_cast<int64_t>(x.size());
  std::vector<Bf16> bf16(x.size());
  std::vector<F16> f16(x.size());
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    cast_row(level, DType::kF32, x.data(), count, DType::kBf16, bf16.data());
    cast_row(level, DType::kF32, x.data(), count, DType::kF16, f16.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bf16[i].bits, to_bf16(x[i]).bits) << std::bit_cast<uint32_t>(x[i]);
      ASSERT_EQ(f16[i].bits, to_f16(x[i]).bits) << std::bit_cast<uint32_t>(x[i]);
    }
  }
}

TEST(CastRow, GivesTheBitsOfHalfForEveryHalf) {
  std::vector<uint16_t> x(0x10000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  std::vector<float> y(x.size());
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    cast_row(level, DType::kBf16, x.data(), 0x10000, DType::kF32, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(to_float(Bf16{x[i]}))) << i;
    }
    cast_row(level, DType::kF16, x.data(), 0x10000, DType::kF32, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(to_float(F16{x[i]}))) << i;
    }
  }
}

// There and back between arrays that end (or begin) where memory does.
void expect_casts_within(CpuLevel level, DType dtype, int64_t count, GuardSide side) {
  const GuardedArray<float> x(normal_values(count, 5), side);
  const GuardedArray<std::byte> cast(count * dtype_bytes(dtype), side);
  const GuardedArray<float> y(count, side);
  cast_row(level, DType::kF32, x.data(), count, dtype, cast.data());
  cast_row(level, dtype, cast.data(), count, DType::kF32, y.data());
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(y[i], cast_through(dtype, x[i])) << i;
}

TEST(CastRow, StaysWithinItsArrays) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const DType dtype : kFloatTypes) {
      for (const int64_t count : kCounts) {
        for (const GuardSide side : kSides) expect_casts_within(level, dtype, count, side);
      }
    }
  }
}

TEST(CastRowDeathTest, RefusesCastsBetweenHalves) {
  uint16_t value = 0;
  EXPECT_DEATH(cast_row(CpuLevel::kPortable, DType::kF16, &value, 1, DType::kBf16, &value),
               "check failed: from");
}

TEST(AddRows, GivesTheBitsOfPlainAdditionInPlaceToo) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const int64_t count : kCounts) {
      const GuardedArray<float> x(normal_values(count, 11));
      const GuardedArray<float> delta(normal_values(count, 12, 1e-3f));
      const GuardedArray<float> y(count);
      std::vector<float> expected(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) expected[static_cast<size_t>(i)] = x[i] + delta[i];
      add_rows(level, x.data(), delta.data(), count, y.data());
      EXPECT_EQ(bits_of(y.span()), bits_of(expected));
      const GuardedArray<float> first(x.span(), GuardSide::kBegin);
      add_rows(level, first.data(), delta.data(), count, first.data());
      EXPECT_EQ(bits_of(first.span()), bits_of(expected));
      const GuardedArray<float> second(delta.span(), GuardSide::kBegin);
      add_rows(level, x.data(), second.data(), count, second.data());
      EXPECT_EQ(bits_of(second.span()), bits_of(expected));
    }
  }
}

TEST(AddRows, KeepsInfinitiesNansAndDenormals) {
  const std::vector<float> x = {kInfinity, kInfinity, kNan, 0x1p-149f, 3e38f, -0.0f};
  const std::vector<float> delta = {1.0f, -kInfinity, 1.0f, 0x1p-149f, 3e38f, -0.0f};
  std::vector<float> y(x.size());
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    add_rows(level, x.data(), delta.data(), 6, y.data());
    EXPECT_EQ(y[0], kInfinity);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0x1p-148f);
    EXPECT_EQ(y[4], kInfinity);
    EXPECT_TRUE(std::signbit(y[5]));
  }
}

TEST(GatherEmbedding, TakesTheRowOfTheToken) {
  constexpr int64_t kVocabulary = 5;
  constexpr int64_t kWidth = 37;
  const std::vector<float> values = normal_values(kVocabulary * kWidth, 3);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const DType dtype : kFloatTypes) {
      const GuardedArray<std::byte> table(as_dtype(dtype, values));
      for (int64_t token = 0; token < kVocabulary; ++token) {
        const GuardedArray<float> y(kWidth);
        gather_embedding(level, dtype, table.data(), token, kWidth, y.data());
        for (int64_t i = 0; i < kWidth; ++i) {
          ASSERT_EQ(y[i], cast_through(dtype, values[static_cast<size_t>(token * kWidth + i)]));
        }
      }
    }
  }
}

// The largest error of y = e^x in units in the last place, over results that are normal floats.
double largest_ulp_error(std::span<const float> x, std::span<const float> y) {
  double largest = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    if (expected < 0x1p-126 || expected >= 0x1.ffffffp+127) continue;
    int exponent = 0;
    std::frexp(expected, &exponent);
    const double ulp = std::ldexp(1.0, exponent - 24);
    largest = std::max(largest, distance(static_cast<double>(y[i]), expected) / ulp);
  }
  return largest;
}

TEST(ExpRow, IsWithinNineTenthsOfAUnitInTheLastPlace) {
  std::vector<float> x = uniform_values(test_effort(200000), -88.0f, 89.0f, 1);
  const std::vector<float> small = uniform_values(test_effort(50000), -1.0f, 1.0f, 2);
  x.insert(x.end(), small.begin(), small.end());
  x.push_back(0x1.4ce7a6p+2f);  // the worst of all floats with AVX-512
  std::vector<float> y(x.size());
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    exp_row(level, x.data(), static_cast<int64_t>(x.size()), y.data());
    EXPECT_LE(largest_ulp_error(x, y), 0.9);
  }
}

TEST(ExpRow, KnowsItsLimits) {
  constexpr float kLargest = 88.72283f;  // e to the next float is infinity
  const std::vector<float> x = {-kInfinity, kInfinity, kNan,      -kNan,    0.0f,
                                -0.0f,      kLargest,  88.72284f, 1e30f,    -1e30f,
                                -87.3365f,  -88.0f,    -104.0f,   0x1p-149f};
  const GuardedArray<float> y(static_cast<int64_t>(x.size()));
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    exp_row(level, x.data(), y.size(), y.data());
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_TRUE(std::isnan(y[3]));
    EXPECT_EQ(y[4], 1.0f);
    EXPECT_EQ(y[5], 1.0f);
    EXPECT_NEAR(y[6] / std::numeric_limits<float>::max(), 1.0, 1e-5);
    EXPECT_EQ(y[7], kInfinity);
    EXPECT_EQ(y[8], kInfinity);
    EXPECT_EQ(y[9], 0.0f);
    EXPECT_NEAR(y[10] / 0x1p-126f, 1.0, 1e-4);  // still normal
    EXPECT_GE(y[11], 0.0f);                     // 6e-39 or 0
    EXPECT_LT(y[11], 0x1p-126f);
    EXPECT_EQ(y[12], 0.0f);
    EXPECT_EQ(y[13], 1.0f);
  }
}

TEST(ExpRow, StaysWithinItsArraysAndWorksInPlace) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const int64_t count : kCounts) {
      const std::vector<float> x = normal_values(count, 21);
      for (const GuardSide side : kSides) {
        const GuardedArray<float> y(x, side);
        exp_row(level, y.data(), count, y.data());
        EXPECT_LE(largest_ulp_error(x, y.span()), 0.9);
      }
    }
  }
}

// f32: the roundings of sum, quotient and product, 2^-24 each, and the exp's error.
constexpr Tolerance kSiluTolerance = {.absolute = 1e-37, .relative = 2.2e-7};

void expect_silu_near(CpuLevel level, std::span<const float> gate, std::span<const float> up,
                      float factor, DType dtype) {
  const int64_t count = static_cast<int64_t>(gate.size());
  const std::vector<double> expected = silu_multiply_reference(gate, up, factor);
  for (const GuardSide side : kSides) {
    const GuardedArray<float> guarded_gate(gate, side);
    const GuardedArray<float> guarded_up(up, side);
    const GuardedArray<std::byte> y(count * dtype_bytes(dtype), side);
    silu_multiply(level, guarded_gate.data(), guarded_up.data(), factor, count, dtype, y.data());
    EXPECT_TRUE(
        all_near(as_floats(dtype, y.data(), count), expected, with_cast(dtype, kSiluTolerance)));
  }
}

TEST(SiluMultiply, IsNearTheReference) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const DType dtype : kFloatTypes) {
      for (const int64_t count : kCounts) {
        const std::vector<float> gate = normal_values(count, 31, 3.0f);
        const std::vector<float> up = normal_values(count, 32);
        expect_silu_near(level, gate, up, 1.0f, dtype);
        expect_silu_near(level, gate, up, 0.37f, dtype);
      }
    }
  }
}

TEST(SiluMultiply, NeitherOverflowsNorBreaksForLargeGates) {
  const std::vector<float> gate = uniform_values(2000, -200.0f, 200.0f, 33);
  const std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> y(gate.size());
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    silu_multiply(level, gate.data(), up.data(), 1.0f, 2000, DType::kF32, y.data());
    // Below -88.7 the exp overflows and the result is -0 instead of at most 2.7e-37.
    EXPECT_TRUE(all_near(y, silu_multiply_reference(gate, up, 1.0f),
                         {.absolute = 2.7e-37, .relative = kSiluTolerance.relative}));
  }
}

TEST(SiluMultiply, TreatsInfinitiesNansAndDenormalsAsTheReference) {
  const std::vector<float> gate = {kInfinity, -kInfinity, kNan,      1.0f,    1.0f, 3e38f, -3e38f,
                                   0x1p-140f, -0x1p-149f, kInfinity, -100.0f, 0.0f, -0.0f};
  const std::vector<float> up = {1.0f, 1.0f, 1.0f, kInfinity, kNan,      1.0f, 1.0f,
                                 4.0f, 4.0f, 0.0f, kInfinity, kInfinity, 2.0f};
  const GuardedArray<float> y(static_cast<int64_t>(gate.size()));
  std::vector<double> expected = silu_multiply_reference(gate, up, 1.0f);
  EXPECT_TRUE(std::isnan(expected[1]));
  // In double -100 has a SiLU other than 0, in f32 it has not: infinity times it is a NaN.
  EXPECT_EQ(expected[10], -static_cast<double>(kInfinity));
  expected[10] = static_cast<double>(kNan);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    silu_multiply(level, gate.data(), up.data(), 1.0f, y.size(), DType::kF32, y.data());
    // Denormals: half of 2^-149, times up.
    EXPECT_TRUE(all_near(y.span(), expected, {.absolute = 0x1p-147, .relative = 2.2e-7}));
  }
}

TEST(SiluMultiply, WorksInPlace) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    const std::vector<float> gate = normal_values(333, 41);
    const std::vector<float> up = normal_values(333, 42);
    std::vector<float> apart(333);
    silu_multiply(level, gate.data(), up.data(), 0.5f, 333, DType::kF32, apart.data());
    std::vector<float> over_gate = gate;
    silu_multiply(level, over_gate.data(), up.data(), 0.5f, 333, DType::kF32, over_gate.data());
    EXPECT_EQ(bits_of(over_gate), bits_of(apart));
    std::vector<float> over_up = up;
    silu_multiply(level, gate.data(), over_up.data(), 0.5f, 333, DType::kF32, over_up.data());
    EXPECT_EQ(bits_of(over_up), bits_of(apart));
  }
}

TEST(SiluMultiply, DoesNotDependOnWhereAnElementLies) {
  const std::vector<float> gate = normal_values(100, 51);
  const std::vector<float> up = normal_values(100, 52);
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    std::vector<float> whole(100);
    silu_multiply(level, gate.data(), up.data(), 1.0f, 100, DType::kF32, whole.data());
    for (size_t i = 0; i < 100; ++i) {
      float single = 0.0f;
      silu_multiply(level, &gate[i], &up[i], 1.0f, 1, DType::kF32, &single);
      ASSERT_EQ(std::bit_cast<uint32_t>(single), std::bit_cast<uint32_t>(whole[i])) << i;
    }
  }
}

}  // namespace
}  // namespace gapless
