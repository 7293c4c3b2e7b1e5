// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_summary.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// 16 digits of microseconds in ticks of 20 ns: a double would be off by 128 ns here.
constexpr int64_t kBase = 1'764'246'877'073'569'640;
constexpr std::string_view kAnchor = "PagedAttention";

struct Row {
  std::string_view type;
  int64_t start_ns = 0;  // from kBase on
  int64_t end_ns = 0;
  KernelKind kind = KernelKind::kCompute;
  int32_t device = 0;
};

CaptureTable table_of(const std::vector<Row>& rows) {
  CaptureTable table;
  for (const Row& row : rows) {
    KernelRow kernel;
    kernel.start_ns = kBase + row.start_ns;
    kernel.duration_ns = row.end_ns - row.start_ns;
    kernel.device = row.device;
    kernel.kind = row.kind;
    kernel.type = table.names.intern(row.type);
    table.append(kernel);
  }
  return table;
}

// Passes that begin at these rows; anchors are rows of the type kAnchor.
FoundPasses passes_at(const CaptureTable& table, const std::vector<uint32_t>& first_rows) {
  FoundPasses found;
  found.anchor = table.names.find(kAnchor);
  found.draft_of_row.resize(table.size(), 0);
  for (size_t row = 0; row < table.size(); ++row) {
    found.is_anchor.push_back(table.type[row] == found.anchor ? 1 : 0);
  }
  for (size_t i = 0; i < first_rows.size(); ++i) {
    ForwardPass pass;
    pass.first_row = first_rows[i];
    pass.end_row =
        i + 1 < first_rows.size() ? first_rows[i + 1] : static_cast<uint32_t>(table.size());
    pass.device = table.device[pass.first_row];
    pass.index = static_cast<uint32_t>(i);
    for (uint32_t row = pass.first_row; row < pass.end_row; ++row) {
      if (found.is_anchor[row] == 0) continue;
      if (pass.anchor_count++ == 0) pass.first_anchor = row;
      pass.last_anchor = row;
    }
    found.passes.push_back(pass);
  }
  return found;
}

std::vector<PassSummary> summaries_of(const CaptureTable& table, const FoundPasses& found,
                                      WindowPolicy policy = WindowPolicy::kFull) {
  return summarise_passes(table, found, find_collective_rows(table, DedupRule::kInterval), policy);
}

constexpr KernelKind kSummary = KernelKind::kCollective;
constexpr KernelKind kFragment = KernelKind::kFragment;

// 20 ns apart and overlapping:  Embedding 0-100, anchor 100-300, collective 280-480 and its kernel
// 300-500 beside a matrix 400-440, wrapper 0-10000, copy 600-620, a lone kernel 5000-5100.
std::vector<Row> one_pass() {
  return {{"allreduceAicpuKernel", 0, 10'000, KernelKind::kAiCpuCollective},
          {"Embedding", 0, 100},
          {kAnchor, 100, 300},
          {"hcom_allReduce_", 280, 480, kSummary},
          {"hcom_allReduce_", 300, 500, kFragment},
          {"MatMulV2", 400, 440},
          {"MemcpyAsync", 600, 620, KernelKind::kCopy},
          {"hcom_allReduce_", 5'000, 5'100, kFragment}};
}

TEST(PassSummary, KeepsSumUnionAndWallApart) {
  const CaptureTable table = table_of(one_pass());
  const PassSummary summary = summaries_of(table, passes_at(table, {0}))[0];
  EXPECT_EQ(summary.row_count, 8u);
  EXPECT_EQ(summary.kernel_count, 4u);
  EXPECT_EQ(summary.collective_count, 2u);
  EXPECT_EQ(summary.wrapper_count, 1u);
  EXPECT_EQ(summary.compute_ns, 340);
  EXPECT_EQ(summary.collective_ns, 300);
  EXPECT_EQ(summary.copy_ns, 20);
  EXPECT_EQ(summary.sum_ns(), 660);
  EXPECT_EQ(summary.union_ns, 480 + 20 + 100);
  EXPECT_EQ(summary.collective_alone_ns, 100 + 40 + 100);
  EXPECT_EQ(summary.wall_ns, 5'100);
  EXPECT_FALSE(summary.wait_ns.has_value());
  EXPECT_EQ(summary.outlier, "");
}

TEST(PassSummary, AddsWaitingAndTransitWhereTheyAreKnown) {
  CaptureTable table = table_of(one_pass());
  table.wait_ns.assign(table.size(), kAbsent);
  table.transit_ns.assign(table.size(), kAbsent);
  table.wait_ns[3] = 150;
  table.wait_ns[4] = 9'999;  // counted by row 3
  const PassSummary summary = summaries_of(table, passes_at(table, {0}))[0];
  EXPECT_EQ(summary.wait_ns, 150);
  EXPECT_FALSE(summary.transit_ns.has_value());
}

TEST(PassWindow, HoldsWholeRowsBetweenAnchors) {
  const CaptureTable table = table_of({{"Embedding", 0, 100},
                                       {"Side", 50, 220},
                                       {kAnchor, 200, 300},
                                       {"MatMulV2", 300, 400},
                                       {kAnchor, 400, 500},
                                       {"MatMulV2", 480, 500},
                                       {"Late", 490, 520},
                                       {"MatMulV2", 500, 560}});
  const FoundPasses found = passes_at(table, {0});
  const PassWindow window = pass_window(table, found, found.passes[0], WindowPolicy::kAnchor);
  EXPECT_EQ(window.begin_ns, kBase + 200);
  EXPECT_EQ(window.end_ns, kBase + 500);
  EXPECT_EQ(window.rows, (std::vector<uint32_t>{2, 3, 4, 5}));
  EXPECT_EQ(window.straddling_count, 2u);
  const PassSummary summary = summaries_of(table, found, WindowPolicy::kAnchor)[0];
  EXPECT_EQ(summary.sum_ns(), 320);
  EXPECT_EQ(summary.wall_ns, 300);
  EXPECT_EQ(summary.straddling_count, 2u);
  EXPECT_DOUBLE_EQ(summary.lost_share, 360.0 / 680.0);
}

TEST(PassWindow, OfAFullPassIsAllOfItsRows) {
  const CaptureTable table = table_of({{kAnchor, 0, 100},
                                       {"Long", 50, 260},
                                       {kAnchor, 200, 300},
                                       {"MatMulV2", 300, 400},
                                       {kAnchor, 0, 500, KernelKind::kCompute, 1}});
  const FoundPasses found = passes_at(table, {0, 2, 4});
  const PassWindow first = pass_window(table, found, found.passes[0], WindowPolicy::kFull);
  EXPECT_EQ(first.rows, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(first.end_ns, kBase + 260);
  const PassWindow second = pass_window(table, found, found.passes[1], WindowPolicy::kFull);
  EXPECT_EQ(second.rows, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(second.begin_ns, kBase + 200);
  EXPECT_EQ(second.straddling_count, 1u);
  const PassWindow other = pass_window(table, found, found.passes[2], WindowPolicy::kFull);
  EXPECT_EQ(other.rows, (std::vector<uint32_t>{4}));
  EXPECT_EQ(other.straddling_count, 0u);
}

// In the file: 0 2 4 | 1 3 5, two runs that ascend and lie within each other in time.
TEST(PassWindow, OfABlockIsTheRunInTheFile) {
  CaptureTable table = table_of({{kAnchor, 0, 10},
                                 {kAnchor, 20, 30},
                                 {"MatMulV2", 40, 50},
                                 {"SwiGlu", 60, 70},
                                 {"MatMulV2", 80, 90},
                                 {"SwiGlu", 100, 110}});
  table.text_offset = {100, 400, 200, 500, 300, 600};
  const FoundPasses found = passes_at(table, {0, 1});
  const PassWindow first = pass_window(table, found, found.passes[0], WindowPolicy::kBlock);
  EXPECT_EQ(first.rows, (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_EQ(first.end_ns, kBase + 90);
  const PassWindow second = pass_window(table, found, found.passes[1], WindowPolicy::kBlock);
  EXPECT_EQ(second.rows, (std::vector<uint32_t>{1, 3, 5}));
  const std::vector<PassSummary> summaries = summaries_of(table, found, WindowPolicy::kBlock);
  EXPECT_EQ(summaries[0].sum_ns(), 30);
  EXPECT_EQ(summaries[1].wall_ns, 90);
  table.text_offset.clear();
  EXPECT_EQ(pass_window(table, found, found.passes[1], WindowPolicy::kBlock).rows.size(), 6u);
  const std::vector<PassSummary> whole = summaries_of(table, found, WindowPolicy::kBlock);
  EXPECT_EQ(whole[0].sum_ns(), 60);
  EXPECT_EQ(whole[1].sum_ns(), 60);
  EXPECT_EQ(whole[1].lost_share, 0.0);
}

TEST(WindowPolicy, HasNames) {
  for (const WindowPolicy policy :
       {WindowPolicy::kFull, WindowPolicy::kAnchor, WindowPolicy::kBlock}) {
    EXPECT_EQ(window_policy_by_name(window_policy_name(policy)), policy);
  }
  EXPECT_FALSE(window_policy_by_name("").has_value());
}

// Passes of an anchor and a matrix; the matrix of pass i takes matrix_ns[i].
struct MadePasses {
  CaptureTable table;
  FoundPasses found;
};

MadePasses passes_with(const std::vector<int64_t>& matrix_ns) {
  std::vector<Row> rows;
  std::vector<uint32_t> first_rows;
  int64_t now_ns = 0;
  for (const int64_t duration_ns : matrix_ns) {
    first_rows.push_back(static_cast<uint32_t>(rows.size()));
    rows.push_back({kAnchor, now_ns, now_ns + 1'000'000});
    rows.push_back({"MatMulV2", now_ns + 1'000'000, now_ns + 1'000'000 + duration_ns});
    now_ns += 10'000'000;
  }
  MadePasses made;
  made.table = table_of(rows);
  made.found = passes_at(made.table, first_rows);
  return made;
}

TEST(PassSummary, NamesAPassThatTookLonger) {
  MadePasses made = passes_with({1'000'000, 1'020'000, 980'000, 1'000'000, 1'500'000});
  const std::vector<PassSummary> summaries = summaries_of(made.table, made.found);
  EXPECT_EQ(summaries[4].outlier, "wall time 2.500 ms, where 2.000 +- 0.100 ms are usual");
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(summaries[i].outlier, "");
  // One that is cut is compared with nothing, and none with it.
  made.found.passes[4].is_cut_at_end = true;
  for (const PassSummary& summary : summaries_of(made.table, made.found)) {
    EXPECT_EQ(summary.outlier, "");
  }
}

TEST(PassSummary, AllowsFiveDeviations) {
  // The median deviation is 100 us: up to 500 us are usual.
  const MadePasses made =
      passes_with({900'000, 1'000'000, 1'100'000, 900'000, 1'100'000, 1'500'000, 1'520'000});
  const std::vector<PassSummary> summaries = summaries_of(made.table, made.found);
  for (const PassSummary& summary : summaries) EXPECT_EQ(summary.outlier, "");
}

TEST(PassSummary, NamesTheFirstTypeThatDiffers) {
  MadePasses made = passes_with({1'000'000, 1'000'000, 1'000'000, 1'000'000});
  made.table.type[5] = made.table.names.intern("SwiGlu");
  const std::vector<PassSummary> summaries = summaries_of(made.table, made.found);
  EXPECT_EQ(summaries[2].outlier, "0 kernels of MatMulV2, where most passes have 1");
  EXPECT_EQ(summaries[1].outlier, "");
}

TEST(PassSummary, ComparesNothingWithTwoPasses) {
  const MadePasses made = passes_with({1'000'000, 9'000'000});
  for (const PassSummary& summary : summaries_of(made.table, made.found)) {
    EXPECT_EQ(summary.outlier, "");
  }
}

// Sums of ticks in which the last digits count, at a start that a double cannot hold.
TEST(PassSummary, IsExactToTheTick) {
  std::vector<Row> rows = {{kAnchor, 0, 20}};
  for (int64_t i = 1; i <= 5'000; ++i) rows.push_back({"Cast", 40 * i, 40 * i + 20});
  const CaptureTable table = table_of(rows);
  const PassSummary summary = summaries_of(table, passes_at(table, {0}))[0];
  EXPECT_EQ(summary.sum_ns(), 20 * 5'001);
  EXPECT_EQ(summary.union_ns, 20 * 5'001);
  EXPECT_EQ(summary.wall_ns, 40 * 5'000 + 20);
}

TEST(PassSummary, IsNoneWithoutPasses) {
  EXPECT_TRUE(summaries_of(CaptureTable(), FoundPasses()).empty());
}

}  // namespace
}  // namespace gapless
