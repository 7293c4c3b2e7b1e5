// SPDX-License-Identifier: Apache-2.0
//
// CoreLoads: what each core has to do when items are dealt in order, each to the core that is free
// first.
//
// This is what workers do that take the next item of a shared list, for items of known cost. A run
// of equal items costs a few heap steps a core and not one an item: as soon as all cores lie within
// one item of each other, whole rounds go to everybody.

#pragma once

#include <cstdint>
#include <vector>

namespace gapless {

inline constexpr int kMaxPlanCores = 65536;  // the planners take no more

class CoreLoads {
 public:
  explicit CoreLoads(int core_count);

  // Deals `count` items that cost `cost` (above 0) each.
  void add(int64_t cost, int64_t count);

  int64_t total() const { return total_; }
  int64_t largest() const { return largest_; }
  double mean() const;
  // Mean load / largest load: 1 is perfect, and so is nothing to do.
  double balance() const;

 private:
  void add_one(int64_t cost);

  std::vector<int64_t> loads_;  // a heap, the smallest first
  int64_t total_ = 0;
  int64_t largest_ = 0;
};

}  // namespace gapless
