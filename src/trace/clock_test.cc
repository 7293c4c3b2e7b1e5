// SPDX-License-Identifier: Apache-2.0

#include "trace/clock.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gapless/trace.h"
#include "trace/trace.h"

namespace gapless {
namespace {

__extension__ typedef __int128 Wide;

constexpr uint64_t kLargestTick = (uint64_t{1} << 59) - 1;  // what a record can hold

// The line through two anchors, in exact arithmetic, rounded down.
int64_t exact_ns(const AnchorBody& a, const AnchorBody& b, uint64_t ticks) {
  const Wide time_span = Wide{b.time_ns} - a.time_ns;
  const Wide tick_span = Wide{b.ticks} - a.ticks;
  const Wide product = (Wide{ticks} - a.ticks) * time_span;
  Wide quotient = product / tick_span;
  if (product % tick_span != 0 && product < 0) --quotient;
  return static_cast<int64_t>(a.time_ns + quotient);
}

// Which two anchors the map goes by at this tick.
int64_t exact_ns(const std::vector<AnchorBody>& anchors, uint64_t ticks) {
  size_t i = 0;
  while (i + 2 < anchors.size() && ticks >= anchors[i + 1].ticks) ++i;
  return exact_ns(anchors[i], anchors[i + 1], ticks);
}

TEST(ClockMap, IsExactAtTheAnchorsAndLinearBetweenThem) {
  ClockMap map({{1000, 5000}, {2000, 6000}, {4000, 7000}}, 123);
  EXPECT_EQ(map.anchor_count(), 3u);
  EXPECT_EQ(map.to_ns(1000), 5000);
  EXPECT_EQ(map.to_ns(2000), 6000);
  EXPECT_EQ(map.to_ns(4000), 7000);
  EXPECT_EQ(map.to_ns(1500), 5500);
  EXPECT_EQ(map.to_ns(3000), 6500);
  EXPECT_EQ(map.to_ns(1001), 5001) << "back to an earlier piece";
}

TEST(ClockMap, GoesOnAtTheRateOfTheNearestPiece) {
  ClockMap map({{1000, 5000}, {2000, 6000}, {4000, 7000}}, 123);
  EXPECT_EQ(map.to_ns(0), 4000);
  EXPECT_EQ(map.to_ns(6000), 8000);
}

TEST(ClockMap, UsesTheNominalRateWithFewerThanTwoAnchors) {
  ClockMap one({{1'000'000, 77}}, 2'000'000'000);
  EXPECT_EQ(one.anchor_count(), 1u);
  EXPECT_EQ(one.to_ns(1'000'000), 77);
  EXPECT_EQ(one.to_ns(3'000'000), 77 + 1'000'000);
  EXPECT_EQ(one.to_ns(0), 77 - 500'000);

  ClockMap none({}, 1'000'000'000);
  EXPECT_EQ(none.anchor_count(), 0u);
  EXPECT_EQ(none.to_ns(0), 0);
  EXPECT_EQ(none.to_ns(12345), 12345);

  ClockMap no_rate({}, 0);
  EXPECT_EQ(no_rate.to_ns(1), 1'000'000'000) << "one tick a second; anything but a division by 0";
}

TEST(ClockMap, LeavesOutAnchorsThatDoNotRise) {
  // In any order; one whose time goes back, one with a tick that is there already.
  ClockMap map({{4000, 7000}, {1000, 5000}, {3000, 4999}, {2000, 6000}, {2000, 6001}}, 123);
  EXPECT_EQ(map.anchor_count(), 3u);
  EXPECT_EQ(map.to_ns(2000), 6000);
  EXPECT_EQ(map.to_ns(3000), 6500);
  EXPECT_EQ(map.to_ns(4000), 7000);
}

TEST(ClockMap, CountsAt50MegahertzToTheNanosecond) {
  // 20 ns a tick, an hour apart.
  ClockMap map({{0, 0}, {uint64_t{50'000'000} * 3600, int64_t{3600} * 1'000'000'000}}, 50'000'000);
  for (const uint64_t ticks : {uint64_t{1}, uint64_t{2}, uint64_t{49'999'999},
                               uint64_t{50'000'000} * 3600 - 1, uint64_t{50'000'000} * 7200}) {
    EXPECT_NEAR(static_cast<double>(map.to_ns(ticks) - static_cast<int64_t>(ticks * 20)), 0, 1);
  }
}

TEST(ClockMap, StaysExactOverWeeksAndToTheLastTick) {
  // One piece of six years at 3 GHz: the largest tick a record can hold.
  const AnchorBody begin = {12345, 1'700'000'000'000'000'000};
  const AnchorBody end = {kLargestTick - 1, begin.time_ns + 192'153'584'101'141'162};
  ClockMap map({begin, end}, 0);
  std::mt19937_64 random(5);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t ticks = random() & kLargestTick;
    ASSERT_LE(std::abs(map.to_ns(ticks) - exact_ns(begin, end, ticks)), 1) << ticks;
  }
  EXPECT_EQ(map.to_ns(begin.ticks), begin.time_ns);
  EXPECT_EQ(map.to_ns(end.ticks), end.time_ns);
  EXPECT_LE(std::abs(map.to_ns(kLargestTick) - exact_ns(begin, end, kLargestTick)), 1);
}

// Goal: exact to 1 ns and monotonic whatever the clock. Method: random anchors of random rates
// from 1 MHz to 6 GHz, random ticks in and around them, against 128-bit rational arithmetic.
TEST(ClockMap, MatchesExactArithmeticAndIsMonotonic) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 300; ++round) {
    std::vector<AnchorBody> anchors = {{random() >> 20, static_cast<int64_t>(random() >> 12)}};
    const uint64_t anchor_count = 2 + random() % 8;
    while (anchors.size() < anchor_count) {
      const uint64_t step_ns = 1 + (random() >> (10 + random() % 50));
      const uint64_t ticks_per_ms = 1000 + random() % 6'000'000;
      const uint64_t step_ticks =
          1 + static_cast<uint64_t>(static_cast<long double>(step_ns) *
                                    static_cast<long double>(ticks_per_ms) / 1e6L);
      if (anchors.back().ticks + step_ticks > kLargestTick) break;
      anchors.push_back({anchors.back().ticks + step_ticks,
                         anchors.back().time_ns + static_cast<int64_t>(step_ns)});
    }
    if (anchors.size() < 2) continue;
    ClockMap map(anchors, 1);
    ASSERT_EQ(map.anchor_count(), anchors.size());
    for (const AnchorBody& anchor : anchors) ASSERT_EQ(map.to_ns(anchor.ticks), anchor.time_ns);

    const uint64_t width = anchors.back().ticks - anchors.front().ticks;
    std::vector<uint64_t> ticks;
    for (int i = 0; i < 500; ++i) {
      const uint64_t around = anchors.front().ticks + random() % (width + width / 4 + 1);
      ticks.push_back(i % 50 == 0 ? anchors.front().ticks - random() % (anchors.front().ticks + 1)
                                  : around);
      const uint64_t anchor_ticks = anchors[random() % anchors.size()].ticks;
      ticks.push_back(anchor_ticks - (anchor_ticks > 0 ? 1 : 0));
      ticks.push_back(anchor_ticks + 1);
    }
    for (const uint64_t tick : ticks) {
      const int64_t expected = exact_ns(anchors, tick);
      if (std::abs(expected) > kMaxTimeNs) continue;
      ASSERT_LE(std::abs(map.to_ns(tick) - expected), 1) << "tick " << tick;
    }
    std::sort(ticks.begin(), ticks.end());
    int64_t latest = std::numeric_limits<int64_t>::min();
    for (const uint64_t tick : ticks) {
      const int64_t time_ns = map.to_ns(tick);
      ASSERT_GE(time_ns, latest) << "tick " << tick;
      latest = time_ns;
    }
  }
}

TEST(ClockMap, HostileAnchorsNeitherOverflowNorGoBack) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr uint64_t kMaxTicks = std::numeric_limits<uint64_t>::max();
  const std::vector<std::vector<AnchorBody>> hostile = {
      {{0, kMin}, {1, kMax}}, {{0, kMin}, {kMaxTicks, kMax}}, {{kMaxTicks, kMin}}, {{0, kMax}},
      {{5, 0}, {6, kMax}},    {{0, 0}, {kMaxTicks, 1}},
  };
  for (const std::vector<AnchorBody>& anchors : hostile) {
    for (const uint64_t rate : {uint64_t{0}, uint64_t{1}, kMaxTicks}) {
      ClockMap map(anchors, rate);
      int64_t latest = kMin;
      for (const uint64_t ticks :
           {uint64_t{0}, uint64_t{1}, uint64_t{5}, uint64_t{6}, kLargestTick, kMaxTicks}) {
        const int64_t time_ns = map.to_ns(ticks);
        EXPECT_GE(time_ns, std::max(latest, -kMaxTimeNs));
        EXPECT_LE(time_ns, kMaxTimeNs);
        latest = time_ns;
      }
    }
  }
}

TEST(ReadAnchor, BothClocksRise) {
  const AnchorBody first = read_anchor();
  AnchorBody second = read_anchor();
  while (second.time_ns - first.time_ns < 20'000'000) second = read_anchor();
  EXPECT_GT(second.ticks, first.ticks);
  ClockMap map({first, second}, 1);
  ASSERT_EQ(map.anchor_count(), 2u);
  // A later reading of the ticks lies behind the second anchor by what the clock says.
  const AnchorBody third = read_anchor();
  EXPECT_NEAR(static_cast<double>(map.to_ns(third.ticks) - third.time_ns), 0.0, 1e6);
}

TEST(WallClock, LiesAfter2020) {
  const int64_t wall_ns = wall_minus_monotonic_ns() + read_anchor().time_ns;
  EXPECT_GT(wall_ns, int64_t{1'577'836'800} * 1'000'000'000);
}

}  // namespace
}  // namespace gapless
