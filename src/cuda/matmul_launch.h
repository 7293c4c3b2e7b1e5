// SPDX-License-Identifier: Apache-2.0
//
// What the host half of the matmul hands to the device half: numbers and device pointers, no CUDA
// types.
//
// Weights lie in tiles of 128 or 64 rows, tiles in bricks of 64 bytes of k (matmul_pack.h). All
// bricks are cut evenly over the blocks of a launch: what a block has is one piece of memory. The
// cut depends on the weights and the grid only.
//
// Tokens of a stage lie in shared memory as [unit of 64 bytes of k][token][64 bytes], and of every
// token's four pieces of 16 bytes piece p lies where p ^ (token / 2 % 4) would: eight tokens' same
// pieces then meet no bank twice. The copy engine and wgmma call that a 64-byte swizzle, and want
// each eight tokens at a multiple of 512 bytes.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/recorder_launch.h"
#include "cuda/wait_limit.h"

namespace gapless {

inline constexpr int kMatmulWarps = 8;      // that multiply
inline constexpr int kMatmulWarpRows = 16;  // of each
inline constexpr int kMatmulTileRows = kMatmulWarps * kMatmulWarpRows;
inline constexpr int kMatmulSmallTileRows = kMatmulTileRows / 2;  // two warps have the same
inline constexpr int kMatmulUnitBytes = 64;                       // of k, in a brick
inline constexpr int kMatmulCopyWarps = 2;  // beside them: for weights and for tokens
inline constexpr int kMatmulMaxTokens = 64;
inline constexpr int kMatmulMaxRingSlots = 32;
inline constexpr int kMatmulTokenTile = 8;  // tokens that lie together, in memory and in sums
// From so many on the copy engine copies tokens: it is ready later than lanes are, by some 0.3 us,
// but a warp needs 0.2 us more for every 16 tokens of a stage. And, on sm_90a, four warps multiply
// together.
inline constexpr int kMatmulEngineTokenTiles = 4;
inline constexpr int kMatmulTokenMapBytes = 128;
inline constexpr int kMatmulSharedAlignment = 512;

// A division by it takes four instructions instead of forty (matmul_stages.cuh).
struct MatmulDivisor {
  uint32_t divisor = 1;
  uint32_t multiplier = ~0u;  // (2^32 - 1) / divisor: a product's high half is too small by 1 or 0
};
constexpr MatmulDivisor matmul_divisor(int divisor) {
  return {static_cast<uint32_t>(divisor), ~0u / static_cast<uint32_t>(divisor)};
}

struct MatmulLaunch {
  alignas(64) std::byte token_map[kMatmulTokenMapBytes] = {};  // of x (matmul_tokens.h), sm_90
  const std::byte* weights = nullptr;                          // [tiles][tile_bricks] bricks
  const float* row_scales = nullptr;    // s8: in the order of the packed rows
  const std::byte* x = nullptr;         // [tokens][x_stride] bytes
  const float* token_scales = nullptr;  // [tokens], or nothing (bf16 only)
  void* output = nullptr;               // [tokens][output_stride]
  const void* residual = nullptr;       // [tokens][residual_stride], or nothing
  // [blocks][tile rows / 16][2 x token tiles][32] x 16 bytes; no epoch of a later launch is in it.
  void* partials = nullptr;
  unsigned long long* arrivals = nullptr;  // launches with this workspace, and blocks of this one
  int64_t x_stride = 0;                    // in bytes
  int64_t output_stride = 0;               // in elements
  int64_t residual_stride = 0;             // in elements
  int tokens = 0;
  int columns = 0;  // of the output
  int blocks = 0;
  MatmulDivisor tile_bricks;         // of a tile
  MatmulDivisor block_bricks;        // of all tiles / blocks, rounded down
  MatmulDivisor large_block_bricks;  // one more
  int extra_bricks = 0;              // what that leaves: so many blocks, the first ones, are large
  int stage_bricks = 0;              // copied and waited for together
  int ring_slots = 0;                // stages in flight
  int stage_bytes = 0;               // matmul_stage_bytes()
  int read_ahead_bytes = 0;          // of a block's weights beyond the ring, brought into L2
  bool cuts_tiles = false;           // over blocks
  bool is_gated = false;
  bool output_is_f32 = false;
  bool residual_is_f32 = false;
  bool holds_next = false;  // until this launch has waited
  RecorderLaunch recorder;
  WaitLimit wait_limit = {};
};

// Which kernel.
struct MatmulForm {
  bool is_s8 = false;
  int token_tiles = 1;              // of 8 tokens: 1, 2, 4 or 8
  int tile_rows = kMatmulTileRows;  // or kMatmulSmallTileRows
};

constexpr int matmul_brick_bytes(int tile_rows) { return tile_rows * kMatmulUnitBytes; }

// All tokens' bytes that go with a brick.
constexpr int matmul_unit_bytes(int token_tiles) {
  return token_tiles * kMatmulTokenTile * kMatmulUnitBytes;
}
static_assert(matmul_unit_bytes(1) % kMatmulSharedAlignment == 0);
static_assert(matmul_brick_bytes(kMatmulSmallTileRows) % kMatmulSharedAlignment == 0);
constexpr int matmul_stage_bytes(const MatmulForm& form, int stage_bricks) {
  return stage_bricks * (matmul_brick_bytes(form.tile_rows) + matmul_unit_bytes(form.token_tiles));
}
// What warps that have the same rows hand over: 16 rows x 8 tokens of 4 bytes each.
constexpr int matmul_fold_bytes(const MatmulForm& form) {
  return (kMatmulWarps - form.tile_rows / kMatmulWarpRows) * form.token_tiles * 512;
}
// A stage with its two barriers.
constexpr int matmul_slot_bytes(const MatmulForm& form, int stage_bricks) {
  return matmul_stage_bytes(form, stage_bricks) + 16;
}
// Shared memory of a block: stages, the epoch with its barrier, those of begin and end, sums of
// warps.
constexpr int64_t matmul_shared_bytes(const MatmulForm& form, int stage_bricks, int ring_slots) {
  return int64_t{ring_slots} * matmul_slot_bytes(form, stage_bricks) + 32 + matmul_fold_bytes(form);
}

// A cudaError_t; 0 is success. `stream` is a cudaStream_t.
int matmul_launch_kernel(const MatmulForm& form, const MatmulLaunch& launch, int64_t shared_bytes,
                         bool starts_early, void* stream);

}  // namespace gapless
