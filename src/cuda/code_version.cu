// SPDX-License-Identifier: Apache-2.0

#include "cuda/code_version.h"

#include <atomic>

#include <cuda_runtime.h>

namespace gapless {
namespace {

constexpr int kSm90 = 90;
constexpr int kUnknown = 0;

__global__ void probe_kernel() {}

}  // namespace

int find_sm90_code(bool* is_sm90) {
  // A failure is not kept: the next call may find memory for the code, and two answers in one
  // process would have a kernel do what its launch did not prepare.
  static std::atomic<int> known_version = kUnknown;
  int version = known_version.load(std::memory_order_relaxed);
  if (version == kUnknown) {
    cudaFuncAttributes attributes = {};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (status != cudaSuccess) return status;
    version = attributes.ptxVersion;
    known_version.store(version, std::memory_order_relaxed);
  }
  *is_sm90 = version >= kSm90;
  return cudaSuccess;
}

bool runs_sm90_code() {
  bool is_sm90 = false;
  if (find_sm90_code(&is_sm90) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return is_sm90;
}

}  // namespace gapless
