// SPDX-License-Identifier: Apache-2.0
//
// MatmulPlan: how a matmul for few rows is cut into tiles, and what it will take.
//
// A tile is some neighbouring panels (packed_matrix.h) over all of k. There are as many for each
// core, and they differ by at most one unit: a group of panels that the kernel takes side by side,
// or a single panel (or pair) where whole groups would leave cores idle. k is sliced only when
// there are fewer groups than cores and it shortens the whole by a fifth: a sliced sum of floats
// depends on the slices, and slices have to be added up.

#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/cpu_level.h"
#include "kernels/packed_matrix.h"

namespace gapless {

// Tiles a core where there is enough work: enough to even out cores of unequal speed.
inline constexpr int64_t kTilesPerCore = 12;
// Weights that a tile has at least, where there is a choice: about 4 us of one core's reading.
inline constexpr int64_t kMinTileBytes = 64 << 10;
inline constexpr int64_t kMinSliceK = 256;
inline constexpr int64_t kMaxPlanTiles = int64_t{1} << 24;
inline constexpr int64_t kMaxPlanColumns = int64_t{1} << 31;

struct MatmulProblem {
  DType weights = DType::kS8;
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  Interleave interleave = Interleave::kNone;  // kPairs: gate and up, n columns each
  DType output_dtype = DType::kF32;
  int core_count = 1;
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
  CpuLevel level = CpuLevel::kPortable;
  // 0: chosen. Otherwise taken as given, or an error that says why not. Given panels alone are not
  // sliced.
  int64_t panels_per_tile = 0;
  int64_t k_slices = 0;
};

struct MatmulTilePlan {
  int64_t first_panel = 0;
  int64_t panel_count = 0;
  int64_t first_line = 0;
  int64_t line_count = 0;
  int slice = 0;
  bool operator==(const MatmulTilePlan&) const = default;
};

struct MatmulPlan {
  std::vector<MatmulTilePlan> tiles;  // largest first; equal ones by slice, then panel
  int64_t panel_count = 0;            // of the whole matrix
  int64_t line_count = 0;             // of a panel
  int64_t panels_together = 0;        // tiles are whole groups of them where it balances
  int64_t panels_per_tile = 0;        // the largest
  int k_slices = 1;
  int64_t combine_count = 0;  // ranges of panels whose slices have to be added up
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;  // packed, scales and sums included
  int64_t output_bytes = 0;
  int64_t workspace_bytes = 0;  // packed rows + sums of all slices, each at 64 bytes
  double flops = 0.0;           // 2 m k n, twice that for a pair
  // What the kernel uses again and again: the rows to a block of lines and their sums, which should
  // lie in L1, and all the rows and two blocks, which should lie in L2. Nothing is refused when
  // they do not fit: it is slower.
  int64_t row_group_count = 0;
  int64_t block_line_count = 0;
  int64_t l1_needed_bytes = 0;
  int64_t l2_needed_bytes = 0;
  bool fits_l1 = false;
  bool fits_l2 = false;
  // Costs in lines read. Tiles are dealt in order, each to the core that is free first.
  int64_t total_cost = 0;
  int64_t largest_core_cost = 0;
  double balance = 1.0;  // mean core cost / largest core cost
};

Result<MatmulPlan> plan_matmul(const MatmulProblem& problem);

}  // namespace gapless
