// SPDX-License-Identifier: Apache-2.0

#include "trace/capture_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

struct Row {
  int64_t start_ns;
  int64_t duration_ns;
  int32_t stream = 7;
  KernelKind kind = KernelKind::kCompute;
  int32_t device = 0;
};

CaptureTable table_of(const std::vector<Row>& rows) {
  CaptureTable table;
  table.format = "test";
  const uint32_t name = table.names.intern("aclnnMatmul_MatMulV2_MatMulV2");
  const uint32_t type = table.names.intern("MatMulV2");
  for (const Row& row : rows) {
    table.append({.start_ns = row.start_ns,
                  .duration_ns = row.duration_ns,
                  .device = row.device,
                  .stream = row.stream,
                  .name = name,
                  .type = type,
                  .kind = row.kind});
  }
  return table;
}

std::string lane_name(const Trace& trace, size_t row) {
  return trace.lanes[trace.tasks.lane[row]].name;
}

TEST(CaptureTable, PutsRowsInTheOrderOfDeviceAndStart) {
  CaptureTable table = table_of({{.start_ns = 5, .duration_ns = 1, .device = 10},
                                 {.start_ns = 9, .duration_ns = 2, .device = 2},
                                 {.start_ns = 4, .duration_ns = 3, .device = 2},
                                 {.start_ns = 9, .duration_ns = 4, .device = 2}});
  const std::vector<uint32_t> rows = rows_in_order(table);
  EXPECT_EQ(rows, (std::vector<uint32_t>{2, 1, 3, 0}));
  keep_rows(table, rows);
  EXPECT_EQ(table.duration_ns, (std::vector<int64_t>{3, 2, 4, 1}));
  EXPECT_EQ(table.device, (std::vector<int32_t>{2, 2, 2, 10}));
  EXPECT_TRUE(table.text_offset.empty()) << "a column that is not there stays so";
}

TEST(CaptureTable, KeepsOnlyTheRowsAskedFor) {
  CaptureTable table = table_of({{1, 10}, {2, 20}, {3, 30}});
  table.text_offset = {100, 200, 300};
  table.text_bytes = {1, 2, 3};
  keep_rows(table, {2, 0});
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.text_offset, (std::vector<uint64_t>{300, 100}));
  for_each_kernel_column(table, [](const auto& column) { EXPECT_EQ(column.size(), 2u); });
}

TEST(CaptureTable, AddsUpByKind) {
  const CaptureTable table = table_of(
      {{1, 10}, {2, 5, -1, KernelKind::kCollective}, {3, 7, 9, KernelKind::kFragment}, {4, 20}});
  const auto sums = kernel_sums(table);
  EXPECT_EQ(sums[0].count, 2u);
  EXPECT_EQ(sums[0].duration_ns, 30);
  EXPECT_EQ(sums[2].duration_ns, 5);
  EXPECT_EQ(sums[3].count, 1u);
  EXPECT_EQ(sums[4].count, 0u);
}

TEST(CaptureTable, NamesEveryKind) {
  EXPECT_EQ(kernel_kind_name(KernelKind::kCompute), "compute");
  EXPECT_EQ(kernel_kind_name(KernelKind::kAiCpuCollective), "ai-cpu-collective");
}

TEST(KernelTrace, MakesLanesOfStreams) {
  CaptureTable table = table_of({{100, 10, 148},
                                 {110, 10, 62},
                                 {115, 30, -1, KernelKind::kCollective},
                                 {116, 5, -1},
                                 {121, 9, 148, KernelKind::kFragment},
                                 {50, 10, 148, KernelKind::kCompute, 3}});
  table.findings.push_back({Severity::kWarning, "no-start", "one", kNoIndex, 1});
  table.type[1] = kNoIndex;
  const Trace trace = trace_of(table);
  EXPECT_EQ(trace.format, "test");
  ASSERT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.devices[0].name, "NPU 0");
  EXPECT_EQ(trace.devices[1].number, 3);
  ASSERT_EQ(trace.lanes.size(), 5u);
  EXPECT_EQ(trace.lanes[0].name, "Stream 148");
  EXPECT_EQ(trace.lanes[0].kind, LaneKind::kStream);
  EXPECT_EQ(trace.lanes[0].number, 148);
  EXPECT_EQ(lane_name(trace, 2), "Communication");
  EXPECT_EQ(lane_name(trace, 3), "Kernels");
  EXPECT_EQ(trace.tasks.lane[4], trace.tasks.lane[0]) << "fragments run on their stream";
  EXPECT_NE(trace.tasks.lane[5], trace.tasks.lane[0]) << "a stream of another device";
  EXPECT_EQ(trace.names[trace.tasks.kernel[0]], "MatMulV2");
  EXPECT_EQ(trace.names[trace.tasks.kernel[1]], "aclnnMatmul_MatMulV2_MatMulV2");
  EXPECT_EQ(trace.tasks.at(TaskTime::kStart)[2], 115);
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd)[2], 145);
  EXPECT_EQ(trace.tasks.at(TaskTime::kDispatch)[2], kAbsent);
  ASSERT_EQ(trace.findings.size(), 1u);
  EXPECT_EQ(trace.findings[0].code, "no-start");
}

// Rows 26 and 27 of the robustness table.
TEST(KernelTrace, PutsOverlappingRowsOnFurtherLanes) {
  const Trace trace = trace_of(table_of({{100, 50}, {110, 10}, {115, 50}, {150, 10}, {170, 5}}));
  EXPECT_EQ(lane_name(trace, 0), "Stream 7");
  EXPECT_EQ(lane_name(trace, 1), "Stream 7 (2)");
  EXPECT_EQ(lane_name(trace, 2), "Stream 7 (3)");
  EXPECT_EQ(lane_name(trace, 3), "Stream 7") << "a row that begins where another ends follows it";
  EXPECT_EQ(lane_name(trace, 4), "Stream 7");
  ASSERT_EQ(trace.findings.size(), 1u);
  EXPECT_EQ(trace.findings[0].code, "overlapping-rows");
  EXPECT_EQ(trace.findings[0].count, 2u);
}

TEST(KernelTrace, TakesATableOfNoRows) {
  const Trace trace = trace_of(CaptureTable{});
  EXPECT_EQ(trace.tasks.size(), 0u);
  EXPECT_TRUE(trace.lanes.empty());
}

// Goal: tasks of a lane never overlap, nothing is lost, and no more lanes are made than needed.
// Method: random rows in any order; the number of lanes of a stream must be the largest number of
// rows that run at one moment.
TEST(KernelTrace, MakesAsManyLanesAsRowsRunAtOnce) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<Row> rows(1 + random() % 40);
    for (Row& row : rows) {
      row = {static_cast<int64_t>(random() % 60), static_cast<int64_t>(1 + random() % 20)};
    }
    const Trace trace = trace_of(table_of(rows));
    std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> by_lane;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t end_ns = rows[i].start_ns + rows[i].duration_ns;
      by_lane[trace.tasks.lane[i]].emplace_back(rows[i].start_ns, end_ns);
    }
    for (auto& [lane, tasks] : by_lane) {
      std::sort(tasks.begin(), tasks.end());
      for (size_t i = 1; i < tasks.size(); ++i) ASSERT_LE(tasks[i - 1].second, tasks[i].first);
    }
    ptrdiff_t most = 0;
    for (const Row& moment : rows) {
      const auto runs_then = [&moment](const Row& row) {
        return row.start_ns <= moment.start_ns && moment.start_ns < row.start_ns + row.duration_ns;
      };
      most = std::max(most, std::count_if(rows.begin(), rows.end(), runs_then));
    }
    ASSERT_EQ(trace.lanes.size(), static_cast<size_t>(most));
  }
}

// Row 34 of the robustness table, and rows 9 and 10: what a name says where there is no type.
TEST(DerivedKernelType, TakesNamesApart) {
  const std::map<std::string, std::string> types = {
      {"aclnnMatmul_MatMulV2_MatMulV2", "MatMulV2"},
      {"aclnnMaxPool2dWithMask_MaxPoolWithArgmaxV1AiCore_MaxPoolWithArgmaxV1",
       "MaxPoolWithArgmaxV1"},
      {"aclnnMm_MatMulCommon_MemSet", "MemSet"},
      {"aclnnCat", "Cat"},
      {"aclnnAdd_Add", "Add"},
      {"aclnnFoo_Foo_Foo_Bar_3", "Foo_Bar"},
      {"hcom_allReduce__503_0_1", "hcom_allReduce_"},
      {"hcom_broadcast__483_0", "hcom_broadcast_"},
      {"hcom_allReduce_", "hcom_allReduce_"},
      {"AddRmsNormBias_0123456789abcdef0123456789abcdef_high_performance_3", "AddRmsNormBias"},
      {"AddRmsNormBias_0123456789abcdef0123456789abcdef_high_performance", "AddRmsNormBias"},
      {"AddRmsNormBias_0123456789abcdef0123456789abcdef", "AddRmsNormBias"},
      {"MatMulV2_NDNZ_ND_FP16_FP16_false_true_all_229955", "MatMulV2"},
      {"mla_preprocess_0_mix_aic", "mla_preprocess"},
      {"reshape_and_cache_200000000", "reshape_and_cache"},
      {"split_qkv_rmsnorm_rope_kernel_0", "split_qkv_rmsnorm_rope_kernel"},
      {"muls_add_kernel_1", "muls_add_kernel"},
      {"ApplyTopKTopPCustom_Sort", "ApplyTopKTopPCustom_Sort"},
      {"gather_all", "gather_all"},
      {"trans_TransData_6", "TransData"},
      {"Conv2D17", "Conv2D"},
      {"Conv2DBackpropFilter10_MemSet", "MemSet"},
      {"MatMulV2", "MatMulV2"},
      {"Relu6", "Relu6"},
      {"scope/layer_1/Conv2D3", "Conv2D"},
      {"StatelessDropOutGenMask/DSAGenBitMask", "DSAGenBitMask"},
      {"AivKernel", "AivKernel"},
      {"12345", "12345"},
      {"_7", "_7"},
      {"trans_", "trans_"},
      {"aclnn", "aclnn"},
      {"x/", "x/"},
      {"", ""}};
  for (const auto& [name, type] : types) EXPECT_EQ(derived_kernel_type(name), type) << name;
}

}  // namespace
}  // namespace gapless
