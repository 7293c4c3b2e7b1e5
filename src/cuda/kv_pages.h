// SPDX-License-Identifier: Apache-2.0
//
// How keys and values lie in the pages of a GPU: laid out for the attention kernel, as kernels/
// kv_cache.h does it for the CPU.
//
// A page holds, for each kv head, a block of keys [token][dim] and then a block of values
// [token][dim], bf16 or f16. A row is cut into units of 16 bytes, and unit u of token t lies at
// place u ^ (t & 7): tiles of whole rows then go into shared memory with plain bulk copies, and the
// tensor cores' loads of eight rows at one unit meet eight different groups of banks.

#pragma once

#include <cstdint>

namespace gapless {

inline constexpr int kCudaKvElementBytes = 2;
inline constexpr int kCudaKvUnitBytes = 16;
inline constexpr int kCudaKvUnitElements = kCudaKvUnitBytes / kCudaKvElementBytes;
inline constexpr int kCudaKvSwizzleRows = 8;

constexpr int64_t cuda_kv_row_bytes(int head_dim) {
  return int64_t{head_dim} * kCudaKvElementBytes;
}
// One head's keys; its values lie this far behind them.
constexpr int64_t cuda_kv_block_bytes(int head_dim, int page_tokens) {
  return cuda_kv_row_bytes(head_dim) * page_tokens;
}
constexpr int64_t cuda_kv_page_bytes(int kv_heads, int head_dim, int page_tokens) {
  return 2 * cuda_kv_block_bytes(head_dim, page_tokens) * kv_heads;
}

// Where an element of a block lies, counted in elements. `token` is the one inside the page.
constexpr int cuda_kv_element(int head_dim, int token, int dim) {
  const int unit = (dim / kCudaKvUnitElements) ^ (token & (kCudaKvSwizzleRows - 1));
  return token * head_dim + unit * kCudaKvUnitElements + dim % kCudaKvUnitElements;
}

}  // namespace gapless
