// SPDX-License-Identifier: Apache-2.0
//
// A block's bricks in stages, and the ring they go through in shared memory. One warp copies
// weights, one tokens, the others multiply: "full" barriers say that a stage is there, "free" ones
// that all lanes read it. (One lane a warp would do. So racecheck sees who waits for whom, and it
// takes no longer.)

#pragma once

#include <cstdint>

#include "cuda/matmul_launch.h"
#include "cuda/recorder.cuh"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"

namespace gapless::device {

inline constexpr int kLanesPerUnit = kMatmulUnitBytes / 16;
// Few tokens are copied by lanes, more by the copy engine where there is one.
#if __CUDA_ARCH__ >= 900
template <int kTokenTiles>
inline constexpr bool kLanesCopyTokens = kTokenTiles < kMatmulEngineTokenTiles;
inline constexpr int kWeightArrivals = 1;  // with the bytes that the copy engine will bring
#else
template <int kTokenTiles>
inline constexpr bool kLanesCopyTokens = true;
inline constexpr int kWeightArrivals = kWarpLanes;
#endif
inline constexpr int kStagesAtOnce = 2;  // of a ring that is filled; the others one by one
inline constexpr uint32_t kFillPauseClocks = 1500;
// Of a stage that is there.
template <int kTokenTiles>
inline constexpr int kStageArrivals = kWeightArrivals +
                                      (kLanesCopyTokens<kTokenTiles> ? kWarpLanes : 1);

// Blocks are numbered from the end: a block waits for those after it only, and the hardware starts
// those first.
__device__ __forceinline__ int block_index(const MatmulLaunch& launch) {
  return launch.blocks - 1 - static_cast<int>(blockIdx.x);
}
// Block b has bricks [first_brick(b), first_brick(b + 1)).
__device__ __forceinline__ int first_brick(const MatmulLaunch& launch, int block) {
  return static_cast<int>(launch.block_bricks.divisor) * block + min(block, launch.extra_bricks);
}
__device__ __forceinline__ int divide(int number, const MatmulDivisor& by) {
  const uint32_t n = static_cast<uint32_t>(number);
  const uint32_t quotient = __umulhi(n, by.multiplier);
  return static_cast<int>(n - quotient * by.divisor < by.divisor ? quotient : quotient + 1);
}
__device__ __forceinline__ int tile_bricks(const MatmulLaunch& launch) {
  return static_cast<int>(launch.tile_bricks.divisor);
}
__device__ __forceinline__ int tile_of_brick(const MatmulLaunch& launch, int brick) {
  return divide(brick, launch.tile_bricks);
}
__device__ __forceinline__ int block_of_brick(const MatmulLaunch& launch, int brick) {
  const int in_large = launch.extra_bricks * static_cast<int>(launch.large_block_bricks.divisor);
  if (brick < in_large) return divide(brick, launch.large_block_bricks);
  return launch.extra_bricks + divide(brick - in_large, launch.block_bricks);
}

template <int kTileRows>
inline constexpr int kBrickBytes = matmul_brick_bytes(kTileRows);
template <int kTokenTiles>
inline constexpr int kUnitBytes = matmul_unit_bytes(kTokenTiles);
template <int kTileRows>
__device__ __forceinline__ const std::byte* brick_begin(const MatmulLaunch& launch, int brick) {
  return launch.weights + int64_t{brick} * kBrickBytes<kTileRows>;
}

// A stage: bricks of one tile that follow each other.
struct StageCursor {
  int brick;  // of all
  int end;    // of the block's bricks
  int tile;
  int k_brick;  // of the tile

  __device__ explicit StageCursor(const MatmulLaunch& launch) {
    brick = first_brick(launch, block_index(launch));
    end = first_brick(launch, block_index(launch) + 1);
    tile = tile_of_brick(launch, brick);
    k_brick = brick - tile * tile_bricks(launch);
  }
  __device__ bool is_done() const { return brick == end; }
  __device__ int count(const MatmulLaunch& launch) const {
    return min(launch.stage_bricks, min(tile_bricks(launch) - k_brick, end - brick));
  }
  // The stage is the last one of its tile, or of the block.
  __device__ bool ends_piece(const MatmulLaunch& launch, int bricks) const {
    return k_brick + bricks == tile_bricks(launch) || brick + bricks == end;
  }
  __device__ void advance(const MatmulLaunch& launch, int bricks) {
    brick += bricks;
    k_brick += bricks;
    if (k_brick < tile_bricks(launch)) return;
    k_brick = 0;
    ++tile;
  }
};

struct RingSlot {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int slots) {
    if (++slot < slots) return;
    slot = 0;
    parity ^= 1;
  }
};

// Whoever fills slots begins with it: they are free at first.
inline constexpr RingSlot kFreeSlot = {0, 1};

struct StageRing {
  uint32_t stages;
  // [slots] full, [slots] free, of the epoch; then the epoch, over, begun, the fold.
  uint32_t barriers;
  int stage_bytes;
  int slots;
  int weight_bytes;

  __device__ StageRing(const std::byte* memory, const MatmulLaunch& launch, int brick_bytes)
      : stages(shared_address(memory)),
        barriers(stages + launch.ring_slots * launch.stage_bytes),
        stage_bytes(launch.stage_bytes),
        slots(launch.ring_slots),
        weight_bytes(launch.stage_bricks * brick_bytes) {}
  __device__ uint32_t weights(int slot) const { return stages + slot * stage_bytes; }
  __device__ uint32_t tokens(int slot) const { return weights(slot) + weight_bytes; }
  __device__ uint32_t full(int slot) const { return barriers + 8 * slot; }
  __device__ uint32_t free(int slot) const { return barriers + 8 * (slots + slot); }
  __device__ uint32_t epoch_barrier() const { return barriers + 16 * slots; }
  __device__ uint32_t epoch() const { return epoch_barrier() + 8; }
  __device__ uint32_t over() const { return epoch_barrier() + 16; }   // of a block that is observed
  __device__ uint32_t begun() const { return epoch_barrier() + 24; }  // the launch before has ended
  __device__ uint32_t fold() const { return epoch_barrier() + 32; }
  __device__ void initialise(int stage_arrivals) const {
    initialise_barrier(epoch_barrier(), 1);
    initialise_barrier(begun(), 1);
#pragma unroll 1
    for (int slot = 0; slot < slots; ++slot) {
      initialise_barrier(full(slot), stage_arrivals);
      initialise_barrier(free(slot), kMatmulWarps * kWarpLanes);
    }
    publish_barriers();
  }
};

// All lanes of a copying warp call one of these two, which together fill a stage.
template <int kTileRows>
__device__ __forceinline__ void start_weights(const MatmulLaunch& launch, const StageRing& ring,
                                              const StageCursor& cursor, int slot) {
  const std::byte* source = brick_begin<kTileRows>(launch, cursor.brick);
  const int bytes = cursor.count(launch) * kBrickBytes<kTileRows>;
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x % kWarpLanes == 0) {
    uint64_t policy;  // weights are read once: they leave L2 before anything else does
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    announce(ring.full(slot), bytes);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4;" ::"r"(ring.weights(slot)),
        "l"(source), "r"(bytes), "r"(ring.full(slot)), "l"(policy)
        : "memory");
  }
  __syncwarp();
#else
  for (int at = threadIdx.x % kWarpLanes * 16; at < bytes; at += 16 * kWarpLanes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ring.weights(slot) + at),
                 "l"(source + at)
                 : "memory");
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(ring.full(slot)) : "memory");
#endif
}

// Of a token's piece of 16 bytes, from the first token of a unit on; for 8 tokens and all that
// follow them by multiples of 8.
__device__ __forceinline__ int token_piece(int token, int piece) {
  return token * kMatmulUnitBytes + (piece ^ token / 2 % kLanesPerUnit) * 16;
}

// How a warp copies the tokens of a stage by 16 bytes a lane: a bulk copy for each token's few
// bytes takes 50 ns each to start. Eight tokens at a time.
template <int kTokenTiles>
struct TokenLanes {
  const std::byte* source;  // of the lane: its first token
  uint32_t target;          // in a stage
  int tokens;               // from its first one on

  __device__ TokenLanes(const MatmulLaunch& launch, const StageRing& ring) {
    const int lane = threadIdx.x % kWarpLanes;
    const int token = lane / kLanesPerUnit;
    const int piece = lane % kLanesPerUnit;
    source = launch.x + token * launch.x_stride + piece * 16;
    target = ring.stages + ring.weight_bytes + token_piece(token, piece);
    tokens = launch.tokens - token;
    compute_here(source != nullptr && static_cast<int>(target) >= 0 && tokens > -kMatmulTokenTile);
  }
  __device__ void start(const MatmulLaunch& launch, const StageRing& ring,
                        const StageCursor& cursor, int slot) const {
    constexpr int kUnitsTogether = 4;
    constexpr int kUnitStep = kUnitBytes<kTokenTiles>;
    const std::byte* from = source + cursor.k_brick * kMatmulUnitBytes;
    uint32_t to = target + slot * ring.stage_bytes;
#pragma unroll 1
    for (int left = tokens; left > 0; left -= kMatmulTokenTile) {
      const std::byte* unit = from;
      uint32_t unit_to = to;
#pragma unroll 1
      for (int units = cursor.count(launch); units > 0; units -= kUnitsTogether) {
#pragma unroll
        for (int i = 0; i < kUnitsTogether; ++i) {
          if (i < units)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unit_to + i * kUnitStep),
                         "l"(unit + i * kMatmulUnitBytes)
                         : "memory");
        }
        unit += kUnitsTogether * kMatmulUnitBytes;
        unit_to += kUnitsTogether * kUnitStep;
      }
      from += kMatmulTokenTile * launch.x_stride;
      to += kUnitBytes<1>;
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(ring.full(slot))
                 : "memory");
  }
};

// By the copy engine.
struct TokenEngine {
  int bytes;

  __device__ TokenEngine(const MatmulLaunch& launch, int token_bytes) : bytes(token_bytes) {
    bring_tensor_map(launch.token_map);
  }
  __device__ void start(const MatmulLaunch& launch, const StageRing& ring,
                        const StageCursor& cursor, int slot) const {
    if (threadIdx.x % kWarpLanes == 0) {
      announce(ring.full(slot), bytes);
      start_box_copy(ring.tokens(slot), launch.token_map, cursor.k_brick, ring.full(slot));
    }
    __syncwarp();
  }
};

// Tells the warps the number of this launch, which all its blocks agree on. The word has the number
// of launches before in its high half and counts this launch's blocks in the low one; the last
// block makes the next number. All that after the launch before has ended.
__device__ __forceinline__ void publish_epoch(const MatmulLaunch& launch, const StageRing& ring) {
  if (threadIdx.x % kWarpLanes == 0) {
    const unsigned long long before = atomicAdd(launch.arrivals, 1ull);
    if (static_cast<uint32_t>(before) + 1 == static_cast<uint32_t>(launch.blocks)) {
      atomicAdd(launch.arrivals, (1ull << 32) - static_cast<uint32_t>(launch.blocks));
    }
    const uint32_t epoch = static_cast<uint32_t>(before >> 32) + 1;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(ring.epoch()), "r"(epoch) : "memory");
    arrive(ring.epoch_barrier());
  }
  __syncwarp();
}

// While a block waits for the launch before and its ring is full, the weights that come next are
// brought into L2, so that memory has begun to deliver when the wait is over. (Many are of no use:
// L2 gives them to the SMs hardly faster than memory does.)
template <int kTileRows>
__device__ __forceinline__ void read_ahead(const MatmulLaunch& launch, const StageCursor& next) {
  constexpr int kBytes = kBrickBytes<kTileRows>;
  const int bricks = min(next.end - next.brick, launch.read_ahead_bytes / kBytes);
#pragma unroll 1
  for (int i = threadIdx.x % kWarpLanes; i < bricks; i += kWarpLanes) {
    prefetch_into_l2(brick_begin<kTileRows>(launch, next.brick + i), kBytes);
  }
  __syncwarp();
}

// Time for the launch before, while it runs. Blocks of this one come where its blocks have ended;
// all else waits for the others, which still read: whoever fills the whole ring at once takes from
// them, and makes a layer 2 us slower.
__device__ __forceinline__ void pause_filling(const StageRing& ring) {
  const uint32_t begin = read_clock();
  while (read_clock() - begin < kFillPauseClocks && !is_phase_done(ring.begun(), 0)) {
  }
}

// The warp that copies weights. They are asked for before the launch before has ended.
template <int kTileRows, RecordLevel kLevel>
__device__ __forceinline__ void copy_weights(const MatmulLaunch& launch, const StageRing& ring) {
  RoleRecorder<kLevel, DeviceRole::kCopy> recorder(launch.recorder, threadIdx.x % kWarpLanes == 0);
  recorder.begin(DevicePhase::kReadAhead);
  StageCursor cursor(launch);
  RingSlot place = kFreeSlot;
#pragma unroll 1  // one copy of it: matmul_launch.cu
  for (int stage = 0;; ++stage) {
    const bool is_done = cursor.is_done();
    if (stage >= kStagesAtOnce && stage <= ring.slots) pause_filling(ring);
    if (stage == ring.slots || (is_done && stage < ring.slots)) {
      read_ahead<kTileRows>(launch, cursor);
      recorder.phase(DevicePhase::kWaitLaunch);
      wait_for_launch_before();
      recorder.phase(DevicePhase::kWork);
      if (launch.cuts_tiles) publish_epoch(launch, ring);
    }
    if (is_done) break;
    wait_for_phase(ring.free(place.slot), place.parity, launch.wait_limit, DeviceWait::kMatmulSlot);
    start_weights<kTileRows>(launch, ring, cursor, place.slot);
    cursor.advance(launch, cursor.count(launch));
    place.advance(ring.slots);
  }
  recorder.end();
}

template <typename Tokens>
__device__ __forceinline__ void copy_all_tokens(const MatmulLaunch& launch, const StageRing& ring,
                                                const Tokens& tokens) {
  StageCursor cursor(launch);
  compute_here(cursor.brick <= cursor.end && cursor.k_brick >= 0);
  wait_for_launch_before();
  if (launch.holds_next) let_next_launch_start();
  if (threadIdx.x % kWarpLanes == 0) arrive(ring.begun());
#pragma unroll 1
  for (RingSlot place = kFreeSlot; !cursor.is_done(); place.advance(ring.slots)) {
    wait_for_phase(ring.free(place.slot), place.parity, launch.wait_limit, DeviceWait::kMatmulSlot);
    tokens.start(launch, ring, cursor, place.slot);
    cursor.advance(launch, cursor.count(launch));
  }
}

// The warp that copies tokens, which the launch before may have made.
template <int kTokenTiles>
__device__ __forceinline__ void copy_tokens(const MatmulLaunch& launch, const StageRing& ring) {
  if constexpr (kLanesCopyTokens<kTokenTiles>) {
    copy_all_tokens(launch, ring, TokenLanes<kTokenTiles>(launch, ring));
  } else {
    const int bytes = launch.stage_bricks * kUnitBytes<kTokenTiles>;
    copy_all_tokens(launch, ring, TokenEngine(launch, bytes));
  }
}

}  // namespace gapless::device
