// SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on tensor cores: attention.h says what it computes.
//
// A block takes a row of chunks (attention_schedule.cuh). Each of W warps has every W-th tile of 16
// tokens and goes through them on its own (attention_tiles.cuh, attention_state.cuh): its copies of
// keys and values run a few tiles ahead, on into the next chunks. What the warps of a block found
// goes to other warps, which merge it (attention_combine.cuh) while the next chunk is taken.
//
// Per tile of 8 KiB (head_dim 128) a warp issues some 200 instructions; at 4.5 TB/s on 132 SMs
// there are 1600 issue slots for them.

#include "cuda/attention_launch.h"

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/attention_combine.cuh"
#include "cuda/attention_schedule.cuh"
#include "cuda/attention_state.cuh"
#include "cuda/attention_tiles.cuh"
#include "cuda/kernel_start.cuh"
#include "cuda/recorder.cuh"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"

namespace gapless {
namespace {

using namespace gapless::device;

template <typename F>
__device__ __forceinline__ void take_tile(const AttentionLaunch& launch, WarpState<F>& state,
                                          TileLoader<F>& loader, const Ring<F>& ring,
                                          const RingPlace& place, int valid_tokens,
                                          bool starts_next) {
  float scores[F::kQueryBlocks][4];
  wait_for_phase(ring.keys_barrier(place.slot), place.parity, launch.wait_limit,
                 DeviceWait::kAttentionKeys);
  state.add_keys(scores, ring.keys(place.slot));
  __syncwarp();  // every lane has read the keys: the next ones may come
  if (starts_next) loader.start_keys();

  uint32_t probabilities[F::kQueryBlocks][2];
  state.softmax(scores, probabilities, launch.score_scale, valid_tokens);

  wait_for_phase(ring.values_barrier(place.slot), place.parity, launch.wait_limit,
                 DeviceWait::kAttentionValues);
  if (valid_tokens < kAttentionTileTokens) clear_rows<F>(ring.values(place.slot), valid_tokens);
  state.add_values(probabilities, ring.values(place.slot));
  __syncwarp();
  if (starts_next) loader.start_values();
}

// How many tiles of a warp are on their way. Blocks have some tiles more or fewer than an equal
// share, since chunks are not divided, and warps one more or less; some SMs get less from memory
// than others. All are to end at one time, that at which all tiles of the launch could have been
// read, and so each tile of a warp is due at some time. Who has twice as many bytes in flight gets
// twice the bandwidth, at the cost of others: a warp that is on time keeps `calm_slots` tiles in
// flight, one that is late as many as its ring holds.
class Pace {
 public:
  // Now, with a full ring.
  __device__ Pace(const AttentionLaunch& launch, const Schedule& schedule, int tile_count)
      : due_(read_timer()), in_flight_(launch.buffers.ring_slots) {
    const float launch_ns = static_cast<float>(schedule.launch_ns);
    tile_ns_ = __float2uint_rn(__fdividef(launch_ns, static_cast<float>(tile_count)));
  }

  // Once before each tile: whether another one is asked for as soon as it has been taken.
  __device__ bool starts_next(const AttentionLaunch& launch) {
    // One answer for the warp: lanes need not read the timer in the same moment.
    const bool is_late = __any_sync(~0u, static_cast<int32_t>(read_timer() - due_) > 0);
    due_ += tile_ns_;
    wanted_ = is_late ? launch.buffers.ring_slots : launch.calm_slots;
    if (in_flight_ <= wanted_) return true;
    --in_flight_;
    return false;
  }
  // Once behind each tile: whether one more is.
  __device__ bool starts_more() {
    if (in_flight_ >= wanted_) return false;
    ++in_flight_;
    return true;
  }

 private:
  uint32_t due_;  // of the next tile, on the GPU's timer
  int in_flight_;
  uint32_t tile_ns_ = 0;  // from one tile to the next
  int wanted_ = 0;
};

// ---- The kernel.

template <typename F>
struct SharedMemory {
  Ring<F> ring;      // of this warp
  uint32_t queries;  // [query buffers][group_heads][kHeadDim]
  uint32_t first_ring_barriers;
  uint32_t query_barriers;   // [query buffers]: queries are there
  uint32_t full_barriers;    // [state buffers]: states are there
  uint32_t free_barriers;    // [state buffers]: states may be overwritten
  uint32_t partial_barrier;  // of the stage
  float* staged;             // [staged partials]
  std::byte* states;         // [state buffers]
  Schedule* schedule;

  __device__ SharedMemory(std::byte* memory, const AttentionLaunch& launch, int warp) {
    const AttentionShared& at = launch.shared;
    queries = shared_address(memory + at.queries);
    staged = reinterpret_cast<float*>(memory + at.staged);
    states = memory + at.states;
    first_ring_barriers = shared_address(memory + at.barriers);
    query_barriers = first_ring_barriers + at.ring_barrier_bytes;
    full_barriers = query_barriers + 8 * kAttentionMaxQueryBuffers;
    free_barriers = full_barriers + 8 * kAttentionMaxStateBuffers;
    partial_barrier = free_barriers + 8 * kAttentionMaxStateBuffers;
    schedule = reinterpret_cast<Schedule*>(memory + at.schedule);
    ring.tiles = shared_address(memory) + at.ring_bytes * warp;
    ring.barriers = first_ring_barriers + 16 * launch.buffers.ring_slots * warp;
  }
  __device__ uint32_t queries_in(const AttentionLaunch& launch, int buffer) const {
    return queries + buffer * launch.shared.query_bytes;
  }
  __device__ TileStates<F::kHeadDim> states_in(const AttentionLaunch& launch, int buffer) const {
    std::byte* state = states + buffer * launch.shared.state_bytes;
    float* maxima = reinterpret_cast<float*>(state + launch.shared.sum_bytes);
    return {reinterpret_cast<float*>(state), maxima, maxima + F::kWarps * kAttentionMaxGroup};
  }
  __device__ PartialStage partial_stage(const AttentionLaunch& launch) const {
    return {staged, partial_barrier, launch.buffers.staged};
  }
  // A warp makes one barrier after the other, and each takes 30 ns: so the warps that take tiles,
  // but for the first one, which works on the schedule, make those of their own ring and share
  // those of queries and of partials, and two of the combining warps make the others.
  __device__ void initialise_barriers(const AttentionLaunch& launch, int warp) const {
    const int lane = threadIdx.x % kWarpLanes;
    const int ring_barriers = 2 * launch.buffers.ring_slots;
    if (warp == 0) return;
    if (warp < F::kWarps) {
      const int number = warp - 1 + (lane - ring_barriers) * (F::kWarps - 1);
      if (lane < ring_barriers) {
        initialise_barrier(ring.barriers + 8 * lane, kCopyArrivals);
      } else if (number < kAttentionMaxQueryBuffers) {
        initialise_barrier(query_barriers + 8 * number, kCopyArrivals);
      } else if (number == kAttentionMaxQueryBuffers) {
        initialise_barrier(partial_barrier, kCopyArrivals);
      }
    } else if (warp == F::kWarps) {
      if (lane < ring_barriers) initialise_barrier(first_ring_barriers + 8 * lane, kCopyArrivals);
    } else if (warp == F::kWarps + 3) {
      if (lane < launch.buffers.state_buffers) {
        initialise_barrier(full_barriers + 8 * lane, F::kTileThreads);
        initialise_barrier(free_barriers + 8 * lane, F::kCombineThreads);
      }
    }
    publish_barriers();
  }
};
static_assert(kAttentionCombineWarps == 4);

// A first look at the page table, so that it is in L2 when the lengths are known.
__device__ __forceinline__ void prefetch_page_table(const AttentionLaunch& launch) {
  constexpr int kLineEntries = 32;
  const int64_t entry = int64_t{threadIdx.x} * kLineEntries;
  if (blockIdx.x == 0 && entry < launch.batch * launch.page_table_stride) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(launch.page_table + entry));
  }
}

// By one warp, as soon as the block begins: the front of a pair into L2. Most blocks begin with the
// front of a pair, and which one each has is known, and asked for, two microseconds later.
__device__ __forceinline__ void bring_front(const AttentionLaunch& launch, int row_bytes) {
  const int pair = static_cast<int>(blockIdx.x);
  const int sequence = divide(pair, launch.head_divider);
  const int place = threadIdx.x % kWarpLanes;  // of a page
  const int first_token = place * launch.page_tokens;
  const int most_tokens = min(launch.front_tokens, launch.max_length);
  if (sequence >= launch.batch || first_token >= most_tokens) return;
  const int page = __ldg(launch.page_table + sequence * launch.page_table_stride + place);
  const int length = min(__ldg(launch.lengths + sequence), most_tokens);
  const int bytes = min(length - first_token, launch.page_tokens) * row_bytes;
  if (bytes <= 0 || static_cast<uint32_t>(page) >= static_cast<uint32_t>(launch.page_count)) return;
  const std::byte* keys = launch.pages + page * launch.page_bytes +
                          2 * launch.block_bytes * (pair - sequence * launch.kv_heads);
  prefetch_into_l2(keys, bytes);
  prefetch_into_l2(keys + launch.block_bytes, bytes);
}

// Of a role, so many chunks that what it records of them fits, two or three phases each.
inline constexpr int kMostRecordedChunks = 16;
template <typename F>
struct RecordedChunks {
  int step = 1;
  int number = 0;

  __device__ RecordedChunks(const AttentionLaunch& launch, const Schedule& schedule) {
    if constexpr (F::kLevel == RecordLevel::kPhases) {
      step += schedule.block_places * kAttentionTileTokens /
              (launch.chunk_tokens * kMostRecordedChunks);
    }
  }
  __device__ bool next() { return F::kLevel == RecordLevel::kPhases && number++ % step == 0; }
};

template <typename F>
using MainRecorder = RoleRecorder<F::kLevel, DeviceRole::kMain, false>;
template <typename F>
using CombineRecorder = RoleRecorder<F::kLevel, DeviceRole::kCombine, true>;

template <typename F>
__device__ __forceinline__ void take_tiles(const AttentionLaunch& launch,
                                           const SharedMemory<F>& shared, int warp,
                                           MainRecorder<F>& recorder) {
  const Schedule& schedule = *shared.schedule;
  recorder.phase(DevicePhase::kReadAhead);
  TileLoader<F> loader(launch, schedule, shared.ring, warp);
  loader.fill_ring();
  recorder.phase(DevicePhase::kWaitLaunch);
  loader.wait();
  let_next_launch_start();
  TileLane<F> lane = {warp};
  Pace pace(launch, schedule, lane.tile_count(schedule.tiles));
  recorder.phase(DevicePhase::kWaitData);

  WarpState<F> state;
  RingPlace place;
  RingPlace query_place;
  RingPlace state_place = {0, 1};  // the states are free at first
  RecordedChunks<F> recorded(launch, schedule);
  bool is_new_pair = true;
  for (Walk walk(schedule); !walk.is_done(); walk.advance(launch, schedule)) {
    if (is_new_pair) {
      wait_for_phase(shared.query_barriers + 8 * query_place.slot, query_place.parity,
                     launch.wait_limit, DeviceWait::kAttentionQueries);
      state.load_queries(shared.queries_in(launch, query_place.slot), launch.group_heads);
      query_place.advance(launch.buffers.query_buffers);
    }
    is_new_pair = walk.ends_pair(schedule);
    state.clear();
    const int token_count = walk.cursor().token_count(launch);
    const int tile_lane = lane.number();
    if (F::kLevel == RecordLevel::kPhases && warp == 0 && recorded.number == 0 && token_count > 0) {
      wait_for_phase(shared.ring.keys_barrier(place.slot), place.parity, launch.wait_limit,
                     DeviceWait::kAttentionKeys);
    }
    if (recorded.next()) recorder.phase(DevicePhase::kWork, walk.cursor().chunk);
    const int step = F::kWarps * kAttentionTileTokens;
    for (int token = tile_lane * kAttentionTileTokens; token < token_count; token += step) {
      bool has_started = pace.starts_next(launch);
      take_tile(launch, state, loader, shared.ring, place, token_count - token, has_started);
      place.advance(launch.buffers.ring_slots);
      bool starts_more = pace.starts_more();
#pragma unroll 1  // so that the way to the next tile is in one place: it takes registers
      while (true) {
        if (has_started) loader.advance();
        if (!starts_more) break;
        loader.start_keys();
        loader.start_values();
        has_started = true;
        starts_more = false;
      }
    }
    wait_for_phase(shared.free_barriers + 8 * state_place.slot, state_place.parity,
                   launch.wait_limit, DeviceWait::kAttentionPlace);
    state.store(shared.states_in(launch, state_place.slot), tile_lane, launch.group_heads);
    arrive(shared.full_barriers + 8 * state_place.slot);
    state_place.advance(launch.buffers.state_buffers);
    lane.advance(tiles_in(token_count));
  }
}

// The last of the combining warps; it is not the one with the fences.
template <typename F>
inline constexpr int kQueryWarp = F::kWarps + kAttentionCombineWarps - 1;

// The queries of the next pair of the block, if there is one, for the warps that take tiles. By one
// warp.
template <typename F>
__device__ __forceinline__ void start_queries(const AttentionLaunch& launch,
                                              const SharedMemory<F>& shared, Walk& pairs,
                                              int buffer) {
  if (pairs.is_done() || threadIdx.x / kWarpLanes != kQueryWarp<F>) return;
  const typename F::T* source = static_cast<const typename F::T*>(launch.q) +
                                first_element<F::kHeadDim>(launch, pairs.cursor());
  start_copy(shared.queries_in(launch, buffer), source, launch.group_heads * F::kRowBytes,
             shared.query_barriers + 8 * buffer);
  pairs.advance_pair(launch, *shared.schedule);
}

// What the combining warps of a block do in a round: with a chunk, or without one when a row or a
// pair that other blocks have some of is complete. One copy of everything, in the order in which it
// may have to be done: code that an SM has not run yet is slow.
template <typename F>
class Combiner {
 public:
  __device__ Combiner(const AttentionLaunch& launch, const SharedMemory<F>& shared)
      : launch_(launch), schedule_(*shared.schedule), stage_(shared.partial_stage(launch)) {
    const Cursor& begin = schedule_.piece.begin;
    if (begin.chunk > 0) begin_front_ = front_chunks(launch, schedule_, begin);
  }

  // Whether a round without a chunk comes next, at the same cursor.
  __device__ bool has_left() const { return left_.count > 0; }

  // Before the chunk is there: what becomes of it.
  __device__ void prepare(const Cursor& cursor, uint32_t full_barrier, uint32_t parity) {
    const Piece& piece = schedule_.piece;
    const bool lacks_front = piece.lacks_front(cursor);
    const bool lacks_back = piece.lacks_back(cursor);
    const bool is_first = lacks_front && cursor.chunk == piece.begin.chunk;
    if (!lacks_front && !lacks_back) {
      held_ = Held::kPair;
    } else if (!is_one_row(cursor)) {
      const bool begins_row = cursor.chunk == row_begin_of(cursor);
      const bool ends_here = !lacks_back || row_end_of(cursor) <= piece.end.chunk;
      if (begins_row || is_first) held_ = begins_row && ends_here ? Held::kRow : Held::kChunk;
    } else if (lacks_back) {
      held_ = lacks_front ? Held::kChunk : Held::kFront;
    } else if (is_first || held_ == Held::kChunk) {
      // The block with the last chunk of a cut pair goes on with what the others left as soon as
      // all of it is there. What this block has left meanwhile is among it.
      const bool is_all = others_are_done<F>(launch_, schedule_, cursor, full_barrier, parity);
      held_ = is_all ? Held::kPair : Held::kChunk;
      if (is_all) left_ = left_before(cursor, cursor.chunk);
    }
  }
  __device__ void take_left() {
    fold_.take_over(launch_, left_, stage_);
    left_.count = 0;
  }
  __device__ void take_chunk(const TileStates<F::kHeadDim>& states) {
    fold_.add_chunk(launch_, states);
    ++chunk_count_;
  }
  // At the end of a round. `ends_pair`: the chunk is the block's last one of the pair. In a
  // rehearsal there is nothing yet, and nothing is stored.
  __device__ void finish(const Cursor& cursor, bool has_chunk, bool ends_pair, bool is_rehearsal,
                         CombineRecorder<F>& recorder) {
    const bool ends_row = !has_chunk || ends_row_at(cursor);
    if (held_ == Held::kPair) {
      if (ends_row) fold_.end_row();
      if (has_chunk && !cursor.is_last_chunk()) return;
      if (has_chunk) recorder.phase(DevicePhase::kStore, cursor.chunk);
      fold_.store(launch_, cursor, is_rehearsal);
      chunk_count_ = 0;
      return;
    }
    const bool is_due = ends_row || ends_pair;
    if (!is_due && held_ != Held::kChunk) return;  // it goes on in registers
    if (is_due && has_chunk) recorder.phase(DevicePhase::kWaitBlock, cursor.chunk);
    fold_.leave(launch_, first_partial(schedule_, cursor) + place_of_left(cursor));
    if (is_due && arrive_last(cursor)) expect_all(cursor);
  }

 private:
  // What of the pair is held in registers when a round has taken all that it takes.
  enum class Held {
    kPair,   // all of it so far, of this block's chunks and of others
    kFront,  // the same, of a pair of one row whose back others have
    kRow,    // a row so far, of a cut pair: the block has all of it, or takes it over
    kChunk   // the chunk
  };

  // What there is of a cut pair of one row. Its front is this block's own or that of the pair it
  // begins with.
  __device__ PartialRange left_before(const Cursor& cursor, int chunk_end) const {
    const Piece& piece = schedule_.piece;
    const int front = piece.lacks_front(cursor) ? begin_front_ : piece.end.chunk;
    return partials_before(schedule_, cursor, front, chunk_end);
  }
  // Of what is held, among the partials of the pair.
  __device__ int place_of_left(const Cursor& cursor) const {
    if (held_ == Held::kFront) return 0;
    return held_ == Held::kRow ? row_begin_of(cursor) : cursor.chunk;
  }
  // Counts in what this block has left: chunks of a row, or a row. True if it was the last.
  __device__ bool arrive_last(const Cursor& cursor) {
    const bool is_row = held_ == Held::kRow;
    const int row_begin = row_begin_of(cursor);
    // Chunks count at the row's first chunk, 0, 8, 16 and so on, so that the counter of chunk 1 is
    // free for rows.
    const int64_t number = first_partial(schedule_, cursor) + (is_row ? 1 : row_begin);
    const int arrivals = is_row ? 1 : chunk_count_;
    const int expected = is_row ? rows_of(cursor) : row_end_of(cursor) - row_begin;
    chunk_count_ = 0;
    return count_in<F>(launch_.counters + number, arrivals, expected);
  }
  // All of a row, or all rows, are left: the next round takes them.
  __device__ void expect_all(const Cursor& cursor) {
    if (is_one_row(cursor)) {
      left_ = left_before(cursor, cursor.chunk_count);
    } else if (held_ == Held::kRow) {
      left_ = partials_of_rows(schedule_, cursor);
    } else {
      left_ = partials_of_row(schedule_, cursor);
      held_ = Held::kRow;
      return;
    }
    held_ = Held::kPair;
  }

  const AttentionLaunch& launch_;
  const Schedule& schedule_;
  PartialStage stage_;
  PairFold<F> fold_;
  PartialRange left_;  // what is to be taken over next
  Held held_ = Held::kPair;
  int begin_front_ = 0;  // chunks of the pair that the piece begins in, in the block of its first
  int chunk_count_ = 0;  // that were taken and are not counted in
};

// At level kTasks, by the first of the combining warps, which has nothing to do yet: waits for the
// first keys, or for a first chunk without any, so that the warps that take tiles are those of the
// plain form. Keys that are there when the launch before is over are seen then, or the rehearsal
// would be between them and the recorder.
template <typename F>
class FirstKeys {
 public:
  __device__ void look(const SharedMemory<F>& shared, CombineRecorder<F>& recorder) {
    if (!is_mine()) return;
    were_there_ = is_phase_done(shared.first_ring_barriers, 0);
    if (were_there_) recorder.had_data();
  }
  __device__ void wait(const AttentionLaunch& launch, const SharedMemory<F>& shared,
                       CombineRecorder<F>& recorder) const {
    if (!is_mine() || were_there_) return;
    wait_for_either(shared.first_ring_barriers, shared.full_barriers, launch.wait_limit,
                    DeviceWait::kAttentionKeys);
    recorder.has_data();
  }

 private:
  __device__ static bool is_mine() {
    return F::kLevel == RecordLevel::kTasks && threadIdx.x / kWarpLanes == F::kWarps;
  }

  bool were_there_ = false;
};

template <typename F>
__device__ __forceinline__ void combine_chunks(const AttentionLaunch& launch,
                                               const SharedMemory<F>& shared,
                                               CombineRecorder<F>& recorder) {
  const Schedule& schedule = *shared.schedule;
  if (!schedule.has_room || schedule.piece.is_empty()) return recorder.end_idle();
  recorder.phase(DevicePhase::kWaitLaunch);
  wait_for_launch_before();
  recorder.waited();
  FirstKeys<F> first_keys;
  first_keys.look(shared, recorder);
  let_next_launch_start();
  Walk pairs(schedule);
  for (int i = 0; i < launch.buffers.query_buffers; ++i) start_queries<F>(launch, shared, pairs, i);
  Combiner<F> combiner(launch, shared);
  RingPlace state_place;
  int query_buffer = 0;
  RecordedChunks<F> recorded(launch, schedule);
  // What comes after the last chunk is gone through once before the first one, while there is
  // nothing to do, so that it is in the instruction cache when the launch ends.
  bool is_rehearsal = true;
#pragma unroll 1
  for (Walk walk(schedule); !walk.is_done();) {
    const Cursor& cursor = walk.cursor();
    const bool ends_pair = walk.ends_pair(schedule);
    const bool has_chunk = !is_rehearsal && !combiner.has_left();
    const uint32_t full_barrier = shared.full_barriers + 8 * state_place.slot;
    bool is_recorded = false;
    if (has_chunk) {
      is_recorded = recorded.next();
      if (is_recorded) recorder.phase(DevicePhase::kWaitData, cursor.chunk);
      combiner.prepare(cursor, full_barrier, state_place.parity);
    }
    if (combiner.has_left()) combiner.take_left();
    if (has_chunk) {
      wait_for_phase(full_barrier, state_place.parity, launch.wait_limit,
                     DeviceWait::kAttentionStates);
      if (is_recorded) recorder.phase(DevicePhase::kWork, cursor.chunk);
      if (ends_pair) {  // every warp is done with the queries of this pair
        start_queries<F>(launch, shared, pairs, query_buffer);
        if (++query_buffer == launch.buffers.query_buffers) query_buffer = 0;
      }
      combiner.take_chunk(shared.states_in(launch, state_place.slot));
      arrive(shared.free_barriers + 8 * state_place.slot);
      state_place.advance(launch.buffers.state_buffers);
    }
    combiner.finish(cursor, has_chunk, ends_pair, is_rehearsal, recorder);
    if (combiner.has_left()) continue;
    if (is_rehearsal) {
      first_keys.wait(launch, shared, recorder);
    } else {
      walk.advance(launch, schedule);
    }
    is_rehearsal = false;
  }
  recorder.end();
}

template <typename F>
__global__ void __launch_bounds__(F::kThreads, 1)
    attention_kernel(const __grid_constant__ AttentionLaunch launch) {
  extern __shared__ __align__(128) std::byte memory[];
  const int warp = threadIdx.x / kWarpLanes;
  // Two warps work on the schedule and one brings a front while the others make the barriers.
  constexpr int kPartialWarp = F::kWarps + 1;
  constexpr int kFrontWarp = F::kWarps + 2;
  const int length = thread_length(launch, kPartialWarp);
  MainRecorder<F> main_recorder(launch.recorder, threadIdx.x == 0);
  main_recorder.begin(DevicePhase::kSetUp);
  CombineRecorder<F> combine_recorder(launch.recorder, threadIdx.x == F::kTileThreads);
  combine_recorder.enter();
  const SharedMemory<F> shared(memory, launch, warp);
  if (warp == kFrontWarp) {
    bring_front(launch, F::kRowBytes);
  } else if (warp != kPartialWarp) {
    shared.initialise_barriers(launch, warp);
  }
  prefetch_page_table(launch);
  if (launch.has_schedules) {
    load_schedule(launch, *shared.schedule);
  } else {
    make_schedule(launch, *shared.schedule, length, kPartialWarp);
    if (launch.schedules != nullptr) store_schedule(launch, *shared.schedule);
  }
  if (warp < F::kWarps) {
    take_tiles<F>(launch, shared, warp, main_recorder);
    main_recorder.end();
  } else if (F::kThreads == F::kTileThreads + F::kCombineThreads || warp <= kQueryWarp<F>) {
    combine_recorder.begin(DevicePhase::kSetUp);
    combine_chunks<F>(launch, shared, combine_recorder);
  }
}

// ---- From numbers to a kernel.

using Kernel = void (*)(AttentionLaunch);

template <typename T, int HeadDim, RecordLevel kLevel>
Kernel kernel_of_blocks(int query_blocks) {
  if (query_blocks == 1) return attention_kernel<Form<T, HeadDim, 1, kLevel>>;
  if (query_blocks == 2) return attention_kernel<Form<T, HeadDim, 2, kLevel>>;
  return nullptr;
}

template <typename T, RecordLevel kLevel>
Kernel kernel_of_dim(const AttentionForm& form) {
  if (form.head_dim == 64) return kernel_of_blocks<T, 64, kLevel>(form.query_blocks);
  if (form.head_dim == 128) return kernel_of_blocks<T, 128, kLevel>(form.query_blocks);
  if (form.head_dim == 256) return kernel_of_blocks<T, 256, kLevel>(form.query_blocks);
  return nullptr;
}

template <typename T>
Kernel kernel_of_type(const AttentionForm& form) {
  return with_level(
      form.level, [&](auto constant) { return kernel_of_dim<T, decltype(constant)::value>(form); });
}

Kernel kernel_of(const AttentionForm& form) {
  return form.is_bf16 ? kernel_of_type<__nv_bfloat16>(form) : kernel_of_type<__half>(form);
}

}  // namespace

int attention_blocks_per_sm(const AttentionForm& form, int64_t shared_bytes, int* blocks) {
  const Kernel kernel = kernel_of(form);
  const int status = allow_shared_bytes(kernel, shared_bytes);
  if (status != cudaSuccess) return status;
  // The other code has another number of warps: it would find nothing where the host put it.
  if (runs_sm90_code() != form.is_sm90) return cudaErrorInvalidDeviceFunction;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), form.threads(),
      static_cast<size_t>(shared_bytes));
}

int attention_launch_kernel(const AttentionForm& form, const AttentionLaunch& launch, int blocks,
                            int64_t shared_bytes, bool starts_early, void* stream) {
  return start_kernel(kernel_of(form), launch,
                      {.blocks = blocks,
                       .threads = form.threads(),
                       .shared_bytes = shared_bytes,
                       .starts_early = starts_early,
                       .stream = stream});
}

}  // namespace gapless
