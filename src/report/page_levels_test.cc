// SPDX-License-Identifier: Apache-2.0

#include "report/page_levels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/whatif_test_support.h"

namespace gapless {
namespace {

// A level of a trace whose kernels are called "0", "1", ...
struct Drawn {
  StepTasks tasks;
  BubblePartition bubbles;
  std::vector<uint32_t> task_kernels;

  PageLevel level(uint32_t bucket_count) const {
    return make_level(
        {.tasks = tasks, .bubbles = bubbles, .task_kernels = task_kernels, .kernel_count = 10},
        bucket_count);
  }
};

Drawn drawn(const Trace& trace, TimeRange window) {
  StepTasks tasks = make_step_tasks(trace, window);
  BubblePartition bubbles = partition_bubbles(tasks);
  std::vector<uint32_t> task_kernels;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    task_kernels.push_back(
        static_cast<uint32_t>(std::stoul(std::string(trace.names[tasks.kernel(task)]))));
  }
  return {std::move(tasks), std::move(bubbles), std::move(task_kernels)};
}

Trace random_trace(uint32_t seed, uint32_t core_count) {
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
  std::vector<HandTask> list;
  for (uint32_t core = 0; core < core_count; ++core) {
    int64_t now_ns = 100 + below(300);
    while (now_ns < 4'000) {
      const int64_t length_ns = below(4) == 0 ? below(700) : below(20);
      HandTask task = {.core = core, .start_ns = now_ns, .end_ns = now_ns + length_ns};
      task.kernel = std::to_string(below(10));
      task.dispatch_ns = now_ns - below(30);
      if (!list.empty() && list.back().end_ns <= now_ns) {
        task.producers = {static_cast<uint32_t>(list.size() - 1)};
      }
      list.push_back(task);
      now_ns += length_ns + (below(2) == 0 ? 0 : below(60));
    }
  }
  return hand_trace(list, core_count);
}

// What ran on a core, and why nothing did, nanosecond by nanosecond.
struct Moment {
  int kernel = -1;
  int cause = -1;
};

std::vector<Moment> moments_of(const Drawn& step, uint32_t core) {
  const int64_t begin_ns = step.tasks.window().begin_ns;
  std::vector<Moment> moments(static_cast<size_t>(step.tasks.window_ns()));
  for (const uint32_t task : step.tasks.tasks_of_core(core)) {
    for (int64_t t = step.tasks.start_ns(task); t < step.tasks.end_ns(task); ++t) {
      moments[static_cast<size_t>(t - begin_ns)].kernel = static_cast<int>(step.task_kernels[task]);
    }
  }
  for (const Bubble& bubble : step.bubbles.bubbles) {
    if (bubble.core != core) continue;
    for (int64_t t = bubble.begin_ns; t < bubble.end_ns; ++t) {
      moments[static_cast<size_t>(t - begin_ns)].cause = static_cast<int>(bubble.cause);
    }
  }
  return moments;
}

// The most frequent number + 1, the smaller of two; 0: there is none.
uint32_t most_frequent(const std::map<int, int>& counts) {
  uint32_t number = 0;
  int largest = 0;
  for (const auto& [label, count] : counts) {
    if (count <= largest) continue;
    largest = count;
    number = static_cast<uint32_t>(label + 1);
  }
  return number;
}

void expect_bucket(const std::vector<Moment>& moments, size_t begin, size_t end,
                   const PageLevel& level, size_t entry) {
  std::map<int, int> kernels;
  std::map<int, int> causes;
  int busy = 0;
  for (size_t t = begin; t < end; ++t) {
    if (moments[t].kernel >= 0) ++kernels[moments[t].kernel];
    if (moments[t].cause >= 0) ++causes[moments[t].cause];
    if (moments[t].kernel >= 0) ++busy;
  }
  const int length = static_cast<int>(end - begin);
  long expected = 0;
  if (length > 0) expected = std::lround(255.0 * busy / length);
  if (busy > 0) expected = std::max(expected, 1L);
  if (busy < length) expected = std::min(expected, 254L);
  EXPECT_EQ(level.busy[entry], expected);
  EXPECT_EQ(level.kernel[entry], most_frequent(kernels));
  EXPECT_EQ(level.cause[entry], most_frequent(causes));
}

TEST(PageLevels, AreWhatCountingNanosecondsGives) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const Trace trace = random_trace(seed, 3);
    const Drawn step = drawn(trace, {.begin_ns = 77, .end_ns = 4'100 + seed});
    for (const uint32_t bucket_count : {1u, 2u, 7u, 64u, 1'000u, 2'048u, 8'192u}) {
      const PageLevel level = step.level(bucket_count);
      ASSERT_EQ(level.busy.size(), size_t{3} * bucket_count);
      ASSERT_EQ(level.kernel.size(), level.busy.size());
      ASSERT_EQ(level.cause.size(), level.busy.size());
      const size_t bucket_ns = static_cast<size_t>(level.bucket_ns);
      for (uint32_t core = 0; core < 3; ++core) {
        const std::vector<Moment> moments = moments_of(step, core);
        EXPECT_GE(bucket_ns * bucket_count, moments.size());
        EXPECT_LT((bucket_ns - 1) * bucket_count, moments.size());
        for (size_t bucket = 0; bucket < bucket_count; ++bucket) {
          const size_t begin = std::min(moments.size(), bucket * bucket_ns);
          const size_t end = std::min(moments.size(), begin + bucket_ns);
          expect_bucket(moments, begin, end, level, core * bucket_count + bucket);
        }
        if (HasFailure()) FAIL() << "seed " << seed << ", " << bucket_count << " buckets";
      }
    }
  }
}

TEST(PageLevels, NeverRoundAnyBusyOrIdleTimeAway) {
  const Trace trace =
      hand_trace({{.core = 0, .start_ns = 0, .end_ns = 1, .kernel = "3"},
                  {.core = 0, .start_ns = 1'000'001, .end_ns = 2'000'000, .kernel = "4"}},
                 1);
  const PageLevel level = drawn(trace, {.begin_ns = 0, .end_ns = 3'000'000}).level(3);
  EXPECT_EQ(level.busy, (std::vector<uint8_t>{1, 254, 0}));
  EXPECT_EQ(level.kernel, (std::vector<uint32_t>{4, 5, 0}));
  EXPECT_NE(level.cause[1], 0);
}

TEST(PageLevels, HaveNothingBeyondTheWindow) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .kernel = "0"}}, 1);
  const PageLevel level = drawn(trace, {.begin_ns = 0, .end_ns = 10}).level(16);
  EXPECT_EQ(level.bucket_ns, 1);
  for (size_t bucket = 0; bucket < 16; ++bucket) {
    EXPECT_EQ(level.busy[bucket], bucket < 10 ? 255 : 0);
    EXPECT_EQ(level.kernel[bucket], bucket < 10 ? 1u : 0u);
    EXPECT_EQ(level.cause[bucket], 0);
  }
}

TEST(PageLevels, TakeTheSmallerNumberOfTwoThatRanAsLong) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 5, .kernel = "7"},
                                  {.core = 0, .start_ns = 5, .end_ns = 10, .kernel = "2"}},
                                 1);
  EXPECT_EQ(drawn(trace, {.begin_ns = 0, .end_ns = 10}).level(1).kernel,
            (std::vector<uint32_t>{3}));
}

// Tasks without a pause between them: no bubbles.
std::vector<uint32_t> counts_of(uint32_t task_count) {
  std::vector<HandTask> list;
  for (uint32_t i = 0; i < task_count; ++i) {
    list.push_back({.core = 0, .start_ns = 2 * i, .end_ns = 2 * i + 2, .kernel = "0"});
  }
  const Drawn step = drawn(hand_trace(list, 1), {.begin_ns = 0, .end_ns = 2 * task_count});
  EXPECT_TRUE(step.bubbles.bubbles.empty());
  return level_bucket_counts(step.tasks, step.bubbles);
}

TEST(PageLevels, AreFinerForFullerCores) {
  EXPECT_EQ(counts_of(1), (std::vector<uint32_t>{2048}));
  EXPECT_EQ(counts_of(4'095), (std::vector<uint32_t>{2048}));
  EXPECT_EQ(counts_of(4'096), (std::vector<uint32_t>{2048, 8192}));
  EXPECT_EQ(counts_of(16'383), (std::vector<uint32_t>{2048, 8192}));
  EXPECT_EQ(counts_of(16'384), (std::vector<uint32_t>{2048, 8192, 32768}));
}

}  // namespace
}  // namespace gapless
