// SPDX-License-Identifier: Apache-2.0

#include "kernels/matmul_plan.h"

#include <algorithm>

#include "kernels/core_loads.h"
#include "kernels/matmul.h"
#include "kernels/matmul_levels.h"
#include "kernels/packed_rows.h"

namespace gapless {
namespace {

// Whole groups of panels are taken although single ones would balance better, as long as the most
// loaded core has at most this much more to read: 1 in 16.
constexpr int64_t kSliceGroup = 6;  // panels
constexpr int64_t kGroupLossDivisor = 16;
// Slices of k must make the most loaded core's work smaller by 1 in 5.
constexpr int64_t kSliceGainDivisor = 5;

int64_t divide_up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
int64_t round_up(int64_t value, int64_t multiple) { return divide_up(value, multiple) * multiple; }

// Panels and lines of the problem, and the pieces in which they may be cut.
struct Shape {
  int64_t panel_count = 0;
  int64_t line_count = 0;
  int64_t step = 1;   // panels that must stay together: 2 for pairs
  int64_t group = 1;  // panels that the kernel takes at once
  int64_t min_tile_panels = 1;
};

// `tile_count` tiles of whole `unit`s of panels, spread evenly, each in `slice_count` slices.
struct Cut {
  int64_t unit = 1;
  int64_t tile_count = 1;
  int64_t slice_count = 1;
};

Result<void> check_types(const MatmulProblem& problem) {
  const DType weights = problem.weights;
  if (weights != DType::kS8 && weights != DType::kBf16 && weights != DType::kF16 &&
      weights != DType::kF32)
    return fail(ErrorCode::kInvalidInput, "a matmul takes s8, bf16, f16 or f32 weights, not {}",
                dtype_name(weights));
  const DType output = problem.output_dtype;
  if (output != DType::kF32 && output != DType::kBf16 && output != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "a matmul stores f32, bf16 or f16, not {}",
                dtype_name(output));
  return {};
}

Result<void> check_problem(const MatmulProblem& problem) {
  const Result<void> types = check_types(problem);
  if (!types) return types.error();
  if (problem.m < 1 || problem.m > kMaxMatmulRows)
    return fail(ErrorCode::kInvalidInput, "m = {}; a matmul takes 1 to {} rows", problem.m,
                kMaxMatmulRows);
  if (problem.k < 1 || problem.k > kMaxMatmulK)
    return fail(ErrorCode::kInvalidInput, "k = {}; a matmul takes 1 to {}", problem.k, kMaxMatmulK);
  if (problem.n < 1 || problem.n >= kMaxPlanColumns)
    return fail(ErrorCode::kInvalidInput, "n = {}; a matmul takes 1 to {} columns", problem.n,
                kMaxPlanColumns - 1);
  if (problem.core_count < 1 || problem.core_count > kMaxPlanCores)
    return fail(ErrorCode::kInvalidInput, "{} cores; a plan is for 1 to {}", problem.core_count,
                kMaxPlanCores);
  if (problem.l1_bytes < 1 || problem.l2_bytes < 1)
    return fail(ErrorCode::kInvalidInput, "caches of {} and {} bytes; both must be above 0",
                problem.l1_bytes, problem.l2_bytes);
  return {};
}

Shape shape_of(const MatmulProblem& problem) {
  Shape shape;
  shape.step = problem.interleave == Interleave::kPairs ? 2 : 1;
  shape.panel_count = divide_up(problem.n, kPanelRows) * shape.step;
  shape.line_count = divide_up(problem.k, line_k(problem.weights));
  shape.group = panels_together(problem.m);
  const int64_t panel_bytes = shape.line_count * kLineBytes;
  shape.min_tile_panels = round_up(divide_up(kMinTileBytes, panel_bytes), shape.step);
  return shape;
}

Result<void> check_given(const MatmulProblem& problem, const Shape& shape) {
  const int64_t panels = problem.panels_per_tile;
  if (panels < 0 || panels > shape.panel_count)
    return fail(ErrorCode::kInvalidInput, "tiles of {} panels; the matrix has {}", panels,
                shape.panel_count);
  if (panels % shape.step != 0)
    return fail(ErrorCode::kInvalidInput,
                "tiles of {} panels would part a pair; gate and up need an even number", panels);
  if (problem.k_slices < 0 || problem.k_slices > shape.line_count)
    return fail(ErrorCode::kInvalidInput, "{} slices of k; k = {} has {} lines of {}",
                problem.k_slices, problem.k, shape.line_count, line_k(problem.weights));
  return {};
}

// Tiles over all of k for `core_count` cores.
Cut cut_panels(const Shape& shape, int64_t core_count) {
  Cut cut;
  const int64_t panel_count = shape.panel_count;
  if (panel_count < core_count * shape.min_tile_panels) {
    cut.tile_count = std::max<int64_t>(1, panel_count / shape.min_tile_panels);
  } else {
    const int64_t wanted_panels = std::max(shape.group, shape.min_tile_panels);
    cut.tile_count = core_count * std::clamp<int64_t>(panel_count / (core_count * wanted_panels), 1,
                                                      kTilesPerCore);
  }
  const int64_t group_count = divide_up(panel_count, shape.group);
  const int64_t group_load = divide_up(group_count, core_count) * shape.group;
  const int64_t step_load = divide_up(panel_count / shape.step, core_count) * shape.step;
  const bool whole_groups =
      group_count >= cut.tile_count && group_load - step_load <= step_load / kGroupLossDivisor;
  cut.unit = whole_groups ? shape.group : shape.step;
  return cut;
}

// Lines that the most loaded core reads, when tiles and slices are dealt out evenly.
int64_t estimated_load(const Shape& shape, const Cut& cut, int64_t core_count) {
  const int64_t units = divide_up(shape.panel_count, cut.unit);
  const int64_t tile_panels = divide_up(units, cut.tile_count) * cut.unit;
  const int64_t slice_lines = divide_up(shape.line_count, cut.slice_count);
  return divide_up(cut.tile_count * cut.slice_count, core_count) * tile_panels * slice_lines;
}

// The fewest slices, and of these the widest tiles, that are worth it; one slice when none are. Not
// by how many panels the kernel takes at once for so many rows: sums of floats would then depend on
// the number of rows.
Cut cut_with_slices(const MatmulProblem& problem, Shape shape) {
  const Cut whole = cut_panels(shape, problem.core_count);
  shape.group = kSliceGroup;
  Cut best = cut_panels(shape, problem.core_count);
  if (divide_up(shape.panel_count, shape.group) >= problem.core_count) return whole;
  int64_t best_load = estimated_load(shape, best, problem.core_count);
  const int64_t min_lines = divide_up(kMinSliceK, line_k(problem.weights));
  for (int64_t slices = 2; slices <= shape.line_count / min_lines; ++slices) {
    const int64_t slice_bytes = shape.line_count / slices * kLineBytes;
    for (int64_t panels = shape.group; panels >= shape.step; panels -= shape.step) {
      if (panels * slice_bytes < kMinTileBytes || panels > shape.panel_count) continue;
      const Cut cut{.unit = shape.step,
                    .tile_count = divide_up(shape.panel_count, panels),
                    .slice_count = slices};
      if (cut.tile_count * slices > kTilesPerCore * problem.core_count) continue;
      const int64_t load = estimated_load(shape, cut, problem.core_count);
      if (load > best_load - best_load / kSliceGainDivisor) continue;
      best = cut;
      best_load = load;
    }
  }
  return best.slice_count > 1 ? best : whole;
}

Cut choose_cut(const MatmulProblem& problem, const Shape& shape) {
  if (problem.panels_per_tile > 0) {
    return {.unit = problem.panels_per_tile,
            .tile_count = divide_up(shape.panel_count, problem.panels_per_tile),
            .slice_count = std::max<int64_t>(1, problem.k_slices)};
  }
  if (problem.k_slices == 0) return cut_with_slices(problem, shape);
  Cut cut = cut_panels(shape, divide_up(problem.core_count, problem.k_slices));
  cut.slice_count = problem.k_slices;
  return cut;
}

std::vector<MatmulTilePlan> make_tiles(const Shape& shape, const Cut& cut) {
  const int64_t units = divide_up(shape.panel_count, cut.unit);
  std::vector<MatmulTilePlan> tiles;
  tiles.reserve(static_cast<size_t>(cut.tile_count * cut.slice_count));
  for (int64_t slice = 0; slice < cut.slice_count; ++slice) {
    const int64_t first_line = slice * shape.line_count / cut.slice_count;
    const int64_t end_line = (slice + 1) * shape.line_count / cut.slice_count;
    for (int64_t tile = 0; tile < cut.tile_count; ++tile) {
      // Rounded down: the last tile is one of the larger ones, and the last unit may be cut short.
      const int64_t first_panel = tile * units / cut.tile_count * cut.unit;
      const int64_t end_panel =
          std::min((tile + 1) * units / cut.tile_count * cut.unit, shape.panel_count);
      tiles.push_back({.first_panel = first_panel,
                       .panel_count = end_panel - first_panel,
                       .first_line = first_line,
                       .line_count = end_line - first_line,
                       .slice = static_cast<int>(slice)});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const MatmulTilePlan& a, const MatmulTilePlan& b) {
                     return a.panel_count * a.line_count > b.panel_count * b.line_count;
                   });
  return tiles;
}

void deal_tiles(const MatmulProblem& problem, MatmulPlan& plan) {
  CoreLoads loads(problem.core_count);
  for (const MatmulTilePlan& tile : plan.tiles) loads.add(tile.panel_count * tile.line_count, 1);
  plan.total_cost = loads.total();
  plan.largest_core_cost = loads.largest();
  plan.balance = loads.balance();
}

void add_up_bytes(const MatmulProblem& problem, const Shape& shape, const Cut& cut,
                  MatmulPlan& plan) {
  const int64_t scale_bytes = problem.weights == DType::kS8 ? kPanelRows * int64_t{4} : 0;
  plan.weight_bytes = shape.panel_count * (shape.line_count * kLineBytes + scale_bytes);
  plan.activation_bytes =
      packed_rows_block_bytes(problem.weights, problem.level, problem.m, problem.k);
  plan.output_bytes = problem.m * problem.n * dtype_bytes(problem.output_dtype);
  plan.workspace_bytes = round_up(plan.activation_bytes, kLineBytes);
  if (cut.slice_count > 1) {
    plan.combine_count = cut.tile_count;
    for (const MatmulTilePlan& tile : plan.tiles) {
      plan.workspace_bytes += round_up(matmul_sums_bytes(problem.m, tile.panel_count), kLineBytes);
    }
  }
  plan.flops = 2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.k) *
               static_cast<double>(problem.n * shape.step);
}

// As the level's kernel goes (matmul_block_avx512.h, matmul_block_avx2.h; the portable one takes a
// row and a panel at a time): the rows to a block and their sums are used again for each panel and
// should stay in L1, on 256 bits with more than four rows the block too; all the rows should stay
// in L2 beside the block and the one that is prefetched.
void look_at_caches(const MatmulProblem& problem, const Shape& shape, MatmulPlan& plan) {
  plan.row_group_count = divide_up(problem.m, kRowGroup);
  const bool is_avx512 = problem.level >= CpuLevel::kAvx512;
  const bool is_avx2 = problem.level >= CpuLevel::kAvx2;
  const int64_t narrow = is_avx2 && problem.m <= 2 ? 2 : 1;
  const int64_t wide = panels_at_once(problem.m, kMaxPanelsAtOnce);
  const int64_t group = std::min(is_avx512 ? wide : narrow, plan.panels_per_tile);
  const int64_t lines = is_avx512 ? kBlockLines : is_avx2 ? kAvx2BlockLines : shape.line_count;
  plan.block_line_count = std::min(shape.line_count, lines);
  const int64_t weight_bytes = group * plan.block_line_count * kLineBytes;
  const bool is_f32 = row_format(problem.weights, problem.level) == RowFormat::kF32;
  const int64_t row_bytes = is_f32 ? int64_t{4} * line_k(problem.weights) : 4;  // a line
  plan.l1_needed_bytes = problem.m * plan.block_line_count * row_bytes +
                         matmul_sums_bytes(problem.m, group) +
                         (is_avx512 || problem.m <= 4 ? 0 : weight_bytes);
  plan.l2_needed_bytes = plan.activation_bytes + 2 * weight_bytes;
  plan.fits_l1 = plan.l1_needed_bytes <= problem.l1_bytes;
  plan.fits_l2 = plan.l2_needed_bytes <= problem.l2_bytes;
}

}  // namespace

Result<MatmulPlan> plan_matmul(const MatmulProblem& problem) {
  const Result<void> possible = check_problem(problem);
  if (!possible) return possible.error();
  const Shape shape = shape_of(problem);
  const Result<void> given_possible = check_given(problem, shape);
  if (!given_possible) return given_possible.error();
  const Cut cut = choose_cut(problem, shape);
  if (cut.tile_count > kMaxPlanTiles / cut.slice_count)
    return fail(ErrorCode::kInvalidInput, "{} tiles of panels in {} slices; a plan has at most {}",
                cut.tile_count, cut.slice_count, kMaxPlanTiles);

  MatmulPlan plan;
  plan.panel_count = shape.panel_count;
  plan.line_count = shape.line_count;
  plan.panels_together = shape.group;
  plan.tiles = make_tiles(shape, cut);
  for (const MatmulTilePlan& tile : plan.tiles) {
    plan.panels_per_tile = std::max(plan.panels_per_tile, tile.panel_count);
  }
  plan.k_slices = static_cast<int>(cut.slice_count);
  add_up_bytes(problem, shape, cut, plan);
  look_at_caches(problem, shape, plan);
  deal_tiles(problem, plan);
  return plan;
}

}  // namespace gapless
