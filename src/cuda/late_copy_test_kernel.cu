// SPDX-License-Identifier: Apache-2.0

#include "cuda/late_copy_test_kernel.h"

#include <cuda_runtime.h>

#include "cuda/kernel_start.cuh"
#include "cuda/recorder.cuh"

namespace gapless {
namespace {

constexpr int kBlocks = 4;
constexpr int kThreads = 256;

__global__ void late_copy_kernel(const __grid_constant__ LateCopyLaunch launch) {
  device::let_next_launch_start();
  const uint32_t begin = device::read_timer();
  while (device::read_timer() - begin < launch.delay_ns) {
  }
  if (launch.written_ns != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    *launch.written_ns = device::read_clocks().ns;
  }
  __syncthreads();  // nobody copies before that
  for (int i = static_cast<int>(blockIdx.x); i < launch.copy_count; i += kBlocks) {
    const LateCopy copy = launch.copies[i];
    uint32_t* target = reinterpret_cast<uint32_t*>(copy.target);
    const uint32_t* source = reinterpret_cast<const uint32_t*>(copy.source);
    for (int64_t word = threadIdx.x; word < copy.bytes / 4; word += kThreads) {
      target[word] = source != nullptr ? source[word] : ~0u;
    }
  }
}

}  // namespace

int late_copy_launch_kernel(const LateCopyLaunch& launch, void* stream) {
  return start_kernel(late_copy_kernel, launch,
                      {.blocks = kBlocks, .threads = kThreads, .stream = stream});
}

}  // namespace gapless
