// SPDX-License-Identifier: Apache-2.0

#include "cuda/wait_test_kernel.h"

#include <cuda_runtime.h>

#include "cuda/kernel_start.cuh"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"

namespace gapless {
namespace {

constexpr int kThreads = 4 * device::kWarpLanes;

__global__ void wait_test_kernel(const __grid_constant__ WaitTestLaunch launch) {
  __shared__ uint64_t barriers[2];
  const uint32_t first = device::shared_address(barriers);
  const uint32_t second = device::shared_address(barriers + 1);
  if (threadIdx.x == 0) {
    device::initialise_barrier(first, 1);
    device::initialise_barrier(second, 1);
    device::publish_barriers();
  }
  __syncthreads();  // barriers are ready
  // In all other blocks somebody arrives, and no wait is long.
  const bool is_last = blockIdx.x == gridDim.x - 1;
  if (threadIdx.x == 0 && !is_last) device::arrive(second);
  if (static_cast<int>(threadIdx.x / device::kWarpLanes) != launch.waiting_warp) return;
  if (launch.wait == TestWait::kPhase) {
    device::wait_for_phase(second, 0, launch.wait_limit, DeviceWait::kTest);
  } else {
    device::wait_for_either(first, second, launch.wait_limit, DeviceWait::kTest);
  }
}

}  // namespace

int wait_test_launch_kernel(const WaitTestLaunch& launch, void* stream) {
  return start_kernel(wait_test_kernel, launch,
                      {.blocks = launch.blocks, .threads = kThreads, .stream = stream});
}

}  // namespace gapless
