// SPDX-License-Identifier: Apache-2.0
//
// PackedRows: the few rows of x in y = x W^T, in the order in which the matmul reads them.
//
// Rows come in groups of kRowGroup (the last one smaller). Within a group, for each line of the
// weights' panels (packed_matrix.h), each row's elements of that line's k lie together:
//
//   s8x4    [group][line][row][4] s8     for s8 weights: quantised per row
//   bf16x2  [group][line][row][2] bf16   for bf16 weights where the CPU has vdpbf16ps
//   f32     [group][line][k of line][row] f32, the others; values were cast to the weights' type
//
// Memory is the caller's: the packed rows of a decode step are a buffer of its graph.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/cpu_level.h"

namespace gapless {

inline constexpr int kMaxMatmulRows = 64;
inline constexpr int kRowGroup = 16;

enum class RowFormat : uint8_t { kS8x4, kBf16x2, kF32 };
RowFormat row_format(DType weights, CpuLevel level);

struct PackedRows {
  RowFormat format = RowFormat::kF32;
  DType weights = DType::kF32;  // the type of the weights they are for
  int64_t m = 0;
  int64_t k = 0;
  std::byte* data = nullptr;  // packed_rows_bytes(), aligned to 64
  float* scales = nullptr;    // s8x4: [m], amax / 127
  int32_t* sums = nullptr;    // s8x4: [m], the sum of the quantised row
};

// Bytes of `data` alone; the scales and sums are 4 m bytes each.
int64_t packed_rows_bytes(DType weights, CpuLevel level, int64_t m, int64_t k);
// Bytes of one block that holds data, scales and sums, and the PackedRows that lie in it.
int64_t packed_rows_block_bytes(DType weights, CpuLevel level, int64_t m, int64_t k);
PackedRows packed_rows_in(std::byte* block, DType weights, CpuLevel level, int64_t m, int64_t k);

// What a row is made of: `value` in x, times gamma when there is one (the RMS norm's numerator).
struct RowSource {
  DType dtype = DType::kF32;  // kF32, kBf16 or kF16
  const void* data = nullptr;
  int64_t row_stride = 0;        // in elements
  const float* gamma = nullptr;  // [k] or nothing
};

// Packs rows [row, row + count): casts to the weights' type, or quantises. Several threads may pack
// different rows. Quantising: amax = max(max |x|, 1e-4); q = rint(x * 127 / amax), within +-127;
// scale = amax / 127. A row with a NaN or an infinity gets the scale NaN: the whole row of y is
// NaN, since int8 cannot say which element it was.
void pack_rows(CpuLevel level, const RowSource& source, int64_t row, int64_t count,
               const PackedRows& rows);

}  // namespace gapless
