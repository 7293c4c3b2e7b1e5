// SPDX-License-Identifier: Apache-2.0

#include "kernels/core_loads.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace gapless {

CoreLoads::CoreLoads(int core_count) {
  GAPLESS_CHECK(core_count > 0);
  loads_.resize(static_cast<size_t>(core_count), 0);
}

void CoreLoads::add_one(int64_t cost) {
  std::pop_heap(loads_.begin(), loads_.end(), std::greater<>());
  loads_.back() += cost;
  largest_ = std::max(largest_, loads_.back());
  std::push_heap(loads_.begin(), loads_.end(), std::greater<>());
}

void CoreLoads::add(int64_t cost, int64_t count) {
  GAPLESS_CHECK(cost > 0);
  total_ += cost * count;
  for (; count > 0 && largest_ - loads_.front() > cost; --count) add_one(cost);
  // From here on a round gives every core one item before any gets a second, and changes no order.
  const int64_t core_count = static_cast<int64_t>(loads_.size());
  const int64_t rounds = count / core_count;
  if (rounds > 0) {
    for (int64_t& load : loads_) load += rounds * cost;
    largest_ += rounds * cost;
    count -= rounds * core_count;
  }
  for (; count > 0; --count) add_one(cost);
}

double CoreLoads::mean() const {
  return static_cast<double>(total_) / static_cast<double>(loads_.size());
}

double CoreLoads::balance() const {
  return largest_ == 0 ? 1.0 : mean() / static_cast<double>(largest_);
}

}  // namespace gapless
