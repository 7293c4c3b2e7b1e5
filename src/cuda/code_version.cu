// SPDX-License-Identifier: Apache-2.0

#include "cuda/code_version.h"

#include <cuda_runtime.h>

namespace gapless {
namespace {

constexpr int kSm90 = 90;

__global__ void probe_kernel() {}

bool find_sm90_code() {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess)
    return attributes.ptxVersion >= kSm90;
  static_cast<void>(cudaGetLastError());  // no device: a launch will say so
  return false;
}

}  // namespace

bool runs_sm90_code() {
  static const bool is_sm90 = find_sm90_code();
  return is_sm90;
}

}  // namespace gapless
