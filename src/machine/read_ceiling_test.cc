// SPDX-License-Identifier: Apache-2.0
//
// That a pass really reads every byte, in every form and on every level; how fast is not tested.

#include "machine/read_ceiling.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "machine/read_ceiling_levels.h"

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
    Result<ReadCeiling> ceiling =
        ReadCeiling::create(**threads, {.level = level, .bytes = kSmallBytes});
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

TEST(ReadCeiling, CalibratesOnlyForTheThreadCountsThatWereAskedFor) {
  if (usable_cores().size() < 2) GTEST_SKIP() << "needs two cores";
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(2);
  ASSERT_TRUE(threads) << threads.error().message;
  Result<ReadCeiling> ceiling =
      ReadCeiling::create(**threads, {.min_thread_count = 2, .bytes = kSmallBytes});
  ASSERT_TRUE(ceiling) << ceiling.error().message;
  EXPECT_EQ(ceiling->trials(2).size(), 20u);
  EXPECT_GT(ceiling->measure(2), 0.0);
}

TEST(ReadCeiling, RefusesWhatCannotBeMeasured) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  const Result<ReadCeiling> small =
      ReadCeiling::create(**threads, {.bytes = ReadCeiling::kMinBytes - 1});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().message,
            "read ceiling: 1048575 bytes read 1 times; at least 1048576 once");
  EXPECT_FALSE(ReadCeiling::create(**threads, {.repeat_count = 0, .bytes = kSmallBytes}));
  const Result<ReadCeiling> crowded =
      ReadCeiling::create(**threads, {.min_thread_count = 2, .bytes = kSmallBytes});
  ASSERT_FALSE(crowded);
  EXPECT_EQ(crowded.error().message, "read ceiling: from 2 threads on, of 1");
}

}  // namespace
}  // namespace gapless
