// SPDX-License-Identifier: Apache-2.0
//
// What the warps of a row find, put together: in one block, or in all blocks of a thread block
// cluster that have a part of the row each (sm_90).
//
// A block of a cluster sends what it found to all of them, itself included: stores into their
// shared memory that end on a barrier there. That is one way through the network between the SMs,
// and nobody reads what is not its own, so a block may end when all values have come to it. No
// block may send before the others run: they meet first, while the launch before ends.
//
// Sums are added in the order of lanes, warps and parts: always the same for a form of launch.

#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/rows_launch.h"
#include "cuda/rows_vector.cuh"
#include "cuda/waits.cuh"

namespace gapless::device {

#if __CUDA_ARCH__ >= 900
inline constexpr bool kHasClusters = true;
#else
inline constexpr bool kHasClusters = false;
#endif

// ---- A row in one block.

inline constexpr int kRowsWarps = kRowsThreads / kWarpLanes;

// put_*() of all warps, then share() of what was put, then any number of reads.
struct WholeTotals {
  float sums[kRowsWarps];
  uint32_t largest[kRowsWarps];  // magnitudes as bits: those of a NaN are above all others

  template <bool kHasSum, bool kHasLargest>
  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ void meet() const {}

  __device__ __forceinline__ void put_sum(float sum) {
    sum = sum_of_lanes<kWarpLanes>(sum);
    if (threadIdx.x % kWarpLanes == 0) sums[threadIdx.x / kWarpLanes] = sum;
  }
  __device__ __forceinline__ void put_largest(uint32_t bits) {
    bits = __reduce_max_sync(~0u, bits);
    if (threadIdx.x % kWarpLanes == 0) largest[threadIdx.x / kWarpLanes] = bits;
  }
  __device__ __forceinline__ void share(bool /*has_sum*/, bool /*has_largest*/) {
    __syncthreads();  // all warps have put theirs
  }
  __device__ __forceinline__ float sum(const WaitLimit& /*limit*/) const {
    return sum_of_lanes<kRowsWarps>(sums[threadIdx.x % kRowsWarps]);
  }
  __device__ __forceinline__ uint32_t largest_magnitude(const WaitLimit& /*limit*/) const {
    return __reduce_max_sync(~0u, largest[threadIdx.x % kRowsWarps]);
  }
};

// ---- A row in the blocks of a cluster.

#if __CUDA_ARCH__ >= 900

// Of all threads of a cluster. Of what came before the arrival, barriers that were initialised and
// published are seen behind the wait.
__device__ __forceinline__ void arrive_in_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place of shared memory in another block of the cluster.
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, int rank) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}

__device__ __forceinline__ float sum_of_four(float4 four) {
  return __fadd_rn(__fadd_rn(four.x, four.y), __fadd_rn(four.z, four.w));
}

// 32 bits of each block, in all of them.
template <int kParts>
struct PartExchange {
  alignas(16) uint32_t values[kParts];  // by the block's rank
  alignas(8) uint64_t barrier;

  // One thread, once, before the blocks meet. Values may come ahead of the bytes that are expected.
  __device__ __forceinline__ void begin() {
    const uint32_t address = shared_address(&barrier);
    initialise_barrier(address, 1);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address),
                 "n"(sizeof(values))
                 : "memory");
  }
  // One warp, all lanes with the same value, once: lane i sends it to block i.
  __device__ __forceinline__ void send(uint32_t value) {
    const int to = threadIdx.x % kWarpLanes;
    if (to >= kParts) return;
    const uint32_t place = shared_address(values + blockIdx.x % kParts);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     address_in_block(place, to)),
                 "r"(value), "r"(address_in_block(shared_address(&barrier), to))
                 : "memory");
  }
  // All blocks have sent theirs.
  __device__ __forceinline__ void wait(const WaitLimit& limit) const {
    wait_for_phase(shared_address(&barrier), 0, limit, DeviceWait::kRowParts);
  }
};

// As WholeTotals; blocks have kPartMaxThreads or fewer.
template <int kParts>
struct PartTotals {
  static constexpr int kMaxWarps = kPartMaxThreads / kWarpLanes;
  static constexpr int kFours = (kMaxWarps + 3) / 4;

  alignas(16) float sums[kFours * 4];
  uint32_t largest[kMaxWarps];
  PartExchange<kParts> part_sums;
  PartExchange<kParts> part_largest;

  template <bool kHasSum, bool kHasLargest>
  __device__ __forceinline__ void begin() {
    if constexpr (!kHasSum && !kHasLargest) return;
    if (threadIdx.x == 0) {
      if constexpr (kHasSum) part_sums.begin();
      if constexpr (kHasLargest) part_largest.begin();
      publish_barriers();
    }
    // Warps that the block does not have. The block's barrier in share() is ahead of the reads.
    if (kHasSum && threadIdx.x >= warps() && threadIdx.x < kFours * 4) sums[threadIdx.x] = 0.0f;
    arrive_in_cluster();
  }
  // After begin() of a form that puts anything: the other blocks run and their barriers are ready.
  __device__ __forceinline__ void meet() const { wait_for_cluster(); }

  __device__ __forceinline__ void put_sum(float sum) {
    sum = sum_of_lanes<kWarpLanes>(sum);
    if (threadIdx.x % kWarpLanes == 0) sums[threadIdx.x / kWarpLanes] = sum;
  }
  __device__ __forceinline__ void put_largest(uint32_t bits) {
    bits = __reduce_max_sync(~0u, bits);
    if (threadIdx.x % kWarpLanes == 0) largest[threadIdx.x / kWarpLanes] = bits;
  }
  __device__ __forceinline__ void share(bool has_sum, bool has_largest) {
    __syncthreads();  // all warps have put theirs
    if (threadIdx.x >= kWarpLanes) return;
    if (has_largest) {
      const uint32_t bits = threadIdx.x < warps() ? largest[threadIdx.x] : 0;
      part_largest.send(__reduce_max_sync(~0u, bits));
    }
    if (has_sum) {
      const float4* fours = reinterpret_cast<const float4*>(sums);
      float sum = sum_of_four(fours[0]);
#pragma unroll
      for (int i = 1; i < kFours; ++i) sum = __fadd_rn(sum, sum_of_four(fours[i]));
      part_sums.send(__float_as_uint(sum));
    }
  }
  __device__ __forceinline__ float sum(const WaitLimit& limit) const {
    part_sums.wait(limit);
    const float4* fours = reinterpret_cast<const float4*>(part_sums.values);
    float sum = sum_of_four(fours[0]);
#pragma unroll
    for (int i = 1; i < kParts / 4; ++i) sum = __fadd_rn(sum, sum_of_four(fours[i]));
    return sum;
  }
  __device__ __forceinline__ uint32_t largest_magnitude(const WaitLimit& limit) const {
    part_largest.wait(limit);
    const uint4* fours = reinterpret_cast<const uint4*>(part_largest.values);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kParts / 4; ++i) {
      bits = max(max(bits, max(fours[i].x, fours[i].y)), max(fours[i].z, fours[i].w));
    }
    return bits;
  }

 private:
  static __device__ __forceinline__ unsigned warps() { return blockDim.x / kWarpLanes; }
  static_assert(kParts % 4 == 0);
};

template <int kParts>
using RowTotals = std::conditional_t<kParts == 1, WholeTotals, PartTotals<kParts>>;

#else

template <int kParts>
using RowTotals = WholeTotals;  // a row in parts is never started there

#endif

}  // namespace gapless::device
