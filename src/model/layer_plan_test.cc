// SPDX-License-Identifier: Apache-2.0

#include "model/layer_plan.h"

#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kernels/packed_rows.h"

namespace gapless {
namespace {

using Names = std::vector<std::string>;

constexpr Fusions kNoFusions = {
    .dual_gate_up = false, .qk_norm_rope = false, .deferred_norm = false, .residual = false};

LayerProblem problem_of(const std::string& model, DType weights, int rows) {
  return {.config = *find_model_config(model),
          .weights = weights,
          .fusions = {},
          .rows = rows,
          .core_count = 2};
}

LayerProblem qwen3_14b(DType weights, int rows) { return problem_of("qwen3-14b", weights, rows); }

LayerPlan plan_of(const LayerProblem& problem) {
  Result<LayerPlan> plan = plan_layer(problem);
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return std::move(*plan);
}

std::string error_of(const LayerProblem& problem) {
  const Result<LayerPlan> plan = plan_layer(problem);
  return plan ? "no error" : plan.error().message;
}

int64_t matmul_weight_bytes(const LayerPlan& plan) {
  int64_t bytes = 0;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.is_matmul) bytes += kernel.weight_bytes;
  return bytes;
}

// hidden 5120, q 40 x 128, k and v 8 x 128, intermediate 17408:
//   q and out  5120 x 5120 = 26,214,400 each, k and v 5120 x 1024 = 5,242,880 each
//   gate, up and down 5120 x 17408 = 89,128,960 each
constexpr int64_t kLayerParameters = 2 * 26'214'400 + 2 * 5'242'880 + 3 * 89'128'960;
static_assert(kLayerParameters == 330'301'440);
constexpr int64_t kLayerRows = 5120 + 2 * 1024 + 5120 + 2 * 17408 + 5120;  // output columns

TEST(LayerPlan, ReadsTheWeightsOfAQwenLayerOnce) {
  for (const bool dual : {false, true}) {
    for (const int rows : {1, 16, 64}) {
      LayerProblem problem = qwen3_14b(DType::kBf16, rows);
      problem.fusions.dual_gate_up = dual;
      EXPECT_EQ(matmul_weight_bytes(plan_of(problem)), 660'602'880);
      problem.weights = DType::kF16;
      EXPECT_EQ(matmul_weight_bytes(plan_of(problem)), 660'602'880);
      problem.weights = DType::kF32;
      EXPECT_EQ(matmul_weight_bytes(plan_of(problem)), 1'321'205'760);
      // One f32 scale an output column.
      problem.weights = DType::kS8;
      EXPECT_EQ(matmul_weight_bytes(plan_of(problem)), kLayerParameters + 4 * kLayerRows);
    }
  }
}

TEST(LayerPlan, CountsKeysAndValuesOfEachRow) {
  LayerProblem problem = qwen3_14b(DType::kBf16, 16);
  problem.lengths.assign(16, 4096);
  const LayerPlan plan = plan_of(problem);
  const KernelPlan& attention = *plan.find(LayerKernel::kAttention);
  // 16 x 4096 tokens x 8 heads x 128 x 2 bytes, keys and values.
  EXPECT_EQ(attention.weight_bytes, 268'435'456);
  EXPECT_EQ(plan.weight_bytes, 660'602'880 + 268'435'456);
  // Eight chunks of 512 tokens a row and kv head leave 5 x (128 + 2) floats each, in whole lines.
  constexpr int64_t kPartials = 16 * 8 * 8;
  constexpr int64_t kPartialBytes = (5 * 130 * 4 + 63) / 64 * 64;
  EXPECT_EQ(plan.attention_workspace_bytes, kPartials * kPartialBytes);
  EXPECT_EQ(attention.bytes, 268'435'456 + 2 * 16 * 5120 * 4 + kPartials * kPartialBytes);
  EXPECT_EQ(plan.find(LayerKernel::kAttentionCombine)->bytes, kPartials * kPartialBytes);
}

TEST(LayerPlan, CountsTheFlopsOfAQwenLayer) {
  LayerProblem problem = qwen3_14b(DType::kS8, 16);
  problem.lengths.assign(16, 4096);
  const LayerPlan plan = plan_of(problem);
  int64_t matmul_flops = 0;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.is_matmul) matmul_flops += kernel.flops;
  EXPECT_EQ(matmul_flops, 2 * 16 * kLayerParameters);
  // A multiply-add for the score and one for the value: token x query head x dimension.
  EXPECT_EQ(plan.find(LayerKernel::kAttention)->flops, int64_t{4} * 16 * 4096 * 40 * 128);
}

TEST(LayerPlan, CountsWhatElementwiseKernelsMove) {
  LayerProblem problem = qwen3_14b(DType::kBf16, 4);
  problem.fusions = kNoFusions;
  const LayerPlan plan = plan_of(problem);
  constexpr int64_t kRows = 4;
  EXPECT_EQ(plan.find(LayerKernel::kQkNorm)->bytes, kRows * 2 * (5120 + 1024) * 4);
  // q, k in and out, v in, and K and V of a token in bf16.
  EXPECT_EQ(plan.find(LayerKernel::kRope)->bytes,
            kRows * ((2 * (5120 + 1024) + 1024) * 4 + 2 * 1024 * 2));
  EXPECT_EQ(plan.find(LayerKernel::kSilu)->bytes, kRows * 3 * 17408 * 4);
  EXPECT_EQ(plan.find(LayerKernel::kOutResidual)->bytes, kRows * 3 * 5120 * 4);
  EXPECT_EQ(plan.find(LayerKernel::kDownResidual)->bytes, kRows * 3 * 5120 * 4);
  EXPECT_EQ(
      plan.find(LayerKernel::kMlpPack)->bytes,
      kRows * 17408 * 4 + packed_rows_block_bytes(DType::kBf16, CpuLevel::kPortable, kRows, 17408));
  // The residual is read in the epilogue, or by a task of its own.
  problem.fusions.residual = true;
  EXPECT_EQ(plan_of(problem).find(LayerKernel::kOutProj)->bytes,
            plan.find(LayerKernel::kOutProj)->bytes + kRows * 5120 * 4);
}

// Totals are sums, whatever the fusions and rows.
TEST(LayerPlan, AddsUp) {
  for (int flags = 0; flags < 16; ++flags) {
    LayerProblem problem = qwen3_14b(DType::kS8, 1 + 9 * (flags % 8));
    problem.fusions = {.dual_gate_up = (flags & 1) != 0,
                       .qk_norm_rope = (flags & 2) != 0,
                       .deferred_norm = (flags & 4) != 0,
                       .residual = (flags & 8) != 0};
    problem.lengths.assign(static_cast<size_t>(problem.rows), 700);
    const LayerPlan plan = plan_of(problem);
    LayerPlan sum;
    for (const KernelPlan& kernel : plan.kernels) {
      sum.task_count += kernel.task_count;
      sum.bytes += kernel.bytes;
      sum.weight_bytes += kernel.weight_bytes;
      sum.flops += kernel.flops;
      EXPECT_GT(kernel.task_count, 0) << kernel.name;
      EXPECT_GT(kernel.bytes, kernel.weight_bytes) << kernel.name;
      EXPECT_FALSE(kernel.tile.empty()) << kernel.name;
      EXPECT_EQ(plan.find(kernel.kernel), &kernel);
    }
    EXPECT_EQ(plan.task_count, sum.task_count);
    EXPECT_EQ(plan.bytes, sum.bytes);
    EXPECT_EQ(plan.weight_bytes, sum.weight_bytes);
    EXPECT_EQ(plan.flops, sum.flops);
  }
}

Names names_of(const LayerPlan& plan) {
  Names names;
  for (const KernelPlan& kernel : plan.kernels) names.push_back(kernel.name);
  return names;
}

TEST(LayerPlan, NamesTheKernelsInTheOrderOfATokensWay) {
  LayerProblem problem = qwen3_14b(DType::kS8, 4);
  EXPECT_EQ(names_of(plan_of(problem)),
            (Names{"rms_norm", "q_proj", "k_proj", "v_proj", "qk_norm_rope", "attention",
                   "attention_combine", "out_act_quant", "out_proj", "post_norm", "gate_up",
                   "mlp_act_quant", "down_proj"}));
  problem.fusions = kNoFusions;
  problem.weights = DType::kBf16;
  EXPECT_EQ(names_of(plan_of(problem)),
            (Names{"rms_norm", "q_proj", "k_proj", "v_proj", "qk_norm", "rope", "attention",
                   "attention_combine", "out_cast", "out_proj", "out_residual", "post_norm",
                   "gate_proj", "up_proj", "silu", "mlp_cast", "down_proj", "down_residual"}));
}

TEST(LayerPlan, HasANameAndAGroupForEveryKernel) {
  for (const DType weights : {DType::kS8, DType::kBf16}) {
    std::set<std::string_view> names;
    for (int kernel = 0; kernel < kLayerKernelCount; ++kernel) {
      names.insert(layer_kernel_name(static_cast<LayerKernel>(kernel), weights));
      const std::string_view group = layer_group_name(static_cast<LayerKernel>(kernel));
      EXPECT_NE(std::find(std::begin(kLayerGroups), std::end(kLayerGroups), group),
                std::end(kLayerGroups));
    }
    EXPECT_EQ(std::ssize(names), kLayerKernelCount);
    EXPECT_EQ(names.count(""), 0u);
  }
}

TEST(LayerPlan, NeedsFewerTasksWithFusions) {
  for (const int rows : {1, 4, 16, 64}) {
    LayerProblem fused = qwen3_14b(DType::kS8, rows);
    const LayerPlan with = plan_of(fused);
    for (int flag = 0; flag < 4; ++flag) {
      LayerProblem problem = fused;
      if (flag == 0) problem.fusions.dual_gate_up = false;
      if (flag == 1) problem.fusions.qk_norm_rope = false;
      if (flag == 2) problem.fusions.residual = false;
      if (flag == 3) problem.fusions.deferred_norm = false;
      const LayerPlan without = plan_of(problem);
      if (flag == 3) {
        EXPECT_EQ(without.task_count, with.task_count);
      } else {
        EXPECT_GT(without.task_count, with.task_count) << flag;
      }
    }
    // Half of the matmul tasks, and no silu.
    LayerProblem apart = fused;
    apart.fusions.dual_gate_up = false;
    const LayerPlan two = plan_of(apart);
    EXPECT_LT(
        with.find(LayerKernel::kGateUp)->task_count,
        two.find(LayerKernel::kGateProj)->task_count + two.find(LayerKernel::kUpProj)->task_count);
    EXPECT_LT(with.find(LayerKernel::kGateUp)->bytes,
              two.find(LayerKernel::kGateProj)->bytes + two.find(LayerKernel::kUpProj)->bytes);
  }
}

// Panels are 16 output columns; a pair has twice as many.
int64_t panels_of(const LayerProblem& problem, LayerKernel kernel) {
  const int64_t panels = (matrix_shape(problem.config, kernel).n + kPanelRows - 1) / kPanelRows;
  return kernel == LayerKernel::kGateUp ? 2 * panels : panels;
}

void expect_covers(const LayerProblem& problem, const KernelPlan& kernel) {
  SCOPED_TRACE(
      fmt::format("{} {}, {} cores", problem.config.name, kernel.name, problem.core_count));
  std::vector<int> taken(static_cast<size_t>(panels_of(problem, kernel.kernel)), 0);
  for (const MatmulTilePlan& tile : kernel.tiles) {
    ASSERT_GE(tile.first_panel, 0);
    ASSERT_GT(tile.panel_count, 0);
    ASSERT_LE(tile.first_panel + tile.panel_count, std::ssize(taken));
    EXPECT_EQ(tile.slice, 0);
    if (kernel.kernel == LayerKernel::kGateUp) {
      EXPECT_EQ(tile.first_panel % 2, 0);
      EXPECT_EQ(tile.panel_count % 2, 0);
    }
    for (int64_t i = 0; i < tile.panel_count; ++i)
      ++taken[static_cast<size_t>(tile.first_panel + i)];
  }
  EXPECT_TRUE(std::all_of(taken.begin(), taken.end(), [](int count) { return count == 1; }));
  EXPECT_EQ(kernel.task_count, std::ssize(kernel.tiles));
}

TEST(LayerPlan, CoversEveryPanelOnce) {
  for (const std::string& model : model_names()) {
    for (const DType weights : {DType::kS8, DType::kBf16, DType::kF16, DType::kF32}) {
      for (const int cores : {1, 2, 3, 24, 256}) {
        for (const bool dual : {false, true}) {
          LayerProblem problem = problem_of(model, weights, cores % 64 + 1);
          problem.core_count = cores;
          problem.fusions.dual_gate_up = dual;
          for (const KernelPlan& kernel : plan_of(problem).kernels)
            if (kernel.is_matmul) expect_covers(problem, kernel);
        }
      }
    }
  }
}

TEST(LayerPlan, CutsRowsIntoBlocks) {
  for (const int rows : {1, 5, 16, 17, 64}) {
    const LayerPlan plan = plan_of(qwen3_14b(DType::kS8, rows));
    EXPECT_EQ(plan.find(LayerKernel::kRmsNorm)->task_count, (rows + 15) / 16);
    EXPECT_EQ(plan.find(LayerKernel::kQkNormRope)->task_count, std::min(rows, 8));
    EXPECT_EQ(plan.find(LayerKernel::kAttention)->task_count, 24);
  }
}

// Lengths change what is moved, not how it is cut: one graph serves all of them.
TEST(LayerPlan, CutsTheSameWithoutLengths) {
  LayerProblem problem = qwen3_14b(DType::kS8, 16);
  const LayerPlan without = plan_of(problem);
  problem.lengths.assign(16, 4096);
  const LayerPlan with = plan_of(problem);
  ASSERT_EQ(names_of(with), names_of(without));
  for (size_t i = 0; i < with.kernels.size(); ++i) {
    EXPECT_EQ(with.kernels[i].task_count, without.kernels[i].task_count);
    EXPECT_EQ(with.kernels[i].tiles, without.kernels[i].tiles);
  }
  EXPECT_EQ(without.find(LayerKernel::kAttention)->weight_bytes, 0);
  EXPECT_EQ(without.attention_workspace_bytes, 0);
}

TEST(LayerPlan, SaysWhatItCannotPlan) {
  EXPECT_EQ(error_of(qwen3_14b(DType::kS8, 0)), "a step of 0 rows; must be 1 to 64");
  EXPECT_EQ(error_of(qwen3_14b(DType::kS8, 65)), "a step of 65 rows; must be 1 to 64");
  EXPECT_EQ(error_of(qwen3_14b(DType::kS32, 1)),
            "a matmul takes s8, bf16, f16 or f32 weights, not s32");
  LayerProblem problem = qwen3_14b(DType::kS8, 3);
  problem.lengths = {1, 2};
  EXPECT_EQ(error_of(problem), "2 lengths for a step of 3 rows");
  problem.lengths = {1, 2, -1};
  EXPECT_NE(error_of(problem).find("sequence 2 has -1 tokens"), std::string::npos);
  problem = qwen3_14b(DType::kS8, 1);
  problem.core_count = 0;
  EXPECT_EQ(error_of(problem), "a layer for 0 cores; must be at least 1");
  problem.core_count = 2'000'000'000;
  EXPECT_NE(error_of(problem).find("2000000000 cores"), std::string::npos);
  problem = qwen3_14b(DType::kS8, 1);
  problem.page_tokens = 17;
  EXPECT_NE(error_of(problem).find("17"), std::string::npos);
  EXPECT_NE(error_of(problem).find("page"), std::string::npos);
  problem = qwen3_14b(DType::kS8, 1);
  problem.chunk_tokens = 24;
  EXPECT_NE(error_of(problem).find("24"), std::string::npos);
  problem = qwen3_14b(DType::kS8, 1);
  problem.kv_dtype = DType::kS32;
  EXPECT_NE(error_of(problem).find("s32"), std::string::npos);
  problem = qwen3_14b(DType::kS8, 1);
  problem.config.head_dim = 96;
  EXPECT_NE(error_of(problem).find("head_dim is 96"), std::string::npos);
}

}  // namespace
}  // namespace gapless
