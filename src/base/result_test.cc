// SPDX-License-Identifier: Apache-2.0

#include "base/result.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

Result<int> halve(int number) {
  if (number % 2 != 0) return fail(ErrorCode::kInvalidInput, "{} is odd", number);
  return number / 2;
}

Result<std::string> quarter(int number) {
  const int half = GAPLESS_TRY(halve(number));
  return std::to_string(GAPLESS_TRY(halve(half)));
}

Result<void> check_even(int number, int* checked_count) {
  GAPLESS_TRY(halve(number));
  ++*checked_count;
  return {};
}

Result<void> check_all(int* checked_count) {
  for (const int number : {2, 4, 5, 6}) GAPLESS_TRY(check_even(number, checked_count));
  return {};
}

TEST(Result, HoldsAValueOrASentence) {
  const Result<int> good = halve(4);
  ASSERT_TRUE(good.has_value());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 2);
  EXPECT_EQ(good.value(), 2);

  const Result<int> bad = halve(3);
  ASSERT_FALSE(bad.has_value());
  EXPECT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(bad.error().message, "3 is odd");
}

TEST(Result, TryPassesTheValueOrReturnsTheError) {
  EXPECT_EQ(*quarter(12), "3");
  EXPECT_EQ(quarter(7).error().message, "7 is odd");
  EXPECT_EQ(quarter(6).error().message, "3 is odd") << "the second step fails";
}

TEST(Result, TryWorksWithoutAValue) {
  int checked_count = 0;
  const Result<void> result = check_all(&checked_count);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message, "5 is odd");
  EXPECT_EQ(checked_count, 2) << "nothing runs after the error";
  EXPECT_TRUE(Result<void>().has_value());
}

Result<std::unique_ptr<int>> boxed(int number) {
  if (number < 0) return fail(ErrorCode::kUsage, "{} is negative", number);
  return std::make_unique<int>(number);
}

Result<int> unboxed(int number) {
  const std::unique_ptr<int> box = GAPLESS_TRY(boxed(number));
  return *box;
}

TEST(Result, MovesWhatCannotBeCopied) {
  EXPECT_EQ(*unboxed(5), 5);
  EXPECT_EQ(unboxed(-5).error().code, ErrorCode::kUsage);
  Result<std::unique_ptr<int>> result = boxed(6);
  const std::unique_ptr<int> box = *std::move(result);
  EXPECT_EQ(*box, 6);
}

TEST(Result, AnErrorCanBeAValueOfItsOwnType) {
  // Result<std::string> must not take the sentence of an error for a value, nor the reverse.
  const Result<std::string> text = std::string("fine");
  EXPECT_TRUE(text.has_value());
  EXPECT_EQ(text->size(), 4u);
  const Result<std::string> error = fail(ErrorCode::kSystem, "fine");
  EXPECT_FALSE(error.has_value());
}

TEST(Fail, FormatsNumbersAndTexts) {
  const std::string name = "trace.bin";
  const Error error = fail(ErrorCode::kSystem, "{}: {} of {} bytes, {:#x}", name, 19, 24, 255);
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_EQ(error.message, "trace.bin: 19 of 24 bytes, 0xff");
}

}  // namespace
}  // namespace gapless
