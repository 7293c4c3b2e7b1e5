// SPDX-License-Identifier: Apache-2.0
//
// Skinny matmuls on tensor cores: matmul.h says what they compute.
//
// Eight warps multiply 16 rows each, two copy weights and tokens ahead of them
// (matmul_stages.cuh, matmul_sums.cuh), and where tasks are recorded another one does that. Weights
// are the 16-row operand, in the order of its registers, and tokens the 8-column one, so that 16
// tokens are no padding. (More are padded to 32 or 64, and on sm_90a four warps multiply 64 rows
// together.)
//
// Per brick of 8 KiB and 16 tokens a warp issues some 12 instructions that matter; at 4.5 TB/s on
// 132 SMs there are 1700 issue slots for the eight of them. Everything is about bytes in flight,
// and about code: but for the loop over stages a block runs it once, and what an SM does not have
// yet takes some six cycles an instruction. So there is one copy of everything, and where others
// wait (from the launch before to the first product, from the last product to the end) no
// instruction that could be elsewhere: that was 2 us of a layer with four matmuls.

#include "cuda/matmul_launch.h"

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/kernel_start.cuh"
#include "cuda/matmul_stages.cuh"
#include "cuda/matmul_sums.cuh"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"

namespace gapless {
namespace {

using namespace gapless::device;

constexpr int kObserverWarp = kMatmulWarps + kMatmulCopyWarps;
template <RecordLevel kLevel>
constexpr int kThreads = (kObserverWarp + kObserverWarps<kLevel>)*kWarpLanes;

// A multiplying warp.
template <bool kIsS8, int kTokenTiles, int kTileRows, bool kIsObserved, typename Recorder>
__device__ __forceinline__ void multiply_stages(const MatmulLaunch& launch, const StageRing& ring,
                                                Recorder& recorder) {
  WarpSums<kIsS8, kTokenTiles, kTileRows> sums(ring, threadIdx.x / kWarpLanes,
                                               threadIdx.x % kWarpLanes);
  StageCursor cursor(launch);
  sums.bring_pieces(launch);
  sums.begin_piece(launch, cursor.tile);
  recorder.phase(DevicePhase::kWaitLaunch);
  wait_for_launch_before();  // token scales and the residual are its results
  recorder.phase(DevicePhase::kWaitData);
  sums.load_row_scales(launch);
  sums.load_token_scales_ahead(launch);
  RingSlot place;
  bool begins_piece = true;
  while (!cursor.is_done()) {
    const int bricks = cursor.count(launch);
    const bool ends_piece = cursor.ends_piece(launch, bricks);
    if (ends_piece) sums.prepare_to_finish(launch, cursor.tile);
    wait_for_phase(ring.full(place.slot), place.parity, launch.wait_limit,
                   DeviceWait::kMatmulStage);
    if (begins_piece) recorder.phase(DevicePhase::kWork, cursor.tile);
    sums.add_stage(ring, place.slot, cursor.k_brick, bricks);
    arrive(ring.free(place.slot));
    place.advance(ring.slots);
    begins_piece = ends_piece;
    const int tile = cursor.tile;
    cursor.advance(launch, bricks);
    if (!ends_piece) continue;
    sums.finish(launch, ring, tile, recorder);
    if (cursor.is_done()) {
      recorder.end();
      if (kIsObserved && threadIdx.x % kWarpLanes == 0) arrive(ring.over());
      return;
    }
    sums.release_fold();
    sums.clear();
    sums.begin_piece(launch, cursor.tile);
    sums.load_row_scales(launch);
  }
}

template <bool kIsS8, int kTokenTiles, int kTileRows, RecordLevel kLevel>
__global__ void __launch_bounds__(kThreads<kLevel>, kTokenTiles < 4 ? 2 : 1)
    matmul_kernel(const __grid_constant__ MatmulLaunch launch) {
  extern __shared__ __align__(kMatmulSharedAlignment) std::byte memory[];
  const int warp = threadIdx.x / kWarpLanes;
  // Not of the first warp, for whose barriers all others wait.
  RoleRecorder<kLevel, DeviceRole::kMain, false> recorder(launch.recorder,
                                                          threadIdx.x == kWarpLanes);
  recorder.begin(DevicePhase::kSetUp);
  const StageRing ring(memory, launch, kBrickBytes<kTileRows>);
  const auto meet = [&launch] {
    __syncthreads();  // barriers are ready
    if (!launch.holds_next) let_next_launch_start();
  };
  constexpr bool kIsObserved = kObserverWarps<kLevel> != 0;
  if (kIsObserved && warp == kObserverWarp) {
    return observe_block(launch.recorder, launch.wait_limit, ring.full(0), ring.over(),
                         kMatmulWarps, meet);
  }
  if (threadIdx.x == 0) ring.initialise(kStageArrivals<kTokenTiles>);
  meet();
  if (warp == kMatmulWarps) {
    copy_weights<kTileRows, kLevel>(launch, ring);
  } else if (warp > kMatmulWarps) {
    copy_tokens<kTokenTiles>(launch, ring);
  } else {
    multiply_stages<kIsS8, kTokenTiles, kTileRows, kIsObserved>(launch, ring, recorder);
  }
}

// ---- From numbers to a kernel.

using Kernel = void (*)(MatmulLaunch);

template <bool kIsS8, int kTileRows, RecordLevel kLevel>
Kernel kernel_of_tiles(int token_tiles) {
  if (token_tiles == 1) return matmul_kernel<kIsS8, 1, kTileRows, kLevel>;
  if (token_tiles == 2) return matmul_kernel<kIsS8, 2, kTileRows, kLevel>;
  if (token_tiles == 4) return matmul_kernel<kIsS8, 4, kTileRows, kLevel>;
  if (token_tiles == 8) return matmul_kernel<kIsS8, 8, kTileRows, kLevel>;
  return nullptr;
}

template <bool kIsS8, RecordLevel kLevel>
Kernel kernel_of_rows(const MatmulForm& form) {
  if (form.tile_rows == kMatmulTileRows)
    return kernel_of_tiles<kIsS8, kMatmulTileRows, kLevel>(form.token_tiles);
  if (form.tile_rows == kMatmulSmallTileRows)
    return kernel_of_tiles<kIsS8, kMatmulSmallTileRows, kLevel>(form.token_tiles);
  return nullptr;
}

Kernel kernel_of(const MatmulForm& form, RecordLevel level) {
  return with_level(level, [&](auto constant) {
    constexpr RecordLevel kLevel = decltype(constant)::value;
    return form.is_s8 ? kernel_of_rows<true, kLevel>(form) : kernel_of_rows<false, kLevel>(form);
  });
}

int threads_of(RecordLevel level) {
  return with_level(level, [](auto constant) { return kThreads<decltype(constant)::value>; });
}

}  // namespace

int matmul_launch_kernel(const MatmulForm& form, const MatmulLaunch& launch, int64_t shared_bytes,
                         bool starts_early, void* stream) {
  return start_kernel(kernel_of(form, launch.recorder.level), launch,
                      {.blocks = launch.blocks,
                       .threads = threads_of(launch.recorder.level),
                       .shared_bytes = shared_bytes,
                       .starts_early = starts_early,
                       .stream = stream});
}

}  // namespace gapless
