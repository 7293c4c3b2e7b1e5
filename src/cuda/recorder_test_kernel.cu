// SPDX-License-Identifier: Apache-2.0

#include "cuda/recorder_test_kernel.h"

#include <cuda_runtime.h>

#include "cuda/kernel_start.cuh"
#include "cuda/recorder.cuh"

namespace gapless {
namespace {

constexpr int kWarps = 4;  // kMain, kCopy, and two that have no role

__device__ void spend_cycles(uint32_t cycles) {
  const uint32_t begin = device::read_clock();
  while (device::read_clock() - begin < cycles) {
  }
}

// kMain: set up, wait for launch, wait for data, work [phases]. kCopy: read ahead, wait for data.
template <RecordLevel kLevel>
__global__ void recorder_test_kernel(const __grid_constant__ RecorderTestLaunch launch) {
  const int warp = threadIdx.x / device::kWarpLanes;
  if (warp == 1) {
    device::RoleRecorder<kLevel, DeviceRole::kCopy> recorder(launch.recorder, threadIdx.x == 32);
    recorder.begin(DevicePhase::kReadAhead);
    spend_cycles(200);
    recorder.phase(DevicePhase::kWaitData, blockIdx.x);
    device::wait_for_launch_before();
    recorder.end();
    return;
  }
  device::RoleRecorder<kLevel, DeviceRole::kMain> recorder(launch.recorder, threadIdx.x == 0);
  recorder.begin(DevicePhase::kSetUp);
  device::let_next_launch_start();
  recorder.phase(DevicePhase::kWaitLaunch);
  device::wait_for_launch_before();
  recorder.phase(DevicePhase::kWaitData);
  spend_cycles(300);
  for (int i = 0; i < launch.phases; ++i) {
    recorder.phase(DevicePhase::kWork, i);
    spend_cycles(300);
  }
  recorder.end();
}

}  // namespace

int recorder_test_launch_kernel(const RecorderTestLaunch& launch, void* stream) {
  using Kernel = void (*)(RecorderTestLaunch);
  const Kernel kernel = device::with_level(launch.level, [](auto constant) -> Kernel {
    return recorder_test_kernel<decltype(constant)::value>;
  });
  return start_kernel(kernel, launch,
                      {.blocks = launch.blocks,
                       .threads = kWarps * device::kWarpLanes,
                       .starts_early = launch.starts_early,
                       .stream = stream});
}

}  // namespace gapless
