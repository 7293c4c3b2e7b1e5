// SPDX-License-Identifier: Apache-2.0

#include "kernels/kernel_test_support.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(GuardedArray, HoldsItsElements) {
  const std::array<float, 3> values = {1.0f, 2.0f, 3.0f};
  for (const GuardSide side : {GuardSide::kEnd, GuardSide::kBegin}) {
    const GuardedArray<float> array(values, side);
    EXPECT_EQ(array.size(), 3);
    EXPECT_EQ(array[0], 1.0f);
    EXPECT_EQ(array[2], 3.0f);
  }
}

TEST(GuardedArrayDeathTest, FaultsBehindItsLastByte) {
  const GuardedArray<uint16_t> array(5000);
  volatile uint16_t* const data = array.data();
  data[4999] = 1;
  EXPECT_DEATH(static_cast<void>(data[5000]), "");
  EXPECT_DEATH(data[5000] = 1, "");
}

TEST(GuardedArrayDeathTest, FaultsBeforeItsFirstByte) {
  const GuardedArray<uint16_t> array(5000, GuardSide::kBegin);
  volatile uint16_t* const data = array.data();
  data[0] = 1;
  EXPECT_DEATH(static_cast<void>(*(data - 1)), "");
  EXPECT_DEATH(*(data - 1) = 1, "");
}

TEST(AllNear, FindsTheWorstElement) {
  const std::array<float, 3> actual = {1.0f, 2.5f, 100.0f};
  const std::array<double, 3> expected = {1.0, 2.0, 101.0};
  EXPECT_TRUE(all_near(actual, expected, {.absolute = 1.0}));
  EXPECT_TRUE(all_near(actual, expected, {.relative = 0.25}));
  EXPECT_FALSE(all_near(actual, expected, {.absolute = 0.9}));
  EXPECT_FALSE(all_near(actual, expected, {.relative = 0.2}));
  EXPECT_FALSE(all_near(actual, expected, {}));
  const Difference difference = difference_of(actual, expected);
  EXPECT_EQ(difference.absolute, 1.0);
  EXPECT_EQ(difference.absolute_index, 2);
  EXPECT_EQ(difference.relative, 0.25);
  EXPECT_EQ(difference.relative_index, 1);
}

TEST(AllNear, TakesNansAndInfinitiesForWhatTheyAre) {
  const std::array<float, 1> infinite = {std::numeric_limits<float>::infinity()};
  const std::array<float, 1> nan = {std::numeric_limits<float>::quiet_NaN()};
  const std::array<float, 1> finite = {1.0f};
  const Tolerance wide = {.absolute = 1e30, .relative = 1.0};
  EXPECT_TRUE(all_near(infinite, std::array{kInfinity}, {}));
  EXPECT_TRUE(all_near(nan, std::array{kNan}, {}));
  EXPECT_FALSE(all_near(infinite, std::array{-kInfinity}, wide));
  EXPECT_FALSE(all_near(infinite, std::array{1.0}, wide));
  EXPECT_FALSE(all_near(infinite, std::array{kNan}, wide));
  EXPECT_FALSE(all_near(nan, std::array{1.0}, wide));
  EXPECT_FALSE(all_near(nan, std::array{kInfinity}, wide));
  EXPECT_FALSE(all_near(finite, std::array{kNan}, wide));
  EXPECT_FALSE(all_near(finite, std::array{kInfinity}, wide));
}

TEST(AllNear, RefusesOtherSizes) {
  EXPECT_FALSE(all_near(std::array{1.0f, 2.0f}, std::array{1.0}, {.absolute = 10.0}));
}

}  // namespace
}  // namespace gapless
