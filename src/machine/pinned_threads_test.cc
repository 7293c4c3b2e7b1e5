// SPDX-License-Identifier: Apache-2.0

#include "machine/pinned_threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(PinnedThreads, RunEveryJobOnceOnTheThreadsThatWereAskedFor) {
  const int thread_count = static_cast<int>(std::min<size_t>(usable_cores().size(), 2));
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(thread_count);
  ASSERT_TRUE(threads) << threads.error().message;
  for (int round = 0; round < 50; ++round) {
    const int active = 1 + round % thread_count;
    std::vector<std::atomic<int>> runs(100);
    const double ns = (*threads)->run_jobs(
        active, 100, [&runs](int64_t job) { ++runs[static_cast<size_t>(job)]; });
    EXPECT_GT(ns, 0.0);
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    std::atomic<uint32_t> seen = 0;
    (*threads)->run(active, [&seen](int thread) { seen |= 1u << thread; });
    EXPECT_EQ(seen, (1u << active) - 1);
  }
  EXPECT_GT((*threads)->core_share(), 0.0);
}

// Goal: a thread that was put aside is seen. Method: it puts itself aside.
TEST(PinnedThreads, TellHowMuchOfItsCoreTheCallerHad) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  EXPECT_EQ((*threads)->core_share(), 1.0);
  (*threads)->run(1, [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  EXPECT_LT((*threads)->core_share(), 0.5);
}

TEST(PinnedThreads, GiveTheCallerItsCoresBack) {
  const std::vector<int> before = usable_cores();
  {
    const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
    ASSERT_TRUE(threads) << threads.error().message;
    EXPECT_EQ(usable_cores(), std::vector<int>{before.front()});
  }
  EXPECT_EQ(usable_cores(), before);
}

TEST(PinnedThreads, RefuseMoreThreadsThanCores) {
  const int core_count = static_cast<int>(usable_cores().size());
  EXPECT_FALSE(PinnedThreads::start(core_count + 1));
  EXPECT_FALSE(PinnedThreads::start(0));
}

}  // namespace
}  // namespace gapless
