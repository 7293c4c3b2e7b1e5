// SPDX-License-Identifier: Apache-2.0

#include "sim/core_set.h"

#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::vector<uint32_t> members(const CoreSet& set) {
  std::vector<uint32_t> list;
  set.for_each([&list](uint32_t core) {
    list.push_back(core);
    return true;
  });
  return list;
}

TEST(CoreSet, WalksItsMembersFromTheLowest) {
  CoreSet set;
  EXPECT_TRUE(set.is_empty());
  for (const uint32_t core : {255u, 0u, 64u, 63u, 130u}) set.add(core);
  set.remove(64);
  EXPECT_EQ(members(set), (std::vector<uint32_t>{0, 63, 130, 255}));
  EXPECT_EQ(set.count(), 4u);
  EXPECT_TRUE(set.has(130));
  EXPECT_FALSE(set.has(64));
}

TEST(CoreSet, CountsTheMembersBelow) {
  CoreSet set;
  for (uint32_t core = 0; core < CoreSet::kCapacity; core += 3) set.add(core);
  for (uint32_t core = 0; core < CoreSet::kCapacity; ++core) {
    EXPECT_EQ(set.rank(core), (core + 2) / 3) << core;
  }
}

TEST(CoreSet, TakesOutAllUpToOne) {
  CoreSet set;
  for (const uint32_t core : {1u, 63u, 64u, 65u, 200u}) set.add(core);
  set.remove_through(64);
  EXPECT_EQ(members(set), (std::vector<uint32_t>{65, 200}));
  CoreSet other;
  other.add(200);
  EXPECT_EQ(members(set & other), (std::vector<uint32_t>{200}));
  EXPECT_EQ(members(set.without(other)), (std::vector<uint32_t>{65}));
}

TEST(CoreSet, StopsTheWalkWhenToldTo) {
  CoreSet set;
  for (const uint32_t core : {3u, 70u, 71u}) set.add(core);
  std::vector<uint32_t> seen;
  set.for_each([&seen](uint32_t core) {
    seen.push_back(core);
    return core < 70;
  });
  EXPECT_EQ(seen, (std::vector<uint32_t>{3, 70}));
}

}  // namespace
}  // namespace gapless
