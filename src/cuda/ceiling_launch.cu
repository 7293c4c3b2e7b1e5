// SPDX-License-Identifier: Apache-2.0
//
// Results are used in a way that the compiler cannot see through, and never stored.

#include "cuda/ceiling_launch.h"

#include <cuda_runtime.h>

#include "cuda/tensor_ops.cuh"

namespace gapless {
namespace {

constexpr int kReadThreads = 512;
constexpr int kReadBlocksPerSm = 4;
constexpr int kReadsInFlight = 8;
constexpr int kFillBlocks = 1024;

__device__ uint32_t mix_word(uint64_t value) {
  value *= 0x9e3779b97f4a7c15u;
  value ^= value >> 29;
  value *= 0xbf58476d1ce4e5b9u;
  return static_cast<uint32_t>(value >> 32);
}

__global__ void fill_kernel(uint4* memory, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    memory[i] = {mix_word(4 * i), mix_word(4 * i + 1), mix_word(4 * i + 2), mix_word(4 * i + 3)};
}

__device__ void add_bits(uint4& sum, const uint4& value) {
  sum = {sum.x ^ value.x, sum.y ^ value.y, sum.z ^ value.z, sum.w ^ value.w};
}

__global__ void __launch_bounds__(kReadThreads)
    read_kernel(const uint4* memory, int64_t count, uint4* never_written) {
  uint4 sum = {0, 0, 0, 0};
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kReadsInFlight - 1) * step < count; i += kReadsInFlight * step) {
    uint4 values[kReadsInFlight];
#pragma unroll
    for (int k = 0; k < kReadsInFlight; ++k) values[k] = __ldcs(memory + i + k * step);
#pragma unroll
    for (int k = 0; k < kReadsInFlight; ++k) add_bits(sum, values[k]);
  }
  for (; i < count; i += step) add_bits(sum, __ldcs(memory + i));
  if (sum.x == 0x12345678 && sum.y == 0x9 && sum.z == 0x77) *never_written = sum;
}

__device__ void multiply_add_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Operands that differ from lane to lane. As bf16: 1 to 2, of either sign.
__device__ uint32_t operand(int index) {
  const uint32_t bits = mix_word((blockIdx.x * kCeilingThreads + threadIdx.x) * 8 + index);
  return (bits & 0x807f807fu) | 0x3f803f80u;
}

template <typename Sum, typename Multiply>
__device__ void multiply_rounds(int rounds, Sum* never_written, const Multiply& multiply) {
  const uint32_t a[4] = {operand(0), operand(1), operand(2), operand(3)};
  const uint32_t b0 = operand(4);
  const uint32_t b1 = operand(5);
  // No two chains are alike: the compiler would make one of them.
  Sum sums[kCeilingChains][4];
#pragma unroll
  for (int chain = 0; chain < kCeilingChains; ++chain)
    for (int i = 0; i < 4; ++i) sums[chain][i] = static_cast<Sum>(4 * chain + i);
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int chain = 0; chain < kCeilingChains; ++chain) multiply(sums[chain], a, b0, b1);
  }
  Sum total = 0;
#pragma unroll
  for (int chain = 0; chain < kCeilingChains; ++chain)
    for (int i = 0; i < 4; ++i) total += sums[chain][i];
  if (total == static_cast<Sum>(12345678)) *never_written = total;
}

__global__ void __launch_bounds__(kCeilingThreads) s8_kernel(int rounds, int* never_written) {
  multiply_rounds<int>(rounds, never_written,
                       [](int(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {
                         multiply_add_s8(c, a, b0, b1);
                       });
}

__global__ void __launch_bounds__(kCeilingThreads) bf16_kernel(int rounds, float* never_written) {
  multiply_rounds<float>(rounds, never_written,
                         [](float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {
                           device::multiply_add<__nv_bfloat16>(c, a, b0, b1);
                         });
}

__global__ void __launch_bounds__(kCeilingThreads) f32_kernel(int rounds, float* never_written) {
  const float factor = __uint_as_float(0x3f000000u | (operand(0) & 0x7fu));  // about 1 / 2
  const float summand = __uint_as_float(operand(1));
  float sums[kCeilingF32Chains];
#pragma unroll
  for (int chain = 0; chain < kCeilingF32Chains; ++chain) sums[chain] = static_cast<float>(chain);
#pragma unroll 4
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int chain = 0; chain < kCeilingF32Chains; ++chain)
      sums[chain] = __fmaf_rn(sums[chain], factor, summand);
  }
  float total = 0.0f;
#pragma unroll
  for (int chain = 0; chain < kCeilingF32Chains; ++chain) total += sums[chain];
  if (total == 12345678.0f) *never_written = total;
}

}  // namespace

int ceiling_fill_kernel(void* memory, int64_t bytes, void* stream) {
  fill_kernel<<<kFillBlocks, kCeilingThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint4*>(memory), bytes / 16);
  return cudaGetLastError();
}

int ceiling_read_kernel(const void* memory, int64_t bytes, int sm_count, void* never_written,
                        void* stream) {
  read_kernel<<<sm_count * kReadBlocksPerSm, kReadThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const uint4*>(memory), bytes / 16, static_cast<uint4*>(never_written));
  return cudaGetLastError();
}

int ceiling_multiply_kernel(CeilingArithmetic arithmetic, int sm_count, int rounds,
                            void* never_written, void* stream) {
  const int blocks = sm_count * kCeilingBlocksPerSm;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  float* const number = static_cast<float*>(never_written);
  switch (arithmetic) {
    case CeilingArithmetic::kS8:
      s8_kernel<<<blocks, kCeilingThreads, 0, on>>>(rounds, static_cast<int*>(never_written));
      break;
    case CeilingArithmetic::kBf16:
      bf16_kernel<<<blocks, kCeilingThreads, 0, on>>>(rounds, number);
      break;
    case CeilingArithmetic::kF32:
      f32_kernel<<<blocks, kCeilingThreads, 0, on>>>(rounds, number);
      break;
  }
  return cudaGetLastError();
}

}  // namespace gapless
