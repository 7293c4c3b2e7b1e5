// SPDX-License-Identifier: Apache-2.0

#include "kernels/core_loads.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

TEST(CoreLoads, DealsEachItemToTheCoreThatIsFreeFirst) {
  CoreLoads loads(2);
  loads.add(5, 1);  // 5 0
  loads.add(3, 1);  // 5 3
  loads.add(3, 1);  // 5 6
  EXPECT_EQ(loads.total(), 11);
  EXPECT_EQ(loads.largest(), 6);
  EXPECT_DOUBLE_EQ(loads.mean(), 5.5);
  EXPECT_DOUBLE_EQ(loads.balance(), 5.5 / 6);
}

TEST(CoreLoads, NothingToDoIsBalanced) {
  CoreLoads loads(7);
  EXPECT_DOUBLE_EQ(loads.balance(), 1.0);
  loads.add(3, 0);
  EXPECT_EQ(loads.largest(), 0);
}

// Goal: the shortcut for runs changes nothing.
// Method: random runs in any order, also against a list that is searched for every item.
TEST(CoreLoads, GivesWhatDealingOneByOneGives) {
  std::mt19937 random(20260401);
  for (uint32_t round = 0; round < test_effort(300); ++round) {
    const int core_count = std::uniform_int_distribution<int>(1, 80)(random);
    CoreLoads loads(core_count);
    std::vector<int64_t> expected(static_cast<size_t>(core_count), 0);
    for (int run = 0; run < 8; ++run) {
      const int64_t cost = std::uniform_int_distribution<int64_t>(1, 600)(random);
      const int64_t count = std::uniform_int_distribution<int64_t>(0, 300)(random);
      loads.add(cost, count);
      for (int64_t i = 0; i < count; ++i) {
        *std::min_element(expected.begin(), expected.end()) += cost;
      }
      ASSERT_EQ(loads.largest(), *std::max_element(expected.begin(), expected.end()))
          << core_count << " cores, round " << round << ", run " << run;
    }
  }
}

}  // namespace
}  // namespace gapless
