// SPDX-License-Identifier: Apache-2.0

#include "model/deal.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(Deal, DoesEveryJobOnce) {
  for (const int threads : {0, 1, 2, 7}) {
    for (const int64_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(count));
      const Result<void> result =
          deal({.count = count, .thread_count = threads}, [&](int64_t job) -> Result<void> {
            ++times[static_cast<size_t>(job)];
            return {};
          });
      ASSERT_TRUE(result);
      for (const std::atomic<int>& each : times) EXPECT_EQ(each.load(), 1);
    }
  }
}

TEST(Deal, TellsProgressToTheCallersThreadOnly) {
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<int64_t> seen;
  const DealOptions options = {.count = 50, .thread_count = 4, .on_progress = [&](int64_t done) {
                                 EXPECT_EQ(std::this_thread::get_id(), caller);
                                 seen.push_back(done);
                               }};
  ASSERT_TRUE(deal(options, [](int64_t) -> Result<void> { return {}; }));
  EXPECT_EQ(seen.back(), 50);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_LE(seen[i - 1], seen[i]);
}

TEST(Deal, GivesTheErrorOfTheSmallestJobThatFails) {
  for (int threads = 1; threads <= 8; ++threads) {
    std::atomic<int64_t> begun = 0;
    const Result<void> result =
        deal({.count = 100'000, .thread_count = threads}, [&](int64_t job) -> Result<void> {
          ++begun;
          if (job >= 30 && job % 3 == 0) return fail(ErrorCode::kInvalidInput, "job {}", job);
          return {};
        });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "job 30");
    EXPECT_LT(begun.load(), 100'000);
  }
}

TEST(Deal, ThereIsACpuToRunOn) { EXPECT_GE(usable_cpu_count(), 1); }

}  // namespace
}  // namespace gapless
