// SPDX-License-Identifier: Apache-2.0
//
// That a pass really reads every byte, in every form and on every level; how fast is not tested.

#include "bench/read_ceiling.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "bench/compute_ceiling.h"
#include "bench/read_ceiling_levels.h"

namespace gapless {
namespace {

constexpr size_t kSmallBytes = size_t{2} << 20;

using ReadFunction = uint64_t (*)(const ReadBlock&);

ReadFunction read_function(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return avx512::read_block;
  if (level >= CpuLevel::kAvx2) return avx2::read_block;
#else
  static_cast<void>(level);
#endif
  return portable::read_block;
}

// Goal: no line is left out, read twice or read beyond the block.
// Method: one word differs from zero; it must be found wherever it is, exactly once.
TEST(ReadBlock, SumsEveryWordOnceInEveryForm) {
  constexpr int64_t kStreamBytes = 3 * 64;
  constexpr int kWordsInLine = 8;
  alignas(64) uint64_t words[18 * 3 * kWordsInLine] = {};
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const int streams : {1, 4, 8, 16}) {
      for (const int64_t prefetch : {0, 512}) {
        const ReadBlock block = {reinterpret_cast<const std::byte*>(words + kWordsInLine),
                                 kStreamBytes, streams, prefetch};
        const int64_t word_count = streams * kStreamBytes / 8;
        for (int64_t i = -kWordsInLine; i < word_count + kWordsInLine; ++i) {
          uint64_t& word = words[i + kWordsInLine];
          word = 0x8000'0000'0000'0001u;
          const bool is_inside = i >= 0 && i < word_count;
          EXPECT_EQ(read_function(level)(block), is_inside ? word : 0u)
              << cpu_level_name(level) << ", " << streams << " streams, word " << i;
          word = 0;
        }
      }
    }
  }
}

TEST(ReadCeiling, TriesEveryFormAndKeepsTheBestForEachThreadCount) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  for (const CpuLevel level : usable_cpu_levels()) {
    Result<ReadCeiling> ceiling = ReadCeiling::create(**threads, level, 1, kSmallBytes);
    ASSERT_TRUE(ceiling) << ceiling.error().message;
    const std::vector<ReadCeiling::Trial>& trials = ceiling->trials(1);
    EXPECT_EQ(trials.size(), 20u);  // 4 numbers of streams x 5 distances
    double best = 0.0;
    double chosen = 0.0;
    for (const ReadCeiling::Trial& trial : trials) {
      EXPECT_GT(trial.gb_per_s, 0.0) << form_text(trial.form);
      best = std::max(best, trial.gb_per_s);
      if (trial.form == ceiling->form(1)) chosen = trial.gb_per_s;
    }
    EXPECT_EQ(chosen, best);
    EXPECT_GT(ceiling->measure(1), 0.0);
  }
}

TEST(ReadCeiling, RefusesABufferThatIsTooSmall) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  const Result<ReadCeiling> ceiling =
      ReadCeiling::create(**threads, CpuLevel::kPortable, 1, ReadCeiling::kMinBytes - 1);
  ASSERT_FALSE(ceiling);
  EXPECT_EQ(ceiling.error().message,
            "read ceiling: 1048575 bytes read 1 times; at least 1048576 once");
}

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

// Every level that has an instruction for it reports a peak; a level below does not invent one.
TEST(ComputeCeiling, IsThereWhereTheInstructionIs) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const Arithmetic arithmetic : kAllArithmetic) {
      const std::optional<double> peak = measure_compute(**threads, 1, level, arithmetic);
      const bool is_expected = arithmetic == Arithmetic::kF32 ||
                               (arithmetic == Arithmetic::kInt8 && level >= CpuLevel::kAvx2) ||
                               (arithmetic == Arithmetic::kBf16 && level >= CpuLevel::kAvx512Bf16);
      EXPECT_EQ(peak.has_value(), is_expected) << cpu_level_name(level);
      EXPECT_GE(peak.value_or(1.0), 0.01);
    }
  }
}

}  // namespace
}  // namespace gapless
