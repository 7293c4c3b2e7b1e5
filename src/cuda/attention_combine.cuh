// SPDX-License-Identifier: Apache-2.0
//
// From what the warps of a block hold at the end of a chunk to the output.
//
// The states of the warps are merged in their order, and what comes out of the chunks of a pair
// (sequence, kv head) is folded in their order: rows of 16 chunks first, then the rows. A block
// that has all chunks of a pair does this in registers. Otherwise it leaves a partial and counts
// itself in; the block that comes last for a row folds the row, the block that comes last with a
// row folds the rows, in the same launch. Who does it varies, what is computed does not: both ways
// fold alike.
//
// A partial is [group][head_dim] sums, then [group] maxima (of scores to the base 2), then [group]
// totals: as in kernels/attention.h.
//
// All this is done by warps of their own. They wait for memory, and under load that takes several
// microseconds a step: the warps that take tiles must not. (They did: 4 us a chunk.)

#pragma once

#include <cstdint>

#include "cuda/attention_launch.h"
#include "cuda/attention_schedule.cuh"
#include "cuda/tensor_ops.cuh"

namespace gapless::device {

inline constexpr int kVectorFloats = 4;
inline constexpr int kStatePadFloats = 4;  // keeps the warps' stores off each other's banks
inline constexpr int kMaxGroup = 16;
inline constexpr int kCombineThreads = kAttentionCombineWarps * kWarpLanes;

inline constexpr int kCombineBarrier = 1;

__device__ __forceinline__ void sync_combine() { sync_threads(kCombineBarrier, kCombineThreads); }
// 0 .. kCombineThreads - 1: they are the last threads of the block.
__device__ __forceinline__ int combine_thread() {
  return static_cast<int>(threadIdx.x) - (static_cast<int>(blockDim.x) - kCombineThreads);
}

// In shared memory: what each warp found in its tokens of the cursor.
template <int HeadDim>
struct WarpStates {
  float* sums;    // [warps][group][HeadDim + kStatePadFloats]
  float* maxima;  // [warps][kMaxGroup]
  float* totals;  // [warps][kMaxGroup]

  __device__ float* row(int warp, int group_heads, int head) const {
    return sums + (warp * group_heads + head) * (HeadDim + kStatePadFloats);
  }
};

// A maximum, and sums relative to it; nothing at all has maximum minus infinity.
struct Merged {
  float maximum = -INFINITY;
  float total = 0.0f;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ void move_to(float new_maximum) {
    const float weight = maximum == -INFINITY ? 0.0f : power_of_two(maximum - new_maximum);
    maximum = new_maximum;
    total *= weight;
    sum.x *= weight;
    sum.y *= weight;
    sum.z *= weight;
    sum.w *= weight;
  }
  __device__ void fold(const Merged& part) {
    move_to(fmaxf(maximum, part.maximum));
    add(part.maximum, part.total, part.sum);
  }
  // Of a part whose maximum is at most ours.
  __device__ void add(float part_maximum, float part_total, const float4& part) {
    const float weight = part_maximum == -INFINITY ? 0.0f : power_of_two(part_maximum - maximum);
    total += weight * part_total;
    sum.x += weight * part.x;
    sum.y += weight * part.y;
    sum.z += weight * part.z;
    sum.w += weight * part.w;
  }
};

template <typename T>
__device__ __forceinline__ void store_output(const AttentionLaunch& launch, int64_t element,
                                             const Merged& merged) {
  const float scale = merged.maximum == -INFINITY ? 0.0f : 1.0f / merged.total;
  const float4 v = {merged.sum.x * scale, merged.sum.y * scale, merged.sum.z * scale,
                    merged.sum.w * scale};
  if (launch.output_is_f32) {
    reinterpret_cast<float4*>(launch.output)[element / kVectorFloats] = v;
  } else {
    const uint2 packed = {pack_pair<T>(v.x, v.y), pack_pair<T>(v.z, v.w)};
    reinterpret_cast<uint2*>(launch.output)[element / kVectorFloats] = packed;
  }
}

__device__ __forceinline__ float* partial_at(const AttentionLaunch& launch, int64_t number) {
  return launch.partials + number * launch.partial_floats;
}

template <int HeadDim>
__device__ __forceinline__ void store_partial(const AttentionLaunch& launch, int64_t number,
                                              int head, int dim, const Merged& merged) {
  float* partial = partial_at(launch, number);
  *reinterpret_cast<float4*>(partial + head * HeadDim + dim) = merged.sum;
  if (dim == 0) {
    partial[launch.group_heads * HeadDim + head] = merged.maximum;
    partial[launch.group_heads * (HeadDim + 1) + head] = merged.total;
  }
}

// Counts `arrivals` in. True in the block with which they are `expected`; it then sees what the
// others wrote. The counter is 0 again for the next launch.
__device__ inline bool arrive_last(Schedule& schedule, uint32_t* counter, int arrivals,
                                   int expected) {
  sync_combine();  // everything that this block wrote comes before the fence
  if (combine_thread() == 0) {
    __threadfence();
    const uint32_t before = atomicAdd(counter, static_cast<uint32_t>(arrivals));
    const bool is_last = before == static_cast<uint32_t>(expected - arrivals);
    if (is_last) {
      __threadfence();
      *counter = 0;  // behind the fence, which would wait for it
    }
    schedule.is_last = is_last ? 1 : 0;
  }
  sync_combine();
  return schedule.is_last != 0;
}

// Partials `first`, `first + stride` and so on, in this order, 8 in flight. Loads go to L2: other
// SMs wrote them. A function of its own, and small: it runs at the end of a launch, and not yet
// being in the instruction cache costs it more than waiting for memory twice.
template <int HeadDim>
__device__ inline Merged fold_partials(const float* partial, int64_t stride_floats, int count,
                                       int group_heads, int head, int dim) {
  constexpr int kInFlight = 8;
  Merged merged;
#pragma unroll 1
  for (int begin = 0; begin < count; begin += kInFlight) {
    Merged parts[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (begin + i < count) {
        parts[i].maximum = __ldcg(partial + group_heads * HeadDim + head);
        parts[i].total = __ldcg(partial + group_heads * (HeadDim + 1) + head);
        parts[i].sum = __ldcg(reinterpret_cast<const float4*>(partial + head * HeadDim + dim));
      }
      partial += stride_floats;
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (begin + i < count) merged.fold(parts[i]);
    }
  }
  return merged;
}

// Where the query heads of the pair begin in q and in the output, in elements.
template <int HeadDim>
__device__ __forceinline__ int64_t first_element(const AttentionLaunch& launch,
                                                 const Cursor& cursor) {
  return (int64_t{cursor.sequence} * launch.kv_heads + cursor.kv_head) * launch.group_heads *
         HeadDim;
}

template <typename T, int HeadDim>
__device__ inline void fold_to_output(const AttentionLaunch& launch, const Cursor& cursor,
                                      int64_t first, int stride, int count) {
  constexpr int kVectors = HeadDim / kVectorFloats;
#pragma unroll 1
  for (int i = combine_thread(); i < launch.group_heads * kVectors; i += kCombineThreads) {
    const int head = i / kVectors;
    const int dim = i % kVectors * kVectorFloats;
    const Merged merged =
        fold_partials<HeadDim>(partial_at(launch, first), int64_t{stride} * launch.partial_floats,
                               count, launch.group_heads, head, dim);
    store_output<T>(launch, first_element<HeadDim>(launch, cursor) + head * HeadDim + dim, merged);
  }
}

// Into the first of them. Its maxima and totals are read by all threads: they change when everybody
// is done, and each by a thread that reads only what it changes.
template <int HeadDim>
__device__ inline void fold_in_place(const AttentionLaunch& launch, int64_t first, int count) {
  constexpr int kVectors = HeadDim / kVectorFloats;
#pragma unroll 1
  for (int i = combine_thread(); i < launch.group_heads * kVectors; i += kCombineThreads) {
    const int head = i / kVectors;
    const int dim = i % kVectors * kVectorFloats;
    const Merged merged = fold_partials<HeadDim>(partial_at(launch, first), launch.partial_floats,
                                                 count, launch.group_heads, head, dim);
    *reinterpret_cast<float4*>(partial_at(launch, first) + head * HeadDim + dim) = merged.sum;
  }
  sync_combine();
  for (int head = combine_thread(); head < launch.group_heads; head += kCombineThreads) {
    const Merged merged = fold_partials<HeadDim>(partial_at(launch, first), launch.partial_floats,
                                                 count, launch.group_heads, head, 0);
    float* partial = partial_at(launch, first);
    partial[launch.group_heads * HeadDim + head] = merged.maximum;
    partial[launch.group_heads * (HeadDim + 1) + head] = merged.total;
  }
}

// What all warps found, for four dims of a head.
template <int HeadDim>
__device__ inline Merged merge_warps(const WarpStates<HeadDim>& states, int warps, int group_heads,
                                     int head, int dim) {
  Merged merged;
#pragma unroll 4
  for (int warp = 0; warp < warps; ++warp) {
    merged.maximum = fmaxf(merged.maximum, states.maxima[warp * kMaxGroup + head]);
  }
#pragma unroll 4
  for (int warp = 0; warp < warps; ++warp) {
    const float* sums = states.row(warp, group_heads, head) + dim;
    merged.add(states.maxima[warp * kMaxGroup + head], states.totals[warp * kMaxGroup + head],
               *reinterpret_cast<const float4*>(sums));
  }
  return merged;
}

__device__ __forceinline__ bool ends_row_at(const Cursor& cursor) {
  return (cursor.chunk + 1) % kAttentionRowChunks == 0 || cursor.is_last_chunk();
}

// Counts this block in with the partials of the last `arrivals` chunks up to the cursor, all of one
// row, and does what is then due.
template <typename T, int HeadDim>
__device__ inline void arrive_with_partials(const AttentionLaunch& launch, Schedule& schedule,
                                            const Cursor& cursor, int64_t first, int arrivals) {
  const int row_begin = cursor.chunk / kAttentionRowChunks * kAttentionRowChunks;
  const int row_count = min(kAttentionRowChunks, cursor.chunk_count - row_begin);
  if (!arrive_last(schedule, launch.counters + first + row_begin, arrivals, row_count)) return;
  if (cursor.chunk_count <= kAttentionRowChunks) {
    fold_to_output<T, HeadDim>(launch, cursor, first, 1, row_count);
    return;
  }
  fold_in_place<HeadDim>(launch, first + row_begin, row_count);
  // The counter of chunk 1 is free: rows count at chunks 0, 16, 32 and so on.
  const int rows = (cursor.chunk_count + kAttentionRowChunks - 1) / kAttentionRowChunks;
  if (!arrive_last(schedule, launch.counters + first + 1, 1, rows)) return;
  fold_to_output<T, HeadDim>(launch, cursor, first, kAttentionRowChunks, rows);
}

// What a thread of the combining warps holds of the pair that the block is at: some vectors of four
// dims, and for each what the present row and the rows before it gave.
template <typename T, int HeadDim, int QueryBlocks>
class PairFold {
 public:
  __device__ void add_chunk(const AttentionLaunch& launch, const WarpStates<HeadDim>& states,
                            int warps, const Cursor& cursor) {
    const bool ends_row = (cursor.chunk + 1) % kAttentionRowChunks == 0 || cursor.is_last_chunk();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int vector = combine_thread() + i * kCombineThreads;
      const int head = vector / kVectors;
      if (head >= launch.group_heads) continue;
      row_[i].fold(merge_warps<HeadDim>(states, warps, launch.group_heads, head,
                                        vector % kVectors * kVectorFloats));
      if (!ends_row) continue;
      rows_[i].fold(row_[i]);
      row_[i] = Merged();
    }
  }
  __device__ void store(const AttentionLaunch& launch, const Cursor& cursor) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int vector = combine_thread() + i * kCombineThreads;
      if (vector >= launch.group_heads * kVectors) continue;
      store_output<T>(launch, first_element<HeadDim>(launch, cursor) + vector * kVectorFloats,
                      rows_[i]);
      rows_[i] = Merged();
    }
  }

 private:
  static constexpr int kVectors = HeadDim / kVectorFloats;
  static constexpr int kCount = QueryBlocks * 8 * kVectors / kCombineThreads;

  Merged row_[kCount];
  Merged rows_[kCount];
};

template <int HeadDim>
__device__ inline void store_chunk(const AttentionLaunch& launch, const WarpStates<HeadDim>& states,
                                   int warps, int64_t partial) {
  constexpr int kVectors = HeadDim / kVectorFloats;
#pragma unroll 1
  for (int i = combine_thread(); i < launch.group_heads * kVectors; i += kCombineThreads) {
    const int head = i / kVectors;
    const int dim = i % kVectors * kVectorFloats;
    store_partial<HeadDim>(launch, partial, head, dim,
                           merge_warps<HeadDim>(states, warps, launch.group_heads, head, dim));
  }
}

}  // namespace gapless::device
