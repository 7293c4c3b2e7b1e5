// SPDX-License-Identifier: Apache-2.0

#include "cli/progress_bar.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace gapless {
namespace {

TEST(ProgressBar, ShowsShareRateAndTimeLeft) {
  EXPECT_EQ(render_progress({.what = "reading",
                             .unit = ProgressUnit::kBytes,
                             .done = 300'000'000,
                             .total = 600'000'000,
                             .elapsed_s = 2.5}),
            "reading  [############------------]   50 %  120.0 MB/s  ETA 3 s");
}

TEST(ProgressBar, SaysMinutesWhenThereAreSome) {
  EXPECT_EQ(render_progress({.what = "writing", .done = 1, .total = 101, .elapsed_s = 1.25}),
            "writing  [------------------------]    0 %  ETA 2 min 5 s");
}

TEST(ProgressBar, WithoutATotalCountsBytes) {
  EXPECT_EQ(render_progress(
                {.what = "reading", .unit = ProgressUnit::kBytes, .done = 3 << 20, .elapsed_s = 3}),
            "reading  3.0 MiB  1.0 MB/s");
}

TEST(ProgressBar, AtTheEndHasNoTimeLeftAndNeverExceedsTheWhole) {
  EXPECT_EQ(render_progress({.what = "writing", .done = 7, .total = 5, .elapsed_s = 2}),
            "writing  [########################]  100 %");
}

TEST(ProgressBar, FitsTheTerminal) {
  EXPECT_EQ(
      render_progress({.what = "reading", .done = 1, .total = 2, .elapsed_s = 1, .width = 10}),
      "reading  ");
  EXPECT_EQ(render_progress({.what = "reading", .width = 0}), "");
}

TEST(ProgressBar, DrawsNothingWithoutATerminal) {
  // Under ctest standard error is a pipe or a file.
  if (::isatty(STDERR_FILENO) == 1) GTEST_SKIP() << "standard error is a terminal";
  ProgressBar bar("reading", ProgressUnit::kBytes);
  EXPECT_FALSE(static_cast<bool>(bar.callback()));
}

}  // namespace
}  // namespace gapless
