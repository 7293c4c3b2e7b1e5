// SPDX-License-Identifier: Apache-2.0
//
// What the host half of the attention hands to the device half: numbers and device pointers, no
// CUDA types. Only attention.h and device code include this.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/recorder_launch.h"
#include "cuda/wait_limit.h"

namespace gapless {

inline constexpr int kAttentionTileTokens = 16;  // what a warp takes at a time
inline constexpr int kAttentionMaxBatch = 256;
inline constexpr int kAttentionRowChunks = 8;     // chunks that are folded before rows are
inline constexpr int kAttentionCombineWarps = 4;  // of a block, beside those that take tiles
// Pairs whose queries are there or on their way: short pairs are done sooner than a load.
inline constexpr int kAttentionMaxQueryBuffers = 6;
// Of what the warps found in a chunk: chunks that may wait for the combining warps.
inline constexpr int kAttentionMaxStateBuffers = 3;
inline constexpr int kAttentionMaxStaged = 8;  // partials of other blocks, in shared memory
inline constexpr int kAttentionMaxGroup = 16;  // query heads of a kv head
inline constexpr int kAttentionStatePadFloats =
    4;  // keeps the warps' stores off each other's banks
// A lane of a warp knows the page of one tile: so many tiles a chunk and warp at most.
inline constexpr int kAttentionWarpTiles = 32;

// Of a block's schedule, in shared memory.
inline constexpr int kAttentionScheduleBytes = 4 * (3 * kAttentionMaxBatch + 56);

// Bits of the status word: what a launch found wrong in device memory.
inline constexpr uint32_t kAttentionBadLength = 1;    // outside 0 .. table width; was clamped
inline constexpr uint32_t kAttentionBadPage = 2;      // no such page; page 0 was read
inline constexpr uint32_t kAttentionNoWorkspace = 4;  // more partials than planned; nothing done

// What shared memory is spent on.
struct AttentionBuffers {
  int ring_slots = 0;     // tiles that a warp has in flight
  int state_buffers = 0;  // at most kAttentionMaxStateBuffers
  int query_buffers = 0;  // at most kAttentionMaxQueryBuffers
  int staged = 0;         // partials of other blocks, at most kAttentionMaxStaged
};

// Where that is in the dynamic shared memory of a block, in bytes; the warps' rings come first.
// From the host, since it would be a hundred instructions at the begin of every block.
struct AttentionShared {
  int ring_bytes = 0;          // of a warp
  int queries = 0;             // [query_buffers][group_heads][head_dim]
  int query_bytes = 0;         // of a buffer
  int staged = 0;              // [staged][partial_floats]
  int states = 0;              // [state_buffers]; TileStates says what is in one
  int state_bytes = 0;         // of a buffer
  int sum_bytes = 0;           // of the sums in it
  int barriers = 0;            // [warps][ring_slots][keys, values], then the others
  int ring_barrier_bytes = 0;  // of all warps
  int schedule = 0;
  int bytes = 0;  // in all
};

struct AttentionDivider {
  uint32_t factor = 0;
  int shift = 0;
};

// What a block needs first comes first: the line of constant memory that holds it has to be fetched
// in every launch.
struct AttentionLaunch {
  const int32_t* lengths = nullptr;  // [batch]
  int batch = 0;
  int kv_heads = 0;
  const int32_t* page_table = nullptr;  // [batch][page_table_stride]
  int64_t page_table_stride = 0;
  // [blocks][kAttentionScheduleBytes], or nothing: where blocks leave what they take, or have it
  // from.
  std::byte* schedules = nullptr;
  bool has_schedules = false;
  int max_length = 0;
  AttentionBuffers buffers;
  AttentionShared shared;
  int front_tokens = 0;            // of a pair: brought into L2 before the schedule is known
  int pair_tiles = 0;              // that a pair counts as beside those it has
  AttentionDivider block_divider;  // attention_divider() of the launch's blocks
  AttentionDivider head_divider;   // of kv_heads
  int chunk_tokens = 0;
  uint32_t chunk_factor = 0;  // attention_factor() of chunk_tokens
  float tile_ns = 0.0f;       // what a tile is to take, all blocks together
  int page_tokens = 0;
  uint32_t page_factor = 0;  // attention_factor() of page_tokens
  int32_t page_count = 0;
  const std::byte* pages = nullptr;  // kv_pages.h
  int64_t page_bytes = 0;
  int64_t block_bytes = 0;
  const void* q = nullptr;       // [batch][kv_heads][group][head_dim]
  float* partials = nullptr;     // [partial_capacity][partial_floats]
  uint32_t* counters = nullptr;  // [partial_capacity], all 0 between launches
  uint32_t* status = nullptr;
  void* output = nullptr;  // [batch][kv_heads][group][head_dim]
  int64_t partial_capacity = 0;
  int partial_floats = 0;
  int group_heads = 0;
  int calm_slots = 0;        // of the ring, that a warp keeps full which is not late
  float score_scale = 0.0f;  // of scores whose exponential is to the base 2
  bool output_is_f32 = false;
  RecorderLaunch recorder;  // read by recorded forms only
  WaitLimit wait_limit = {};
};

// n / divisor is the upper half of n times this, for the divisors (multiples of 16 up to 4096) and
// numbers (up to 2^20 + 4096) that there are here: a division is what takes longest in a schedule.
constexpr uint32_t attention_factor(int divisor) {
  return static_cast<uint32_t>(((uint64_t{1} << 32) + static_cast<uint64_t>(divisor) - 1) /
                               static_cast<uint64_t>(divisor));
}

// n / number for n below 2^31: n times the factor, shifted.
constexpr AttentionDivider attention_divider(int number) {
  const uint64_t divisor = static_cast<uint64_t>(number);
  int shift = 31;
  while ((divisor << 31) > (uint64_t{1} << shift)) ++shift;
  const uint64_t factor = ((uint64_t{1} << shift) + divisor - 1) / divisor;
  return {.factor = static_cast<uint32_t>(factor), .shift = shift};
}

// Which kernel.
struct AttentionForm {
  bool is_bf16 = false;
  int head_dim = 0;
  int query_blocks = 1;  // of 8 query heads
  RecordLevel level = RecordLevel::kNone;
  bool is_sm90 = true;  // code_version.h

  // Of a block, that take tiles. With code for other devices they are fewer, since each has a ring
  // and states in shared memory, and a block may have 99 KiB of it instead of 227.
  constexpr int warps() const {
    if (!is_sm90) return head_dim == 64 ? 8 : 512 / head_dim;
    return head_dim == 256 ? 4 : 8;
  }
  // Every sequence of a batch has a thread that looks after its length.
  constexpr int threads() const {
    const int working = (warps() + kAttentionCombineWarps) * 32;
    return working < kAttentionMaxBatch ? kAttentionMaxBatch : working;
  }
};

constexpr AttentionShared attention_shared(const AttentionForm& form, int group_heads,
                                           int partial_floats, const AttentionBuffers& buffers) {
  const int row_bytes = 2 * form.head_dim;
  AttentionShared shared;
  shared.ring_bytes = 2 * kAttentionTileTokens * row_bytes * buffers.ring_slots;
  shared.query_bytes = group_heads * row_bytes;
  shared.sum_bytes = 4 * form.warps() * group_heads * (form.head_dim + kAttentionStatePadFloats);
  shared.state_bytes = shared.sum_bytes + 4 * form.warps() * 2 * kAttentionMaxGroup;
  shared.ring_barrier_bytes = 16 * form.warps() * buffers.ring_slots;
  // Queries, states that are there, states that are free, and of the stage; an even number.
  const int barriers = kAttentionMaxQueryBuffers + 2 * kAttentionMaxStateBuffers + 2;
  shared.queries = shared.ring_bytes * form.warps();
  shared.staged = shared.queries + shared.query_bytes * buffers.query_buffers;
  shared.states = shared.staged + 4 * partial_floats * buffers.staged;
  shared.barriers = shared.states + shared.state_bytes * buffers.state_buffers;
  shared.schedule = shared.barriers + shared.ring_barrier_bytes + 8 * barriers;
  shared.bytes = shared.schedule + kAttentionScheduleBytes;
  return shared;
}

// These return a cudaError_t; 0 is success. `stream` is a cudaStream_t.
// Blocks that one SM holds at once with these numbers.
int attention_blocks_per_sm(const AttentionForm& form, int64_t shared_bytes, int* blocks);
int attention_launch_kernel(const AttentionForm& form, const AttentionLaunch& launch, int blocks,
                            int64_t shared_bytes, bool starts_early, void* stream);

}  // namespace gapless
