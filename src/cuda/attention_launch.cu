// SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on tensor cores: attention.h says what it computes.
//
// A block takes a row of chunks (attention_schedule.cuh). Each warp has every W-th tile of 16
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
#include "cuda/tensor_ops.cuh"

namespace gapless {
namespace {

using namespace gapless::device;

template <typename F>
__device__ __forceinline__ void take_tile(const AttentionLaunch& launch, WarpState<F>& state,
                                          TileLoader<F>& loader, const Ring<F>& ring,
                                          const RingPlace& place, int valid_tokens) {
  float scores[F::kQueryBlocks][4];
  wait_for_phase(ring.keys_barrier(place.slot), place.parity);
  state.add_keys(scores, ring.keys(place.slot));
  __syncwarp();  // every lane has read the keys: the next ones may come
  loader.start_keys();

  uint32_t probabilities[F::kQueryBlocks][2];
  state.softmax(scores, probabilities, launch.score_scale, valid_tokens);

  wait_for_phase(ring.values_barrier(place.slot), place.parity);
  if (valid_tokens < kAttentionTileTokens) clear_rows<F>(ring.values(place.slot), valid_tokens);
  state.add_values(probabilities, ring.values(place.slot));
  __syncwarp();
  loader.start_values();
}

// ---- The kernel.

template <typename F>
struct SharedMemory {
  Ring<F> ring;             // of this warp
  uint32_t queries;         // [query buffers][group_heads][kHeadDim]
  uint32_t query_barriers;  // [query buffers]: queries are there
  uint32_t full_barriers;   // [state buffers]: states are there
  uint32_t free_barriers;   // [state buffers]: states may be overwritten
  float* states;            // [state buffers]
  Schedule* schedule;

  __device__ SharedMemory(std::byte* memory, const AttentionLaunch& launch, int warp) {
    const int slots = launch.ring_slots;
    const int ring_bytes = 2 * F::kTileBytes * F::kWarps * slots;
    const int query_bytes = kAttentionQueryBuffers * launch.group_heads * F::kRowBytes;
    const int barrier_bytes =
        8 * (2 * F::kWarps * slots + kAttentionQueryBuffers + 2 * kAttentionMaxStateBuffers);
    queries = shared_address(memory) + ring_bytes;
    const uint32_t barriers = queries + query_bytes;
    query_barriers = barriers + 16 * F::kWarps * slots;
    full_barriers = query_barriers + 8 * kAttentionQueryBuffers;
    free_barriers = full_barriers + 8 * kAttentionMaxStateBuffers;
    states = reinterpret_cast<float*>(memory + ring_bytes + query_bytes + barrier_bytes);
    schedule = reinterpret_cast<Schedule*>(states +
                                           launch.state_buffers * state_floats(launch.group_heads));
    ring.tiles = shared_address(memory) + 2 * F::kTileBytes * slots * warp;
    ring.barriers = barriers + 16 * slots * warp;
  }
  __device__ static int state_floats(int group_heads) {
    return F::kWarps * (group_heads * (F::kHeadDim + kStatePadFloats) + 2 * kMaxGroup);
  }
  __device__ uint32_t queries_in(const AttentionLaunch& launch, int buffer) const {
    return queries + buffer * launch.group_heads * F::kRowBytes;
  }
  __device__ WarpStates<F::kHeadDim> states_in(const AttentionLaunch& launch, int buffer) const {
    float* sums = states + buffer * state_floats(launch.group_heads);
    float* maxima = sums + F::kWarps * launch.group_heads * (F::kHeadDim + kStatePadFloats);
    return {sums, maxima, maxima + F::kWarps * kMaxGroup};
  }
  __device__ void initialise_barriers(const AttentionLaunch& launch, int warp) const {
    for (int i = 0; i < 2 * launch.ring_slots; ++i) {
      initialise_barrier(ring.barriers + 8 * i, kCopyArrivals);
    }
    for (int i = 0; warp == 0 && i < kAttentionQueryBuffers; ++i) {
      initialise_barrier(query_barriers + 8 * i, kCopyArrivals);
    }
    for (int i = 0; warp == 0 && i < launch.state_buffers; ++i) {
      initialise_barrier(full_barriers + 8 * i, F::kTileThreads);
      initialise_barrier(free_barriers + 8 * i, kCombineThreads);
    }
    publish_barriers();
  }
};

// A first look at the page table, so that it is in L2 when the lengths are known.
__device__ __forceinline__ void prefetch_page_table(const AttentionLaunch& launch) {
  constexpr int kLineEntries = 32;
  const int64_t entry = int64_t{threadIdx.x} * kLineEntries;
  if (blockIdx.x == 0 && entry < launch.batch * launch.page_table_stride) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(launch.page_table + entry));
  }
}

template <typename F>
__device__ __forceinline__ void take_tiles(const AttentionLaunch& launch,
                                           const SharedMemory<F>& shared, int warp) {
  const Schedule& schedule = *shared.schedule;
  const Piece piece = schedule.piece;
  TileLoader<F> loader(launch, schedule, shared.ring, warp);
  for (int slot = 0; slot < launch.ring_slots; ++slot) {
    loader.start_keys();
    loader.start_values();
  }
  loader.wait();
  let_next_launch_start();

  WarpState<F> state;
  RingPlace place;
  RingPlace query_place;
  RingPlace state_place = {0, 1};  // the states are free at first
  bool is_new_pair = true;
  for (Cursor cursor = piece.begin; !(cursor == piece.end); cursor.advance(launch, schedule)) {
    if (is_new_pair) {
      wait_for_phase(shared.query_barriers + 8 * query_place.slot, query_place.parity);
      state.load_queries(shared.queries_in(launch, query_place.slot), launch.group_heads);
      query_place.advance(kAttentionQueryBuffers);
    }
    is_new_pair = cursor.is_last_chunk();
    state.clear();
    const int token_count = cursor.token_count(launch);
    const int step = F::kWarps * kAttentionTileTokens;
    for (int token = warp * kAttentionTileTokens; token < token_count; token += step) {
      take_tile(launch, state, loader, shared.ring, place, token_count - token);
      place.advance(launch.ring_slots);
    }
    wait_for_phase(shared.free_barriers + 8 * state_place.slot, state_place.parity);
    state.store(shared.states_in(launch, state_place.slot), warp, launch.group_heads);
    arrive(shared.full_barriers + 8 * state_place.slot);
    state_place.advance(launch.state_buffers);
  }
}

// The queries of a pair, if the block has it, for the warps that take tiles. By one warp, which is
// not the one with the fences.
template <typename F>
__device__ __forceinline__ void start_queries(const AttentionLaunch& launch,
                                              const SharedMemory<F>& shared, const Piece& piece,
                                              Cursor& pair, int buffer) {
  const bool is_past = pair.sequence > piece.end.sequence ||
                       (pair.sequence == piece.end.sequence &&
                        (pair.kv_head > piece.end.kv_head ||
                         (pair.kv_head == piece.end.kv_head && piece.end.chunk == 0)));
  if (is_past || threadIdx.x / kWarpLanes != F::kThreads / kWarpLanes - 1) return;
  const typename F::T* source =
      static_cast<const typename F::T*>(launch.q) + first_element<F::kHeadDim>(launch, pair);
  start_copy(shared.queries_in(launch, buffer), source, launch.group_heads * F::kRowBytes,
             shared.query_barriers + 8 * buffer);
  pair.advance_pair(launch, *shared.schedule);
}

template <typename F>
__device__ __forceinline__ void combine_chunks(const AttentionLaunch& launch,
                                               const SharedMemory<F>& shared) {
  using T = typename F::T;
  Schedule& schedule = *shared.schedule;
  const Piece piece = schedule.piece;
  if (piece.begin == piece.end) return;
  wait_for_launch_before();
  let_next_launch_start();
  Cursor next_pair = piece.begin;
  for (int i = 0; i < kAttentionQueryBuffers; ++i)
    start_queries<F>(launch, shared, piece, next_pair, i);
  PairFold<T, F::kHeadDim, F::kQueryBlocks> fold;
  RingPlace state_place;
  int query_buffer = 0;
  int unannounced = 0;  // partials that are written but not counted in
  for (Cursor cursor = piece.begin; !(cursor == piece.end); cursor.advance(launch, schedule)) {
    const WarpStates<F::kHeadDim> states = shared.states_in(launch, state_place.slot);
    const int64_t first =
        schedule.partial_begin[cursor.sequence] + int64_t{cursor.kv_head} * cursor.chunk_count;
    const bool is_whole = piece.is_whole(cursor);
    wait_for_phase(shared.full_barriers + 8 * state_place.slot, state_place.parity);
    if (cursor.is_last_chunk()) {  // every warp is done with the queries of this pair
      start_queries<F>(launch, shared, piece, next_pair, query_buffer);
      query_buffer = (query_buffer + 1) % kAttentionQueryBuffers;
    }
    if (is_whole) {
      fold.add_chunk(launch, states, F::kWarps, cursor);
    } else {
      store_chunk<F::kHeadDim>(launch, states, F::kWarps, first + cursor.chunk);
    }
    arrive(shared.free_barriers + 8 * state_place.slot);
    state_place.advance(launch.state_buffers);
    if (!is_whole) {
      ++unannounced;
      Cursor next = cursor;
      next.advance(launch, schedule);
      if (!ends_row_at(cursor) && !(next == piece.end)) continue;
      arrive_with_partials<T, F::kHeadDim>(launch, schedule, cursor, first, unannounced);
      unannounced = 0;
    } else if (cursor.is_last_chunk()) {
      fold.store(launch, cursor);
    }
  }
}

template <typename F>
__global__ void __launch_bounds__(F::kThreads, 1)
    attention_kernel(const __grid_constant__ AttentionLaunch launch) {
  extern __shared__ __align__(128) std::byte memory[];
  const int warp = threadIdx.x / kWarpLanes;
  const SharedMemory<F> shared(memory, launch, warp);
  prefetch_page_table(launch);
  const int length = thread_length(launch);  // on its way while the barriers are made
  if (warp < F::kWarps && threadIdx.x % kWarpLanes == 0) {
    shared.initialise_barriers(launch, warp);
  }
  make_schedule(launch, *shared.schedule, length);
  if (warp < F::kWarps) {
    take_tiles<F>(launch, shared, warp);
  } else {
    combine_chunks<F>(launch, shared);
  }
}

// ---- From numbers to a kernel.

using Kernel = void (*)(AttentionLaunch);

template <typename T, int HeadDim>
Kernel kernel_of_blocks(int query_blocks) {
  if (query_blocks == 1) return attention_kernel<Form<T, HeadDim, 1>>;
  if (query_blocks == 2) return attention_kernel<Form<T, HeadDim, 2>>;
  return nullptr;
}

template <typename T>
Kernel kernel_of_dim(const AttentionForm& form) {
  if (form.head_dim == 64) return kernel_of_blocks<T, 64>(form.query_blocks);
  if (form.head_dim == 128) return kernel_of_blocks<T, 128>(form.query_blocks);
  if (form.head_dim == 256) return kernel_of_blocks<T, 256>(form.query_blocks);
  return nullptr;
}

Kernel kernel_of(const AttentionForm& form) {
  return form.is_bf16 ? kernel_of_dim<__nv_bfloat16>(form) : kernel_of_dim<__half>(form);
}

int threads_of(const AttentionForm& form) { return form.warps() * kWarpLanes + kCombineThreads; }

const void* kernel_address(Kernel kernel) { return reinterpret_cast<const void*>(kernel); }

}  // namespace

int attention_prepare_kernel(const AttentionForm& form, int64_t shared_bytes) {
  const Kernel kernel = kernel_of(form);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return cudaFuncSetAttribute(kernel_address(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared_bytes));
}

int attention_blocks_per_sm(const AttentionForm& form, int64_t shared_bytes, int* blocks) {
  const Kernel kernel = kernel_of(form);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, kernel_address(kernel), form.warps() * kWarpLanes, static_cast<size_t>(shared_bytes));
}

int attention_launch_kernel(const AttentionForm& form, const AttentionLaunch& launch, int blocks,
                            int64_t shared_bytes, bool starts_early, void* stream) {
  const Kernel kernel = kernel_of(form);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads_of(form)));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = starts_early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

}  // namespace gapless
