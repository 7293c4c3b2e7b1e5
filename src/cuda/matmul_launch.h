// SPDX-License-Identifier: Apache-2.0
//
// What the host half of the matmul hands to the device half: numbers and device pointers, no CUDA
// types.
//
// Weights lie in bricks of 128 rows x 64 bytes of k, k before rows (matmul_pack.h). The bricks are
// cut evenly over the blocks of a launch: what a block has is one piece of memory. The cut depends
// on the weights and the grid only, not on the tokens.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/recorder_launch.h"

namespace gapless {

inline constexpr int kMatmulTileRows = 128;
inline constexpr int kMatmulUnitBytes = 64;  // of k, in a brick
inline constexpr int kMatmulBrickBytes = kMatmulTileRows * kMatmulUnitBytes;
inline constexpr int kMatmulWarps = 8;      // that multiply, 16 rows each
inline constexpr int kMatmulCopyWarps = 2;  // beside them; the first one copies the weights
inline constexpr int kMatmulMaxTokens = 64;
inline constexpr int kMatmulMaxRingSlots = 32;
inline constexpr int kMatmulTokenTile = 8;  // tokens of one matrix instruction

struct MatmulLaunch {
  const std::byte* weights = nullptr;   // [tiles][bricks_per_tile] bricks
  const float* row_scales = nullptr;    // s8: [tiles * 128], in the order of the packed rows
  const std::byte* x = nullptr;         // [tokens][x_stride] bytes
  const float* token_scales = nullptr;  // [tokens], or nothing (bf16 only)
  void* output = nullptr;               // [tokens][output_stride]
  const void* residual = nullptr;       // [tokens][residual_stride], or nothing
  // [blocks][warps][2 x token tiles][32] x 16 bytes; no epoch of a later launch is in it.
  void* partials = nullptr;
  unsigned long long* arrivals = nullptr;  // launches with this workspace, and blocks of this one
  int64_t x_stride = 0;                    // in bytes
  int64_t output_stride = 0;               // in elements
  int64_t residual_stride = 0;             // in elements
  int tokens = 0;
  int columns = 0;  // of the output
  int tiles = 0;
  int bricks_per_tile = 0;
  int blocks = 0;
  int block_bricks = 0;      // tiles * bricks_per_tile / blocks, rounded down
  int extra_bricks = 0;      // what that leaves: the first blocks have one more
  int stage_bricks = 0;      // copied and waited for together
  int ring_slots = 0;        // stages in flight
  int stage_bytes = 0;       // matmul_stage_bytes()
  int token_stride = 0;      // matmul_token_stride()
  int read_ahead_bytes = 0;  // of a block's weights beyond the ring, brought into L2
  bool is_gated = false;
  bool output_is_f32 = false;
  bool residual_is_f32 = false;
  RecorderLaunch recorder;
};

// Which kernel.
struct MatmulForm {
  bool is_s8 = false;
  int token_tiles = 1;  // of 8 tokens: 1, 2, 4 or 8
};

// A token's bytes of a stage in shared memory. An odd multiple of 64 bytes: eight lanes that read
// 16 bytes each of two tokens meet no bank twice.
constexpr int matmul_token_stride(int stage_bricks) {
  return kMatmulUnitBytes * (stage_bricks + (stage_bricks % 2 == 0 ? 1 : 0));
}
constexpr int matmul_stage_bytes(int token_tiles, int stage_bricks) {
  return stage_bricks * kMatmulBrickBytes +
         token_tiles * kMatmulTokenTile * matmul_token_stride(stage_bricks);
}
// Shared memory of a block: stages, two barriers each, and the epoch with its own.
constexpr int64_t matmul_shared_bytes(int token_tiles, int stage_bricks, int ring_slots) {
  return int64_t{ring_slots} * (matmul_stage_bytes(token_tiles, stage_bricks) + 16) + 16;
}

// These return a cudaError_t; 0 is success. `stream` is a cudaStream_t.
int matmul_prepare_kernel(const MatmulForm& form, int64_t shared_bytes);
int matmul_launch_kernel(const MatmulForm& form, const MatmulLaunch& launch, int64_t shared_bytes,
                         bool starts_early, void* stream);

}  // namespace gapless
