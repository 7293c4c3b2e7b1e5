// SPDX-License-Identifier: Apache-2.0
//
// The few instructions that C++ has no word for: matrix loads and products, copies into shared
// memory that end on a barrier, the wait for the launch before. One function each, for sm_80 and
// newer; where sm_90 has a better instruction, it is taken. Waits for barriers are in waits.cuh.
//
// Fragments are those of mma.m16n8k16: g = lane / 4 and t = lane % 4; a lane of the 16 x 8 result
// has columns 2t, 2t + 1 of rows g and g + 8.

#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gapless::device {

inline constexpr int kWarpLanes = 32;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- Matrices.

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
// An 8 x 8 matrix of 16-bit elements that lies in the registers of a warp.
__device__ __forceinline__ uint32_t transpose(uint32_t matrix) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

template <typename T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                            uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- Casts. A pair has its first value in the low half.

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <typename T>
__device__ __forceinline__ float2 unpack_pair(uint32_t pair);
template <>
__device__ __forceinline__ float2 unpack_pair<__nv_bfloat16>(uint32_t pair) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
}
template <>
__device__ __forceinline__ float2 unpack_pair<__half>(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// 2 to the x; exp2 of minus infinity is 0.
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x to the last bit or the one before it; for numbers that are not tiny.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// ---- Barriers of some of a block's warps, by number 1 to 15; `threads` is how many take part.

__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// ---- Copies into shared memory by one warp, which end on a barrier of that warp.

#if __CUDA_ARCH__ >= 900
inline constexpr int kCopyArrivals = 1;  // one lane announces the bytes
#else
inline constexpr int kCopyArrivals = kWarpLanes;  // every lane copies
#endif

__device__ __forceinline__ void initialise_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier)
               : "memory");
}

// Arrives, and the phase does not end before so many bytes more have been copied.
__device__ __forceinline__ void announce(uint32_t barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}

// The copy engine sees barriers that were initialised before this.
__device__ __forceinline__ void publish_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// What this thread wrote to shared memory comes before copies that are started after this.
__device__ __forceinline__ void order_writes_before_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// By one lane and the copy engine. What is read once leaves L2 before anything else does.
__device__ __forceinline__ void start_bulk_copy(uint32_t target, const void* source, int bytes,
                                                uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(target),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
#endif
}
// By all lanes of a warp, each some of it; and what tells the barrier, behind the last of them.
__device__ __forceinline__ void start_lane_copies(uint32_t target, const void* source, int bytes) {
  const char* from = static_cast<const char*>(source);
#pragma unroll
  for (int offset = threadIdx.x % kWarpLanes * 16; offset < bytes; offset += 16 * kWarpLanes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target + offset),
                 "l"(from + offset)
                 : "memory");
  }
}
__device__ __forceinline__ void arrive_when_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// All lanes call these. Source and target lie at 16 bytes, bytes are multiples of 16.
__device__ __forceinline__ void start_copy(uint32_t target, const void* source, int bytes,
                                           uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x % kWarpLanes == 0) {
    announce(barrier, bytes);
    start_bulk_copy(target, source, bytes, barrier);
  }
#else
  start_lane_copies(target, source, bytes);
  arrive_when_copied(barrier);
#endif
}
// Of at most 32 pieces of so many bytes, one behind the other where they go.
template <typename SourceOf>
__device__ __forceinline__ void start_copies(uint32_t target, int bytes, int count,
                                             uint32_t barrier, const SourceOf& source_of) {
#if __CUDA_ARCH__ >= 900
  const int lane = threadIdx.x % kWarpLanes;
  if (lane == 0) announce(barrier, bytes * count);
  if (lane < count) start_bulk_copy(target + lane * bytes, source_of(lane), bytes, barrier);
#else
#pragma unroll 1
  for (int piece = 0; piece < count; ++piece) {
    start_lane_copies(target + piece * bytes, source_of(piece), bytes);
  }
  arrive_when_copied(barrier);
#endif
}

// The copy engine copies a box of what a tensor map of three dimensions describes: from `begin` on
// in the last of them, from 0 in the others. One lane calls it, having announced the box's bytes.
__device__ __forceinline__ void start_box_copy(uint32_t target, const void* tensor_map, int begin,
                                               uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %2, %3}], [%4];" ::"r"(target),
      "l"(tensor_map), "r"(0), "r"(begin), "r"(barrier)
      : "memory");
#endif
}
// Ahead of its first use.
__device__ __forceinline__ void bring_tensor_map(const void* tensor_map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(tensor_map) : "memory");
#endif
}

// Asks for memory that will be copied later. At 16 bytes, and a multiple of 16.
__device__ __forceinline__ void prefetch_into_l2(const void* source, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes) : "memory");
#endif
}

// The line that holds the address.
__device__ __forceinline__ void bring_line_into_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

// What is known when a wait begins is best computed before it, but compilers do it behind, next to
// where it is needed. A question about it, whose answer is always yes, has to be answered here.
// (That an address in shared memory is not 0 is no such question: it begins there before sm_90.)
__device__ __forceinline__ void compute_here(bool is_sane) {
  if (!is_sane) __trap();
}

// ---- Time.

// The lower half of the GPU's timer, in nanoseconds. It ticks every 32 of them on an H200, on some
// GPUs every microsecond.
__device__ __forceinline__ uint32_t read_timer() {
  uint32_t ns;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(ns));
  return ns;
}

// ---- The launch before, where this one was allowed to start early.

// Returns when everything the launch before wrote can be read, by loads and by copies.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace gapless::device
