// SPDX-License-Identifier: Apache-2.0
//
// What the row kernels share: how they begin, loads and stores of four elements, sums of a warp.
//
// What another launch wrote is read from L2 (ld.cg): a launch that starts early shares an SM, and
// its L1, with launches that still run. All loads here are volatile asm and stay on their side of
// the wait for the launch before.

#pragma once

#include <cstdint>

#include "cuda/recorder.cuh"
#include "cuda/tensor_ops.cuh"

namespace gapless::device {

// What is after this may read what the launch before wrote. The next launch may start: it waits for
// all of this one, and so for all before.
template <typename Recorder>
__device__ __forceinline__ void begin_work(Recorder& recorder) {
  recorder.phase(DevicePhase::kWaitLaunch);
  wait_for_launch_before();
  let_next_launch_start();
  recorder.phase(DevicePhase::kWork);
}

// Elements i .. i + 3 of a row of `count`; zeros behind its end. With `is_aligned` the vector lies
// at 16 bytes and is inside the row or outside.
template <bool kIsConstant>
__device__ __forceinline__ float load_element(const float* source) {
  return kIsConstant ? __ldg(source) : __ldcg(source);
}
template <bool kIsConstant>
__device__ __forceinline__ float4 load_four(const float* row, int64_t i, int64_t count,
                                            bool is_aligned) {
  float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (is_aligned) {
    if (i < count) {
      const float4* source = reinterpret_cast<const float4*>(row + i);
      four = kIsConstant ? __ldg(source) : __ldcg(source);
    }
    return four;
  }
  if (i < count) four.x = load_element<kIsConstant>(row + i);
  if (i + 1 < count) four.y = load_element<kIsConstant>(row + i + 1);
  if (i + 2 < count) four.z = load_element<kIsConstant>(row + i + 2);
  if (i + 3 < count) four.w = load_element<kIsConstant>(row + i + 3);
  return four;
}

__device__ __forceinline__ void store_four(float* row, int64_t i, int64_t count, bool is_aligned,
                                           float4 four) {
  if (is_aligned) {
    if (i < count) *reinterpret_cast<float4*>(row + i) = four;
    return;
  }
  if (i < count) row[i] = four.x;
  if (i + 1 < count) row[i + 1] = four.y;
  if (i + 2 < count) row[i + 2] = four.z;
  if (i + 3 < count) row[i + 3] = four.w;
}

// Every lane gets the sum over `kLanes` lanes, of the same bits: a + b is b + a.
template <int kLanes>
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}

__device__ __forceinline__ float add_square(float sum, float x) { return __fmaf_rn(x, x, sum); }

__device__ __forceinline__ float inverse_root_of_mean(float sum, int count, float eps) {
  const float mean = __fdiv_rn(sum, static_cast<float>(count));
  return __frcp_rn(__fsqrt_rn(__fadd_rn(mean, eps)));
}

}  // namespace gapless::device
