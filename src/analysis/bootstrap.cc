// SPDX-License-Identifier: Apache-2.0

#include "analysis/bootstrap.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mix_bits.h"

namespace gapless {
namespace {

// Of values that may be put into another order.
template <typename T>
std::pair<T, T> middle_of(std::vector<T>& values) {
  const size_t half = values.size() / 2;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(half);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return {*middle, *middle};
  return {*std::max_element(values.begin(), middle), *middle};
}

// Draws medians. Samples are sorted once, so that a draw is an index and no sample is copied.
class MedianDraws {
 public:
  MedianDraws(std::span<const double> samples, uint64_t seed)
      : sorted_(samples.begin(), samples.end()), drawn_(samples.size()), counter_(mix_bits(seed)) {
    GAPLESS_CHECK(!samples.empty());
    GAPLESS_CHECK(samples.size() < UINT32_MAX);
    std::sort(sorted_.begin(), sorted_.end());
  }

  double next() {
    const uint64_t count = sorted_.size();
    for (uint32_t& index : drawn_) {
      index = static_cast<uint32_t>(((mix_bits(counter_++) >> 32) * count) >> 32);
    }
    const std::pair<uint32_t, uint32_t> middle = middle_of(drawn_);
    return (sorted_[middle.first] + sorted_[middle.second]) / 2;
  }

 private:
  std::vector<double> sorted_;
  std::vector<uint32_t> drawn_;
  uint64_t counter_;
};

// The percentiles that leave as much below as above.
Interval interval_of(double value, std::vector<double>& draws, double confidence) {
  std::sort(draws.begin(), draws.end());
  const double tail = (1.0 - confidence) / 2 * static_cast<double>(draws.size());
  const size_t outside = std::min(static_cast<size_t>(tail), (draws.size() - 1) / 2);
  return {.value = value, .low = draws[outside], .high = draws[draws.size() - 1 - outside]};
}

void check_options(const BootstrapOptions& options) {
  GAPLESS_CHECK(options.rounds > 0);
  GAPLESS_CHECK(options.confidence >= 0.0 && options.confidence <= 1.0);
}

}  // namespace

double median_of(std::span<const double> samples) {
  GAPLESS_CHECK(!samples.empty());
  std::vector<double> values(samples.begin(), samples.end());
  const std::pair<double, double> middle = middle_of(values);
  return (middle.first + middle.second) / 2;
}

Interval bootstrap_median(std::span<const double> samples, const BootstrapOptions& options) {
  check_options(options);
  MedianDraws medians(samples, options.seed);
  std::vector<double> draws(static_cast<size_t>(options.rounds));
  for (double& draw : draws) draw = medians.next();
  return interval_of(median_of(samples), draws, options.confidence);
}

Interval bootstrap_ratio(std::span<const double> before, std::span<const double> after,
                         const BootstrapOptions& options) {
  check_options(options);
  MedianDraws medians_before(before, options.seed);
  MedianDraws medians_after(after, mix_bits(options.seed));
  std::vector<double> draws(static_cast<size_t>(options.rounds));
  for (double& draw : draws) {
    const double below = medians_before.next();
    draw = medians_after.next() / below;
  }
  return interval_of(median_of(after) / median_of(before), draws, options.confidence);
}

}  // namespace gapless
