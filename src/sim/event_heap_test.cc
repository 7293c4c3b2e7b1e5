// SPDX-License-Identifier: Apache-2.0

#include "sim/event_heap.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(EventHeap, GivesBackTheLowestWhateverTheOrderOfPushesAndPops) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    EventHeap<uint64_t> heap;
    std::vector<uint64_t> sorted;  // descending: the plain rule
    for (int i = 0; i < 300; ++i) {
      const bool is_push = sorted.empty() || random() % 5 < 3;
      if (is_push) {
        const uint64_t value = random() % 50;  // with many equal ones
        heap.push(value);
        sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), value, std::greater<>()),
                      value);
      } else {
        ASSERT_EQ(heap.top(), sorted.back());
        ASSERT_EQ(heap.pop(), sorted.back());
        sorted.pop_back();
      }
      ASSERT_EQ(heap.empty(), sorted.empty());
    }
  }
}

}  // namespace
}  // namespace gapless
