// SPDX-License-Identifier: Apache-2.0
//
// Which chunks a block takes and in which order, worked out by every block from the lengths in
// device memory: a launch captured in a graph follows the lengths of the moment.
//
// All chunks stand in a row, by sequence, kv head and number, and a chunk takes up as many places
// as it has tiles; a pair (sequence, kv head) has one more. The row is cut into pieces of one size,
// one a block; a chunk belongs to the block in whose piece it begins. The size is chosen so that a
// pair stays in one block where that costs no balance. What is computed does not depend on the cut.
// An empty sequence has one chunk a head, so that somebody writes its zeros.
//
// A pair that is cut is finished by the block with its last chunk, which should not have to wait
// for the others. So a block begins with the front of the pair that it leaves to the next block and
// ends with the back of the pair that it has from the block before.

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
__device__ __forceinline__ int divide(int value, uint32_t divider) {
  return static_cast<int>(__umulhi(static_cast<uint32_t>(value), divider));
}
__device__ __forceinline__ int chunks_of(const AttentionLaunch& launch, int tokens) {
  return max(divide(tokens + launch.chunk_tokens - 1, launch.chunk_divider), 1);
}
__device__ __forceinline__ int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

// One chunk, and the way to the next one.
struct Cursor {
  int sequence;
  int kv_head;
  int chunk;
  int chunk_count;  // of the sequence
  int length;

  __device__ bool is_same_pair(const Cursor& other) const {
    return sequence == other.sequence && kv_head == other.kv_head;
  }
  __device__ bool is_before(const Cursor& other) const {
    if (sequence != other.sequence) return sequence < other.sequence;
    if (kv_head != other.kv_head) return kv_head < other.kv_head;
    return chunk < other.chunk;
  }
  __device__ bool is_last_chunk() const { return chunk == chunk_count - 1; }
  __device__ int first_token(const AttentionLaunch& launch) const {
    return chunk * launch.chunk_tokens;
  }
  __device__ int token_count(const AttentionLaunch& launch) const {
    return min(length - first_token(launch), launch.chunk_tokens);
  }
  __device__ Cursor pair_begin() const { return {sequence, kv_head, 0, chunk_count, length}; }
  __device__ void enter_sequence(const AttentionLaunch& launch, const Schedule& schedule);
  __device__ void advance_pair(const AttentionLaunch& launch, const Schedule& schedule) {
    chunk = 0;
    if (++kv_head < launch.kv_heads) return;
    kv_head = 0;
    ++sequence;
    enter_sequence(launch, schedule);
  }
};

// Chunks from `begin` to before `end`.
struct Piece {
  Cursor begin;
  Cursor end;

  __device__ bool is_empty() const { return !begin.is_before(end); }
  // Whether other blocks have the first or the last chunks of the pair.
  __device__ bool lacks_front(const Cursor& cursor) const {
    return begin.chunk > 0 && cursor.is_same_pair(begin);
  }
  __device__ bool lacks_back(const Cursor& cursor) const {
    return end.chunk > 0 && cursor.is_same_pair(end);
  }
};

inline constexpr int kWalkParts = 3;

// In shared memory.
struct alignas(8) Schedule {
  int32_t begin[kAttentionMaxBatch + 1];      // a sequence's first place
  int32_t partial_begin[kAttentionMaxBatch];  // number of its first partial
  int32_t length[kAttentionMaxBatch];
  int32_t pair_end;        // places without a tile behind those of each pair
  int32_t block_places;    // size of a block's piece; 0 when the workspace is too small
  Piece piece;             // of this block
  Piece walk[kWalkParts];  // the same chunks, in the order in which they are taken
};
static_assert(sizeof(Schedule) <= kAttentionScheduleBytes);

__device__ __forceinline__ void Cursor::enter_sequence(const AttentionLaunch& launch,
                                                       const Schedule& schedule) {
  length = sequence < launch.batch ? schedule.length[sequence] : 0;
  chunk_count = chunks_of(launch, length);
}

// The chunks of a block in the order in which it takes them.
class Walk {
 public:
  __device__ explicit Walk(const Schedule& schedule) : cursor_(schedule.walk[0].begin) {
    skip_empty_parts(schedule);
  }

  __device__ const Cursor& cursor() const { return cursor_; }
  __device__ bool is_done() const { return part_ == kWalkParts; }
  // Whether the block has no further chunk of this pair.
  __device__ bool ends_pair(const Schedule& schedule) const {
    const Cursor& end = schedule.walk[part_].end;
    return cursor_.is_last_chunk() || (cursor_.is_same_pair(end) && cursor_.chunk + 1 == end.chunk);
  }
  __device__ void advance(const AttentionLaunch& launch, const Schedule& schedule) {
    if (!ends_pair(schedule)) {
      ++cursor_.chunk;
    } else {
      advance_pair(launch, schedule);
    }
  }
  __device__ void advance_pair(const AttentionLaunch& launch, const Schedule& schedule) {
    cursor_.advance_pair(launch, schedule);
    skip_empty_parts(schedule);
  }

 private:
  __device__ void skip_empty_parts(const Schedule& schedule) {
    while (part_ < kWalkParts && !cursor_.is_before(schedule.walk[part_].end)) {
      if (++part_ < kWalkParts) cursor_ = schedule.walk[part_].begin;
    }
  }

  Cursor cursor_;
  int part_ = 0;
};

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

// What all lengths together say; the same in all lanes.
struct Totals {
  int tiles = 0;
  int longest = 0;  // tiles of a pair

  // By one warp, from the lengths in the schedule.
  __device__ Totals(const AttentionLaunch& launch, const Schedule& schedule) {
    for (int i = threadIdx.x % kWarpLanes; i < launch.batch; i += kWarpLanes) {
      const int sequence_tiles = tiles_of(schedule.length[i]);
      tiles += sequence_tiles * launch.kv_heads;
      longest = max(longest, sequence_tiles);
    }
    tiles = __reduce_add_sync(~0u, tiles);
    longest = __reduce_max_sync(~0u, longest);
  }
};

// By one warp, from the lengths in the schedule.
__device__ inline void add_up_lengths(const AttentionLaunch& launch, Schedule& schedule) {
  const int lane = threadIdx.x % kWarpLanes;
  const int blocks = static_cast<int>(gridDim.x);
  const Totals totals(launch, schedule);
  const int share = (totals.tiles + blocks - 1) / blocks;
  const int whole_pairs = round_up(share, totals.longest);
  const bool is_whole = static_cast<float>(share) >= kWholePairShare * whole_pairs;
  const int pair_end = is_whole ? 0 : launch.pair_tiles;
  int place_sum = 0;
  int partial_sum = 0;
#pragma unroll 1
  for (int first = 0; first < launch.batch; first += kWarpLanes) {
    const int sequence = first + lane;
    const bool is_there = sequence < launch.batch;
    const int length = is_there ? schedule.length[sequence] : 0;
    const int chunks = chunks_of(launch, length);
    const int places = is_there ? (tiles_of(length) + pair_end) * launch.kv_heads : 0;
    const int partials = chunks > 1 ? chunks * launch.kv_heads : 0;
    const int place_end = place_sum + sum_up_to_lane(places);
    const int partial_end = partial_sum + sum_up_to_lane(partials);
    if (is_there) {
      schedule.begin[sequence] = place_end - places;
      schedule.partial_begin[sequence] = partial_end - partials;
    }
    place_sum = __shfl_sync(~0u, place_end, kWarpLanes - 1);
    partial_sum = __shfl_sync(~0u, partial_end, kWarpLanes - 1);
  }
  if (lane == 0) {
    const bool has_room = partial_sum <= launch.partial_capacity;
    if (!has_room) atomicOr(launch.status, kAttentionNoWorkspace);
    const int cut_share = (place_sum + blocks - 1) / blocks;
    schedule.begin[launch.batch] = place_sum;
    schedule.pair_end = pair_end;
    schedule.block_places = !has_room ? 0 : is_whole ? whole_pairs : cut_share;
  }
  __syncwarp();
}

// The first chunk of a pair that begins at the pair's `place` or behind it.
__device__ __forceinline__ int chunk_in_pair(const AttentionLaunch& launch, int place) {
  return divide(place * kAttentionTileTokens + launch.chunk_tokens - 1, launch.chunk_divider);
}

// How many chunks of a pair the block has in which it begins.
__device__ inline int front_chunks(const AttentionLaunch& launch, const Schedule& schedule,
                                   const Cursor& pair) {
  const int pair_places = tiles_of(pair.length) + schedule.pair_end;
  const int begin = schedule.begin[pair.sequence] + pair.kv_head * pair_places;
  const int in_piece = begin % schedule.block_places;
  const int in_block = min(schedule.block_places - in_piece, pair_places);
  return min(chunk_in_pair(launch, in_block), pair.chunk_count);
}

// The last sequence that begins at `place` or before it; the place is the same in all lanes.
__device__ __forceinline__ int sequence_at(const AttentionLaunch& launch, const Schedule& schedule,
                                           int place) {
  int sequence = 0;
  for (int first = 1; first <= launch.batch; first += kWarpLanes) {
    const int i = first + threadIdx.x % kWarpLanes;
    sequence += __popc(__ballot_sync(~0u, i <= launch.batch && schedule.begin[i] <= place));
  }
  return sequence;
}

// The first chunk that begins at `place` or behind it.
__device__ __forceinline__ Cursor chunk_from(const AttentionLaunch& launch,
                                             const Schedule& schedule, int sequence, int place) {
  Cursor cursor = {sequence, 0, 0, 1, 0};
  cursor.enter_sequence(launch, schedule);
  if (sequence == launch.batch) return cursor;
  const int pair_places = tiles_of(cursor.length) + schedule.pair_end;
  const int in_sequence = place - schedule.begin[sequence];
  cursor.kv_head = in_sequence / pair_places;
  cursor.chunk = chunk_in_pair(launch, in_sequence - cursor.kv_head * pair_places);
  if (cursor.chunk >= cursor.chunk_count) cursor.advance_pair(launch, schedule);
  return cursor;
}

// By one warp, begin and end of the piece side by side. Then, in the order in which they are taken:
// the front of a pair that goes on in another block, what the block has alone, the back of a pair.
__device__ inline void make_walk(const AttentionLaunch& launch, Schedule& schedule) {
  const int lane = threadIdx.x % kWarpLanes;
  const int64_t places = schedule.begin[launch.batch];
  const int64_t block_place = int64_t{blockIdx.x} * schedule.block_places;
  const int begin_place = static_cast<int>(min(block_place, places));
  const int end_place = static_cast<int>(min(block_place + schedule.block_places, places));
  const int begin_sequence = sequence_at(launch, schedule, begin_place);
  const int end_sequence = sequence_at(launch, schedule, end_place);
  if (lane < 2) {
    Cursor& cursor = lane == 0 ? schedule.piece.begin : schedule.piece.end;
    cursor = chunk_from(launch, schedule, lane == 0 ? begin_sequence : end_sequence,
                        lane == 0 ? begin_place : end_place);
  }
  __syncwarp();
  if (lane != 0) return;
  const Cursor begin = schedule.piece.begin;
  const Cursor end = schedule.piece.end;
  const bool is_one_pair = begin.is_same_pair(end);
  const bool cuts_last = end.chunk > 0 && !is_one_pair;
  const bool is_back_only = begin.chunk > 0 && is_one_pair;
  Cursor second = begin;  // the first pair that begins here
  if (begin.chunk > 0) second.advance_pair(launch, schedule);
  const Cursor own_end = cuts_last ? end.pair_begin() : end;
  schedule.walk[0] = {own_end, cuts_last ? end : own_end};
  schedule.walk[1] = {is_back_only ? end : second, is_back_only ? end : own_end};
  schedule.walk[2] = {begin, is_back_only ? end : second};
}

// A thread has one sequence at most: blocks have 256 threads or more.
static_assert(kAttentionMaxBatch <= 256);
__device__ inline int thread_length(const AttentionLaunch& launch) {
  const int sequence = threadIdx.x;
  return sequence < launch.batch ? checked_length(launch, sequence) : 0;
}

// By the whole block, each thread with its thread_length(); ends with a barrier. All blocks wait
// for this before they load anything else.
__device__ inline void make_schedule(const AttentionLaunch& launch, Schedule& schedule,
                                     int length) {
  if (threadIdx.x < launch.batch) schedule.length[threadIdx.x] = length;
  if (launch.batch > kWarpLanes) {
    __syncthreads();
  } else {
    __syncwarp();  // the first warp has all lengths
  }
  if (threadIdx.x < kWarpLanes) {
    add_up_lengths(launch, schedule);
    make_walk(launch, schedule);
  }
  __syncthreads();
}

// Schedules lie in units of 8 bytes.
static_assert(sizeof(Schedule) % sizeof(uint2) == 0);
inline constexpr int kScheduleUnits = sizeof(Schedule) / sizeof(uint2);

__device__ __forceinline__ uint2* stored_schedule(const AttentionLaunch& launch) {
  return reinterpret_cast<uint2*>(launch.schedules + blockIdx.x * kAttentionScheduleBytes);
}
// By the whole block, behind make_schedule().
__device__ inline void store_schedule(const AttentionLaunch& launch, const Schedule& schedule) {
  const uint2* source = reinterpret_cast<const uint2*>(&schedule);
  for (int i = threadIdx.x; i < kScheduleUnits; i += blockDim.x) {
    stored_schedule(launch)[i] = source[i];
  }
}
// In its place: one way to L2 instead of all that. Ends with a barrier.
__device__ inline void load_schedule(const AttentionLaunch& launch, Schedule& schedule) {
  uint2* target = reinterpret_cast<uint2*>(&schedule);
  for (int i = threadIdx.x; i < kScheduleUnits; i += blockDim.x) {
    target[i] = __ldcg(stored_schedule(launch) + i);
  }
  __syncthreads();
}

}  // namespace gapless::device
