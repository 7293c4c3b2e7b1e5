// SPDX-License-Identifier: Apache-2.0
//
// How the weights of a matmul lie on the GPU, and the way there.
//
// Packed rows are cut into tiles of 128 or 64, as the matmul takes them, tiles into bricks of 64
// bytes of k, 8 or 4 KiB. A brick is [8 or 4 warps][2 steps][32 lanes][16 bytes]: what lane
// (g = lane / 4, t = lane % 4) of a warp holds of its 16 rows in one matrix instruction, as one
// 16-byte load. Step s of lane t covers 4 bytes from 32 s + 4 t on and 4 from 32 s + 16 + 4 t on:
// k stays in its order, so that tokens go into the instruction as they lie. Bytes do not tell bf16
// from s8.
//
// Of 16 packed rows, rows i and i + 8 are neighbours 2i and 2i + 1 of the matrix; of gated weights
// they are gate and up of one column: one thread gets both. Rows beyond the matrix are zeros, up to
// a multiple of 128: weights of either tile take the same room, and 128 rows lie together.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"
#include "cuda/matmul_launch.h"

namespace gapless {

struct CudaWeightShape {
  DType dtype = DType::kBf16;  // bf16 or s8
  int64_t columns = 0;         // of the output: rows of the matrix, of gate and up each
  int64_t k = 0;
  bool is_gated = false;
  int tile_rows = kMatmulTileRows;  // best_tile_rows() in matmul.h
};

// Columns are a multiple of 16 (gated: 8), k of 32 (s8: 64), at most kMaxMatmulK; tiles have 128 or
// 64 rows.
Result<void> check_cuda_weights(const CudaWeightShape& shape);

int64_t cuda_weight_tiles(const CudaWeightShape& shape);
int64_t cuda_weight_bricks_per_tile(const CudaWeightShape& shape);
// Of the packed weights, and how many packed rows (and so scales) there are.
int64_t cuda_weight_bytes(const CudaWeightShape& shape);
int64_t cuda_weight_rows(const CudaWeightShape& shape);

// Where a packed row comes from.
struct CudaWeightSource {
  bool is_up = false;
  int64_t row = 0;  // of the matrix; shape.columns or more: of none
};
CudaWeightSource cuda_weight_source(const CudaWeightShape& shape, int64_t packed_row);

struct CudaPackArgs {
  CudaWeightShape shape;
  const void* weights = nullptr;  // [columns][k]; the gate, when gated
  const void* up = nullptr;       // [columns][k], gated only
};
Result<void> pack_cuda_weights(const CudaPackArgs& args, std::span<std::byte> packed);

// The scales of s8 weights, [columns] each, in the order of the packed rows.
struct CudaScalePackArgs {
  CudaWeightShape shape;
  const float* scales = nullptr;
  const float* up = nullptr;
};
Result<void> pack_cuda_scales(const CudaScalePackArgs& args, std::span<float> packed);

}  // namespace gapless
