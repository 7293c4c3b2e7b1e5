// SPDX-License-Identifier: Apache-2.0
//
// Waits for barriers in shared memory and for what other blocks write. None is for ever: whoever
// has waited too long says so and stops the kernel (wait_limit.h).
//
// A wait that ends in time costs what it would without a limit: its tries are counted, and the
// GPU's timer is looked at once in kTriesALook of them.

#pragma once

#include <cstdint>

#include "cuda/tensor_ops.cuh"
#include "cuda/wait_limit.h"

namespace gapless::device {

// In milliseconds, or nearly: 2^20 ns.
__device__ __forceinline__ uint32_t read_timer_ms() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return static_cast<uint32_t>(ns >> 20);
}

// A function of its own: else it is in every wait, 1 KB of a kernel.
[[noreturn]] static __device__ __noinline__ void give_up(const WaitLimit& limit, DeviceWait wait) {
  if (limit.report != nullptr) {
    const WaitReport report = {
        .block = blockIdx.x, .warp = static_cast<uint16_t>(threadIdx.x / kWarpLanes), .wait = wait};
    uint64_t bits;
    memcpy(&bits, &report, sizeof(bits));
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(limit.report), "l"(bits) : "memory");
    __threadfence_system();  // the host has it before the kernel stops
  }
  __trap();
}

// Of one wait.
class Patience {
 public:
  // After each try that failed.
  __device__ __forceinline__ void spend(const WaitLimit& limit, DeviceWait wait) {
    if (++tries_ % kTriesALook != 0) return;
    const uint32_t now_ms = read_timer_ms();
    if (begin_ms_ == 0) begin_ms_ = now_ms;
    if (now_ms - begin_ms_ > limit.limit_ms) give_up(limit, wait);
  }

 private:
  // A try takes some 20 ns, or a millisecond where the hardware waits before it says no.
  static constexpr uint32_t kTriesALook = 1024;

  uint32_t tries_ = 0;
  uint32_t begin_ms_ = 0;  // as of the first look
};

// Whether a phase of the barrier has ended.
__device__ __forceinline__ bool is_phase_done(uint32_t barrier, uint32_t parity) {
  uint32_t is_done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_done != 0;
}

// The same; where the hardware can, it waits a while before it says no.
__device__ __forceinline__ bool is_phase_done_soon(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t is_done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_done != 0;
#else
  return is_phase_done(barrier, parity);
#endif
}

// Waits for a phase of the barrier.
__device__ __forceinline__ void wait_for_phase(uint32_t barrier, uint32_t parity,
                                               const WaitLimit& limit, DeviceWait wait) {
  Patience patience;
#pragma unroll 1  // each copy of the loop would be 32 of them
  while (!is_phase_done_soon(barrier, parity)) patience.spend(limit, wait);
}

// Waits for the first phase of one of two barriers.
__device__ __forceinline__ void wait_for_either(uint32_t barrier, uint32_t other,
                                                const WaitLimit& limit, DeviceWait wait) {
  Patience patience;
#pragma unroll 1
  while (!is_phase_done(barrier, 0) && !is_phase_done(other, 0)) patience.spend(limit, wait);
}

}  // namespace gapless::device
