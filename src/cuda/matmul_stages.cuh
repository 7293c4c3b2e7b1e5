// SPDX-License-Identifier: Apache-2.0
//
// A block's bricks in stages, and the ring they go through in shared memory. Two warps copy, the
// others multiply: "full" barriers say that a stage is there, "free" ones that all lanes read it.
// (One lane a warp would do. So racecheck sees who waits for whom, and it takes no longer.)

#pragma once

#include <cstdint>

#include "cuda/matmul_launch.h"
#include "cuda/recorder.cuh"
#include "cuda/tensor_ops.cuh"

namespace gapless::device {

inline constexpr int kLanesPerUnit = kMatmulUnitBytes / 16;
// Of a stage that is there: each lane that copied tokens, and on sm_90 one for the weights.
#if __CUDA_ARCH__ >= 900
inline constexpr int kStageArrivals = kMatmulCopyWarps * kWarpLanes + 1;
#else
inline constexpr int kStageArrivals = kMatmulCopyWarps * kWarpLanes;
#endif

// Blocks are numbered from the end: a block waits for those after it only, and the hardware starts
// those first.
__device__ __forceinline__ int block_index(const MatmulLaunch& launch) {
  return launch.blocks - 1 - static_cast<int>(blockIdx.x);
}
// Block b has bricks [first_brick(b), first_brick(b + 1)).
__device__ __forceinline__ int first_brick(const MatmulLaunch& launch, int block) {
  return launch.block_bricks * block + min(block, launch.extra_bricks);
}
__device__ __forceinline__ int block_of_brick(const MatmulLaunch& launch, int brick) {
  const int large = launch.block_bricks + 1;
  const int in_large = launch.extra_bricks * large;
  if (brick < in_large) return brick / large;
  return launch.extra_bricks + (brick - in_large) / launch.block_bricks;
}

// A stage: bricks of one tile that lie behind each other.
struct StageCursor {
  int brick;  // of all
  int end;    // of the block's bricks
  int tile;
  int k_brick;  // of the tile

  __device__ explicit StageCursor(const MatmulLaunch& launch) {
    brick = first_brick(launch, block_index(launch));
    end = first_brick(launch, block_index(launch) + 1);
    tile = brick / launch.bricks_per_tile;
    k_brick = brick - tile * launch.bricks_per_tile;
  }
  __device__ bool is_done() const { return brick == end; }
  __device__ int count(const MatmulLaunch& launch) const {
    return min(launch.stage_bricks, min(launch.bricks_per_tile - k_brick, end - brick));
  }
  // The stage is the last one of its tile, or of the block.
  __device__ bool ends_piece(const MatmulLaunch& launch, int bricks) const {
    return k_brick + bricks == launch.bricks_per_tile || brick + bricks == end;
  }
  __device__ void advance(const MatmulLaunch& launch, int bricks) {
    brick += bricks;
    k_brick += bricks;
    if (k_brick < launch.bricks_per_tile) return;
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

struct StageRing {
  uint32_t stages;
  uint32_t barriers;  // [slots] full, [slots] free, of the epoch; then the epoch
  int stage_bytes;
  int slots;
  int weight_bytes;
  int token_stride;

  __device__ StageRing(const std::byte* memory, const MatmulLaunch& launch)
      : stages(shared_address(memory)),
        barriers(stages + launch.ring_slots * launch.stage_bytes),
        stage_bytes(launch.stage_bytes),
        slots(launch.ring_slots),
        weight_bytes(launch.stage_bricks * kMatmulBrickBytes),
        token_stride(launch.token_stride) {}
  __device__ uint32_t weights(int slot) const { return stages + slot * stage_bytes; }
  __device__ uint32_t tokens(int slot) const { return weights(slot) + weight_bytes; }
  __device__ uint32_t full(int slot) const { return barriers + 8 * slot; }
  __device__ uint32_t free(int slot) const { return barriers + 8 * (slots + slot); }
  __device__ uint32_t epoch_barrier() const { return barriers + 16 * slots; }
  __device__ uint32_t epoch() const { return epoch_barrier() + 8; }
  __device__ void initialise() const {
    initialise_barrier(epoch_barrier(), 1);
    for (int slot = 0; slot < slots; ++slot) {
      initialise_barrier(full(slot), kStageArrivals);
      initialise_barrier(free(slot), kMatmulWarps * kWarpLanes);
    }
    publish_barriers();
  }
};

// All lanes of a copying warp call these two, weights first: together they fill a stage. The warps
// share the tokens.
__device__ __forceinline__ void start_weights(const MatmulLaunch& launch, const StageRing& ring,
                                              const StageCursor& cursor, int slot) {
  const std::byte* source = launch.weights + int64_t{cursor.brick} * kMatmulBrickBytes;
  const int bytes = cursor.count(launch) * kMatmulBrickBytes;
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x % kWarpLanes == 0) {
    uint64_t policy;  // weights are read once: they leave L2 before anything else does
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(ring.full(slot)),
                 "r"(bytes)
                 : "memory");
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
#endif
}

// By 16 bytes a lane: a bulk copy for each token's few bytes takes 50 ns each to start.
__device__ __forceinline__ void start_tokens(const MatmulLaunch& launch, const StageRing& ring,
                                             const StageCursor& cursor, int slot) {
  constexpr int kStep = kMatmulCopyWarps * kMatmulTokenTile;
  const int lane = threadIdx.x % (kMatmulCopyWarps * kWarpLanes);
  const int bytes = cursor.count(launch) * kMatmulUnitBytes;
  const int lane_offset = lane % kLanesPerUnit * 16;
  const std::byte* source = launch.x + int64_t{cursor.k_brick} * kMatmulUnitBytes + lane_offset;
  for (int token = lane / kLanesPerUnit; token < launch.tokens; token += kStep) {
    const uint32_t target = ring.tokens(slot) + token * ring.token_stride + lane_offset;
    const std::byte* row = source + token * launch.x_stride;
    for (int at = 0; at < bytes; at += kMatmulUnitBytes) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target + at), "l"(row + at)
                   : "memory");
    }
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(ring.full(slot)) : "memory");
}

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
__device__ __forceinline__ void read_ahead(const MatmulLaunch& launch, const StageCursor& next) {
  constexpr int kPartBytes = 2 * kMatmulBrickBytes;
  const int bytes = min((next.end - next.brick) * kMatmulBrickBytes, launch.read_ahead_bytes);
  const std::byte* source = launch.weights + int64_t{next.brick} * kMatmulBrickBytes;
  const int lane = threadIdx.x % kWarpLanes;
  for (int at = lane * kPartBytes; at < bytes; at += kWarpLanes * kPartBytes) {
    prefetch_into_l2(source + at, min(kPartBytes, bytes - at));
  }
  __syncwarp();
}

// A copying warp, of which one copies weights too. Those are asked for before the launch before has
// ended, tokens after it.
template <bool kIsRecorded>
__device__ __forceinline__ void fill_ring(const MatmulLaunch& launch, const StageRing& ring,
                                          bool copies_weights) {
  RoleRecorder<kIsRecorded, DeviceRole::kCopy> recorder(copies_weights &&
                                                        threadIdx.x % kWarpLanes == 0);
  recorder.begin(launch.recorder, DevicePhase::kReadAhead);
  StageCursor weights(launch);
  StageCursor tokens = weights;
  int ahead = 0;
  for (; ahead < ring.slots && !weights.is_done(); ++ahead) {
    if (copies_weights) start_weights(launch, ring, weights, ahead);
    weights.advance(launch, weights.count(launch));
  }
  if (copies_weights) read_ahead(launch, weights);
  recorder.phase(DevicePhase::kWaitLaunch);
  wait_for_launch_before();
  recorder.phase(DevicePhase::kWork);
  for (int slot = 0; slot < ahead; ++slot) {
    start_tokens(launch, ring, tokens, slot);
    tokens.advance(launch, tokens.count(launch));
  }
  if (copies_weights) publish_epoch(launch, ring);
  RingSlot place;
  while (!weights.is_done()) {
    wait_for_phase(ring.free(place.slot), place.parity);
    if (copies_weights) start_weights(launch, ring, weights, place.slot);
    start_tokens(launch, ring, weights, place.slot);
    weights.advance(launch, weights.count(launch));
    place.advance(ring.slots);
  }
  recorder.end(launch.recorder);
}

}  // namespace gapless::device
