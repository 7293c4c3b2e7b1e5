// SPDX-License-Identifier: Apache-2.0

#include "analysis/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/mix_bits.h"

namespace gapless {
namespace {

// Between 0 and 1, a function of seed and place.
double uniform(uint64_t seed, uint64_t place) {
  return (static_cast<double>(mix_bits(mix_bits(seed) + place) >> 11) + 0.5) * 0x1p-53;
}

// 0.9 of the median, and an exponential part: a least length and a tail, as steps have.
std::vector<double> skewed_samples(uint64_t seed, size_t count, double median) {
  std::vector<double> samples(count);
  for (size_t i = 0; i < count; ++i) {
    samples[i] = median * (0.9 - 0.1 * std::log2(uniform(seed, i)));
  }
  return samples;
}

TEST(MedianOf, IsTheMiddleOrTheMeanOfTheTwoThere) {
  EXPECT_EQ(median_of(std::vector<double>{7.0}), 7.0);
  EXPECT_EQ(median_of(std::vector<double>{9.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median_of(std::vector<double>{9.0, 1.0, 2.0, 4.0}), 3.0);
  EXPECT_EQ(median_of(std::vector<double>{5.0, 5.0, 1.0, 9.0}), 5.0);
}

TEST(BootstrapMedian, OneSampleIsItsOwnInterval) {
  const Interval interval = bootstrap_median(std::vector<double>{3.5});
  EXPECT_EQ(interval.value, 3.5);
  EXPECT_EQ(interval.low, 3.5);
  EXPECT_EQ(interval.high, 3.5);
}

TEST(BootstrapMedian, StaysWithinTheSamplesAndAroundTheirMedian) {
  const std::vector<double> samples = skewed_samples(3, 25, 100.0);
  const Interval interval = bootstrap_median(samples);
  EXPECT_EQ(interval.value, median_of(samples));
  EXPECT_LT(interval.low, interval.value);
  EXPECT_GT(interval.high, interval.value);
  EXPECT_GE(interval.low, *std::min_element(samples.begin(), samples.end()));
  EXPECT_LE(interval.high, *std::max_element(samples.begin(), samples.end()));
}

TEST(BootstrapMedian, IsAFunctionOfSamplesAndSeed) {
  std::vector<double> samples = skewed_samples(4, 30, 1.0);
  const Interval interval = bootstrap_median(samples);
  std::reverse(samples.begin(), samples.end());
  const Interval again = bootstrap_median(samples);
  EXPECT_EQ(interval.low, again.low) << "the order of the samples does not matter";
  EXPECT_EQ(interval.high, again.high);
  const Interval other = bootstrap_median(samples, {.rounds = 50, .seed = 2});
  EXPECT_TRUE(other.low != interval.low || other.high != interval.high);
}

TEST(BootstrapMedian, MoreConfidenceIsAWiderInterval) {
  const std::vector<double> samples = skewed_samples(5, 40, 10.0);
  const Interval half = bootstrap_median(samples, {.confidence = 0.5});
  const Interval most = bootstrap_median(samples, {.confidence = 0.99});
  EXPECT_LT(most.low, half.low);
  EXPECT_GT(most.high, half.high);
  const Interval none = bootstrap_median(samples, {.confidence = 0.0, .rounds = 1001});
  EXPECT_EQ(none.low, none.high);
  const Interval all = bootstrap_median(samples, {.confidence = 1.0});
  EXPECT_LE(all.low, most.low);
  EXPECT_GE(all.high, most.high);
}

TEST(BootstrapRatio, OfConstantSamplesIsExact) {
  const std::vector<double> before(10, 4.0);
  const std::vector<double> after(7, 3.0);
  const Interval interval = bootstrap_ratio(before, after);
  EXPECT_EQ(interval.value, 0.75);
  EXPECT_EQ(interval.low, 0.75);
  EXPECT_EQ(interval.high, 0.75);
  EXPECT_TRUE(interval.contains(0.75));
  EXPECT_FALSE(interval.contains(1.0));
}

TEST(BootstrapRatio, SidesAreDrawnOnTheirOwn) {
  // The same samples on both sides: drawn together, every ratio would be 1.
  const std::vector<double> samples = skewed_samples(6, 20, 1.0);
  const Interval interval = bootstrap_ratio(samples, samples);
  EXPECT_EQ(interval.value, 1.0);
  EXPECT_LT(interval.low, 0.99);
  EXPECT_GT(interval.high, 1.01);
}

// Goal: 95 % means 95 %. Method: data sets of which the true ratio is known; count how often the
// interval holds it. Of 200 sets that is 190 with a standard deviation of 3.
struct CoverageCase {
  size_t before_count;
  size_t after_count;
  double ratio;
};

class Coverage : public testing::TestWithParam<CoverageCase> {};

TEST_P(Coverage, TheIntervalHoldsTheTruthAboutAsOftenAsItSays) {
  const CoverageCase& sizes = GetParam();
  constexpr int kDataSets = 200;
  int held_count = 0;
  int held_wrong_count = 0;
  for (uint64_t set = 0; set < kDataSets; ++set) {
    const std::vector<double> before = skewed_samples(2 * set + 11, sizes.before_count, 50.0);
    const std::vector<double> after =
        skewed_samples(2 * set + 12, sizes.after_count, 50.0 * sizes.ratio);
    const Interval interval = bootstrap_ratio(before, after, {.rounds = 400, .seed = set});
    held_count += interval.contains(sizes.ratio) ? 1 : 0;
    held_wrong_count += interval.contains(sizes.ratio * 1.5) ? 1 : 0;
  }
  EXPECT_GE(held_count, kDataSets * 90 / 100);
  EXPECT_LE(held_count, kDataSets * 99 / 100);
  EXPECT_LT(held_wrong_count, kDataSets / 10) << "an interval that holds everything says nothing";
}

INSTANTIATE_TEST_SUITE_P(Sizes, Coverage,
                         testing::Values(CoverageCase{20, 20, 1.0}, CoverageCase{20, 20, 0.8},
                                         CoverageCase{21, 11, 1.3}, CoverageCase{50, 30, 1.0}));

}  // namespace
}  // namespace gapless
