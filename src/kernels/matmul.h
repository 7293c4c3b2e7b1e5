// SPDX-License-Identifier: Apache-2.0
//
// y = x W^T for few rows of x (1 .. 64), bound by how fast W can be read.
//
// A tile is a range of panels (16 columns each) and is a task: it reads its panels as several
// streams side by side, prefetching one block of k ahead, and holds its accumulators in registers.
// With more than kRowGroup rows, a block of each panel is read again from L2 for each group of
// rows.
//
// s8: weights are stored as w + 128, so that vpdpbusd's unsigned operand is the weight and the
// activation stays signed; the epilogue takes 128 * (sum of the row) off. All sums are exact in
// int32 for k up to 65,536 (|w + 128| <= 255, |a| <= 127), in whatever order: no instruction on
// this path saturates. bf16, f16, f32: sums in f32; the order depends on CpuLevel and k only, not
// on m, the tile or the worker.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/cpu_level.h"
#include "kernels/packed_matrix.h"
#include "kernels/packed_rows.h"

namespace gapless {

inline constexpr int64_t kMaxMatmulK = 65536;

// What becomes of the sums. In this order: times row scale and column scale (s8), times
// row_factor, SiLU(gate) x up, plus residual, cast to `dtype`.
struct MatmulOutput {
  DType dtype = DType::kF32;  // kF32, kBf16 or kF16
  void* data = nullptr;
  int64_t row_stride = 0;             // in elements
  int64_t first_column = 0;           // the column that `data` and `residual` begin with
  const float* row_factor = nullptr;  // [m] or nothing: the 1/rms that was put off
  const float* residual = nullptr;    // [m][residual_stride] or nothing; may be f32 `data`
  int64_t residual_stride = 0;
};

struct MatmulArgs {
  const PackedMatrix* weights = nullptr;
  PackedRows rows;
  MatmulOutput output;  // interleaved weights: SiLU(gate) x up, n() columns
};

// Whether the parts fit each other; says which does not.
Result<void> check_matmul(CpuLevel level, const MatmulArgs& args);

// Panels [first_panel, first_panel + panel_count) over all of k, epilogue included. Even numbers
// when the weights are interleaved. `next_panel`, when the caller knows it, is where the tile that
// it will run after this one begins: its first lines are prefetched, the result is the same.
void matmul_tile(CpuLevel level, const MatmulArgs& args, int64_t first_panel, int64_t panel_count,
                 int64_t next_panel = -1);

// The same in two steps, for tiles that are split along k: the raw sums (int32 or f32) of lines
// [first_line, first_line + line_count) go to `sums` ([panel][m][16], at 64 bytes); matmul_combine
// adds the slices in their order and does the epilogue. s8: bit for bit what matmul_tile gives.
void matmul_slice(CpuLevel level, const MatmulArgs& args, int64_t first_panel, int64_t panel_count,
                  int64_t first_line, int64_t line_count, void* sums);
void matmul_combine(CpuLevel level, const MatmulArgs& args, int64_t first_panel,
                    int64_t panel_count, int slice_count, const void* const* sums);
// Bytes of one slice's `sums`.
int64_t matmul_sums_bytes(int64_t m, int64_t panel_count);

}  // namespace gapless
