// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_bench_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace gapless {
namespace {

__device__ uint32_t mix(uint64_t value) {
  value *= 0x9e3779b97f4a7c15u;
  value ^= value >> 29;
  value *= 0xbf58476d1ce4e5b9u;
  return static_cast<uint32_t>(value >> 32);
}

// Values between -2 and 2, never all alike: zeros and repeats can be quicker than real data.
__global__ void fill_random(uint16_t* values, int64_t count, bool is_bf16, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float value = static_cast<float>(static_cast<int32_t>(mix(seed + i))) * 0x1p-30f;
    values[i] = is_bf16 ? __bfloat16_as_ushort(__float2bfloat16(value))
                        : __half_as_ushort(__float2half(value));
  }
}

}  // namespace

int start_filling(uint16_t* values, int64_t count, bool is_bf16, uint64_t seed) {
  fill_random<<<1024, 256>>>(values, count, is_bf16, seed);
  return cudaGetLastError();
}

}  // namespace gapless
