// SPDX-License-Identifier: Apache-2.0
//
// KvPages: keys and values of one layer, in pages of a fixed number of tokens.
//
// A page holds, for each kv head, a block of keys and then a block of values, both laid out for the
// attention kernel (attention.h), which reads a block from front to back:
//
//   K  [dim / g][token][g]    scores of 16 tokens side by side, no sum across a vector
//   V  [token / g][dim][g]    g = 2 for bf16 (one dot instruction takes two), 1 otherwise
//
// s8 keys and values have one f32 scale a token for each: [token] K scales, [token] V scales follow
// the head's blocks. Which page holds which tokens of a sequence is the page table's business.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"

namespace gapless {

struct KvShape {
  DType dtype = DType::kBf16;  // kF32, kF16, kBf16 or kS8
  int kv_heads = 0;
  int head_dim = 0;     // 64, 128 or 256
  int page_tokens = 0;  // 16 .. 256, a multiple of 16
  bool operator==(const KvShape&) const = default;
};

inline constexpr int kMaxKvHeads = 1024;

// Error when a number is not one that the kernels know.
Result<void> check_kv_shape(const KvShape& shape);

// Elements that lie together: see above.
constexpr int kv_group(DType dtype) { return dtype == DType::kBf16 ? 2 : 1; }
// Bytes of one head's K block (its V block is as large), of a head with both blocks and the scales,
// and of a page with all heads. All are multiples of 64.
int64_t kv_block_bytes(const KvShape& shape);
int64_t kv_head_bytes(const KvShape& shape);
int64_t kv_page_bytes(const KvShape& shape);

struct KvPages {
  KvShape shape;
  std::byte* data = nullptr;  // at 64 bytes
  int64_t page_count = 0;
};

// The K block of a page and head; the V block lies kv_block_bytes() behind it, the scales behind
// that.
std::byte* kv_head_block(const KvPages& pages, int64_t page, int kv_head);

// Writes key and value ([head_dim] f32 each) of one token: cast to the cache's type, or quantised
// (scale = max(amax, 1e-4) / 127, round to nearest even). An s8 key or value that is not finite
// somewhere is NaN everywhere.
void write_kv(const KvPages& pages, int64_t page, int token, int kv_head, const float* key,
              const float* value);
// The token as the attention sees it: for tests, references and copies of pages.
void read_kv(const KvPages& pages, int64_t page, int token, int kv_head, float* key, float* value);

}  // namespace gapless
