// SPDX-License-Identifier: Apache-2.0
//
// median_of: what a figure is that was taken several times on a machine that others use too.

#pragma once

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace gapless {

// The middle value, of an even number the mean of the two. At least one value.
inline double median_of(std::vector<double> values) {
  GAPLESS_CHECK(!values.empty());
  const size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2.0;
}

}  // namespace gapless
