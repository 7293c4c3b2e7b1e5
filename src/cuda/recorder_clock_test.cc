// SPDX-License-Identifier: Apache-2.0
//
// SmClock on readings of clocks whose truth is known: steady ones, ones that change their rate,
// that stand still, and that were damaged.

#include "cuda/recorder_clock.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/recorder_test_support.h"

namespace gapless {
namespace {

struct ClockCase {
  std::vector<SmAnchor> anchors;
  std::vector<double> truth;  // by anchor
};

// A rate that may move by half after every reading.
ClockCase random_clock(uint32_t seed, bool is_steady) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> gap_ns(1.0, 20'000.0);
  std::uniform_real_distribution<double> rate_ghz(1.0, 2.0);
  ClockCase c;
  double time_ns = 1e6;
  double clock = 1e9;
  double ghz = kMadeClockGhz;
  for (int i = 0; i < 500; ++i) {
    const double step_ns = gap_ns(random);
    clock += step_ns * ghz;
    time_ns += step_ns;
    if (!is_steady) ghz = rate_ghz(random);
    c.anchors.push_back(
        {static_cast<uint64_t>(clock), static_cast<int64_t>(time_ns) / kMadeTickNs * kMadeTickNs});
    c.truth.push_back(time_ns);
  }
  return c;
}

double worst_error_ns(const ClockCase& c, size_t first) {
  const SmClock clock(c.anchors, kMadeTickNs);
  double worst_ns = 0.0;
  for (size_t i = first; i < c.anchors.size(); ++i) {
    const double time_ns = static_cast<double>(clock.time_ns(c.anchors[i].clock));
    worst_ns = std::max(worst_ns, std::abs(time_ns - c.truth[i]));
  }
  return worst_ns;
}

TEST(SmClock, IsWithinATickOfTheTruth) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    EXPECT_LE(worst_error_ns(random_clock(seed, true), 0), kMadeTickNs + 1) << seed;
    EXPECT_LE(worst_error_ns(random_clock(seed, false), 0), kMadeTickNs + 1) << seed;
  }
}

TEST(SmClock, IsBetterWhileTheRateHolds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    EXPECT_LE(worst_error_ns(random_clock(seed, true), 100), kMadeTickNs / 2) << seed;
  }
}

TEST(SmClock, NeverFalls) {
  const ClockCase c = random_clock(3, false);
  const SmClock clock(c.anchors, kMadeTickNs);
  int64_t last_ns = clock.time_ns(0);
  for (uint64_t at = c.anchors.front().clock - 5000; at < c.anchors.back().clock + 5000; at += 41) {
    const int64_t time_ns = clock.time_ns(at);
    ASSERT_GE(time_ns, last_ns) << at;
    last_ns = time_ns;
  }
}

// Goal: ends behind the last reading are right too. Method: begins of blocks every 5 to 40 us,
// often two side by side, as an SM has them; what comes up to 40 us behind the last is held against
// the truth, with as many readings before it as a layer has or more.
TEST(SmClock, GoesOnBehindTheLastReading) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> gap_ns(5'000.0, 40'000.0);
    std::uniform_real_distribution<double> near_ns(1.0, 300.0);
    std::vector<SmAnchor> anchors;
    double time_ns = 1e6;
    for (uint32_t i = 0; i < 10 + seed % 50; ++i) {
      time_ns += i % 3 == 2 ? near_ns(random) : gap_ns(random);
      anchors.push_back({static_cast<uint64_t>(1e9 + time_ns * kMadeClockGhz),
                         static_cast<int64_t>(time_ns) / kMadeTickNs * kMadeTickNs});
    }
    const SmClock clock(anchors, kMadeTickNs);
    for (double behind_ns = 0.0; behind_ns <= 40'000.0; behind_ns += 1'000.0) {
      const double truth_ns = time_ns + behind_ns;
      const uint64_t at = static_cast<uint64_t>(1e9 + truth_ns * kMadeClockGhz);
      ASSERT_NEAR(static_cast<double>(clock.time_ns(at)), truth_ns, kMadeTickNs)
          << seed << " " << behind_ns;
    }
  }
}

// Goal: an end before a rest is not stretched into it. Method: begins of blocks in steps between
// which the clock stands still for a while; ends behind the last begin of each step.
TEST(SmClock, KeepsItsRateBeforeARest) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> gap_ns(5'000.0, 40'000.0);
    std::vector<SmAnchor> anchors;
    std::vector<std::pair<uint64_t, double>> ends;
    double time_ns = 1e6;
    double clock_ns = 1e6;
    for (int step = 0; step < 5; ++step) {
      for (int i = 0; i < 20; ++i) {
        const double step_ns = gap_ns(random);
        time_ns += step_ns;
        clock_ns += step_ns;
        anchors.push_back({static_cast<uint64_t>(clock_ns * kMadeClockGhz),
                           static_cast<int64_t>(time_ns) / kMadeTickNs * kMadeTickNs});
      }
      const double end_ns = gap_ns(random);
      ends.push_back(
          {static_cast<uint64_t>((clock_ns + end_ns) * kMadeClockGhz), time_ns + end_ns});
      clock_ns += end_ns;
      time_ns += end_ns + 3e6;
    }
    const SmClock clock(anchors, kMadeTickNs);
    EXPECT_EQ(clock.rejected_count(), 0u);
    for (const auto& [at, truth_ns] : ends) {
      EXPECT_NEAR(static_cast<double>(clock.time_ns(at)), truth_ns, kMadeTickNs) << seed;
    }
  }
}

TEST(SmClock, BelievesTheMostWhenOneTimerIsFarAhead) {
  ClockCase c = random_clock(5, true);
  c.anchors[10].time_ns += 1'000'000'000;
  const SmClock clock(c.anchors, kMadeTickNs);
  EXPECT_EQ(clock.rejected_count(), 1u);
  for (const size_t i : {9u, 10u, 11u, 400u}) {
    EXPECT_NEAR(static_cast<double>(clock.time_ns(c.anchors[i].clock)), c.truth[i], kMadeTickNs);
  }
}

TEST(SmClock, LeavesOutTimersThatGoBack) {
  const SmClock clock({{1000, 3200}, {3000, 1600}, {2000, 4800}, {2010, 4768}, {4000, 8000}},
                      kMadeTickNs);
  EXPECT_EQ(clock.rejected_count(), 1u);  // by one tick it is nothing strange
  EXPECT_NEAR(static_cast<double>(clock.time_ns(3000)), 6400.0, 32.0);
}

TEST(SmClock, OfNoAnchorsIsZeroAndOfOneGoesOn) {
  EXPECT_EQ(SmClock().time_ns(77), 0);
  const SmClock clock({{1000, 3200}}, kMadeTickNs);
  EXPECT_EQ(clock.time_ns(1000), 3216);
  EXPECT_GT(clock.time_ns(1100), 3216);
}

}  // namespace
}  // namespace gapless
