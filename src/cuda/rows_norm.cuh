// SPDX-License-Identifier: Apache-2.0
//
// Rows for a matmul: RMS norm or not, cast to bf16 or quantised to s8. A row is one block's, or on
// sm_90 that of 4 or 8 blocks of a cluster (rows_parts.cuh).
//
// A row is read once, with all loads in flight, and stays in registers: what a launch takes is the
// way to L2 and back, one or two barriers and, in parts, as often the way to another SM. A part is
// 320 threads or fewer with at most 48 registers (64 above 20480 columns); a whole row is 512
// threads with at most 64 (norms up to 6144 columns, others up to 18432). That leaves room on an SM
// for a block of the matmul before, or this launch could not start early.
//
// Sums: of a thread's elements in the order of its vectors, of a warp's lanes, of warps, of parts.

#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/rows_launch.h"
#include "cuda/rows_parts.cuh"
#include "cuda/rows_vector.cuh"

namespace gapless::device {

inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr float kSmallestAmax = 1e-4f;
inline constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23

// Vectors of a norm's weights that a thread can keep beside its row.
template <int kParts>
inline constexpr int kKeptGammaVectors = kParts == 1 ? 3 : 2;

__device__ __forceinline__ uint32_t magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

// A thread's elements of a row in kParts blocks: vector v holds element() and the three behind it.
template <int kRowVectors, int kParts>
struct RowVectors {
  static constexpr int kVectors = kRowVectors;
  float4 v[kVectors];

  static __device__ __forceinline__ int64_t row() { return blockIdx.x / kParts; }
  static __device__ __forceinline__ int part() { return static_cast<int>(blockIdx.x % kParts); }
  static __device__ __forceinline__ int part_threads() {
    return kParts == 1 ? kRowsThreads : static_cast<int>(blockDim.x);
  }
  static __device__ __forceinline__ int element(int vector) {
    const int thread = (vector * kParts + part()) * part_threads() + static_cast<int>(threadIdx.x);
    return thread * kRowsVectorElements;
  }

  template <bool kIsConstant>
  __device__ __forceinline__ void load(const float* row, int k, bool is_aligned) {
    if (is_aligned) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) v[i] = load_four<kIsConstant>(row, element(i), k, true);
    } else {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) v[i] = load_four<kIsConstant>(row, element(i), k, false);
    }
  }
  __device__ __forceinline__ float sum_of_squares() const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      sum = add_square(add_square(sum, v[i].x), v[i].y);
      sum = add_square(add_square(sum, v[i].z), v[i].w);
    }
    return sum;
  }
  __device__ __forceinline__ uint32_t largest_magnitude() const {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      largest = __vimax3_u32(largest, magnitude_bits(v[i].x), magnitude_bits(v[i].y));
      largest = __vimax3_u32(largest, magnitude_bits(v[i].z), magnitude_bits(v[i].w));
    }
    return largest;
  }
  // Of the vectors, those behind a row's k elements.
  __device__ __forceinline__ void clear_vectors_behind(int k) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (element(i) >= k) v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  // All elements behind them.
  __device__ __forceinline__ void clear_elements_behind(int k) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (element(i) >= k) v[i].x = 0.0f;
      if (element(i) + 1 >= k) v[i].y = 0.0f;
      if (element(i) + 2 >= k) v[i].z = 0.0f;
      if (element(i) + 3 >= k) v[i].w = 0.0f;
    }
  }
  __device__ __forceinline__ void multiply(float factor) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      v[i].x = __fmul_rn(v[i].x, factor);
      v[i].y = __fmul_rn(v[i].y, factor);
      v[i].z = __fmul_rn(v[i].z, factor);
      v[i].w = __fmul_rn(v[i].w, factor);
    }
  }
};

__device__ __forceinline__ float4 multiply_four(float4 a, float4 b) {
  return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z),
                     __fmul_rn(a.w, b.w));
}

// The norm's weights: read ahead of the wait where registers allow it, else when they are needed.
template <typename Row, bool kIsKept>
struct GammaVectors {
  Row kept;

  __device__ __forceinline__ void load(const RowsLaunch& launch) {
    kept.template load<true>(launch.gamma, launch.k, launch.is_aligned);
  }
  __device__ __forceinline__ void multiply(const RowsLaunch&, Row& x) const {
#pragma unroll
    for (int i = 0; i < Row::kVectors; ++i) x.v[i] = multiply_four(x.v[i], kept.v[i]);
  }
};
template <typename Row>
struct GammaVectors<Row, false> {
  __device__ __forceinline__ void load(const RowsLaunch&) {}
  __device__ __forceinline__ void multiply(const RowsLaunch& launch, Row& x) const {
    launch.is_aligned ? multiply_by<true>(launch, x) : multiply_by<false>(launch, x);
  }

 private:
  template <bool kIsAligned>
  static __device__ __forceinline__ void multiply_by(const RowsLaunch& launch, Row& x) {
#pragma unroll
    for (int i = 0; i < Row::kVectors; ++i) {
      const int at = Row::element(i);
      x.v[i] = multiply_four(x.v[i], load_four<true>(launch.gamma, at, launch.k, kIsAligned));
    }
  }
};

// ---- Stores of four elements that begin at element i.

struct Bf16Store {
  uint2* row;  // a unit is four elements

  __device__ __forceinline__ void put(int i, float4 four) const {
    row[i / kRowsVectorElements] = make_uint2(pack_pair<__nv_bfloat16>(four.x, four.y),
                                              pack_pair<__nv_bfloat16>(four.z, four.w));
  }
};

// Adding kRounder leaves rint(x * inverse), ties to even, in the low byte of the sum. It needs no
// limits: inverse is 127 / amax, and its rounding and that of the product do not add up to a half.
__device__ __forceinline__ uint32_t rounded_bits(float x, float inverse) {
  return __float_as_uint(__fadd_rn(__fmul_rn(x, inverse), kRounder));
}

struct S8Store {
  uint32_t* row;
  float inverse;

  __device__ __forceinline__ void put(int i, float4 four) const {
    const uint32_t low =
        __byte_perm(rounded_bits(four.x, inverse), rounded_bits(four.y, inverse), 0x0040);
    const uint32_t high =
        __byte_perm(rounded_bits(four.z, inverse), rounded_bits(four.w, inverse), 0x0040);
    row[i / kRowsVectorElements] = __byte_perm(low, high, 0x5410);  // the low half of both
  }
};

// The row, which has zeros behind its end, and more of them up to k_stride.
template <typename Row, typename Store>
__device__ __forceinline__ void store_row(const RowsLaunch& launch, const Row& x,
                                          const Store& store) {
  const int k_stride = static_cast<int>(launch.k_stride);
#pragma unroll
  for (int i = 0; i < Row::kVectors; ++i) {
    const int at = Row::element(i);
    if (at < k_stride) store.put(at, x.v[i]);
  }
  const int step = Row::element(1) - Row::element(0);
#pragma unroll 1
  for (int at = Row::element(0) + Row::kVectors * step; at < k_stride; at += step) {
    store.put(at, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  }
}

// ---- The kernel.

// x becomes the normed row, or x * gamma where the factor is put off. Where it is put off, sum and
// largest magnitude have been shared after this.
template <bool kIsS8, typename Row, typename Totals, typename Gamma>
__device__ __forceinline__ void norm_row(const RowsLaunch& launch, Totals& totals,
                                         const Gamma& gamma, Row& x) {
  totals.put_sum(x.sum_of_squares());
  if (launch.is_deferred) {
    gamma.multiply(launch, x);
    if constexpr (kIsS8) totals.put_largest(x.largest_magnitude());
    totals.share(true, kIsS8);
    return;
  }
  totals.share(true, false);
  x.multiply(inverse_root_of_mean(totals.sum(launch.wait_limit), launch.k, launch.eps));
  gamma.multiply(launch, x);
  // A factor of infinity or NaN made a NaN of the zeros there.
  launch.is_aligned ? x.clear_vectors_behind(launch.k) : x.clear_elements_behind(launch.k);
}

// A row that is not finite everywhere gets zeros, and the scale NaN.
template <typename Row>
__device__ __forceinline__ float quantise_row(const RowsLaunch& launch, uint32_t* target,
                                              uint32_t amax_bits, Row& x) {
  const bool is_finite = amax_bits < kInfinityBits;
  const float amax = fmaxf(__uint_as_float(amax_bits), kSmallestAmax);
  if (!is_finite) x.clear_vectors_behind(0);
  store_row(launch, x, S8Store{target, is_finite ? __fdiv_rn(127.0f, amax) : 0.0f});
  return is_finite ? __fdiv_rn(amax, 127.0f) : __uint_as_float(0x7fc00000u);
}

// The last thing that a block does: all threads, so that none ends before what is sent to it came.
template <bool kHasNorm, bool kIsS8, typename Row, typename Totals>
__device__ __forceinline__ void store_factor(const RowsLaunch& launch, const Totals& totals,
                                             float scale) {
  float factor = scale;
  if (kHasNorm && launch.is_deferred) {
    factor =
        __fmul_rn(scale, inverse_root_of_mean(totals.sum(launch.wait_limit), launch.k, launch.eps));
  }
  const bool is_wanted = kIsS8 || (kHasNorm && launch.is_deferred);
  if (is_wanted && Row::part() == 0 && threadIdx.x == 0) launch.factors[Row::row()] = factor;
}

template <int kVectors, int kParts, bool kHasNorm, bool kIsS8, RecordLevel kLevel>
__device__ __forceinline__ void run_rows(const RowsLaunch& launch) {
  using Row = RowVectors<kVectors, kParts>;
  __shared__ RowTotals<kParts> totals;
  RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
  recorder.begin(DevicePhase::kSetUp);
  if (launch.lets_next_start) let_next_launch_start();
  totals.template begin<kHasNorm, kIsS8>();
  // A store of 4 bytes to a line that is not in L2 waits for memory, behind all that the next
  // launch reads ahead: some 3 us at the end of this one.
  if (launch.factors != nullptr && Row::part() == 0 && threadIdx.x == 0)
    bring_line_into_l2(launch.factors + Row::row());
  GammaVectors<Row, kHasNorm && kVectors <= kKeptGammaVectors<kParts>> gamma;
  if constexpr (kHasNorm) gamma.load(launch);
  if constexpr (kHasNorm || kIsS8) totals.meet();
  using Unit = std::conditional_t<kIsS8, uint32_t, uint2>;  // four elements
  const float* source = launch.x + Row::row() * launch.x_stride;
  Unit* target =
      static_cast<Unit*>(launch.y) + Row::row() * (launch.k_stride / kRowsVectorElements);
  compute_here(source != nullptr && target != nullptr);
  begin_work(recorder);

  if (launch.row_of != nullptr)
    source = launch.x + int64_t{__ldcg(launch.row_of + Row::row())} * launch.x_stride;
  Row x;
  x.template load<false>(source, launch.k, launch.is_aligned);
  if constexpr (kHasNorm) norm_row<kIsS8>(launch, totals, gamma, x);
  float scale = 1.0f;
  if constexpr (kIsS8) {
    if (!kHasNorm || !launch.is_deferred) {
      totals.put_largest(x.largest_magnitude());
      totals.share(false, true);
    }
    scale = quantise_row(launch, target, totals.largest_magnitude(launch.wait_limit), x);
  } else {
    store_row(launch, x, Bf16Store{target});
  }
  store_factor<kHasNorm, kIsS8, Row>(launch, totals, scale);
  recorder.end();
}

// Blocks of an SM, which is what registers are limited for.
template <int kVectors, int kParts, bool kHasNorm>
constexpr int rows_sm_blocks() {
  if (kParts > 1) return kVectors <= 2 ? 4 : 3;
  return kVectors <= (kHasNorm ? 3 : 9) ? 2 : 1;
}

template <int kVectors, int kParts, bool kHasNorm, bool kIsS8, RecordLevel kLevel>
__global__ void __launch_bounds__(kParts == 1 ? kRowsThreads : kPartMaxThreads,
                                  rows_sm_blocks<kVectors, kParts, kHasNorm>())
    rows_kernel(const __grid_constant__ RowsLaunch launch) {
  if constexpr (kParts == 1 || kHasClusters) {
    run_rows<kVectors, kParts, kHasNorm, kIsS8, kLevel>(launch);
  } else {
    __trap();  // the host asks which code was loaded, and starts no parts of this one
  }
}

}  // namespace gapless::device
