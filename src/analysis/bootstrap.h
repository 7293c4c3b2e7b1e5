// SPDX-License-Identifier: Apache-2.0
//
// Intervals for medians and their ratios, by drawing the samples again with replacement. The same
// samples and seed give the same interval on every machine.
//
// The interval is that of percentiles: 95 of 100 medians of drawn samples lie in it. Of few samples
// it is too narrow, because no drawn median leaves their range: with n of them the range itself
// misses the true median once in 2^(n-1) times. Costs about 5 ns times rounds times samples.

#pragma once

#include <cstdint>
#include <span>

namespace gapless {

// `value` is the figure of the samples themselves; with probability `confidence` the true one lies
// from low to high, as far as the samples can tell. One sample: low = value = high.
struct Interval {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
  bool contains(double other) const { return low <= other && other <= high; }
};

struct BootstrapOptions {
  double confidence = 0.95;  // between 0 and 1
  int rounds = 2000;         // at least 1
  uint64_t seed = 1;
};

// Of an even number of samples the mean of the two in the middle. `samples` is not empty.
double median_of(std::span<const double> samples);
Interval bootstrap_median(std::span<const double> samples, const BootstrapOptions& options = {});
// Median of `after` over median of `before`; each side is drawn on its own. Both are positive.
Interval bootstrap_ratio(std::span<const double> before, std::span<const double> after,
                         const BootstrapOptions& options = {});

}  // namespace gapless
