// SPDX-License-Identifier: Apache-2.0

#include "model/random_values.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::vector<float> normal_values(uint64_t seed, uint64_t place, size_t count) {
  std::vector<float> values(count);
  fill_normal(seed, place, values);
  return values;
}

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
  double fourth = 0.0;  // of the standardised values; 3 for a normal distribution
};
Moments moments_of(const std::vector<float>& values) {
  const double count = static_cast<double>(values.size());
  Moments moments;
  for (const float value : values) moments.mean += value / count;
  double square = 0.0;
  for (const float value : values) {
    const double distance = value - moments.mean;
    square += distance * distance / count;
    moments.fourth += distance * distance * distance * distance / count;
  }
  moments.deviation = std::sqrt(square);
  moments.fourth /= square * square;
  return moments;
}

// The published first results of splitmix64 from state 0.
TEST(RandomValues, MixesAsSplitmixDoes) {
  EXPECT_EQ(mix_bits(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix_bits(0x9e3779b97f4a7c15), 0x6e789e6aa1b965f4u);
}

// A sum of four uniform values has a fourth moment of 3 - 6/5/4 = 2.7. Of 2^18 values the mean is
// known to 0.002, the deviation to 0.0013, the fourth moment to 0.01.
TEST(RandomValues, AreNearlyNormal) {
  for (const uint64_t seed : {0u, 1u, 12345u}) {
    const std::vector<float> values = normal_values(seed, 0, 1 << 18);
    const Moments moments = moments_of(values);
    EXPECT_NEAR(moments.mean, 0.0, 0.01);
    EXPECT_NEAR(moments.deviation, 1.0, 0.007);
    EXPECT_NEAR(moments.fourth, 2.7, 0.05);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    EXPECT_GT(*least, -3.5f);
    EXPECT_LT(*most, 3.5f);
    EXPECT_LT(*least, -3.0f);
    EXPECT_GT(*most, 3.0f);
  }
}

TEST(RandomValues, AreAFunctionOfSeedAndPlace) {
  const std::vector<float> values = normal_values(3, 1000, 256);
  EXPECT_EQ(normal_values(3, 1000, 256), values);
  EXPECT_NE(normal_values(4, 1000, 256), values);
  EXPECT_NE(normal_values(3, 1001, 256), values);
  // The first ones do not depend on how many follow.
  const std::vector<float> some = normal_values(3, 1000, 100);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), values.begin()));
}

// The same on every machine: integers until the last product.
TEST(RandomValues, AreTheSameEverywhere) {
  const std::vector<float> values = normal_values(1, 2, 3);
  std::vector<float> expected;
  const uint64_t first = mix_bits(mix_bits(1) + 2);
  for (uint64_t i = 0; i < 3; ++i) {
    const uint64_t bits = mix_bits(first + i);
    double sum = 0.0;
    for (int part = 0; part < 4; ++part)
      sum += static_cast<double>((bits >> (16 * part)) & 0xffff) / 65536.0;
    expected.push_back(static_cast<float>((sum - 2.0 * 65535.0 / 65536.0) * std::sqrt(3.0)));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
}

// Places that differ by one, as those of neighbouring tokens do, share nothing.
TEST(RandomValues, OfNeighbouringPlacesAreUnrelated) {
  constexpr size_t kCount = 128;
  constexpr uint64_t kPlaces = 200;
  std::set<float> seen;
  double product = 0.0;
  std::vector<float> before = normal_values(7, 0, kCount);
  for (uint64_t place = 1; place <= kPlaces; ++place) {
    const std::vector<float> values = normal_values(7, place, kCount);
    for (size_t i = 0; i < kCount; ++i) product += values[i] * before[i];
    for (size_t i = 0; i + 1 < kCount; ++i) EXPECT_NE(values[i], before[i + 1]);
    seen.insert(values.begin(), values.end());
    before = values;
  }
  EXPECT_LT(std::abs(product) / static_cast<double>(kPlaces * kCount), 0.03);
  // 2^18 possible values; 25,600 draws of them collide now and then.
  EXPECT_GT(seen.size(), kPlaces * kCount * 8 / 10);
}

}  // namespace
}  // namespace gapless
