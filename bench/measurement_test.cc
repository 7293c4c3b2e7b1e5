// SPDX-License-Identifier: Apache-2.0

#include "bench/measurement.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"

namespace gapless {
namespace {

std::string temporary_path() { return testing::TempDir() + "/measurement_test.json"; }

TEST(Figures, HaveQuantilesBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_DOUBLE_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(quantile({0.0, 10.0}, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(quantile({7.0}, 0.9), 7.0);
}

TEST(Figures, AreComparedRoundByRound) {
  // The second round was disturbed for both: the ratio does not see it.
  EXPECT_DOUBLE_EQ(ratio({"ns", {11.0, 22.0, 11.0}}, {"ns", {10.0, 20.0, 10.0}}), 1.1);
  EXPECT_DOUBLE_EQ(ratio({"ns", {8.0}}, {"ns", {2.0, 4.0}}), 8.0 / 3.0);
}

TEST(Figures, AreWrittenWithTheirSpread) {
  EXPECT_EQ(figure_text({"ns", {9.5}}), "9.50 ns");
  EXPECT_EQ(figure_text({"ns", {100.0, 110.0, 120.0}}), "110 ns (102-118)");
}

TEST(Rows, JudgeGoalsByTheMedian) {
  Row row;
  row.figure = {"ns", {9.0, 10.0, 50.0}};
  EXPECT_TRUE(*expect_at_most(row, 10.0).met);
  EXPECT_FALSE(*expect_at_most(row, 9.9).met);
  EXPECT_EQ(row.goal, "<= 9.9 ns");
  EXPECT_FALSE(*expect_at_least(row, 11.0).met);
  compare(row, "floor", {"ns", {9.0, 9.0, 9.0}});
  EXPECT_FALSE(*expect_ratio_at_most(row, 1.1).met);
  EXPECT_TRUE(*expect_ratio_at_most(row, 1.2).met);
}

TEST(Rows, ComeBackFromTheirFile) {
  Row row;
  row.group = "record";
  row.what = "an event";
  row.figure = {"ns", {1.25, 2.5}};
  row.note = "a note";
  compare(row, "floor", {"ns", {1.0, 2.0}});
  expect_at_most(row, 2.0);
  Row plain;
  plain.figure = {"s", {1.0}};
  ASSERT_TRUE(write_rows({row, plain}, temporary_path()));
  const Result<std::vector<Row>> rows = read_rows(temporary_path());
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].what, row.what);
  EXPECT_EQ((*rows)[0].figure.values, row.figure.values);
  EXPECT_EQ((*rows)[0].limit->values, row.limit->values);
  EXPECT_EQ((*rows)[0].goal, "<= 2 ns");
  EXPECT_TRUE(*(*rows)[0].met);
  EXPECT_EQ((*rows)[0].note, "a note");
  EXPECT_FALSE((*rows)[1].limit.has_value());
  EXPECT_FALSE((*rows)[1].met.has_value());
}

TEST(Rows, OfAFileThatIsNoListAreAnError) {
  ASSERT_TRUE(write_text_file(temporary_path(), "{\"rows\":"));
  const Result<std::vector<Row>> rows = read_rows(temporary_path());
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message, temporary_path() + ": not a list of rows");
}

TEST(Rows, WithoutTheirFigureAreAnError) {
  ASSERT_TRUE(write_text_file(temporary_path(), "[{\"group\":\"record\",\"what\":\"x\"}]"));
  const Result<std::vector<Row>> rows = read_rows(temporary_path());
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("row 0 is damaged"), std::string::npos);
}

TEST(BenchOptions, AreReadFromTheCommandLine) {
  char program[] = "bench";
  char json[] = "--json";
  char path[] = "x.json";
  char quick[] = "--quick";
  char* arguments[] = {program, json, path, quick};
  const Result<BenchOptions> options = parse_bench_options(4, arguments);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->json_path, "x.json");
  EXPECT_TRUE(options->quick);
  EXPECT_FALSE(parse_bench_options(2, arguments));  // --json without its value
}

TEST(PeakMemory, SeesWhatWasTouchedAndFreed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer keeps freed memory for a while";
#endif
  if (!reset_peak_memory()) GTEST_SKIP() << "this system cannot reset the peak";
  constexpr size_t kBytes = 64 << 20;
  const uint64_t before_bytes = resident_bytes();
  { std::vector<char> memory(kBytes, 'x'); }
  EXPECT_GE(peak_memory_bytes(), before_bytes + kBytes * 9 / 10);
  ASSERT_TRUE(reset_peak_memory());
  EXPECT_LT(peak_memory_bytes(), before_bytes + kBytes / 2);
}

}  // namespace
}  // namespace gapless
