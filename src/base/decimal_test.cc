// SPDX-License-Identifier: Apache-2.0

#include "base/decimal.h"

#include <limits>
#include <random>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(ParseDecimal, KeepsSixteenDigitsBeforeThePointAndThreeAfter) {
  EXPECT_EQ(parse_decimal("1730000000000000.123", 3), 1730000000000000123);
  EXPECT_EQ(parse_decimal("-1730000000000000.123", 3), -1730000000000000123);
  EXPECT_EQ(parse_decimal("9007199254740993", 0), 9007199254740993) << "not a double's integer";
  EXPECT_EQ(parse_decimal("9007199254740993", 3), 9007199254740993000);
}

TEST(ParseDecimal, RoundsHalfAwayFromZero) {
  EXPECT_EQ(parse_decimal("0.0004", 3), 0);
  EXPECT_EQ(parse_decimal("0.0005", 3), 1);
  EXPECT_EQ(parse_decimal("-0.0005", 3), -1);
  EXPECT_EQ(parse_decimal("0.00049999999999999999999999", 3), 0);
  EXPECT_EQ(parse_decimal("1.9995", 3), 2000);
  EXPECT_EQ(parse_decimal("0.5", 0), 1);
  EXPECT_EQ(parse_decimal("-0.5", 0), -1);
  EXPECT_EQ(parse_decimal("0.05", 0), 0) << "the digit that decides is the first one dropped";
}

TEST(ParseDecimal, TakesSignsAndBarePoints) {
  EXPECT_EQ(parse_decimal("+12", 0), 12);
  EXPECT_EQ(parse_decimal("-0", 0), 0);
  EXPECT_EQ(parse_decimal("12.", 1), 120);
  EXPECT_EQ(parse_decimal(".5", 1), 5);
  EXPECT_EQ(parse_decimal("000000000000000000000000000000012", 0), 12);
}

TEST(ParseDecimal, TakesExponents) {
  EXPECT_EQ(parse_decimal("1.5e3", 0), 1500);
  EXPECT_EQ(parse_decimal("1.5E+3", 0), 1500);
  EXPECT_EQ(parse_decimal("1500e-3", 0), 2);
  EXPECT_EQ(parse_decimal("1.730000000000000123e15", 3), 1730000000000000123);
  EXPECT_EQ(parse_decimal("1e-400", 3), 0);
  EXPECT_EQ(parse_decimal("9e-1", 0), 1);
  EXPECT_EQ(parse_decimal("9e-2", 0), 0);
  EXPECT_EQ(parse_decimal("0e2000000000", 3), 0) << "zero fits whatever its exponent";
  EXPECT_EQ(parse_decimal("0.000e2000000000", 3), 0);
}

TEST(ParseDecimal, KnowsTheEdgesOfItsRange) {
  EXPECT_EQ(parse_decimal("9223372036854775807", 0), kMax);
  EXPECT_EQ(parse_decimal("9223372036854775808", 0), std::nullopt);
  EXPECT_EQ(parse_decimal("-9223372036854775808", 0), kMin);
  EXPECT_EQ(parse_decimal("-9223372036854775809", 0), std::nullopt);
  EXPECT_EQ(parse_decimal("9223372036854775.807", 3), kMax);
  EXPECT_EQ(parse_decimal("9223372036854775.8075", 3), std::nullopt) << "rounds out of range";
  EXPECT_EQ(parse_decimal("9223372036854775.8074", 3), kMax);
  EXPECT_EQ(parse_decimal("-9223372036854775.8084", 3), kMin);
  EXPECT_EQ(parse_decimal("-9223372036854775.8085", 3), std::nullopt);
  EXPECT_EQ(parse_decimal("18446744073709551616", 0), std::nullopt);
  EXPECT_EQ(parse_decimal("99999999999999999999999999", 0), std::nullopt);
  EXPECT_EQ(parse_decimal("1e19", 0), std::nullopt);
  EXPECT_EQ(parse_decimal("1e2000000000", 0), std::nullopt);
  EXPECT_EQ(parse_decimal("1e99999999999999999999", 0), std::nullopt);
}

TEST(ParseDecimal, RefusesWhatIsNotANumber) {
  for (const char* text :
       {"",   "-",  "+",  ".",  "-.",  "e5",    "1e",  "1e+",  "1e-", "1e+-5", "1e--5", "1e5x",
        "1x", "x1", " 1", "1 ", "1,5", "1.2.3", "--1", "0x10", "nan", "inf",   "1e5.5", "1_000"}) {
    EXPECT_EQ(parse_decimal(text, 3), std::nullopt) << '"' << text << '"';
  }
  EXPECT_EQ(parse_decimal(std::string_view("1\0", 2), 0), std::nullopt);
}

template <typename Write, typename Value>
std::string written(Write write, Value value) {
  char buffer[32];
  return std::string(buffer, write(buffer, value));
}

TEST(WriteInteger, WritesEveryMagnitude) {
  EXPECT_EQ(written(write_integer, kMin), "-9223372036854775808");
  EXPECT_EQ(written(write_integer, kMax), "9223372036854775807");
  EXPECT_EQ(written(write_integer, int64_t{0}), "0");
  EXPECT_EQ(written(write_unsigned, std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  uint64_t power = 1;
  for (int digits = 1; digits <= 20; ++digits) {
    for (const uint64_t value : {power - 1, power, power + 1}) {
      EXPECT_EQ(written(write_unsigned, value), fmt::format("{}", value));
      EXPECT_EQ(written(write_integer, static_cast<int64_t>(value)),
                fmt::format("{}", static_cast<int64_t>(value)));
    }
    power *= 10;
  }
}

TEST(WriteMicroseconds, WritesThreeDecimals) {
  EXPECT_EQ(written(write_microseconds, int64_t{0}), "0.000");
  EXPECT_EQ(written(write_microseconds, int64_t{7}), "0.007");
  EXPECT_EQ(written(write_microseconds, int64_t{-7}), "-0.007");
  EXPECT_EQ(written(write_microseconds, int64_t{12345}), "12.345");
  EXPECT_EQ(written(write_microseconds, int64_t{-1000}), "-1.000");
  EXPECT_EQ(written(write_microseconds, kMax), "9223372036854775.807");
  EXPECT_EQ(written(write_microseconds, kMin), "-9223372036854775.808");
}

TEST(Decimal, WhatIsWrittenIsReadBack) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const int64_t value = static_cast<int64_t>(random() >> random() % 64);
    const int64_t signed_value = i % 2 == 0 ? value : -value;
    ASSERT_EQ(parse_decimal(written(write_integer, signed_value), 0), signed_value);
    ASSERT_EQ(parse_decimal(written(write_microseconds, signed_value), 3), signed_value);
  }
  EXPECT_EQ(parse_decimal(written(write_microseconds, kMin), 3), kMin);
}

}  // namespace
}  // namespace gapless
