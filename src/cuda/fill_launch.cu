// SPDX-License-Identifier: Apache-2.0
//
// One hash and four look-ups in shared memory give four numbers; everything else is integers, and
// the few float operations are single rounded ones, so that the bits are those of the CPU.
//
// Packed weights: a block makes 16 packed rows, which lie interleaved; lane (g = lane / 4,
// t = lane % 4) of a warp has rows g and g + 8 and stores 16 bytes, twice 4 of each row. Of bf16
// that is half of two hashes a row: two lanes make one each and exchange halves. s8 makes all
// numbers twice: for the largest of each row, and to divide by it.

#include "cuda/fill_launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/mix_bits.h"
#include "cuda/kv_pages.h"
#include "cuda/matmul_launch.h"

namespace gapless {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 32;
constexpr int kWarps = kThreads / kLanes;
constexpr int kHashElements = 4;
constexpr int kUnitBytes = 16;
constexpr int kSteps = 2;                              // units of a lane in a brick
constexpr int kStepBytes = kMatmulUnitBytes / kSteps;  // of a row
constexpr int kGroupBytes = matmul_brick_bytes(kFillGroupRows);
constexpr int kMaxBlocks = 4096;

// ---- Numbers.

__device__ uint64_t mix(uint64_t value, uint64_t twist) {
  const uint64_t other = value ^ twist;
  return __umul64hi(value, other) ^ (value * other);
}

// A row's hash key; without one it has no numbers and is zeros.
struct Row {
  uint64_t key = 0;
  int columns = 0;
};

__device__ Row row_of_part(const FillHash& hash, const FillPart& part, int64_t row, int columns) {
  if (row >= part.rows) return {};
  return {mix(part.key + static_cast<uint64_t>(row) * hash.step, hash.twist), columns};
}

// Four numbers from `column` on, a multiple of four, the first in the lowest 16 bits.
__device__ uint64_t four_numbers(const uint16_t* table, const FillHash& hash, const Row& row,
                                 int column) {
  const uint64_t place = static_cast<uint64_t>(column / kHashElements) * hash.step;
  const uint64_t bits = mix(row.key + place, hash.twist);
  uint64_t numbers = 0;
#pragma unroll
  for (int i = 0; i < kHashElements; ++i) {
    const uint64_t number = table[(bits >> (16 * i)) % kFillTableSize];
    if (column + i < row.columns) numbers |= number << (16 * i);
  }
  return numbers;
}

__device__ void copy_table(const uint16_t* from, uint16_t* table) {
  for (int i = threadIdx.x; i < kFillTableSize; i += kThreads) table[i] = from[i];
  __syncthreads();  // the table is there before anyone looks into it
}

// ---- Packed weights.

// Packed row `half` * 8 + `place` of a group: see matmul_pack.h.
__device__ Row packed_row(const FillWeightsLaunch& launch, int place, int half) {
  const int64_t group = blockIdx.x;
  if (launch.is_gated)
    return row_of_part(launch.hash, launch.parts[half], group * (kFillGroupRows / 2) + place,
                       launch.columns);
  int64_t row = group * kFillGroupRows + 2 * place + half;
  for (int part = 0; part < launch.part_count; ++part) {
    if (row < launch.parts[part].rows)
      return row_of_part(launch.hash, launch.parts[part], row, launch.columns);
    row -= launch.parts[part].rows;
  }
  return {};
}

__device__ uint32_t largest_magnitude(uint64_t numbers) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kHashElements; ++i)
    largest = max(largest, static_cast<uint32_t>(numbers >> (16 * i)) & 0x7fffu);
  return largest;
}

__device__ float bf16_value(uint64_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits & 0xffff) << 16);
}

// Four s8, as PackedMatrix makes them of bf16: floats from 2^23 on are integers, so that adding
// kRounder rounds to nearest even and leaves the integer in the lowest bits.
__device__ uint32_t quantized(uint64_t numbers, float scale) {
  constexpr float kRounder = 0x1.8p23f;
  uint32_t bytes = 0;
#pragma unroll
  for (int i = 0; i < kHashElements; ++i) {
    const float scaled = __fdiv_rn(bf16_value(numbers >> (16 * i)), scale);
    const float clamped = fminf(fmaxf(scaled, -127.0f), 127.0f);
    bytes |= (__float_as_uint(__fadd_rn(clamped, kRounder)) & 0xff) << (8 * i);
  }
  return bytes;
}

// The largest of both rows of this lane, as bits of bf16. Every thread of the block calls this.
__device__ void find_largest(const FillWeightsLaunch& launch, const uint16_t* table,
                             const Row (&rows)[2], uint32_t (&largest)[2]) {
  __shared__ uint32_t largest_of_warps[kWarps][kFillGroupRows];
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int columns = launch.bricks_per_tile * kMatmulUnitBytes;
  const int stride = kWarps * 4 * kHashElements;
  for (int half = 0; half < 2; ++half) {
    uint32_t found = 0;
    for (int column = (warp * 4 + lane % 4) * kHashElements; column < columns; column += stride)
      found = max(found, largest_magnitude(four_numbers(table, launch.hash, rows[half], column)));
    found = max(found, __shfl_xor_sync(0xffffffff, found, 1));
    found = max(found, __shfl_xor_sync(0xffffffff, found, 2));
    if (lane % 4 == 0) largest_of_warps[warp][half * 8 + lane / 4] = found;
  }
  __syncthreads();  // every warp's part is there
  for (int half = 0; half < 2; ++half) {
    largest[half] = 0;
    for (int i = 0; i < kWarps; ++i)
      largest[half] = max(largest[half], largest_of_warps[i][half * 8 + lane / 4]);
  }
}

// What divides a row. The stored scale of a row that is not there is zero.
__device__ float scale_of(uint32_t largest) {
  return largest == 0 ? 1.0f : __fdiv_rn(bf16_value(largest), 127.0f);
}

// 16 bytes of a step that begins at `byte` of the rows: four of each row from 4 t on, then four
// from kStepBytes / 2 further on. All lanes call this.
template <bool kIsS8>
__device__ uint4 packed_unit(const FillWeightsLaunch& launch, const uint16_t* table,
                             const Row (&rows)[2], const float (&scales)[2], int byte) {
  const int place = threadIdx.x % 4;
  const int is_odd = place % 2;
  uint32_t words[2][2];  // [row][first or second four bytes]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (kIsS8) {
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const int column = byte + word * (kStepBytes / 2) + place * kHashElements;
        const uint64_t numbers = four_numbers(table, launch.hash, rows[half], column);
        words[half][word] = quantized(numbers, scales[half]);
      }
    } else {
      // The even lane makes the first word of both lanes, the odd one the second.
      const int column = (byte + is_odd * (kStepBytes / 2)) / 2 + place / 2 * kHashElements;
      const uint64_t numbers = four_numbers(table, launch.hash, rows[half], column);
      const uint32_t halves[2] = {static_cast<uint32_t>(numbers),
                                  static_cast<uint32_t>(numbers >> 32)};
      const uint32_t other = __shfl_xor_sync(~0u, is_odd == 0 ? halves[1] : halves[0], 1);
      words[half][0] = is_odd == 0 ? halves[0] : other;
      words[half][1] = is_odd == 0 ? other : halves[1];
    }
  }
  return {words[0][0], words[1][0], words[0][1], words[1][1]};
}

// One block for each group of 16 packed rows.
template <bool kIsS8>
__global__ void __launch_bounds__(kThreads)
    fill_weights_kernel(const __grid_constant__ FillWeightsLaunch launch) {
  __shared__ uint16_t table[kFillTableSize];
  copy_table(launch.table, table);
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const Row rows[2] = {packed_row(launch, lane / 4, 0), packed_row(launch, lane / 4, 1)};
  float scales[2] = {1.0f, 1.0f};
  if constexpr (kIsS8) {
    uint32_t largest[2];
    find_largest(launch, table, rows, largest);
    for (int half = 0; half < 2; ++half) {
      scales[half] = scale_of(largest[half]);
      const int64_t at = int64_t{blockIdx.x} * kFillGroupRows + half * 8 + lane / 4;
      if (warp == 0 && lane % 4 == 0)
        launch.scales[at] = rows[half].columns > 0 ? scales[half] : 0.0f;
    }
  }
  const int64_t tile = blockIdx.x / launch.tile_groups;
  const int64_t brick_bytes = launch.tile_groups * kGroupBytes;
  std::byte* const bricks = launch.weights + tile * launch.bricks_per_tile * brick_bytes +
                            blockIdx.x % launch.tile_groups * kGroupBytes + lane * kUnitBytes;
  for (int unit = warp; unit < kSteps * launch.bricks_per_tile; unit += kWarps) {
    const int64_t brick = unit / kSteps;
    const int step = unit % kSteps;
    const int byte = unit * kStepBytes;
    std::byte* const to = bricks + brick * brick_bytes + step * kLanes * kUnitBytes;
    *reinterpret_cast<uint4*>(to) = packed_unit<kIsS8>(launch, table, rows, scales, byte);
  }
}

// ---- Plain rows, and keys and values.

// Threads go over units of 8 elements.
__global__ void __launch_bounds__(kThreads) fill_rows_kernel(FillRowsLaunch launch) {
  __shared__ uint16_t table[kFillTableSize];
  copy_table(launch.table, table);
  const int64_t row_units = launch.columns / kFillRowUnit;
  const int64_t units = launch.part.rows * row_units;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t unit = int64_t{blockIdx.x} * kThreads + threadIdx.x; unit < units; unit += stride) {
    const Row row = row_of_part(launch.hash, launch.part, unit / row_units, launch.columns);
    const int column = static_cast<int>(unit % row_units) * kFillRowUnit;
    const uint64_t low = four_numbers(table, launch.hash, row, column);
    const uint64_t high = four_numbers(table, launch.hash, row, column + kHashElements);
    reinterpret_cast<ulonglong2*>(launch.rows)[unit] = {low, high};
  }
}

// mix_bits of base/mix_bits.h, for the device.
__device__ uint64_t mix_counter(uint64_t value) {
  value += kMixIncrement;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// One value of fill_normal.
__device__ float normal_value(uint64_t counter) {
  constexpr float kMean = 2.0f * 65535.0f;
  constexpr float kScale = 1.0f / (65536.0f * 0.57735027f);
  const uint64_t bits = mix_counter(counter);
  const uint64_t sum =
      (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return __fmul_rn(__fsub_rn(static_cast<float>(sum), kMean), kScale);
}

__device__ uint32_t element_bits(bool is_bf16, float value) {
  return is_bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                 : __half_as_ushort(__float2half_rn(value));
}

// Threads go over units of 8 elements: [token][kv head][key, then value][unit].
__global__ void __launch_bounds__(kThreads) fill_kv_kernel(FillKvLaunch launch) {
  const int row_units = launch.head_dim / kCudaKvUnitElements;
  const int64_t token_units = int64_t{launch.kv_heads} * 2 * row_units;
  const int64_t units = (launch.end_token - launch.first_token) * token_units;
  const int64_t block_bytes = int64_t{launch.page_tokens} * launch.head_dim * kCudaKvElementBytes;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < units; i += stride) {
    const int token = launch.first_token + static_cast<int>(i / token_units);
    const int block = static_cast<int>(i % token_units / row_units);  // of the page: 2 head + v
    const int unit = static_cast<int>(i % row_units);
    const int64_t page = launch.sequence_pages[token / launch.page_tokens];
    if (page < 0 || page >= launch.page_count) __trap();  // never somewhere else's memory
    const uint64_t place = launch.place + block / 2 * launch.head_step + token;
    const uint64_t counter = mix_counter(launch.seed_bits + place) + block % 2 * launch.head_dim +
                             unit * kCudaKvUnitElements;
    const float scale = block % 2 == 0 ? 1.0f : launch.value_scale;
    uint32_t words[4] = {};
    for (int element = 0; element < kCudaKvUnitElements; ++element) {
      const float value = __fmul_rn(normal_value(counter + element), scale);
      words[element / 2] |= element_bits(launch.is_bf16, value) << (element % 2 * 16);
    }
    const int row = token % launch.page_tokens;
    const int64_t at = int64_t{row} * row_units + (unit ^ (row % kCudaKvSwizzleRows));
    std::byte* const head = launch.pages + (page * launch.kv_heads * 2 + block) * block_bytes;
    *reinterpret_cast<uint4*>(head + at * kCudaKvUnitBytes) = {words[0], words[1], words[2],
                                                               words[3]};
  }
}

int block_count(int64_t units) {
  const int64_t blocks = (units + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace

int fill_weights_launch_kernel(const FillWeightsLaunch& launch, void* stream) {
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (launch.is_s8)
    fill_weights_kernel<true><<<launch.groups, kThreads, 0, on>>>(launch);
  else
    fill_weights_kernel<false><<<launch.groups, kThreads, 0, on>>>(launch);
  return cudaGetLastError();
}

int fill_rows_launch_kernel(const FillRowsLaunch& launch, void* stream) {
  const int blocks = block_count(launch.part.rows * (launch.columns / kFillRowUnit));
  fill_rows_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(launch);
  return cudaGetLastError();
}

int fill_kv_launch_kernel(const FillKvLaunch& launch, void* stream) {
  const int64_t tokens = launch.end_token - launch.first_token;
  const int blocks =
      block_count(tokens * launch.kv_heads * 2 * (launch.head_dim / kCudaKvUnitElements));
  fill_kv_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(launch);
  return cudaGetLastError();
}

}  // namespace gapless
