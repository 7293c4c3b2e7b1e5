// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_kinds.h"

#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

KernelKind kind(std::string_view name, std::string_view type, std::string_view core,
                bool has_stream) {
  return ascend_kernel_kind({.name = name, .type = type, .core = core, .has_stream = has_stream});
}

// Rows 18 and 35: the summary of a collective, as old and new tools and graphs spell it.
TEST(AscendKinds, KnowsSummariesOfCollectives) {
  EXPECT_EQ(kind("hcom_allReduce__503_0_1", "hcom_allReduce_", "COMMUNICATION", false),
            KernelKind::kCollective);
  EXPECT_EQ(kind("hcom_broadcast__483_0", "hcom_broadcast_", "HCCL", false),
            KernelKind::kCollective);
  EXPECT_EQ(kind("HcomAllGather", "HcomAllGather", "HCCL", false), KernelKind::kCollective);
  EXPECT_EQ(kind("model/HcomReduceScatter_3", "HcomReduceScatter", "COMMUNICATION", false),
            KernelKind::kCollective);
  EXPECT_EQ(kind("hcom_send__1_0_1", "", "", false), KernelKind::kCollective) << "Level0";
  EXPECT_EQ(kind("allReduce", "", "communication", false), KernelKind::kCollective);
}

// Rows 18 and 19: the kernel on a stream.
TEST(AscendKinds, KnowsFragments) {
  EXPECT_EQ(kind("AivKernel", "hcom_allReduce_", "COMMUNICATION", true), KernelKind::kFragment);
  EXPECT_EQ(kind("allreduceAivKernel", "hcom_allReduce_", "AI_VECTOR_CORE", true),
            KernelKind::kFragment);
  EXPECT_EQ(kind("AivKernel", "", "", false), KernelKind::kFragment) << "Level0";
  EXPECT_EQ(kind("Memcpy", "hcom_allReduce_", "MIX_AIV", true), KernelKind::kFragment);
  EXPECT_EQ(kind("task", "", "CCU", true), KernelKind::kFragment);
}

// Row 20.
TEST(AscendKinds, KnowsAiCpuWrappers) {
  EXPECT_EQ(kind("allgatherAicpuKernel", "hcom_allGather_", "AI_CPU", true),
            KernelKind::kAiCpuCollective);
  EXPECT_EQ(kind("reduce_scatterAicpuKernel", "", "COMMUNICATION", true),
            KernelKind::kAiCpuCollective);
}

// Row 21.
TEST(AscendKinds, TakesTheRestForCompute) {
  for (const std::string_view core : {"AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "DSA_SQE",
                                      "DVPP", "FFTS_PLUS", "FUSION", "N/A", ""}) {
    EXPECT_EQ(kind("MatMulV2", "MatMulV2", core, true), KernelKind::kCompute) << core;
  }
  EXPECT_EQ(kind("trans_Cast_5", "Cast", "AI_CPU", true), KernelKind::kAiCpu);
  EXPECT_EQ(kind("HcomputeLike", "HcomputeLike", "AI_CORE", true), KernelKind::kCompute);
  EXPECT_EQ(kind("MatmulAllReduce", "MatmulAllReduce", "MIX_AIC", true), KernelKind::kCompute);
}

// Row 11.
TEST(AscendKinds, KnowsCellsThatSayNothing) {
  for (const std::string_view cell :
       {"", "N/A", "n/a", "NA", "NaN", "nan", "-", "inf", "-inf", "+inf", "None", "null"}) {
    EXPECT_TRUE(is_missing_cell(cell)) << cell;
  }
  for (const std::string_view cell : {"0", "-1", "Cast", "info", "Nand", "--"}) {
    EXPECT_FALSE(is_missing_cell(cell)) << cell;
  }
}

TEST(AscendKinds, MakesOneSpellingOfShapes) {
  std::string buffer;
  EXPECT_EQ(plain_shapes("1,4096;1024", buffer), "1,4096;1024");
  EXPECT_EQ(plain_shapes("[[1,1024],[1024,4096]]", buffer), "1,1024;1024,4096");
  EXPECT_EQ(plain_shapes("[[1, 2], [], [3]]", buffer), "1,2;;3");
  EXPECT_EQ(plain_shapes("[1,2];[3]", buffer), "1,2;3");
  EXPECT_EQ(plain_shapes("]],[", buffer), ",");
}

}  // namespace
}  // namespace gapless
