// SPDX-License-Identifier: Apache-2.0

#include "sim/memory_clock.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(MemoryClock, LeavesRunTimesAloneWhileThereIsEnough) {
  MemoryClock clock(1000);
  EXPECT_EQ(clock.next_end_ns(), kNever);
  clock.start(10, 100, 600, 0, 0);
  clock.start(25, 33, 400, 1, 1);
  EXPECT_EQ(clock.next_end_ns(), 58);
  EXPECT_EQ(clock.take_next().task, 1u);
  EXPECT_EQ(clock.next_end_ns(), 110);
  EXPECT_EQ(clock.take_next().began_ns, 10);
  EXPECT_EQ(clock.next_end_ns(), kNever);
}

TEST(MemoryClock, SlowsAllDownInProportion) {
  MemoryClock clock(1000);
  clock.start(0, 100, 1000, 0, 0);
  clock.start(0, 200, 1000, 1, 1);
  EXPECT_EQ(clock.next_end_ns(), 200) << "both at half their rate";
  EXPECT_EQ(clock.take_next().task, 0u);
  EXPECT_EQ(clock.next_end_ns(), 300) << "alone it has its rate again";
  EXPECT_EQ(clock.take_next().core, 1u);
}

TEST(MemoryClock, TasksWithoutATimeEndAtOnce) {
  MemoryClock clock(1000);
  clock.start(5, 0, 0, 0, 0);
  EXPECT_EQ(clock.next_end_ns(), 5);
  clock.take_next();
  EXPECT_EQ(clock.next_end_ns(), kNever);
}

TEST(MemoryClock, RatesAreBytesOverTime) {
  EXPECT_EQ(rate_of(1000, 1000), 1'000'000'000);
  EXPECT_EQ(rate_of(1000, 0), 0);
  EXPECT_EQ(rate_of(0, 1000), 0);
}

// Goal: ends are those of a plain simulation that keeps each task's progress, in double precision.
TEST(MemoryClock, AgreesWithProgressKeptTaskByTask) {
  struct Running {
    double left_ns;
    int64_t rate;
    uint32_t task;
  };
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    MemoryClock clock(1'000'000);
    std::vector<Running> running;
    std::vector<double> plain_ends(60, -1.0);
    std::vector<int64_t> ends(60, -1);
    double plain_ns = 0.0;
    const auto run_plain_until = [&](double time_ns) {
      while (!running.empty()) {
        double wanted = 0.0;
        for (const Running& one : running) wanted += static_cast<double>(one.rate);
        const double speed = std::min(1.0, 1e6 / wanted);
        size_t first = 0;
        for (size_t i = 1; i < running.size(); ++i) {
          if (running[i].left_ns < running[first].left_ns) first = i;
        }
        const double end_ns = plain_ns + running[first].left_ns / speed;
        const double next_ns = std::min(end_ns, time_ns);
        for (Running& one : running) one.left_ns -= (next_ns - plain_ns) * speed;
        plain_ns = next_ns;
        if (end_ns > time_ns) break;
        plain_ends[running[first].task] = end_ns;
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(first));
      }
      plain_ns = std::max(plain_ns, time_ns);
    };
    int64_t now_ns = 0;
    for (uint32_t task = 0; task < 60; ++task) {
      now_ns += static_cast<int64_t>(random() % 2000);
      while (clock.next_end_ns() <= now_ns) {
        const int64_t end_ns = clock.next_end_ns();
        ends[clock.take_next().task] = end_ns;
      }
      run_plain_until(static_cast<double>(now_ns));
      const int64_t run_ns = 1000 + static_cast<int64_t>(random() % 9000);
      const int64_t rate = static_cast<int64_t>(random() % 600'000);
      clock.start(now_ns, run_ns, rate, task, 0);
      running.push_back({static_cast<double>(run_ns), rate, task});
    }
    while (clock.next_end_ns() != kNever) {
      const int64_t end_ns = clock.next_end_ns();
      ends[clock.take_next().task] = end_ns;
    }
    run_plain_until(1e12);
    // Each start and end may round by a nanosecond.
    for (size_t task = 0; task < ends.size(); ++task) {
      ASSERT_NEAR(static_cast<double>(ends[task]), plain_ends[task], 120.0) << task;
    }
  }
}

}  // namespace
}  // namespace gapless
