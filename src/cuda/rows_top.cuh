// SPDX-License-Identifier: Apache-2.0
//
// The first logit of each row in the order of kernels/sampling.h: a block has a part of a row, and
// the block that comes last merges the row's parts.
//
// Logit and token are one 64-bit number whose order is the wanted one, so that the result does not
// depend on who compares what. Costs reading the logits once.

#pragma once

#include <cstdint>

#include "cuda/rows_launch.h"
#include "cuda/rows_vector.cuh"

namespace gapless::device {

inline constexpr int kTopWarps = kTopThreads / kWarpLanes;
inline constexpr int kTopBatch = kTopPartColumns / (kTopThreads * kRowsVectorElements);

// NaN above all; 0 and -0 are equal.
__device__ __forceinline__ uint32_t logit_order(float logit) {
  if (logit != logit) return ~0u;
  const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The first one so far. Tokens come in ascending order: an equal one does not displace it.
struct TopCandidate {
  float logit = 0.0f;
  uint32_t order = 0;
  uint32_t token = ~0u;  // nobody

  __device__ __forceinline__ void take(float other, int64_t other_token) {
    const uint32_t other_order = logit_order(other);
    if (token != ~0u && other_order <= order) return;
    logit = other;
    order = other_order;
    token = static_cast<uint32_t>(other_token);
  }
  __device__ __forceinline__ uint64_t key() const { return uint64_t{order} << 32 | ~token; }
};

// By all lanes of a warp.
__device__ __forceinline__ uint64_t largest_key(uint64_t key) {
  const uint32_t high = static_cast<uint32_t>(key >> 32);
  const uint32_t largest = __reduce_max_sync(~0u, high);
  const uint32_t low = high == largest ? static_cast<uint32_t>(key) : 0u;
  return uint64_t{largest} << 32 | __reduce_max_sync(~0u, low);
}

// A thread's columns of [begin, end) of a row. The loads of a batch are all in flight.
__device__ __forceinline__ TopCandidate scan_part(const TopLaunch& launch, const float* row,
                                                  int64_t begin, int64_t end) {
  constexpr int kStep = kTopThreads * kRowsVectorElements;
  TopCandidate best;
  int64_t at = begin + int64_t{threadIdx.x} * kRowsVectorElements;
  for (; at < end; at += int64_t{kTopBatch} * kStep) {
    float4 batch[kTopBatch];
#pragma unroll
    for (int i = 0; i < kTopBatch; ++i) {
      const int64_t first = at + i * kStep;
      const bool is_whole = launch.is_aligned && first + kRowsVectorElements <= end;
      batch[i] = load_four<false>(row, first, end, is_whole);
    }
#pragma unroll
    for (int i = 0; i < kTopBatch; ++i) {
      const int64_t first = at + i * kStep;
      if (first < end) best.take(batch[i].x, first);
      if (first + 1 < end) best.take(batch[i].y, first + 1);
      if (first + 2 < end) best.take(batch[i].z, first + 2);
      if (first + 3 < end) best.take(batch[i].w, first + 3);
    }
  }
  return best;
}

// By one warp of the last block: all parts are there.
__device__ __forceinline__ void merge_parts(const TopLaunch& launch, int64_t row, TopSlot& slot) {
  const int lane = threadIdx.x % kWarpLanes;
  __threadfence();  // the parts are read after the arrivals that were counted
  uint64_t key = 0;
  float logit = 0.0f;
  if (lane < launch.parts) {
    key = __ldcg(reinterpret_cast<const unsigned long long*>(&slot.parts[lane].key));
    logit = __ldcg(&slot.parts[lane].logit);
  }
  const uint64_t largest = largest_key(key);
  if (key == largest && lane < launch.parts)
    launch.top[row] = {logit, static_cast<int32_t>(~static_cast<uint32_t>(largest))};
  if (lane == 0) slot.arrivals = 0;  // for the next launch
}

template <RecordLevel kLevel>
__global__ void __launch_bounds__(kTopThreads)
    top_kernel(const __grid_constant__ TopLaunch launch) {
  __shared__ uint64_t keys[kTopWarps];
  __shared__ bool is_last;
  RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
  recorder.begin(DevicePhase::kSetUp);
  const int64_t row = blockIdx.x / launch.parts;
  const int part = static_cast<int>(blockIdx.x % launch.parts);
  const int64_t begin = part * launch.part_columns;
  const int64_t end = min(begin + launch.part_columns, launch.columns);
  TopSlot& slot = launch.slots[row];
  begin_work(recorder);

  const TopCandidate best = scan_part(launch, launch.logits + row * launch.stride, begin, end);
  const uint64_t warp_key = largest_key(best.key());
  if (threadIdx.x % kWarpLanes == 0) keys[threadIdx.x / kWarpLanes] = warp_key;
  __syncthreads();  // all warps have put theirs
  const uint64_t block_key = largest_key(keys[threadIdx.x % kTopWarps]);
  // One thread has it: tokens differ, and a part has at least one.
  if (best.key() == block_key && best.token != ~0u) {
    slot.parts[part].key = block_key;
    slot.parts[part].logit = best.logit;
    __threadfence();  // the part is there before its arrival
    is_last = atomicAdd(&slot.arrivals, 1u) + 1 == static_cast<uint32_t>(launch.parts);
  }
  __syncthreads();  // is_last is known
  if (is_last && threadIdx.x < kWarpLanes) merge_parts(launch, row, slot);
  recorder.end();
}

}  // namespace gapless::device
