// SPDX-License-Identifier: Apache-2.0
//
// Element by element: embedding rows, SiLU(gate) x up, residual. A thread has eight or four
// neighbours of one row.

#pragma once

#include <cstdint>

#include "cuda/rows_launch.h"
#include "cuda/rows_vector.cuh"

namespace gapless::device {

// ---- Embedding. Its table is a constant.

inline constexpr int kEmbedElements = kEmbedBlockElements / kEmbedThreads;

template <typename T>
__device__ __forceinline__ void load_eight(float4 (&eight)[2], const T* source) {
  if constexpr (sizeof(T) == 4) {
    eight[0] = __ldg(reinterpret_cast<const float4*>(source));
    eight[1] = __ldg(reinterpret_cast<const float4*>(source) + 1);
  } else {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(source));
    const float2 a = unpack_pair<T>(words.x);
    const float2 b = unpack_pair<T>(words.y);
    const float2 c = unpack_pair<T>(words.z);
    const float2 d = unpack_pair<T>(words.w);
    eight[0] = make_float4(a.x, a.y, b.x, b.y);
    eight[1] = make_float4(c.x, c.y, d.x, d.y);
  }
}

template <typename T, RecordLevel kLevel>
__global__ void __launch_bounds__(kEmbedThreads)
    embed_kernel(const __grid_constant__ EmbedLaunch launch) {
  RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
  recorder.begin(DevicePhase::kSetUp);
  const int64_t row = blockIdx.x / launch.row_blocks;
  const int64_t begin = int64_t{blockIdx.x % launch.row_blocks} * kEmbedBlockElements +
                        int64_t{threadIdx.x} * kEmbedElements;
  begin_work(recorder);
  const int64_t token = __ldcg(launch.tokens + row);
  const T* source = static_cast<const T*>(launch.table) + token * launch.hidden;
  float* target = launch.x + row * launch.hidden;
  if (launch.is_aligned && begin < launch.hidden) {
    float4 eight[2];
    load_eight(eight, source + begin);
    reinterpret_cast<float4*>(target + begin)[0] = eight[0];
    reinterpret_cast<float4*>(target + begin)[1] = eight[1];
  } else {
    const int64_t end = min(begin + kEmbedElements, launch.hidden);
    for (int64_t i = begin; i < end; ++i) target[i] = static_cast<float>(source[i]);
  }
  recorder.end();
}

// ---- Pairs of rows.

// As the gated matmul computes it, to the same bits.
__device__ __forceinline__ float silu_times(float gate, float up) {
  return __fmul_rn(__fdividef(gate, 1.0f + __expf(-gate)), up);
}

template <PairOp kOp>
__device__ __forceinline__ float pair_result(float a, float b) {
  if constexpr (kOp == PairOp::kSiluMultiply) return silu_times(a, b);
  return __fadd_rn(a, b);
}

template <PairOp kOp, RecordLevel kLevel>
__global__ void __launch_bounds__(kPairThreads)
    pair_kernel(const __grid_constant__ PairLaunch launch) {
  RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
  recorder.begin(DevicePhase::kSetUp);
  const int64_t first = blockIdx.x / launch.row_blocks * launch.stride;
  const int64_t i = int64_t{blockIdx.x % launch.row_blocks} * kPairBlockElements +
                    int64_t{threadIdx.x} * kRowsVectorElements;
  // The last vector of a row may be cut short.
  const bool is_whole = launch.is_aligned && i + kRowsVectorElements <= launch.columns;
  begin_work(recorder);
  const float4 a = load_four<false>(launch.a + first, i, launch.columns, is_whole);
  const float4 b = load_four<false>(launch.b + first, i, launch.columns, is_whole);
  const float4 y = make_float4(pair_result<kOp>(a.x, b.x), pair_result<kOp>(a.y, b.y),
                               pair_result<kOp>(a.z, b.z), pair_result<kOp>(a.w, b.w));
  store_four(launch.y + first, i, launch.columns, is_whole, y);
  recorder.end();
}

}  // namespace gapless::device
