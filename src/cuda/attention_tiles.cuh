// SPDX-License-Identifier: Apache-2.0
//
// Tiles of 16 tokens on their way into a warp: which ones, in which order, and the ring in shared
// memory that they are copied to. A warp has a ring of its own and waits for nobody else's copies.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention_launch.h"
#include "cuda/attention_schedule.cuh"
#include "cuda/tensor_ops.cuh"

namespace gapless::device {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kIsSm90 = true;
#else
inline constexpr bool kIsSm90 = false;
#endif

// What a kernel is compiled for.
template <typename T_, int HeadDim_, int QueryBlocks_, RecordLevel kLevel_>
struct Form {
  using T = T_;
  static constexpr RecordLevel kLevel = kLevel_;
  static constexpr int kHeadDim = HeadDim_;
  static constexpr int kQueryBlocks = QueryBlocks_;
  static constexpr AttentionForm kForm = {.head_dim = HeadDim_, .is_sm90 = kIsSm90};
  static constexpr int kWarps = kForm.warps();
  static constexpr int kTileThreads = kWarps * kWarpLanes;
  static constexpr int kCombineThreads = kAttentionCombineWarps * kWarpLanes;
  static constexpr int kThreads = kForm.threads();  // the last ones may have nothing else to do
  static_assert((kWarps & (kWarps - 1)) == 0);
  static constexpr int kRowBytes = HeadDim_ * 2;
  static constexpr int kTileBytes = kAttentionTileTokens * kRowBytes;
  static constexpr int kSteps = HeadDim_ / 16;  // of 16 dims
};

// In shared memory: what was found in the tiles of each lane of a chunk.
template <int HeadDim>
struct TileStates {
  float* sums;    // [lanes][group][HeadDim + kAttentionStatePadFloats]
  float* maxima;  // [lanes][kAttentionMaxGroup]
  float* totals;  // [lanes][kAttentionMaxGroup]

  __device__ float* row(int lane, int group_heads, int head) const {
    return sums + (lane * group_heads + head) * (HeadDim + kAttentionStatePadFloats);
  }
};

// Keys and values of tiles in flight.
template <typename F>
struct Ring {
  uint32_t tiles;     // [slots][keys, values][kTileBytes]
  uint32_t barriers;  // [slots][keys, values]

  __device__ uint32_t keys(int slot) const { return tiles + 2 * slot * F::kTileBytes; }
  __device__ uint32_t values(int slot) const { return keys(slot) + F::kTileBytes; }
  __device__ uint32_t keys_barrier(int slot) const { return barriers + 16 * slot; }
  __device__ uint32_t values_barrier(int slot) const { return keys_barrier(slot) + 8; }
};

// A place in the ring and the phase of its barriers.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int slots) {
    if (++slot < slots) return;
    slot = 0;
    parity ^= 1;
  }
};

// Which of a chunk's tiles a warp takes: in every chunk, the warps go on where the last one ended,
// so that none gets more than the others. What is computed depends on which tiles are taken
// together, the tiles of a lane, not on which warp has them.
template <typename F>
struct TileLane {
  int warp;
  int tiles_before = 0;  // of the block, modulo the number of warps

  __device__ int number() const { return (warp - tiles_before) & (F::kWarps - 1); }
  // Of the block's tiles, those of this warp, at least 1.
  __device__ int tile_count(int block_tiles) const {
    return max(block_tiles - warp + F::kWarps - 1, F::kWarps) / F::kWarps;
  }
  __device__ void advance(int chunk_tiles) {
    tiles_before = (tiles_before + chunk_tiles) & (F::kWarps - 1);
  }
};

__device__ __forceinline__ int tiles_in(int token_count) {
  return (token_count + kAttentionTileTokens - 1) / kAttentionTileTokens;
}

// The tiles of a warp in the order in which it takes them, chunk after chunk; it begins before the
// first one. Page numbers are loaded one chunk ahead: thread i has the page of the warp's tile i.
template <typename F>
class TileSource {
 public:
  __device__ TileSource(const AttentionLaunch& launch, const Schedule& schedule, int warp)
      : launch_(launch), schedule_(schedule), next_(schedule), lane_{warp} {}

  __device__ bool has_tile() const { return tile_ < tile_count_; }
  // The tile that holds the newest token of its sequence, which the launch before may have written.
  __device__ bool is_newest() const { return tile_ == newest_tile_; }
  // Keys of the present tile; the values lie block_bytes behind them.
  __device__ const std::byte* keys() const {
    return reinterpret_cast<const std::byte*>(
        __shfl_sync(~0u, reinterpret_cast<unsigned long long>(thread_keys_), tile_));
  }
  __device__ void advance() {
    if (++tile_ < tile_count_) return;
    take_next_chunk();
    find_next_chunk();
  }
  // The same before and behind each of the first tiles, in one copy for both. The chunk behind the
  // first one is looked for when copies of a tile are on their way.
  __device__ void advance_at_begin() {
    bool has_taken = false;
#pragma unroll 1
    while (true) {
      if (!knows_next_) find_next_chunk();
      knows_next_ = true;
      if (has_taken || ++tile_ < tile_count_) return;
      take_next_chunk();
      has_taken = true;
      knows_next_ = false;
      if (is_first_) break;
    }
    is_first_ = false;
  }

 private:
  // How many tiles of the chunk are this warp's; starts to load their pages.
  __device__ void look_at_next_chunk() {
    const int tiles = tiles_in(next_.cursor().token_count(launch_));
    const int lane = lane_.number();
    next_count_ = tiles > lane ? (tiles - lane - 1) / F::kWarps + 1 : 0;
    const bool has_newest = next_.cursor().is_last_chunk() && (tiles - 1) % F::kWarps == lane;
    next_newest_ = has_newest ? next_count_ - 1 : -1;
    load_page(lane);
    lane_.advance(tiles);
  }
  // The next chunk in which this warp has a tile.
  __device__ void find_next_chunk() {
    next_count_ = 0;
    for (; next_count_ == 0 && !next_.is_done(); next_.advance(launch_, schedule_)) {
      look_at_next_chunk();
    }
  }

  __device__ void load_page(int lane) {
    const int thread = threadIdx.x % kWarpLanes;
    if (thread >= next_count_) return;
    const Cursor& cursor = next_.cursor();
    const int tile = lane + thread * F::kWarps;
    const int token = cursor.first_token(launch_) + tile * kAttentionTileTokens;
    const int place = divide(token, launch_.page_factor);
    const int in_page = token - place * launch_.page_tokens;
    next_offset_ = 2 * launch_.block_bytes * cursor.kv_head() + in_page * F::kRowBytes;
    next_page_ = __ldg(launch_.page_table + cursor.sequence() * launch_.page_table_stride + place);
  }

  __device__ void take_next_chunk() {
    const int thread = threadIdx.x % kWarpLanes;
    tile_ = 0;
    tile_count_ = next_count_;
    newest_tile_ = next_newest_;
    if (thread < next_count_) {
      if (static_cast<uint32_t>(next_page_) >= static_cast<uint32_t>(launch_.page_count)) {
        atomicOr(launch_.status, kAttentionBadPage);
        next_page_ = 0;
      }
      thread_keys_ = launch_.pages + next_page_ * launch_.page_bytes + next_offset_;
    }
  }

  const AttentionLaunch& launch_;
  const Schedule& schedule_;
  Walk next_;
  TileLane<F> lane_;
  bool is_first_ = true;  // no chunk has been taken yet
  bool knows_next_ = false;
  int tile_ = -1;
  int tile_count_ = 0;
  int newest_tile_ = -1;
  const std::byte* thread_keys_ = nullptr;
  int next_count_ = 0;
  int next_newest_ = -1;
  int next_page_ = 0;
  int64_t next_offset_ = 0;
};

// Starts copies, keys first and values when the caller says so.
template <typename F>
class TileLoader {
 public:
  __device__ TileLoader(const AttentionLaunch& launch, const Schedule& schedule,
                        const Ring<F>& ring, int warp)
      : launch_(launch), ring_(ring), source_(launch, schedule, warp) {}

  // For what the launch before wrote: q, and the newest token of each sequence.
  __device__ void wait() {
    if (!has_waited_) wait_for_launch_before();
    has_waited_ = true;
  }

  __device__ void start_keys() {
    values_ = nullptr;
    if (!source_.has_tile()) return;
    if (source_.is_newest()) wait();
    const std::byte* keys = source_.keys();
    values_ = keys + launch_.block_bytes;
    start_copy(ring_.keys(slot_), keys, F::kTileBytes, ring_.keys_barrier(slot_));
  }
  __device__ void start_values() {
    if (values_ == nullptr) return;
    start_copy(ring_.values(slot_), values_, F::kTileBytes, ring_.values_barrier(slot_));
    if (++slot_ == launch_.buffers.ring_slots) slot_ = 0;
  }
  // After each tile that was started, and before the next one is.
  __device__ void advance() {
    if (source_.has_tile()) source_.advance();
  }
  // The first tiles, as many as the ring holds.
  __device__ void fill_ring() {
#pragma unroll 1
    for (int slot = 0;; ++slot) {
      if (slot == 0 || source_.has_tile()) source_.advance_at_begin();
      if (slot == launch_.buffers.ring_slots) break;
      start_keys();
      start_values();
    }
  }

 private:
  const AttentionLaunch& launch_;
  const Ring<F>& ring_;
  TileSource<F> source_;
  const std::byte* values_ = nullptr;
  int slot_ = 0;
  bool has_waited_ = false;
};

}  // namespace gapless::device
