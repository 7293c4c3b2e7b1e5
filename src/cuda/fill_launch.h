// SPDX-License-Identifier: Apache-2.0
//
// What the host half of fill.h hands to the device half: numbers and device pointers, no CUDA
// types.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless {

inline constexpr int kFillTableSize = 4096;
inline constexpr int kFillMaxParts = 3;
inline constexpr int kFillGroupRows = 16;  // packed rows that lie interleaved: one block's work
inline constexpr int kFillRowUnit = 8;     // elements of a plain row that one thread makes

// mix(x) is the high half of x * (x ^ twist), of 128 bits, xor the low one.
struct FillHash {
  uint64_t step = 0;
  uint64_t twist = 0;
};

// Rows with numbers of their own.
struct FillPart {
  uint64_t key = 0;
  int64_t rows = 0;
};

struct FillWeightsLaunch {
  const uint16_t* table = nullptr;  // [kFillTableSize], bits of bf16
  FillHash hash;
  FillPart parts[kFillMaxParts];  // one below the other; gated: gate and up
  int part_count = 0;
  int columns = 0;               // numbers in a row; behind them zeros
  std::byte* weights = nullptr;  // [groups / tile_groups][bricks_per_tile] bricks
  float* scales = nullptr;       // [groups * kFillGroupRows], s8
  int groups = 0;
  uint32_t tile_groups = 0;  // of kFillGroupRows
  int bricks_per_tile = 0;
  bool is_gated = false;
  bool is_s8 = false;
};

struct FillRowsLaunch {
  const uint16_t* table = nullptr;  // [kFillTableSize], bits of bf16
  FillHash hash;
  FillPart part;
  int columns = 0;           // a multiple of kFillRowUnit
  uint16_t* rows = nullptr;  // [part.rows][columns]
};

struct FillKvLaunch {
  std::byte* pages = nullptr;
  int64_t page_count = 0;
  const int32_t* sequence_pages = nullptr;  // [ceil(end_token / page_tokens)]
  uint64_t seed_bits = 0;                   // mix_bits(seed)
  uint64_t place = 0;                       // of head 0 and token 0
  uint64_t head_step = 0;                   // of `place`, from head to head
  int first_token = 0;
  int end_token = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int page_tokens = 0;
  float value_scale = 0.0f;
  bool is_bf16 = false;
};

// These return a cudaError_t; 0 is success. `stream` is a cudaStream_t.
int fill_weights_launch_kernel(const FillWeightsLaunch& launch, void* stream);
int fill_rows_launch_kernel(const FillRowsLaunch& launch, void* stream);
int fill_kv_launch_kernel(const FillKvLaunch& launch, void* stream);

}  // namespace gapless
