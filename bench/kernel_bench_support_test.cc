// SPDX-License-Identifier: Apache-2.0

#include "bench/kernel_bench_support.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(WaitUntilQuiet, WaitsForThreadsThatSpin) {
  EXPECT_TRUE(wait_until_quiet());
  std::atomic<bool> is_over = false;
  std::atomic<bool> is_running = false;
  std::thread spinner([&is_over, &is_running] {
    is_running = true;
    while (!is_over) compiler_barrier();
  });
  while (!is_running) compiler_barrier();
  EXPECT_FALSE(wait_until_quiet());
  is_over = true;
  spinner.join();
  EXPECT_TRUE(wait_until_quiet());
}

}  // namespace
}  // namespace gapless
