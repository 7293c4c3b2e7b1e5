// SPDX-License-Identifier: Apache-2.0

#include "base/half.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Goal: casts to 16 bits round to nearest, ties to even, for every pair of neighbours.
// Method: what lies half way between two neighbours is a float; it, the float below it and the
// float above it must go where they belong, on both sides of zero. `largest` is the bits of the
// largest finite value, whose upper neighbour is taken to be the next power of two.
template <typename Half>
void expect_nearest_even(uint16_t largest, Half (*cast)(float)) {
  for (uint32_t low = 0; low <= largest; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const double low_value = static_cast<double>(to_float(Half{static_cast<uint16_t>(low)}));
    const double step =
        low < largest
            ? static_cast<double>(to_float(Half{high})) - low_value
            : low_value - static_cast<double>(to_float(Half{static_cast<uint16_t>(low - 1)}));
    const float middle = static_cast<float>(low_value + step / 2);
    const uint16_t even = (low & 1u) == 0 ? static_cast<uint16_t>(low) : high;
    ASSERT_EQ(cast(middle).bits, even);
    ASSERT_EQ(cast(std::nextafter(middle, 0.0f)).bits, low);
    ASSERT_EQ(cast(std::nextafter(middle, kInfinity)).bits, high);
    ASSERT_EQ(cast(-middle).bits, even | 0x8000u);
    ASSERT_EQ(cast(-std::nextafter(middle, kInfinity)).bits, high | 0x8000u);
  }
}

TEST(Half, EveryBf16GoesToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 value = {static_cast<uint16_t>(bits)};
    const bool is_nan = (bits & 0x7fffu) > 0x7f80u;
    EXPECT_EQ(std::isnan(to_float(value)), is_nan);
    EXPECT_EQ(to_bf16(to_float(value)).bits, is_nan ? bits | 0x40u : bits);
  }
}

TEST(Half, EveryF16GoesToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 value = {static_cast<uint16_t>(bits)};
    const bool is_nan = (bits & 0x7fffu) > 0x7c00u;
    EXPECT_EQ(std::isnan(to_float(value)), is_nan);
    EXPECT_EQ(to_f16(to_float(value)).bits, is_nan ? bits | 0x200u : bits);
  }
}

TEST(Half, EveryF16IsItsMantissaTimesItsPower) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const int mantissa = static_cast<int>(bits & 0x3ffu);
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    const float positive = to_float(F16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(static_cast<double>(positive), expected);
    const float negative = to_float(F16{static_cast<uint16_t>(bits | 0x8000u)});
    ASSERT_EQ(static_cast<double>(negative), -expected);
    ASSERT_TRUE(std::signbit(negative));
  }
}

TEST(Half, CastToBf16TakesTheNearestAndTheEvenOfTwo) { expect_nearest_even<Bf16>(0x7f7f, to_bf16); }

TEST(Half, CastToF16TakesTheNearestAndTheEvenOfTwo) { expect_nearest_even<F16>(0x7bff, to_f16); }

TEST(Half, TooLargeBecomesInfinity) {
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(65536.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(to_f16(kInfinity).bits, 0x7c00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
}

TEST(Half, NanStaysNanWithItsSign) {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffc12345u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(to_float(to_bf16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(to_float(to_f16(nan)))) << bits;
    EXPECT_EQ(to_bf16(nan).bits >> 15, bits >> 31);
    EXPECT_EQ(to_f16(nan).bits >> 15, bits >> 31);
  }
}

TEST(Half, CastThroughRoundsOnlyWhatHasFewerBits) {
  const float value = 1.0f + 0x1p-9f;
  EXPECT_EQ(cast_through(DType::kF32, value), value);
  EXPECT_EQ(cast_through(DType::kF16, value), value);
  EXPECT_EQ(cast_through(DType::kBf16, value), 1.0f);
  EXPECT_EQ(cast_through(DType::kF16, 1.0f + 0x1p-12f), 1.0f);
}

TEST(Half, LoadsAndStoresElementsOfEachType) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    std::vector<uint16_t> memory(8);
    store_from_float(dtype, memory.data(), 2, 1.5f);
    store_from_float(dtype, memory.data(), 3, -0.25f);
    EXPECT_EQ(load_as_float(dtype, memory.data(), 1), 0.0f);
    EXPECT_EQ(load_as_float(dtype, memory.data(), 2), 1.5f);
    EXPECT_EQ(load_as_float(dtype, memory.data(), 3), -0.25f);
  }
}

TEST(HalfDeathTest, RefusesTypesThatAreNotFloats) {
  EXPECT_DEATH(static_cast<void>(cast_through(DType::kS8, 1.0f)), "check failed: dtype");
}

}  // namespace
}  // namespace gapless
