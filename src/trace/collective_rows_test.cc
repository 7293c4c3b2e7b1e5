// SPDX-License-Identifier: Apache-2.0

#include "trace/collective_rows.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// As in a capture of 2025: whole ticks of 20 ns that no double can hold.
constexpr int64_t kBase = 1'764'246'877'073'569'640;

struct Row {
  KernelKind kind = KernelKind::kCollective;
  int64_t start_ns = 0;  // from kBase on
  int64_t end_ns = 0;
  std::string_view type = "hcom_allReduce_";
  int32_t device = 0;
};

constexpr KernelKind kSummary = KernelKind::kCollective;
constexpr KernelKind kFragment = KernelKind::kFragment;

CaptureTable table_of(const std::vector<Row>& rows) {
  CaptureTable table;
  for (const Row& row : rows) {
    KernelRow kernel;
    kernel.start_ns = kBase + row.start_ns;
    kernel.duration_ns = row.end_ns - row.start_ns;
    kernel.device = row.device;
    kernel.kind = row.kind;
    kernel.type = table.names.intern(row.type);
    kernel.name = kernel.type;
    table.append(kernel);
  }
  return table;
}

std::vector<uint32_t> counted_by(const std::vector<Row>& rows,
                                 DedupRule rule = DedupRule::kInterval) {
  return find_collective_rows(table_of(rows), rule).counted_by;
}

TEST(CollectiveRows, CountASummaryOnceAndItsKernelNot) {
  const CaptureTable table = table_of({{kSummary, 0, 25'000},
                                       {kFragment, 320, 24'900},
                                       {KernelKind::kCompute, 26'000, 30'000, "MatMulV2"}});
  const CollectiveRows rows = find_collective_rows(table, DedupRule::kInterval);
  EXPECT_EQ(rows.counted_by, (std::vector<uint32_t>{0, 0, 2}));
  EXPECT_EQ(rows.summary_count, 1u);
  EXPECT_EQ(rows.fragment_count, 1u);
  EXPECT_EQ(rows.merged_count, 1u);
  EXPECT_EQ(rows.merged_ns, 24'580);
  EXPECT_EQ(rows.lone_fragment_count, 0u);
  EXPECT_EQ(rows.lone_summary_count, 0u);
  EXPECT_TRUE(rows.counts(2));
}

TEST(CollectiveRows, GiveOneSummarySeveralKernels) {
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000},
                        {kFragment, 0, 40'000},
                        {kFragment, 40'000, 70'000},
                        {kFragment, 70'000, 100'900}}),
            (std::vector<uint32_t>{0, 0, 0, 0}));
}

TEST(CollectiveRows, KeepAKernelWithoutASummary) {
  const CaptureTable table = table_of({{kSummary, 0, 25'000},
                                       {kFragment, 0, 25'000},
                                       {kFragment, 27'000, 31'000},
                                       {kSummary, 60'000, 85'000}});
  const CollectiveRows rows = find_collective_rows(table, DedupRule::kInterval);
  EXPECT_EQ(rows.counted_by, (std::vector<uint32_t>{0, 0, 2, 3}));
  EXPECT_EQ(rows.lone_fragment_count, 1u);
  EXPECT_EQ(rows.lone_summary_count, 1u);
}

TEST(CollectiveRows, AllowOneMicrosecondAndNoTickMore) {
  EXPECT_EQ(counted_by({{kFragment, -1'000, 25'000}, {kSummary, 0, 25'000}})[0], 1u);
  EXPECT_EQ(counted_by({{kFragment, -1'020, 25'000}, {kSummary, 0, 25'000}})[0], 0u);
  EXPECT_EQ(counted_by({{kSummary, 0, 5'000}, {kFragment, 3'000, 6'000}})[1], 0u);
  EXPECT_EQ(counted_by({{kSummary, 0, 5'000}, {kFragment, 3'000, 6'020}})[1], 1u);
}

// Later than its summary by more than the slack, but as long.
TEST(CollectiveRows, MatchALateKernelByItsDuration) {
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000}, {kFragment, 50'000, 155'000}})[1], 0u);
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000}, {kFragment, 50'000, 155'020}})[1], 1u);
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000}, {kFragment, 101'000, 201'000}})[1], 0u);
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000}, {kFragment, 101'020, 201'000}})[1], 1u);
}

TEST(CollectiveRows, NeverMatchAcrossTypesOrDevices) {
  EXPECT_EQ(counted_by({{kSummary, 0, 9'000}, {kFragment, 0, 9'000, "hcom_allGather_"}})[1], 1u);
  EXPECT_EQ(counted_by({{kSummary, 0, 9'000}, {kFragment, 0, 9'000, "hcom_allReduce_", 1}})[1], 1u);
}

TEST(CollectiveRows, MatchKernelsWhoseTypeWasMadeOfTheirName) {
  const std::vector<uint32_t> counted = counted_by({{kSummary, 0, 9'000},
                                                    {kFragment, 100, 9'100, "AivKernel"},
                                                    {kSummary, 20'000, 29'000, "hcom_allGather_"},
                                                    {kFragment, 20'100, 29'000, "AivKernel"},
                                                    {kFragment, 90'000, 99'000, "AivKernel"}});
  EXPECT_EQ(counted, (std::vector<uint32_t>{0, 0, 2, 2, 4}));
}

// One after the other with less than the slack between them.
TEST(CollectiveRows, GiveKernelsOfCollectivesInSequenceToTheNearest) {
  EXPECT_EQ(counted_by({{kSummary, 0, 25'000},
                        {kFragment, 200, 25'100},
                        {kFragment, 25'300, 50'000},
                        {kSummary, 25'500, 50'400},
                        {kFragment, 50'500, 63'000},
                        {kSummary, 50'900, 75'000}}),
            (std::vector<uint32_t>{0, 0, 3, 3, 5, 5}));
}

TEST(CollectiveRows, DoNotStealFromACollectiveOfAnotherGroupAtTheSameTime) {
  // The long one's kernel starts nearer to the short one, and the other way round.
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000},
                        {kFragment, 40, 20'100},
                        {kSummary, 100, 20'000},
                        {kFragment, 120, 100'000}}),
            (std::vector<uint32_t>{0, 2, 2, 0}));
  // Both kernels are nearest to the second; the first would go without.
  EXPECT_EQ(counted_by({{kSummary, 0, 100'000},
                        {kFragment, 200, 100'100},
                        {kFragment, 260, 100'220},
                        {kSummary, 300, 100'300}}),
            (std::vector<uint32_t>{0, 0, 3, 3}));
}

// A long collective around many short ones: its later parts are found behind all of these.
TEST(CollectiveRows, FindTheSummaryAroundManyShorterOnes) {
  std::vector<Row> rows = {{kSummary, 0, 10'000'000}, {kFragment, 0, 5'000'000}};
  for (int64_t i = 0; i < 500; ++i) {
    rows.push_back({kSummary, 10'000 * (i + 1), 10'000 * (i + 1) + 3'000});
  }
  rows.push_back({kFragment, 5'050'000, 10'000'100});
  const std::vector<uint32_t> counted = counted_by(rows);
  EXPECT_EQ(counted[1], 0u);
  EXPECT_EQ(counted.back(), 0u);
}

TEST(CollectiveRows, LeaveWrappersOutOfAllSums) {
  const CaptureTable table =
      table_of({{KernelKind::kAiCpuCollective, 0, 90'000, "allgatherAicpuKernel"},
                {kSummary, 2'000, 25'000, "hcom_allGather_"}});
  for (const DedupRule rule : {DedupRule::kInterval, DedupRule::kReadme, DedupRule::kNone}) {
    const CollectiveRows rows = find_collective_rows(table, rule);
    EXPECT_EQ(rows.counted_by, (std::vector<uint32_t>{kNoIndex, 1}));
    EXPECT_EQ(rows.wrapper_count, 1u);
    EXPECT_EQ(rows.merged_count, 0u);
  }
}

// Of CUDA: kernels on streams, and no summaries of them.
TEST(CollectiveRows, CountKernelsOfCapturesWithoutSummaries) {
  const std::vector<Row> rows = {{kFragment, 0, 9'000, "ncclDevKernel_AllReduce"},
                                 {kFragment, 20, 9'000, "ncclDevKernel_AllReduce"},
                                 {kSummary, 40, 9'000, "ncclDevKernel_AllGather"},
                                 {kSummary, 60, 9'000, "ncclDevKernel_AllGather"}};
  EXPECT_EQ(counted_by(rows), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(find_collective_rows(table_of(rows), DedupRule::kInterval).merged_ns, 0);
}

TEST(CollectiveRows, KeepTheLongestOfAMicrosecondByThePublishedRule) {
  // kBase ends in 640 ns: 340 is still the same microsecond, 360 is the next.
  EXPECT_EQ(counted_by({{kSummary, 0, 9'000}, {kFragment, 340, 9'400}}, DedupRule::kReadme),
            (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(counted_by({{kSummary, 0, 9'000}, {kFragment, 360, 9'400}}, DedupRule::kReadme),
            (std::vector<uint32_t>{0, 1}));
  // Of two that are as long the summary; two collectives of one microsecond become one.
  EXPECT_EQ(counted_by({{kFragment, 0, 9'000}, {kSummary, 20, 9'020}}, DedupRule::kReadme),
            (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(counted_by({{kSummary, 0, 9'000}, {kSummary, 20, 8'000}}, DedupRule::kReadme),
            (std::vector<uint32_t>{0, 0}));
}

TEST(CollectiveRows, CountEveryRowWithoutARule) {
  const std::vector<Row> made = {{kSummary, 0, 9'000}, {kFragment, 0, 9'000}};
  const CollectiveRows rows = find_collective_rows(table_of(made), DedupRule::kNone);
  EXPECT_EQ(rows.counted_by, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(rows.lone_fragment_count, 1u);
  EXPECT_EQ(rows.lone_summary_count, 1u);
}

TEST(CollectiveRows, AreNoneInAnEmptyTable) {
  for (const DedupRule rule : {DedupRule::kInterval, DedupRule::kReadme, DedupRule::kNone}) {
    EXPECT_TRUE(find_collective_rows(CaptureTable(), rule).counted_by.empty());
    EXPECT_EQ(dedup_rule_by_name(dedup_rule_name(rule)), rule);
  }
  EXPECT_FALSE(dedup_rule_by_name("Interval").has_value());
}

bool may_belong(const CaptureTable& table, uint32_t fragment, uint32_t summary) {
  const int64_t start_ns = table.start_ns[fragment];
  const int64_t duration_ns = table.duration_ns[summary];
  if (table.type[fragment] != table.type[summary]) return false;
  if (table.device[fragment] != table.device[summary]) return false;
  if (start_ns < table.start_ns[summary] - 1'000) return false;
  if (start_ns > table.end_ns(summary) + 1'000) return false;
  const int64_t difference_ns = std::abs(table.duration_ns[fragment] - duration_ns);
  return difference_ns <= std::max<int64_t>(1'000, duration_ns / 20) ||
         table.end_ns(fragment) <= table.end_ns(summary) + 1'000;
}

// Goal: whether a kernel has a summary is as the rule says, however rows overlap.
// Method: random rows, crowded and sparse, against every pair.
TEST(CollectiveRows, MergeExactlyTheKernelsThatBelongToSomeSummary) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 60; ++round) {
    const int64_t reach_ns = round % 3 == 0 ? 40'000 : round % 3 == 1 ? 400'000 : 20'000'000;
    CaptureTable table;
    for (int i = 0; i < 120; ++i) {
      KernelRow row;
      row.start_ns = kBase + static_cast<int64_t>(random() % static_cast<uint64_t>(reach_ns));
      row.duration_ns = static_cast<int64_t>(random() % (random() % 4 == 0 ? 90'000 : 6'000));
      row.device = static_cast<int32_t>(random() % 2);
      row.type = table.names.intern(random() % 2 == 0 ? "hcom_allReduce_" : "hcom_allGather_");
      row.kind = random() % 2 == 0 ? kSummary : kFragment;
      table.append(row);
    }
    keep_rows(table, rows_in_order(table));
    const CollectiveRows rows = find_collective_rows(table, DedupRule::kInterval);
    for (uint32_t row = 0; row < table.size(); ++row) {
      if (table.kind[row] == kSummary) {
        ASSERT_EQ(rows.counted_by[row], row);
        continue;
      }
      bool has_summary = false;
      for (uint32_t other = 0; other < table.size(); ++other) {
        if (table.kind[other] == kSummary) has_summary |= may_belong(table, row, other);
      }
      ASSERT_EQ(!rows.counts(row), has_summary) << "round " << round << ", row " << row;
      ASSERT_TRUE(!has_summary || may_belong(table, row, rows.counted_by[row]));
    }
    EXPECT_EQ(rows.merged_count + rows.lone_fragment_count, rows.fragment_count);
  }
}

}  // namespace
}  // namespace gapless
