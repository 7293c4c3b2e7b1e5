// SPDX-License-Identifier: Apache-2.0
//
// How our kernels are started: one place for what a launch may ask of the device.

#pragma once

#include <cstdint>
#include <mutex>

#include <cuda_runtime.h>

#include "cuda/code_version.h"
#include "cuda/wait_limit.h"

namespace gapless {

struct KernelStart {
  int blocks = 0;
  int threads = 0;           // of a block
  int64_t shared_bytes = 0;  // dynamic
  int cluster_blocks = 1;
  bool starts_early = false;  // where the code knows early launches
  void* stream = nullptr;     // a cudaStream_t
};

// Lets a kernel have so much dynamic shared memory, and keeps more that it was allowed before: a
// graph may need that. A cudaError_t; 0 is success.
template <typename Launch>
int allow_shared_bytes(void (*kernel)(Launch), int64_t bytes) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (bytes == 0) return cudaSuccess;
  const void* const function = reinterpret_cast<const void*>(kernel);
  static std::mutex mutex;  // or the smaller of two threads' bytes could come last
  const std::lock_guard<std::mutex> lock(mutex);
  cudaFuncAttributes allowed = {};
  const cudaError_t status = cudaFuncGetAttributes(&allowed, function);
  if (status != cudaSuccess || bytes <= allowed.maxDynamicSharedSizeBytes) return status;
  return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// What is started: the launch, with the limit of its waits if its kernel waits for anything.
template <typename Launch>
Launch with_wait_limit(const Launch& launch) {
  Launch limited = launch;
  if constexpr (requires { limited.wait_limit; }) limited.wait_limit = present_wait_limit();
  return limited;
}

// A cudaError_t; 0 is success. A kernel's code is loaded when it is first asked for anything, which
// is here: forms that nobody starts are not on the device.
template <typename Launch>
int start_kernel(void (*kernel)(Launch), const Launch& launch, const KernelStart& start) {
  const int status = allow_shared_bytes(kernel, start.shared_bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (start.starts_early && runs_sm90_code()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (start.cluster_blocks > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(start.cluster_blocks), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(start.blocks));
  config.blockDim = dim3(static_cast<unsigned>(start.threads));
  config.dynamicSmemBytes = static_cast<size_t>(start.shared_bytes);
  config.stream = static_cast<cudaStream_t>(start.stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, with_wait_limit(launch));
}

}  // namespace gapless
