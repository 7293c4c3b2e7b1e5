// SPDX-License-Identifier: Apache-2.0
//
// Which chunks a block takes and in which order, worked out by every block from the lengths in
// device memory: a launch captured in a graph follows the lengths of the moment.
//
// All chunks stand in a row, by sequence, kv head and number, and a chunk takes up as many places
// as it has tiles; a pair (sequence, kv head) may have one more. The row is cut into pieces of one
// size, one a block; a chunk belongs to the block in whose piece it begins. The size is chosen so
// that a pair stays in one block where that costs no balance. What is computed does not depend on
// the cut. An empty sequence has one chunk a head, so that somebody writes its zeros.
//
// A pair that is cut is finished by the block with its last chunk, which should not have to wait
// for the others. So a block begins with the front of the pair that it leaves to the next block and
// ends with the back of the pair that it has from the block before.
//
// All of a block waits for this before it loads anything. So it is done by one warp, with as few
// steps that wait for each other as possible: no division, and what only the combining warps need
// is worked out by one of them meanwhile.

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
__device__ __forceinline__ int divide(int value, uint32_t factor) {
  return static_cast<int>(__umulhi(static_cast<uint32_t>(value), factor));
}
__device__ __forceinline__ int divide(int value, const AttentionDivider& divider) {
  return static_cast<int>(uint64_t{static_cast<uint32_t>(value)} * divider.factor >> divider.shift);
}
__device__ __forceinline__ int chunks_of(const AttentionLaunch& launch, int tokens) {
  return max(divide(tokens + launch.chunk_tokens - 1, launch.chunk_factor), 1);
}
// The quotient, which is below 2^20, of numbers that are not negative.
__device__ __forceinline__ int divide_roughly(int value, int divisor) {
  const int quotient =
      __float2int_rd(__fdividef(static_cast<float>(value), static_cast<float>(divisor)));
  const int rest = value - quotient * divisor;  // the quotient may be off by one
  return quotient + (rest >= divisor ? 1 : 0) - (rest < 0 ? 1 : 0);
}
// A block's part of so many places, rounded up.
__device__ __forceinline__ int block_share(const AttentionLaunch& launch, int places) {
  return divide(static_cast<int>(static_cast<uint32_t>(places) + gridDim.x - 1),
                launch.block_divider);
}

// One chunk, and the way to the next one.
struct alignas(16) Cursor {
  uint32_t pair;  // sequence and kv head
  int chunk;
  int chunk_count;  // of the sequence
  int length;

  __device__ static uint32_t pair_of(int sequence, int kv_head) {
    return static_cast<uint32_t>(sequence) << 16 | static_cast<uint32_t>(kv_head);
  }
  __device__ int sequence() const { return static_cast<int>(pair >> 16); }
  __device__ int kv_head() const { return static_cast<int>(pair & 0xffff); }
  __device__ bool is_same_pair(const Cursor& other) const { return pair == other.pair; }
  __device__ bool is_before(const Cursor& other) const {
    return pair != other.pair ? pair < other.pair : chunk < other.chunk;
  }
  __device__ bool is_last_chunk() const { return chunk == chunk_count - 1; }
  __device__ int first_token(const AttentionLaunch& launch) const {
    return chunk * launch.chunk_tokens;
  }
  __device__ int token_count(const AttentionLaunch& launch) const {
    return min(length - first_token(launch), launch.chunk_tokens);
  }
  __device__ Cursor at_chunk(int number) const { return {pair, number, chunk_count, length}; }
  __device__ void enter_sequence(const AttentionLaunch& launch, const Schedule& schedule);
  __device__ void advance_pair(const AttentionLaunch& launch, const Schedule& schedule) {
    chunk = 0;
    if (kv_head() + 1 < launch.kv_heads) {
      ++pair;
      return;
    }
    pair = pair_of(sequence() + 1, 0);
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
struct alignas(16) Schedule {
  Piece piece;                        // of this block
  Piece walk[kWalkParts];             // the same chunks, in the order in which they are taken
  int32_t pair_end;                   // places without a tile behind those of each pair
  int32_t block_places;               // size of a block's piece
  int32_t has_room;                   // 0: the workspace is too small, and nothing is done
  int32_t launch_ns;                  // that the launch may take for all tiles
  int32_t tiles;                      // of this block; an empty pair counts as one
  int32_t begin[kAttentionMaxBatch];  // tiles of a head of all sequences before
  int32_t partial_begin[kAttentionMaxBatch];  // number of its first partial
  int32_t length[kAttentionMaxBatch];
};
static_assert(sizeof(Schedule) <= kAttentionScheduleBytes);

__device__ __forceinline__ void Cursor::enter_sequence(const AttentionLaunch& launch,
                                                       const Schedule& schedule) {
  length = sequence() < launch.batch ? schedule.length[sequence()] : 0;
  chunk_count = chunks_of(launch, length);
}

// The chunks of a block in the order in which it takes them.
class Walk {
 public:
  __device__ explicit Walk(const Schedule& schedule) : cursor_(schedule.walk[0].begin) {
    if (!schedule.has_room) part_ = kWalkParts;
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

__device__ inline int checked_length(const AttentionLaunch& launch, int length) {
  if (length >= 0 && length <= launch.max_length) return length;
  atomicOr(launch.status, kAttentionBadLength);
  return length < 0 ? 0 : launch.max_length;
}

// What one warp finds out about all sequences together. A thread has some in a row, one where there
// are no more than threads; its own is the first of them.
struct Layout {
  int thread_sequences;
  int own_sequence;
  int own_length;
  int own_begin;  // tiles of a head before it
  int tiles;      // of all heads of all sequences
  int places;     // of all
  int pair_end;
  int block_places;

  __device__ Layout(const AttentionLaunch& launch, const Schedule& schedule, int length)
      : thread_sequences((launch.batch + kWarpLanes - 1) / kWarpLanes),
        own_sequence(threadIdx.x % kWarpLanes * thread_sequences) {
    if (thread_sequences > 1)
      length = own_sequence < launch.batch ? schedule.length[own_sequence] : 0;
    own_length = length;
    int own_tiles = own_sequence < launch.batch ? tiles_of(length) : 0;
    int longest = own_tiles;
    for (int i = 1; i < thread_sequences && own_sequence + i < launch.batch; ++i) {
      const int more = tiles_of(schedule.length[own_sequence + i]);
      own_tiles += more;
      longest = max(longest, more);
    }
    longest = __reduce_max_sync(~0u, longest);
    const int tile_end = sum_up_to_lane(own_tiles);
    own_begin = tile_end - own_tiles;
    tiles = __shfl_sync(~0u, tile_end, kWarpLanes - 1) * launch.kv_heads;
    cut(launch, longest);
  }
  __device__ int place_of(const AttentionLaunch& launch, int sequence, int begin) const {
    return launch.kv_heads * (begin + pair_end * sequence);
  }
  // Which lanes begin at the place or before it.
  __device__ uint32_t lanes_to(const AttentionLaunch& launch, int place) const {
    const bool is_there = own_sequence < launch.batch;
    return __ballot_sync(~0u, is_there && place_of(launch, own_sequence, own_begin) <= place);
  }

 private:
  __device__ void cut(const AttentionLaunch& launch, int longest) {
    const int share = block_share(launch, tiles);
    const int whole_pairs = divide_roughly(share + longest - 1, longest) * longest;
    const bool is_whole = static_cast<float>(share) >= kWholePairShare * whole_pairs;
    // Where blocks have one chunk or two, places without tiles would give some of them one more.
    const bool is_small = share <= 2 * launch.chunk_tokens / kAttentionTileTokens;
    pair_end = is_whole || is_small ? 0 : launch.pair_tiles;
    places = tiles + pair_end * launch.batch * launch.kv_heads;
    block_places = is_whole ? whole_pairs : block_share(launch, places);
  }
};

// The first chunk of a pair that begins at the pair's `place` or behind it.
__device__ __forceinline__ int chunk_in_pair(const AttentionLaunch& launch, int place) {
  return divide(place * kAttentionTileTokens + launch.chunk_tokens - 1, launch.chunk_factor);
}

// How many chunks of a pair the block has in which it begins.
__device__ inline int front_chunks(const AttentionLaunch& launch, const Schedule& schedule,
                                   const Cursor& pair) {
  const int pair_places = tiles_of(pair.length) + schedule.pair_end;
  const int sequence = pair.sequence();
  const int begin = launch.kv_heads * (schedule.begin[sequence] + schedule.pair_end * sequence) +
                    pair.kv_head() * pair_places;
  const int in_piece = begin - divide_roughly(begin, schedule.block_places) * schedule.block_places;
  const int in_block = min(schedule.block_places - in_piece, pair_places);
  return min(chunk_in_pair(launch, in_block), pair.chunk_count);
}

// By a warp: the first chunk that begins at `place` or behind it, and how many tiles are before it.
// `holder` is the lane that has its sequence; all of that may differ from lane to lane.
__device__ __forceinline__ Cursor chunk_from(const AttentionLaunch& launch,
                                             const Schedule& schedule, const Layout& layout,
                                             int place, int holder, int& tiles_before) {
  int sequence = holder * layout.thread_sequences;
  int begin = __shfl_sync(~0u, layout.own_begin, holder);
  int length = __shfl_sync(~0u, layout.own_length, holder);
  for (int i = 1; i < layout.thread_sequences && sequence + 1 < launch.batch; ++i) {
    const int next = begin + tiles_of(length);
    if (layout.place_of(launch, sequence + 1, next) > place) break;
    begin = next;
    length = schedule.length[++sequence];
  }
  const int pair_places = tiles_of(length) + layout.pair_end;
  const int in_sequence = place - layout.place_of(launch, sequence, begin);
  const int kv_head = divide_roughly(in_sequence, pair_places);
  const int chunk = chunk_in_pair(launch, in_sequence - kv_head * pair_places);
  Cursor cursor = {Cursor::pair_of(sequence, kv_head), chunk, chunks_of(launch, length), length};
  const int pair_tiles = pair_places - layout.pair_end;
  tiles_before = launch.kv_heads * begin + kv_head * pair_tiles +
                 min(chunk * (launch.chunk_tokens / kAttentionTileTokens), pair_tiles);
  if (place == layout.places) return {Cursor::pair_of(launch.batch, 0), 0, 1, 0};
  if (chunk >= cursor.chunk_count) cursor.advance_pair(launch, schedule);
  return cursor;
}

// By one lane, from the piece, in the order in which they are taken: the front of a pair that goes
// on in another block, what the block has alone, the back of a pair.
__device__ __forceinline__ void make_walk(const AttentionLaunch& launch, Schedule& schedule) {
  const Cursor begin = schedule.piece.begin;
  const Cursor end = schedule.piece.end;
  const bool is_inside = begin.chunk > 0;
  const bool is_one_pair = begin.is_same_pair(end);
  const bool cuts_last = end.chunk > 0 && !is_one_pair;
  const bool is_back_only = is_inside && is_one_pair;
  Cursor second = begin;  // the first pair that begins here
  if (is_inside) second.advance_pair(launch, schedule);
  const Cursor own_end = cuts_last ? end.at_chunk(0) : end;
  schedule.walk[0] = {own_end, cuts_last ? end : own_end};
  schedule.walk[1] = {is_back_only ? end : second, is_back_only ? end : own_end};
  schedule.walk[2] = {begin, is_back_only ? end : second};
}

// By one warp, begin and end of the piece side by side.
__device__ __forceinline__ void take_piece(const AttentionLaunch& launch, Schedule& schedule,
                                           int length) {
  const int lane = threadIdx.x % kWarpLanes;
  const bool is_begin = lane < kWarpLanes / 2;
  const Layout layout(launch, schedule, length);
  const int64_t block_place = int64_t{blockIdx.x} * layout.block_places;
  const int begin_place = static_cast<int>(min(block_place, int64_t{layout.places}));
  const int end_place =
      static_cast<int>(min(block_place + layout.block_places, int64_t{layout.places}));
  const int begin_holder = __popc(layout.lanes_to(launch, begin_place)) - 1;
  const int end_holder = __popc(layout.lanes_to(launch, end_place)) - 1;
  int tiles_before;
  const Cursor cursor = chunk_from(launch, schedule, layout, is_begin ? begin_place : end_place,
                                   is_begin ? begin_holder : end_holder, tiles_before);
  const int tiles = __shfl_sync(~0u, tiles_before, kWarpLanes / 2) - tiles_before;
  if (lane == 0) {
    schedule.pair_end = layout.pair_end;
    schedule.block_places = layout.block_places;
    schedule.launch_ns = __float2int_rn(launch.tile_ns * static_cast<float>(layout.tiles));
    schedule.tiles = tiles;
    schedule.piece.begin = cursor;
  } else if (lane == kWarpLanes / 2) {
    schedule.piece.end = cursor;
  }
  __syncwarp();
  if (lane == 0) make_walk(launch, schedule);
}

// By one warp, each lane with the length of the sequence of its number, which says all where there
// are no more sequences than lanes: what only the combining warps want to know.
__device__ __forceinline__ void number_partials(const AttentionLaunch& launch, Schedule& schedule,
                                                int length) {
  const int lane = threadIdx.x % kWarpLanes;
  int tile_sum = 0;
  int partial_sum = 0;
#pragma unroll 1
  for (int first = 0; first < launch.batch; first += kWarpLanes) {
    const int sequence = first + lane;
    const bool is_there = sequence < launch.batch;
    if (launch.batch > kWarpLanes && is_there) length = schedule.length[sequence];
    const int chunks = is_there ? chunks_of(launch, length) : 0;
    const int tiles = is_there ? tiles_of(length) : 0;
    const int partials = chunks > 1 ? chunks * launch.kv_heads : 0;
    const int tile_end = tile_sum + sum_up_to_lane(tiles);
    const int partial_end = partial_sum + sum_up_to_lane(partials);
    if (is_there) {
      schedule.begin[sequence] = tile_end - tiles;
      schedule.partial_begin[sequence] = partial_end - partials;
    }
    tile_sum = __shfl_sync(~0u, tile_end, kWarpLanes - 1);
    partial_sum = __shfl_sync(~0u, partial_end, kWarpLanes - 1);
  }
  const bool has_room = partial_sum <= launch.partial_capacity;
  if (lane == 0) {
    if (!has_room) atomicOr(launch.status, kAttentionNoWorkspace);
    schedule.has_room = has_room ? 1 : 0;
  }
}

// The length that a thread looks after, as it is in memory: asked for as soon as the block begins,
// looked at when it is there. Where there are no more sequences than lanes, the two warps that work
// on the schedule have all of them.
__device__ __forceinline__ int thread_length(const AttentionLaunch& launch, int partial_warp) {
  const int warp = threadIdx.x / kWarpLanes;
  const bool has_any = launch.batch > kWarpLanes || warp == 0 || warp == partial_warp;
  const int sequence = launch.batch > kWarpLanes ? threadIdx.x : threadIdx.x % kWarpLanes;
  int length = 0;
  if (has_any && sequence < launch.batch) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(length) : "l"(launch.lengths + sequence));
  }
  return length;
}

// By the whole block, each thread with its thread_length(); ends with a barrier. A thread has one
// sequence at most (AttentionForm::threads()). `partial_warp` is not the first one.
__device__ inline void make_schedule(const AttentionLaunch& launch, Schedule& schedule, int length,
                                     int partial_warp) {
  const int warp = threadIdx.x / kWarpLanes;
  length = checked_length(launch, length);
  if (threadIdx.x < launch.batch) schedule.length[threadIdx.x] = length;
  if (launch.batch > kWarpLanes) {
    __syncthreads();
  } else {
    __syncwarp();  // the first warp has all lengths
  }
  if (warp == 0) take_piece(launch, schedule, length);
  if (warp == partial_warp) number_partials(launch, schedule, length);
  __syncthreads();
}

// Schedules lie in units of 16 bytes.
static_assert(sizeof(Schedule) % sizeof(uint4) == 0);
inline constexpr int kScheduleUnits = sizeof(Schedule) / sizeof(uint4);
static_assert(kScheduleUnits <= kAttentionMaxBatch);  // a block has more threads

__device__ __forceinline__ uint4* stored_schedule(const AttentionLaunch& launch) {
  return reinterpret_cast<uint4*>(launch.schedules + blockIdx.x * kAttentionScheduleBytes);
}
// By the whole block, behind make_schedule().
__device__ inline void store_schedule(const AttentionLaunch& launch, const Schedule& schedule) {
  const uint4* source = reinterpret_cast<const uint4*>(&schedule);
  if (threadIdx.x < kScheduleUnits) stored_schedule(launch)[threadIdx.x] = source[threadIdx.x];
}
// In its place: one way to L2 instead of all that. Ends with a barrier. Not waited for: the launch
// that stored it had ended when this one could begin, so that L2 has it; L1 may not be asked.
__device__ inline void load_schedule(const AttentionLaunch& launch, Schedule& schedule) {
  uint4* target = reinterpret_cast<uint4*>(&schedule);
  if (threadIdx.x < kScheduleUnits)
    target[threadIdx.x] = __ldcg(stored_schedule(launch) + threadIdx.x);
  __syncthreads();
}

}  // namespace gapless::device
