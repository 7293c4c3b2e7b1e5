// SPDX-License-Identifier: Apache-2.0

#include "kernels/matmul_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "kernels/matmul.h"
#include "kernels/matmul_levels.h"

namespace gapless {
namespace {

constexpr DType kWeightTypes[] = {DType::kS8, DType::kBf16, DType::kF16, DType::kF32};

MatmulProblem problem_of(DType weights, int64_t m, int64_t k, int64_t n, int core_count) {
  MatmulProblem problem;
  problem.weights = weights;
  problem.m = m;
  problem.k = k;
  problem.n = n;
  problem.core_count = core_count;
  return problem;
}

MatmulProblem with_pairs(MatmulProblem problem) {
  problem.interleave = Interleave::kPairs;
  return problem;
}

MatmulPlan plan_or_die(const MatmulProblem& problem) {
  Result<MatmulPlan> plan = plan_matmul(problem);
  if (!plan) ADD_FAILURE() << plan.error().message;
  return plan ? std::move(plan).value() : MatmulPlan{};
}

std::string error_of(const MatmulProblem& problem) {
  const Result<MatmulPlan> plan = plan_matmul(problem);
  return plan ? "none" : plan.error().message;
}

std::string text_of(const MatmulProblem& problem) {
  return std::string(dtype_name(problem.weights)) + " m " + std::to_string(problem.m) + " k " +
         std::to_string(problem.k) + " n " + std::to_string(problem.n) + " cores " +
         std::to_string(problem.core_count) +
         (problem.interleave == Interleave::kPairs ? " pairs" : "");
}

// The tiles of each slice follow each other without a hole, and so do the slices.
void expect_covers_everything_once(const MatmulProblem& problem, const MatmulPlan& plan) {
  std::map<int, std::vector<MatmulTilePlan>> slices;
  for (const MatmulTilePlan& tile : plan.tiles) slices[tile.slice].push_back(tile);
  ASSERT_EQ(static_cast<int>(slices.size()), plan.k_slices) << text_of(problem);
  int64_t next_line = 0;
  for (auto& [slice, tiles] : slices) {
    std::sort(tiles.begin(), tiles.end(), [](const MatmulTilePlan& a, const MatmulTilePlan& b) {
      return a.first_panel < b.first_panel;
    });
    int64_t next_panel = 0;
    for (const MatmulTilePlan& tile : tiles) {
      ASSERT_EQ(tile.first_panel, next_panel) << text_of(problem) << " slice " << slice;
      ASSERT_GT(tile.panel_count, 0) << text_of(problem);
      ASSERT_EQ(tile.first_line, next_line) << text_of(problem) << " slice " << slice;
      ASSERT_EQ(tile.line_count, tiles[0].line_count) << text_of(problem);
      next_panel += tile.panel_count;
    }
    ASSERT_EQ(next_panel, plan.panel_count) << text_of(problem);
    ASSERT_GT(tiles[0].line_count, 0);
    next_line += tiles[0].line_count;
  }
  ASSERT_EQ(next_line, plan.line_count) << text_of(problem);
}

// The largest come first, tiles of a slice differ by at most one group, pairs stay together.
void expect_in_order(const MatmulProblem& problem, const MatmulPlan& plan) {
  int64_t smallest = plan.panel_count;
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const MatmulTilePlan& tile = plan.tiles[i];
    smallest = std::min(smallest, tile.panel_count);
    if (problem.interleave == Interleave::kPairs) {
      ASSERT_EQ(tile.first_panel % 2, 0) << text_of(problem);
      ASSERT_EQ(tile.panel_count % 2, 0) << text_of(problem);
    }
    if (i == 0) continue;
    const MatmulTilePlan& before = plan.tiles[i - 1];
    ASSERT_GE(before.panel_count * before.line_count, tile.panel_count * tile.line_count);
  }
  ASSERT_LE(plan.panels_per_tile - smallest, plan.panels_together) << text_of(problem);
}

void expect_sensible(const MatmulProblem& problem) {
  const MatmulPlan plan = plan_or_die(problem);
  expect_covers_everything_once(problem, plan);
  expect_in_order(problem, plan);
  const int64_t group_count = (plan.panel_count + plan.panels_together - 1) / plan.panels_together;
  if (plan.k_slices > 1) {
    EXPECT_LT(group_count, problem.core_count) << text_of(problem);
    for (const MatmulTilePlan& tile : plan.tiles) {
      ASSERT_GE(tile.line_count * line_k(problem.weights), kMinSliceK) << text_of(problem);
    }
  }
  EXPECT_EQ(plan.combine_count,
            plan.k_slices == 1 ? 0 : static_cast<int64_t>(plan.tiles.size()) / plan.k_slices);
  EXPECT_EQ(plan.total_cost, plan.panel_count * plan.line_count);
  const int64_t tiles_a_core = static_cast<int64_t>(plan.tiles.size()) / problem.core_count;
  EXPECT_LE(tiles_a_core, kTilesPerCore) << text_of(problem);
  // Enough work: ten tiles of the least size for each core, in bytes and in groups of panels.
  const int64_t core_bytes = plan.total_cost * kLineBytes / problem.core_count;
  if (core_bytes >= 10 * kMinTileBytes && group_count >= 10 * problem.core_count) {
    EXPECT_GE(plan.balance, 0.9) << text_of(problem);
    EXPECT_GE(tiles_a_core, 8) << text_of(problem);
  }
}

TEST(MatmulPlan, CoversEveryPanelAndLineOnce) {
  std::mt19937 random(20260406);
  const auto between = [&](int64_t low, int64_t high) {
    // By size and not by value: small ones matter as much as large ones.
    const double exponent = std::uniform_real_distribution<double>(
        std::log2(static_cast<double>(low)), std::log2(static_cast<double>(high) + 1))(random);
    return std::clamp(static_cast<int64_t>(std::exp2(exponent)), low, high);
  };
  for (uint32_t round = 0; round < test_effort(4000); ++round) {
    MatmulProblem problem =
        problem_of(kWeightTypes[random() % 4], between(1, 64), between(1, 65536),
                   between(1, 151936), static_cast<int>(between(1, 72)));
    if (random() % 2 == 0) problem = with_pairs(problem);
    expect_sensible(problem);
    if (HasFatalFailure()) return;
  }
}

TEST(MatmulPlan, CoversEverythingAtTheEdges) {
  for (const DType weights : kWeightTypes) {
    for (const int64_t n : {1, 15, 16, 17, 151936}) {
      for (const int64_t k : {1, 2, 255, 256, 65535, 65536}) {
        for (const int core_count : {1, 2, 71, 72}) {
          const MatmulProblem problem = problem_of(weights, 4, k, n, core_count);
          expect_sensible(problem);
          expect_sensible(with_pairs(problem));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  for (int64_t m = 1; m <= 64; ++m) {
    for (int core_count = 1; core_count <= 72; core_count += kSanitized ? 7 : 1) {
      expect_sensible(problem_of(DType::kS8, m, 5120, 7168, core_count));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(MatmulPlan, IsBalancedForTheShapesOfQwen3) {
  struct Case {
    int64_t k, n;
    bool pairs;
  };
  for (const Case& shape :
       {Case{5120, 7168, false}, Case{5120, 5120, false}, Case{5120, 17408, true},
        Case{17408, 5120, false}, Case{5120, 151936, false}}) {
    for (const DType weights : {DType::kS8, DType::kBf16}) {
      for (const int64_t m : {1, 3, 4, 16, 64}) {
        for (int core_count = 1; core_count <= 72; ++core_count) {
          MatmulProblem problem = problem_of(weights, m, shape.k, shape.n, core_count);
          if (shape.pairs) problem = with_pairs(problem);
          const MatmulPlan plan = plan_or_die(problem);
          // The worst: 320 panels for 63 cores, of which five have one more than the others.
          EXPECT_GE(plan.balance, 0.84) << text_of(problem);
          EXPECT_EQ(plan.k_slices, 1) << text_of(problem);
        }
      }
    }
  }
}

// One column more is at most one group more for a core, and nothing that is counted gets less.
TEST(MatmulPlan, HasNoCliffBetweenNeighbouringN) {
  for (const bool pairs : {false, true}) {
    for (const int core_count : {1, 2, 24, 48, 72}) {
      for (const int64_t m : {1, 16}) {
        MatmulProblem problem = problem_of(DType::kS8, m, 5120, 1, core_count);
        if (pairs) problem = with_pairs(problem);
        MatmulPlan before = plan_or_die(problem);
        for (problem.n = 17; problem.n < (kSanitized ? 2000 : 20000); problem.n += 16) {
          const MatmulPlan plan = plan_or_die(problem);
          const int64_t bound = plan.panels_together * plan.line_count;
          ASSERT_LE(plan.largest_core_cost, before.largest_core_cost + bound) << text_of(problem);
          ASSERT_GT(plan.weight_bytes, before.weight_bytes);
          ASSERT_GT(plan.output_bytes, before.output_bytes);
          ASSERT_GT(plan.flops, before.flops);
          before = plan;
        }
      }
    }
  }
}

TEST(MatmulPlan, CutsASmallMatrixAsAPersonWould) {
  // 20 panels of 1280 lines (80 KiB) for two cores; 12 at a time for one row: whole groups would
  // leave a core with 12 panels and the other with 8.
  const MatmulPlan plan = plan_or_die(problem_of(DType::kS8, 1, 5120, 320, 2));
  EXPECT_EQ(plan.panels_together, 12);
  EXPECT_EQ(plan.tiles, (std::vector<MatmulTilePlan>{{0, 10, 0, 1280, 0}, {10, 10, 0, 1280, 0}}));
  EXPECT_DOUBLE_EQ(plan.balance, 1.0);
  EXPECT_EQ(plan.weight_bytes, 320 * 5120 + 320 * 4);
  EXPECT_EQ(plan.output_bytes, 320 * 4);
  EXPECT_DOUBLE_EQ(plan.flops, 2.0 * 5120 * 320);
  EXPECT_EQ(plan.activation_bytes,
            packed_rows_block_bytes(DType::kS8, CpuLevel::kPortable, 1, 5120));
  EXPECT_EQ(plan.workspace_bytes, (plan.activation_bytes + 63) / 64 * 64);
}

TEST(MatmulPlan, SlicesKWhenThereAreFewPanelsForTheCores) {
  const MatmulPlan plan = plan_or_die(problem_of(DType::kS8, 4, 17408, 96, 24));
  EXPECT_GT(plan.k_slices, 1);
  EXPECT_GE(plan.balance, 0.85);
  int64_t sums_bytes = 0;
  for (const MatmulTilePlan& tile : plan.tiles) {
    sums_bytes += matmul_sums_bytes(4, tile.panel_count);
    EXPECT_GE(tile.panel_count * tile.line_count * kLineBytes, kMinTileBytes);
  }
  EXPECT_EQ(plan.workspace_bytes, (plan.activation_bytes + 63) / 64 * 64 + sums_bytes);

  // Little work stays in one piece.
  EXPECT_EQ(plan_or_die(problem_of(DType::kS8, 4, 256, 16, 72)).tiles.size(), 1u);
}

TEST(MatmulPlan, TakesWhatIsGiven) {
  MatmulProblem problem = problem_of(DType::kBf16, 4, 1001, 160, 3);
  problem.panels_per_tile = 4;
  MatmulPlan plan = plan_or_die(problem);
  EXPECT_EQ(plan.tiles,
            (std::vector<MatmulTilePlan>{{0, 4, 0, 501, 0}, {4, 4, 0, 501, 0}, {8, 2, 0, 501, 0}}));
  problem.k_slices = 2;
  plan = plan_or_die(problem);
  EXPECT_EQ(plan.tiles, (std::vector<MatmulTilePlan>{{0, 4, 250, 251, 1},
                                                     {4, 4, 250, 251, 1},
                                                     {0, 4, 0, 250, 0},
                                                     {4, 4, 0, 250, 0},
                                                     {8, 2, 250, 251, 1},
                                                     {8, 2, 0, 250, 0}}));
  EXPECT_EQ(plan.combine_count, 3);
  problem.panels_per_tile = 0;
  problem.k_slices = 501;
  EXPECT_EQ(plan_or_die(problem).k_slices, 501);
}

TEST(MatmulPlan, SaysTheWeightBytesOfThePackedMatrix) {
  for (const DType weights : kWeightTypes) {
    for (const int64_t n : {1, 16, 17, 100}) {
      for (const int64_t k : {1, 3, 64, 1001}) {
        for (const Interleave interleave : {Interleave::kNone, Interleave::kPairs}) {
          Result<PackedMatrix> matrix = PackedMatrix::create(weights, n, k, interleave);
          ASSERT_TRUE(matrix);
          MatmulProblem problem = problem_of(weights, 5, k, n, 2);
          problem.interleave = interleave;
          const MatmulPlan plan = plan_or_die(problem);
          EXPECT_EQ(plan.weight_bytes, matrix->weight_bytes()) << text_of(problem);
          EXPECT_EQ(plan.panel_count, matrix->panel_count()) << text_of(problem);
          EXPECT_EQ(plan.line_count, matrix->line_count()) << text_of(problem);
        }
      }
    }
  }
}

TEST(MatmulPlan, SaysWhetherItFitsTheCaches) {
  MatmulProblem problem = problem_of(DType::kS8, 16, 5120, 17408, 2);
  problem.level = CpuLevel::kAvx512;
  const int64_t rows = 16 * kBlockLines * 4;
  const int64_t sums = 16 * kLineBytes;  // of the one panel that 16 rows go over at a time
  const int64_t blocks = 2 * kBlockLines * kLineBytes;
  problem.l1_bytes = rows + sums;
  problem.l2_bytes = packed_rows_block_bytes(DType::kS8, CpuLevel::kAvx512, 16, 5120) + blocks;
  MatmulPlan plan = plan_or_die(problem);
  EXPECT_EQ(plan.row_group_count, 1);
  EXPECT_EQ(plan.block_line_count, kBlockLines);
  EXPECT_EQ(plan.l1_needed_bytes, problem.l1_bytes);
  EXPECT_EQ(plan.l2_needed_bytes, problem.l2_bytes);
  EXPECT_TRUE(plan.fits_l1);
  EXPECT_TRUE(plan.fits_l2);
  --problem.l1_bytes;
  --problem.l2_bytes;
  plan = plan_or_die(problem);
  EXPECT_FALSE(plan.fits_l1);
  EXPECT_FALSE(plan.fits_l2);
  // On 256 bits a panel of 128 lines stays in L1 for all groups of rows.
  problem.level = CpuLevel::kAvx2;
  EXPECT_EQ(plan_or_die(problem).l1_needed_bytes,
            16 * kAvx2BlockLines * 4 + 16 * kLineBytes + kAvx2BlockLines * kLineBytes);
}

// Otherwise sums of floats would depend on how many rows there are.
TEST(MatmulPlan, SlicesKTheSameForAnyNumberOfRows) {
  for (const int64_t n : {16, 112, 128, 512, 1024, 2560}) {
    for (const int cores : {2, 8, 24, 48, 72}) {
      const MatmulPlan one = plan_or_die(problem_of(DType::kBf16, 1, 5120, n, cores));
      for (const int64_t m : {2, 3, 4, 5, 16, 64})
        EXPECT_EQ(plan_or_die(problem_of(DType::kBf16, m, 5120, n, cores)).k_slices, one.k_slices)
            << "m " << m << " n " << n << " cores " << cores;
    }
  }
}

TEST(MatmulPlan, RefusesWhatTheKernelCannotDoWithTheNumber) {
  using Change = void (*)(MatmulProblem&);
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](MatmulProblem& p) { p.m = 0; }, "m = 0; a matmul takes 1 to 64 rows"},
      {[](MatmulProblem& p) { p.m = 65; }, "m = 65; a matmul takes 1 to 64 rows"},
      {[](MatmulProblem& p) { p.k = 0; }, "k = 0; a matmul takes 1 to 65536"},
      {[](MatmulProblem& p) { p.k = 65537; }, "k = 65537; a matmul takes 1 to 65536"},
      {[](MatmulProblem& p) { p.n = 0; }, "n = 0; a matmul takes 1 to 2147483647 columns"},
      {[](MatmulProblem& p) { p.n = int64_t{1} << 31; },
       "n = 2147483648; a matmul takes 1 to 2147483647 columns"},
      {[](MatmulProblem& p) { p.core_count = 0; }, "0 cores; a plan is for 1 to 65536"},
      {[](MatmulProblem& p) { p.l1_bytes = 0; },
       "caches of 0 and 1048576 bytes; both must be above 0"},
      {[](MatmulProblem& p) { p.weights = DType::kS32; },
       "a matmul takes s8, bf16, f16 or f32 weights, not s32"},
      {[](MatmulProblem& p) { p.output_dtype = DType::kS8; },
       "a matmul stores f32, bf16 or f16, not s8"},
      {[](MatmulProblem& p) { p.panels_per_tile = -1; }, "tiles of -1 panels; the matrix has 640"},
      {[](MatmulProblem& p) { p.panels_per_tile = 642; },
       "tiles of 642 panels; the matrix has 640"},
      {[](MatmulProblem& p) { p.panels_per_tile = 5; },
       "tiles of 5 panels would part a pair; gate and up need an even number"},
      {[](MatmulProblem& p) { p.k_slices = -1; }, "-1 slices of k; k = 5120 has 1280 lines of 4"},
      {[](MatmulProblem& p) { p.k_slices = 1281; },
       "1281 slices of k; k = 5120 has 1280 lines of 4"},
      {[](MatmulProblem& p) {
         p.n = 16 << 20;
         p.panels_per_tile = 2;
         p.k_slices = 17;
       },
       "1048576 tiles of panels in 17 slices; a plan has at most 16777216"},
  };
  for (const auto& [change, text] : cases) {
    MatmulProblem problem = with_pairs(problem_of(DType::kS8, 16, 5120, 5120, 2));
    change(problem);
    EXPECT_EQ(error_of(problem), text);
  }
}

}  // namespace
}  // namespace gapless
