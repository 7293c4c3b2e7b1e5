// SPDX-License-Identifier: Apache-2.0
//
// How our kernels are started: one place for what a launch may ask of the device.

#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/code_version.h"

namespace gapless {

struct KernelStart {
  int blocks = 0;
  int threads = 0;           // of a block
  int64_t shared_bytes = 0;  // dynamic
  int cluster_blocks = 1;
  bool starts_early = false;  // where the code knows early launches
  void* stream = nullptr;     // a cudaStream_t
};

// A cudaError_t; 0 is success.
template <typename Launch>
int start_kernel(void (*kernel)(Launch), const Launch& launch, const KernelStart& start) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
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
  return cudaLaunchKernelEx(&config, kernel, launch);
}

}  // namespace gapless
