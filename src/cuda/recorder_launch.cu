// SPDX-License-Identifier: Apache-2.0
//
// The recorder's own launch: the device's half of the clock exchange.

#include "cuda/recorder_launch.h"

#include <cuda_runtime.h>

#include "cuda/recorder.cuh"

namespace gapless {
namespace {

__global__ void clock_kernel(DeviceClockExchange* exchange, uint32_t request_count) {
  constexpr uint64_t kMaxWaitNs = 1'000'000'000;
  volatile DeviceClockExchange* shared = exchange;
  for (uint32_t request = 1; request <= request_count; ++request) {
    const uint64_t begin_ns = device::read_clocks().ns;
    while (shared->request != request) {
      const bool is_late = device::read_clocks().ns - begin_ns > kMaxWaitNs;
      if (is_late) return;
    }
    shared->device_ns = device::read_clocks().ns;  // behind the branch: the question was seen
    __threadfence_system();                        // the time is there before the answer is
    shared->answer = request;
  }
}

}  // namespace

int recorder_clock_kernel(DeviceClockExchange* exchange, uint32_t request_count, void* stream) {
  clock_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(exchange, request_count);
  return cudaGetLastError();
}

}  // namespace gapless
