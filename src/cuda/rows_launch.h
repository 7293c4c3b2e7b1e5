// SPDX-License-Identifier: Apache-2.0
//
// What the host half of the row ops (rows.h) hands to the device half: numbers and device pointers,
// no CUDA types. Which block does what is here too, since the host counts blocks.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "cuda/recorder_launch.h"
#include "cuda/wait_limit.h"

namespace gapless {

// A row for a matmul lies in registers, four elements to a vector: in those of one block of
// kRowsThreads threads, or in parts in those of a cluster, whose blocks have as many warps as the
// row needs.
inline constexpr int kRowsThreads = 512;
inline constexpr int kRowsVectorElements = 4;
inline constexpr int kRowsMaxVectors = 16;  // of a thread
inline constexpr int kPartMaxThreads = 320;
inline constexpr int kPartMinK = 2049;  // below it a vector for each thread of one block is enough
inline constexpr int kRowsMaxK = kRowsThreads * kRowsVectorElements * kRowsMaxVectors;

inline constexpr int kEmbedThreads = 256;
inline constexpr int kEmbedBlockElements = kEmbedThreads * 8;
inline constexpr int kPairThreads = 256;
inline constexpr int kPairBlockElements = kPairThreads * 4;
inline constexpr int kHeadsWarps = 8;  // of a block; a warp has a head

// A row's logits are cut into parts, one block each; the last one to end merges them.
inline constexpr int kTopThreads = 512;
inline constexpr int kTopPartColumns = kTopThreads * 4 * 4;
inline constexpr int kTopMaxParts = 32;  // as many as a warp has lanes

struct EmbedLaunch {
  const void* table = nullptr;      // [vocabulary][hidden]
  const int32_t* tokens = nullptr;  // [rows]
  float* x = nullptr;               // [rows][hidden]
  int64_t hidden = 0;
  int row_blocks = 0;
  bool is_aligned = false;  // rows of the table and of x can be taken in vectors of 8 elements
  RecorderLaunch recorder;
};

struct RowsLaunch {
  const float* x = nullptr;         // [...][x_stride]
  const int32_t* row_of = nullptr;  // [rows], or nothing
  const float* gamma = nullptr;     // [k], or nothing
  void* y = nullptr;                // [rows][k_stride], rows at 16 bytes
  float* factors = nullptr;         // [rows], or nothing
  int64_t x_stride = 0;
  int64_t k_stride = 0;
  int k = 0;
  float eps = 0.0f;
  bool is_deferred = false;
  bool is_aligned = false;  // x and gamma can be taken in vectors of 4, and k is a multiple of it
  bool lets_next_start = false;  // before this launch has waited
  RecorderLaunch recorder;
  WaitLimit wait_limit = {};
};
struct RowsForm {
  int parts = 1;    // blocks of a row: 1, 4 or 8
  int vectors = 1;  // of a thread: 1, 3, 9 or 16 of a row in one part; 1 of 4; 1, 2 or 4 of 8
  int threads = kRowsThreads;
  bool has_norm = false;
  bool is_s8 = false;
};

enum class HeadSteps : uint8_t { kAll, kNorm, kRope };
struct HeadsLaunch {
  float* qkv = nullptr;                 // [rows][qkv_stride]; written by kNorm only
  const float* q_gamma = nullptr;       // [head_dim]
  const float* k_gamma = nullptr;       // [head_dim]
  const float* rope = nullptr;          // [positions][head_dim]
  const int32_t* lengths = nullptr;     // [rows]
  const int32_t* page_table = nullptr;  // [rows][page_table_stride]
  std::byte* pages = nullptr;           // [page_count][page_bytes]
  std::byte* q = nullptr;               // [rows][q_heads][head_dim] of 2 bytes
  int64_t qkv_stride = 0;
  int64_t positions = 0;
  int64_t page_table_stride = 0;
  int64_t page_count = 0;
  int64_t page_bytes = 0;
  int64_t kv_block_bytes = 0;  // a head's keys in a page, or its values
  int page_tokens = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int head_count = 0;  // that have a warp: q and k heads, and the v heads but for kNorm
  int row_blocks = 0;
  float eps = 0.0f;
  bool lets_next_start = false;  // before this launch has waited
  RecorderLaunch recorder;
};
struct HeadsForm {
  DType dtype = DType::kBf16;  // of pages and q: bf16 or f16
  int head_dim = 128;
  HeadSteps steps = HeadSteps::kAll;
};

enum class PairOp : uint8_t { kSiluMultiply, kAdd };
struct PairLaunch {
  const float* a = nullptr;  // [rows][stride]
  const float* b = nullptr;
  float* y = nullptr;
  int64_t columns = 0;
  int64_t stride = 0;
  int row_blocks = 0;
  bool is_aligned = false;  // all rows begin at 16 bytes
  RecorderLaunch recorder;
};

// What a block found in its part. The larger key comes first: the logit in an order of unsigned
// numbers above, what is left of 2^32 after the token below. 0 is nobody.
struct TopPart {
  uint64_t key;
  float logit;
  uint32_t unused;
};
// A row's part of the workspace. All zero between launches, as far as `arrivals` goes.
struct alignas(128) TopSlot {
  uint32_t arrivals;  // blocks that have stored their part
  uint32_t unused[31];
  TopPart parts[kTopMaxParts];
};
struct TopResult {
  float logit;
  int32_t token;
};
struct TopLaunch {
  const float* logits = nullptr;  // [rows][stride]
  TopResult* top = nullptr;       // [rows]
  TopSlot* slots = nullptr;       // [rows]
  int64_t stride = 0;
  int64_t columns = 0;
  int64_t part_columns = 0;
  int parts = 0;
  bool is_aligned = false;  // rows begin at 16 bytes
  RecorderLaunch recorder;
};

// How and where. `stream` is a cudaStream_t.
struct RowsStart {
  int blocks = 0;
  int cluster_blocks = 1;
  bool starts_early = false;
  void* stream = nullptr;
};

// These return a cudaError_t; 0 is success.
int embed_launch_kernel(DType table_dtype, const EmbedLaunch& launch, const RowsStart& start);
int rows_launch_kernel(const RowsForm& form, const RowsLaunch& launch, const RowsStart& start);
int heads_launch_kernel(const HeadsForm& form, const HeadsLaunch& launch, const RowsStart& start);
int pair_launch_kernel(PairOp op, const PairLaunch& launch, const RowsStart& start);
int top_launch_kernel(const TopLaunch& launch, const RowsStart& start);

}  // namespace gapless
