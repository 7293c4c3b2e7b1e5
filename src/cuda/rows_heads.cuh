// SPDX-License-Identifier: Apache-2.0
//
// Per-head norm, rope and cache write: a warp has a head of a row.
//
// A lane has the same elements of both halves of the head, which is what rope turns, so nothing is
// exchanged but the sum of squares. The fused form and the one in two launches call the same
// functions, which leave no product and sum for the compiler to join: their bits are the same.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kv_pages.h"
#include "cuda/rows_launch.h"
#include "cuda/rows_vector.cuh"

namespace gapless::device {

// ---- kPart floats or 16-bit elements, together.

template <int kPart, bool kIsConstant>
__device__ __forceinline__ void load_part(float (&part)[kPart], const float* source) {
  if constexpr (kPart == 1) {
    part[0] = load_element<kIsConstant>(source);
  } else if constexpr (kPart == 2) {
    const float2* pair = reinterpret_cast<const float2*>(source);
    const float2 two = kIsConstant ? __ldg(pair) : __ldcg(pair);
    part[0] = two.x;
    part[1] = two.y;
  } else {
    static_assert(kPart == 4);
    const float4 four = load_four<kIsConstant>(source, 0, kPart, true);
    part[0] = four.x;
    part[1] = four.y;
    part[2] = four.z;
    part[3] = four.w;
  }
}

template <int kPart>
__device__ __forceinline__ void store_part(float* target, const float (&part)[kPart]) {
  if constexpr (kPart == 1) {
    *target = part[0];
  } else if constexpr (kPart == 2) {
    *reinterpret_cast<float2*>(target) = make_float2(part[0], part[1]);
  } else {
    *reinterpret_cast<float4*>(target) = make_float4(part[0], part[1], part[2], part[3]);
  }
}

template <typename T, int kPart>
__device__ __forceinline__ void store_cast(std::byte* target, const float (&part)[kPart]) {
  if constexpr (kPart == 1) {
    *reinterpret_cast<uint16_t*>(target) = static_cast<uint16_t>(pack_pair<T>(part[0], 0.0f));
  } else if constexpr (kPart == 2) {
    *reinterpret_cast<uint32_t*>(target) = pack_pair<T>(part[0], part[1]);
  } else {
    *reinterpret_cast<uint2*>(target) =
        make_uint2(pack_pair<T>(part[0], part[1]), pack_pair<T>(part[2], part[3]));
  }
}

// ---- A lane's elements of a head.

template <int kHeadDim>
struct HeadPart {
  static constexpr int kHalf = kHeadDim / 2;
  static constexpr int kPart = kHalf / kWarpLanes;
  float low[kPart];   // of the first half, from dim()
  float high[kPart];  // of the second half, as far behind its begin

  static __device__ __forceinline__ int dim() {
    return static_cast<int>(threadIdx.x % kWarpLanes) * kPart;
  }
  template <bool kIsConstant>
  __device__ __forceinline__ void load(const float* head) {
    load_part<kPart, kIsConstant>(low, head + dim());
    load_part<kPart, kIsConstant>(high, head + kHalf + dim());
  }
  __device__ __forceinline__ void store(float* head) const {
    store_part(head + dim(), low);
    store_part(head + kHalf + dim(), high);
  }
};

template <int kHeadDim>
__device__ __forceinline__ void norm_head(HeadPart<kHeadDim>& x, const HeadPart<kHeadDim>& gamma,
                                          float eps) {
  constexpr int kPart = HeadPart<kHeadDim>::kPart;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPart; ++i) sum = add_square(add_square(sum, x.low[i]), x.high[i]);
  const float factor = inverse_root_of_mean(sum_of_lanes<kWarpLanes>(sum), kHeadDim, eps);
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    x.low[i] = __fmul_rn(__fmul_rn(x.low[i], factor), gamma.low[i]);
    x.high[i] = __fmul_rn(__fmul_rn(x.high[i], factor), gamma.high[i]);
  }
}

// `turn` has the cosines in its first half and the sines in its second.
template <int kHeadDim>
__device__ __forceinline__ void rope_head(HeadPart<kHeadDim>& x, const HeadPart<kHeadDim>& turn) {
#pragma unroll
  for (int i = 0; i < HeadPart<kHeadDim>::kPart; ++i) {
    const float low = x.low[i];
    const float high = x.high[i];
    x.low[i] = __fmaf_rn(low, turn.low[i], -__fmul_rn(high, turn.high[i]));
    x.high[i] = __fmaf_rn(high, turn.low[i], __fmul_rn(low, turn.high[i]));
  }
}

// ---- Where heads go.

// Which head of which row a warp has. Heads are q, k and v heads in turn.
struct WarpHead {
  int64_t row;
  int head;

  __device__ __forceinline__ WarpHead(const HeadsLaunch& launch)
      : row(blockIdx.x / launch.row_blocks),
        head(static_cast<int>(blockIdx.x % launch.row_blocks) * kHeadsWarps +
             static_cast<int>(threadIdx.x / kWarpLanes)) {}
  __device__ __forceinline__ bool is_q(const HeadsLaunch& launch) const {
    return head < launch.q_heads;
  }
  __device__ __forceinline__ bool is_v(const HeadsLaunch& launch) const {
    return head >= launch.q_heads + launch.kv_heads;
  }
};

template <typename T, int kHeadDim>
__device__ __forceinline__ void store_query(const HeadsLaunch& launch, const WarpHead& place,
                                            const HeadPart<kHeadDim>& x) {
  std::byte* head =
      launch.q + (place.row * launch.q_heads + place.head) * (kHeadDim * kCudaKvElementBytes);
  const int dim = HeadPart<kHeadDim>::dim();
  store_cast<T>(head + dim * kCudaKvElementBytes, x.low);
  store_cast<T>(head + (HeadPart<kHeadDim>::kHalf + dim) * kCudaKvElementBytes, x.high);
}

// The row's page and what of it is the newest token's, or page -1 where the table has none.
struct TokenPlace {
  int64_t page;
  int token;
};
__device__ __forceinline__ TokenPlace token_place(const HeadsLaunch& launch, int64_t row,
                                                  int position) {
  const int index = position / launch.page_tokens;
  int64_t page = -1;
  if (index < launch.page_table_stride)
    page = __ldcg(launch.page_table + row * launch.page_table_stride + index);
  if (page >= launch.page_count) page = -1;
  return {page, position - index * launch.page_tokens};
}

// cuda_kv_element() for the device.
template <int kHeadDim>
__device__ __forceinline__ int element_of_block(int token, int dim) {
  const int unit = (dim / kCudaKvUnitElements) ^ (token % kCudaKvSwizzleRows);
  return token * kHeadDim + unit * kCudaKvUnitElements + dim % kCudaKvUnitElements;
}

template <typename T, int kHeadDim>
__device__ __forceinline__ void store_key_or_value(const HeadsLaunch& launch, const WarpHead& place,
                                                   const TokenPlace& at,
                                                   const HeadPart<kHeadDim>& x) {
  if (at.page < 0) return;
  const int kv_head = place.head - launch.q_heads;  // of keys, then of values
  const bool is_value = kv_head >= launch.kv_heads;
  const int block = 2 * (is_value ? kv_head - launch.kv_heads : kv_head) + (is_value ? 1 : 0);
  std::byte* target = launch.pages + at.page * launch.page_bytes + block * launch.kv_block_bytes;
  const int dim = HeadPart<kHeadDim>::dim();
  const int low = element_of_block<kHeadDim>(at.token, dim);
  const int high = element_of_block<kHeadDim>(at.token, HeadPart<kHeadDim>::kHalf + dim);
  store_cast<T>(target + low * kCudaKvElementBytes, x.low);
  store_cast<T>(target + high * kCudaKvElementBytes, x.high);
}

// ---- The kernel.

// What a head needs beside itself. None of it is of the launch before, so it is loaded while that
// one runs: behind it, what L2 does not have waits for memory with all that is read ahead.
template <int kHeadDim>
struct HeadNeeds {
  HeadPart<kHeadDim> gamma = {};
  HeadPart<kHeadDim> turn = {};
  TokenPlace at = {-1, 0};
  bool has_token = false;  // the row has one, and there is an angle for it

  template <HeadSteps kSteps>
  __device__ __forceinline__ void load(const HeadsLaunch& launch, const WarpHead& place) {
    if (kSteps != HeadSteps::kRope && !place.is_v(launch))
      gamma.template load<true>(place.is_q(launch) ? launch.q_gamma : launch.k_gamma);
    if constexpr (kSteps != HeadSteps::kNorm) {
      const int length = __ldcg(launch.lengths + place.row);
      has_token = length >= 1 && length <= launch.positions;
      if (!has_token) return;
      at = token_place(launch, place.row, length - 1);
      if (!place.is_v(launch))
        turn.template load<true>(launch.rope + int64_t{length - 1} * kHeadDim);
    }
  }
};

// A row whose length says that it has no token, or one for which there is no angle, stores nothing.
template <typename T, int kHeadDim, HeadSteps kSteps>
__device__ __forceinline__ void finish_head(const HeadsLaunch& launch, const WarpHead& place,
                                            const HeadNeeds<kHeadDim>& needs) {
  float* source = launch.qkv + place.row * launch.qkv_stride + int64_t{place.head} * kHeadDim;
  HeadPart<kHeadDim> x;
  x.template load<false>(source);
  if constexpr (kSteps == HeadSteps::kNorm) {
    norm_head(x, needs.gamma, launch.eps);
    x.store(source);
    return;
  }
  if (!needs.has_token) return;
  if (!place.is_v(launch)) {
    if constexpr (kSteps == HeadSteps::kAll) norm_head(x, needs.gamma, launch.eps);
    rope_head(x, needs.turn);
  }
  if (place.is_q(launch)) {
    store_query<T>(launch, place, x);
  } else {
    store_key_or_value<T>(launch, place, needs.at, x);
  }
}

template <typename T, int kHeadDim, HeadSteps kSteps, RecordLevel kLevel>
__global__ void __launch_bounds__(kHeadsWarps* kWarpLanes)
    heads_kernel(const __grid_constant__ HeadsLaunch launch) {
  RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
  recorder.begin(DevicePhase::kSetUp);
  if (launch.lets_next_start) let_next_launch_start();
  const WarpHead place(launch);
  const bool is_there = place.head < launch.head_count;
  HeadNeeds<kHeadDim> needs;
  if (is_there) needs.template load<kSteps>(launch, place);
  begin_work(recorder);
  if (is_there) finish_head<T, kHeadDim, kSteps>(launch, place, needs);
  recorder.end();
}

}  // namespace gapless::device
