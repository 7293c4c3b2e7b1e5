// SPDX-License-Identifier: Apache-2.0

#include "trace/capture_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trace/capture_table_test_support.h"

namespace gapless {
namespace {

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
  for_each_kernel_column(
      table, [](const auto& column) { EXPECT_TRUE(column.empty() || column.size() == 2); });
  EXPECT_TRUE(table.launch_ns.empty());
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

TEST(CaptureTable, LeavesOutLaunchesBehindTheStart) {
  CaptureTable table = table_of({{100, 10}, {200, 10}, {300, 10}});
  leave_out_late_launches(table);
  EXPECT_TRUE(table.findings.empty()) << "there are no launches";
  table.launch_ns = {100, 201, kAbsent};
  leave_out_late_launches(table);
  EXPECT_EQ(table.launch_ns, (std::vector<int64_t>{100, kAbsent, kAbsent}));
  ASSERT_EQ(table.findings.size(), 1u);
  EXPECT_EQ(table.findings[0].code, "launches-after-start");
  EXPECT_EQ(table.findings[0].count, 1u);
}

TEST(CaptureTable, NamesEveryKind) {
  EXPECT_EQ(kernel_kind_name(KernelKind::kCompute), "compute");
  EXPECT_EQ(kernel_kind_name(KernelKind::kAiCpuCollective), "ai-cpu-collective");
}

TEST(CaptureTable, KnowsCollectivesAndCopiesByTheirNames) {
  EXPECT_EQ(named_kernel_kind("hcom_allReduce_"), KernelKind::kCollective);
  EXPECT_EQ(named_kernel_kind("HcomAllGather"), KernelKind::kCollective);
  EXPECT_EQ(named_kernel_kind("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), KernelKind::kCollective);
  EXPECT_EQ(named_kernel_kind("MEMCPY_ASYNC"), KernelKind::kCopy);
  EXPECT_EQ(named_kernel_kind("Memset (Device)"), KernelKind::kCopy);
  EXPECT_EQ(named_kernel_kind("MatMulV2"), KernelKind::kCompute);
  EXPECT_EQ(named_kernel_kind("ncc"), KernelKind::kCompute);
  EXPECT_EQ(named_kernel_kind(""), KernelKind::kCompute);
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
