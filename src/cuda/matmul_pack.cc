// SPDX-License-Identifier: Apache-2.0

#include "cuda/matmul_pack.h"

#include <cstring>

#include "cuda/matmul_launch.h"
#include "kernels/matmul.h"

namespace gapless {
namespace {

constexpr int kLaneBytes = 16;
constexpr int kStepBytes = 32 * kLaneBytes;
constexpr int kWarpBytes = matmul_brick_bytes(kMatmulWarpRows);
constexpr int kPieceBytes = 4;  // what one register of a lane holds

// One packed row's 64 bytes into its brick.
void scatter_row(const std::byte* source, int row, std::byte* brick) {
  const int half = row % kMatmulWarpRows / 8;
  std::byte* lanes = brick + row / kMatmulWarpRows * kWarpBytes + row % 8 * 4 * kLaneBytes;
  for (int piece = 0; piece < kMatmulUnitBytes / kPieceBytes; ++piece) {
    const int step = piece / 8;
    const int position = 2 * (piece / 4 % 2) + half;
    const int lane = piece % 4;
    std::memcpy(lanes + step * kStepBytes + lane * kLaneBytes + position * kPieceBytes,
                source + piece * kPieceBytes, kPieceBytes);
  }
}

Result<void> check_sources(bool is_gated, const void* first, const void* up) {
  if (first == nullptr || (up == nullptr) == is_gated)
    return fail(ErrorCode::kInvalidInput, "{} weights to pack {} up weights",
                is_gated ? "gated" : "plain", up == nullptr ? "without" : "with");
  return {};
}

}  // namespace

Result<void> check_cuda_weights(const CudaWeightShape& shape) {
  if (shape.dtype != DType::kBf16 && shape.dtype != DType::kS8)
    return fail(ErrorCode::kInvalidInput, "weights of {}; the matmul on a GPU takes bf16 and s8",
                dtype_name(shape.dtype));
  const int64_t column_step = shape.is_gated ? 8 : 16;
  if (shape.columns < 1 || shape.columns % column_step != 0)
    return fail(ErrorCode::kInvalidInput, "{} columns; {} weights on a GPU have a multiple of {}",
                shape.columns, shape.is_gated ? "gated" : "plain", column_step);
  const int64_t most_columns = (INT32_MAX - kMatmulTileRows) / (shape.is_gated ? 2 : 1);
  if (shape.columns > most_columns)
    return fail(ErrorCode::kInvalidInput, "{} columns; {} weights on a GPU have at most {}",
                shape.columns, shape.is_gated ? "gated" : "plain", most_columns);
  const int64_t k_step = kMatmulUnitBytes / dtype_bytes(shape.dtype);
  if (shape.k < 1 || shape.k % k_step != 0 || shape.k > kMaxMatmulK)
    return fail(ErrorCode::kInvalidInput,
                "k of {}; {} weights on a GPU have a multiple of {}, at most {}", shape.k,
                dtype_name(shape.dtype), k_step, kMaxMatmulK);
  if (shape.tile_rows != kMatmulTileRows && shape.tile_rows != kMatmulSmallTileRows)
    return fail(ErrorCode::kInvalidInput, "tiles of {} rows; weights on a GPU have {} or {}",
                shape.tile_rows, kMatmulTileRows, kMatmulSmallTileRows);
  const int64_t bricks = cuda_weight_tiles(shape) * cuda_weight_bricks_per_tile(shape);
  if (bricks > INT32_MAX)
    return fail(ErrorCode::kInvalidInput, "{} columns of {} are {} bricks of {} rows; at most {}",
                shape.columns, shape.k, bricks, shape.tile_rows, INT32_MAX);
  return {};
}

int64_t cuda_weight_rows(const CudaWeightShape& shape) {
  const int64_t rows = shape.is_gated ? 2 * shape.columns : shape.columns;
  return (rows + kMatmulTileRows - 1) / kMatmulTileRows * kMatmulTileRows;
}
int64_t cuda_weight_tiles(const CudaWeightShape& shape) {
  return cuda_weight_rows(shape) / shape.tile_rows;
}
int64_t cuda_weight_bricks_per_tile(const CudaWeightShape& shape) {
  return shape.k * dtype_bytes(shape.dtype) / kMatmulUnitBytes;
}
int64_t cuda_weight_bytes(const CudaWeightShape& shape) {
  return cuda_weight_rows(shape) * shape.k * dtype_bytes(shape.dtype);
}

CudaWeightSource cuda_weight_source(const CudaWeightShape& shape, int64_t packed_row) {
  const int64_t group = packed_row / kMatmulWarpRows;
  const int64_t half = packed_row % kMatmulWarpRows / 8;
  const int64_t i = packed_row % 8;
  if (shape.is_gated) return {half == 1, group * 8 + i};
  return {false, group * kMatmulWarpRows + 2 * i + half};
}

Result<void> pack_cuda_weights(const CudaPackArgs& args, std::span<std::byte> packed) {
  const CudaWeightShape& shape = args.shape;
  GAPLESS_TRY(check_cuda_weights(shape));
  GAPLESS_TRY(check_sources(shape.is_gated, args.weights, args.up));
  if (static_cast<int64_t>(packed.size()) != cuda_weight_bytes(shape))
    return fail(ErrorCode::kInvalidInput, "{} bytes for packed weights; {} are needed",
                packed.size(), cuda_weight_bytes(shape));
  const int64_t row_bytes = shape.k * dtype_bytes(shape.dtype);
  const int64_t tile_bytes = row_bytes * shape.tile_rows;
  const int brick_bytes = matmul_brick_bytes(shape.tile_rows);
  const std::byte zeros[kMatmulUnitBytes] = {};
  for (int64_t packed_row = 0; packed_row < cuda_weight_rows(shape); ++packed_row) {
    const CudaWeightSource source = cuda_weight_source(shape, packed_row);
    const std::byte* row = static_cast<const std::byte*>(source.is_up ? args.up : args.weights) +
                           source.row * row_bytes;
    std::byte* brick = packed.data() + packed_row / shape.tile_rows * tile_bytes;
    const int row_of_tile = static_cast<int>(packed_row % shape.tile_rows);
    for (int64_t at = 0; at < row_bytes; at += kMatmulUnitBytes, brick += brick_bytes) {
      scatter_row(source.row < shape.columns ? row + at : zeros, row_of_tile, brick);
    }
  }
  return {};
}

Result<void> pack_cuda_scales(const CudaScalePackArgs& args, std::span<float> packed) {
  const CudaWeightShape& shape = args.shape;
  GAPLESS_TRY(check_cuda_weights(shape));
  GAPLESS_TRY(check_sources(shape.is_gated, args.scales, args.up));
  if (static_cast<int64_t>(packed.size()) != cuda_weight_rows(shape))
    return fail(ErrorCode::kInvalidInput, "room for {} packed scales; {} are needed", packed.size(),
                cuda_weight_rows(shape));
  for (size_t i = 0; i < packed.size(); ++i) {
    const CudaWeightSource source = cuda_weight_source(shape, static_cast<int64_t>(i));
    const float* scales = source.is_up ? args.up : args.scales;
    packed[i] = source.row < shape.columns ? scales[source.row] : 0.0f;
  }
  return {};
}

}  // namespace gapless
