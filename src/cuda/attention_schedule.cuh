// SPDX-License-Identifier: Apache-2.0
//
// Which chunks a block takes, worked out by every block from the lengths in device memory: a launch
// captured in a graph follows the lengths of the moment.
//
// All chunks stand in a row, by sequence, kv head and number, and a chunk takes up as many places
// as it has tiles. The row is cut into pieces of one size, one a block; a chunk belongs to the
// block in whose piece it begins. The size is chosen so that a (sequence, kv head) pair stays in
// one block where that costs no balance: such a pair needs no combine through memory. What is
// computed does not depend on the cut. An empty sequence has one chunk a head, so that somebody
// writes its zeros.

#pragma once

#include <cstdint>

#include "cuda/attention_launch.h"
#include "cuda/tensor_ops.cuh"

namespace gapless::device {

// A piece is made a multiple of the longest pair where an equal share is at least this part of it.
inline constexpr float kWholePairShare = 0.85f;

struct Schedule;

__device__ __forceinline__ int tiles_of(int tokens) {
  return max((tokens + kAttentionTileTokens - 1) / kAttentionTileTokens, 1);
}
__device__ __forceinline__ int chunks_of(int tokens, int chunk_tokens) {
  return max((tokens + chunk_tokens - 1) / chunk_tokens, 1);
}

// One chunk, and the way to the next one.
struct Cursor {
  int sequence;
  int kv_head;
  int chunk;
  int chunk_count;  // of the sequence
  int length;

  __device__ bool operator==(const Cursor& other) const {
    return sequence == other.sequence && kv_head == other.kv_head && chunk == other.chunk;
  }
  __device__ bool is_same_pair(const Cursor& other) const {
    return sequence == other.sequence && kv_head == other.kv_head;
  }
  __device__ bool is_last_chunk() const { return chunk == chunk_count - 1; }
  __device__ int first_token(const AttentionLaunch& launch) const {
    return chunk * launch.chunk_tokens;
  }
  __device__ int token_count(const AttentionLaunch& launch) const {
    return min(length - first_token(launch), launch.chunk_tokens);
  }
  __device__ void enter_sequence(const AttentionLaunch& launch, const Schedule& schedule);
  __device__ void advance_pair(const AttentionLaunch& launch, const Schedule& schedule) {
    chunk = 0;
    if (++kv_head < launch.kv_heads) return;
    kv_head = 0;
    ++sequence;
    enter_sequence(launch, schedule);
  }
  __device__ void advance(const AttentionLaunch& launch, const Schedule& schedule) {
    if (++chunk == chunk_count) advance_pair(launch, schedule);
  }
};

// The chunks of a block.
struct Piece {
  Cursor begin;
  Cursor end;

  // Whether this block has all chunks of the pair.
  __device__ bool is_whole(const Cursor& cursor) const {
    const bool lacks_front = begin.chunk > 0 && cursor.is_same_pair(begin);
    const bool lacks_back = end.chunk > 0 && cursor.is_same_pair(end);
    return !lacks_front && !lacks_back;
  }
};

// In shared memory.
struct Schedule {
  int32_t begin[kAttentionMaxBatch + 1];      // place of a sequence's first tile
  int32_t partial_begin[kAttentionMaxBatch];  // number of its first partial
  int32_t length[kAttentionMaxBatch];
  int32_t block_tiles;  // size of a block's piece; 0 when the workspace is too small
  int32_t is_last;      // for the combine
  Piece piece;          // of this block
};
static_assert(sizeof(Schedule) <= 4 * (3 * kAttentionMaxBatch + 16));

__device__ __forceinline__ void Cursor::enter_sequence(const AttentionLaunch& launch,
                                                       const Schedule& schedule) {
  length = sequence < launch.batch ? schedule.length[sequence] : 0;
  chunk_count = chunks_of(length, launch.chunk_tokens);
}

__device__ __forceinline__ int sum_up_to_lane(int value) {
  const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (int step = 1; step < kWarpLanes; step *= 2) {
    const int other = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

__device__ inline int checked_length(const AttentionLaunch& launch, int sequence) {
  const int length = launch.lengths[sequence];
  if (length >= 0 && length <= launch.max_length) return length;
  atomicOr(launch.status, kAttentionBadLength);
  return length < 0 ? 0 : launch.max_length;
}

__device__ __forceinline__ int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

__device__ inline int block_tiles_of(int tiles, int longest) {
  const int share = (tiles + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int whole_pairs = round_up(share, longest);
  return static_cast<float>(share) >= kWholePairShare * whole_pairs ? whole_pairs : share;
}

// By one warp, from the lengths in the schedule.
__device__ inline void add_up_lengths(const AttentionLaunch& launch, Schedule& schedule) {
  const int lane = threadIdx.x % kWarpLanes;
  int tile_sum = 0;
  int partial_sum = 0;
  int longest = 0;
#pragma unroll 1
  for (int first = 0; first < launch.batch; first += kWarpLanes) {
    const int sequence = first + lane;
    const bool is_there = sequence < launch.batch;
    const int length = is_there ? schedule.length[sequence] : 0;
    const int chunks = chunks_of(length, launch.chunk_tokens);
    const int tiles = is_there ? tiles_of(length) * launch.kv_heads : 0;
    const int partials = chunks > 1 ? chunks * launch.kv_heads : 0;
    const int tile_end = tile_sum + sum_up_to_lane(tiles);
    const int partial_end = partial_sum + sum_up_to_lane(partials);
    if (is_there) {
      schedule.begin[sequence] = tile_end - tiles;
      schedule.partial_begin[sequence] = partial_end - partials;
    }
    tile_sum = __shfl_sync(~0u, tile_end, kWarpLanes - 1);
    partial_sum = __shfl_sync(~0u, partial_end, kWarpLanes - 1);
    longest = max(longest, length);
  }
  longest = __reduce_max_sync(~0u, longest);
  if (lane == 0) {
    const bool has_room = partial_sum <= launch.partial_capacity;
    if (!has_room) atomicOr(launch.status, kAttentionNoWorkspace);
    schedule.begin[launch.batch] = tile_sum;
    schedule.block_tiles = has_room ? block_tiles_of(tile_sum, tiles_of(longest)) : 0;
  }
}

// The first chunk that begins at `place` or behind it. By whole warps.
__device__ inline Cursor chunk_from(const AttentionLaunch& launch, const Schedule& schedule,
                                    int place) {
  const int lane = threadIdx.x % kWarpLanes;
  int sequence = 0;  // the last one that begins at or before the place
  for (int first = 1; first <= launch.batch; first += kWarpLanes) {
    const bool is_before = first + lane <= launch.batch && schedule.begin[first + lane] <= place;
    sequence += __popc(__ballot_sync(~0u, is_before));
  }
  Cursor cursor = {sequence, 0, 0, 1, 0};
  cursor.enter_sequence(launch, schedule);
  if (sequence == launch.batch) return cursor;
  const int tiles = tiles_of(cursor.length);
  const int in_sequence = place - schedule.begin[sequence];
  cursor.kv_head = in_sequence / tiles;
  const int in_pair = in_sequence - cursor.kv_head * tiles;
  const int chunk_tiles = launch.chunk_tokens / kAttentionTileTokens;
  cursor.chunk = (in_pair + chunk_tiles - 1) / chunk_tiles;
  if (cursor.chunk >= cursor.chunk_count) cursor.advance_pair(launch, schedule);
  return cursor;
}

// A thread has one sequence at most: blocks have 256 threads or more.
static_assert(kAttentionMaxBatch <= 256);
__device__ inline int thread_length(const AttentionLaunch& launch) {
  const int sequence = threadIdx.x;
  return sequence < launch.batch ? checked_length(launch, sequence) : 0;
}

// By the whole block, each thread with its thread_length(); ends with a barrier. All blocks wait
// for this before they load anything else: what can be done side by side is.
__device__ inline void make_schedule(const AttentionLaunch& launch, Schedule& schedule,
                                     int length) {
  const int warp = threadIdx.x / kWarpLanes;
  if (threadIdx.x < launch.batch) schedule.length[threadIdx.x] = length;
  __syncthreads();
  if (warp == 0) add_up_lengths(launch, schedule);
  __syncthreads();
  if (warp < 2) {  // the end of this piece is the begin of the next one
    const int64_t place = int64_t{blockIdx.x + warp} * schedule.block_tiles;
    const int64_t tiles = schedule.begin[launch.batch];
    const Cursor cursor = chunk_from(launch, schedule, static_cast<int>(min(place, tiles)));
    if (threadIdx.x % kWarpLanes == 0) {
      (warp == 0 ? schedule.piece.begin : schedule.piece.end) = cursor;
    }
  }
  __syncthreads();
}

}  // namespace gapless::device
