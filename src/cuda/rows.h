// SPDX-License-Identifier: Apache-2.0
//
// The small steps between the matmuls of a decode step, on rows of f32: embedding, RMS norm with a
// cast or the quantisation for the matmul that follows, per-head norm + rope + cache write, SiLU,
// residual, the largest logit. Each is one launch of a few microseconds, and most of those are the
// launch: with `starts_early` it is under way before the launch before has ended.
//
// Formulas, casts and their corner cases (NaN, amax of 1e-4, sums that overflow) are those of
// kernels/norm.h, packed_rows.h, elementwise.h and sampling.h; sums are f32 in an order that
// depends on the row's length and the kind of device only, so results do not depend on the batch.
// From sm_90 on a long row for a matmul is several blocks': its sum may differ from sm_80's in the
// last bits.
//
// Rows for a matmul have `k_stride` elements: what is behind k is set to zero. Rows of f32 may
// begin anywhere and be of any length; they are read in vectors where all begin at 16 bytes.
//
// Arguments that an op cannot take are errors with their numbers, found before anything is started.
// No rows: nothing is started. `*_blocks` are the blocks of a launch, for the recorder.

#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "cuda/device.h"
#include "cuda/recorder_launch.h"
#include "kernels/kv_cache.h"

namespace gapless {

// How a launch starts, of all row ops.
struct CudaRowsLaunch {
  CudaStream stream = nullptr;
  // The launch may begin while the launch before it on the stream still runs; it waits for that one
  // before it reads or writes anything but constants (gamma, rope, embedding; of heads lengths and
  // page table too). Whoever comes next may start when this launch has waited, not before.
  bool starts_early = false;
  // Of launch_rows and heads: what comes next may start as soon as all blocks of this launch have.
  // Ahead of its own wait it reads nothing but what launches left that had ended when this one
  // could begin: a matmul reads weights, the attention keys and values of older tokens and a
  // schedule. (That these had ended the matmul in front of heads sees to, by
  // CudaMatmulArgs::holds_next.)
  bool lets_next_start = false;
  RecorderLaunch recorder = {};
};

// x[row] = table[tokens[row]].
struct CudaEmbedArgs {
  const void* table = nullptr;       // [vocabulary][hidden]
  DType table_dtype = DType::kBf16;  // bf16, f16 or f32
  const int32_t* tokens = nullptr;   // on the device, in the vocabulary
  int rows = 0;
  int64_t hidden = 0;
  float* x = nullptr;  // [rows][hidden]
};
Result<void> launch_embed(const CudaEmbedArgs& args, const CudaRowsLaunch& launch);
int embed_blocks(const CudaEmbedArgs& args);

// Rows for a matmul of f32 rows: y = x, or the RMS norm of x, cast to bf16 or quantised to s8.
struct CudaRowsArgs {
  const float* x = nullptr;  // [...][x_stride]
  int64_t x_stride = 0;
  const int32_t* row_of = nullptr;  // [rows], on the device: which row of x; null: the same
  int rows = 0;
  int64_t k = 0;
  // The norm's; null: no norm, and nothing to defer.
  const float* gamma = nullptr;  // [k]
  float eps = 0.0f;
  bool is_deferred = false;    // y = x * gamma; 1 / rms goes into `factors`
  DType dtype = DType::kBf16;  // of y: bf16 or s8
  void* y = nullptr;           // [rows][k_stride], at 16 bytes
  int64_t k_stride = 0;        // a multiple of 16 bytes
  // [rows]: what the matmul multiplies its results with. s8: the scale, times 1 / rms where that
  // was deferred. bf16: 1 / rms where it was deferred, else not written and may be null.
  float* factors = nullptr;
  // For comparison: one block a row in any case, as on sm_80. Else, where the device can do it
  // (code for sm_90 or newer), rows of more than 2048 columns are cut into 4 parts, those of more
  // than 5120 into 8: blocks of one cluster.
  bool is_whole = false;
};
Result<void> launch_rows(const CudaRowsArgs& args, const CudaRowsLaunch& launch);
// On the first device that was used; without one as if `is_whole`.
int rows_blocks(const CudaRowsArgs& args);
// The largest k of launch_rows: a row lies in registers.
int64_t max_rows_k();

// q and k heads: RMS norm of each head, rope; q is stored in the pages' type, k and v are written
// to the page and place of the row's newest token, as cuda/kv_pages.h has it. A row whose length is
// below 1 or has no angle stores nothing, one whose page is not there no key and value: lengths and
// pages are the attention's to report.
//
// qkv, gammas, rope, q and pages lie at 16 bytes, qkv_stride is a multiple of 4.
struct CudaHeadsArgs {
  const float* qkv = nullptr;  // [rows][qkv_stride]: q heads, k heads, v heads of head_dim each
  int64_t qkv_stride = 0;
  int rows = 0;
  int q_heads = 0;
  KvShape kv = {};                 // bf16 or f16
  const float* q_gamma = nullptr;  // [head_dim]
  const float* k_gamma = nullptr;
  float eps = 0.0f;
  const float* rope = nullptr;  // [positions][head_dim]: RopeTable, cos and then sin
  int64_t rope_positions = 0;   // 0: one for each token that the page table has room for
  // Both are read before the wait: nothing that still runs writes them.
  const int32_t* lengths = nullptr;     // [rows]: the row's token included; its position + 1
  const int32_t* page_table = nullptr;  // [rows][page_table_stride]
  int64_t page_table_stride = 0;
  void* pages = nullptr;
  int64_t page_count = 0;
  void* q = nullptr;  // [rows][q_heads][head_dim], of the pages' type
};
Result<void> launch_heads(const CudaHeadsArgs& args, const CudaRowsLaunch& launch);
int heads_blocks(const CudaHeadsArgs& args);

// The same in two launches, for comparison: the norm in place in qkv (which must be writable), then
// the rest. Same bits. head_norm_blocks are those of the first, heads_blocks those of the second.
int head_norm_blocks(const CudaHeadsArgs& args);
Result<void> launch_head_norm(const CudaHeadsArgs& args, const CudaRowsLaunch& launch);
Result<void> launch_head_rope(const CudaHeadsArgs& args, const CudaRowsLaunch& launch);

// y = SiLU(gate) * up; y = a + b: [rows][columns] of f32, rows `stride` apart.
struct CudaPairArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  int rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  float* y = nullptr;  // may be a or b
};
Result<void> launch_silu_multiply(const CudaPairArgs& args, const CudaRowsLaunch& launch);
Result<void> launch_add(const CudaPairArgs& args, const CudaRowsLaunch& launch);
int pair_blocks(const CudaPairArgs& args);

// The first of each row's logits in the order of kernels/sampling.h (comes_before).
struct CudaTopArgs {
  const float* logits = nullptr;  // [rows][stride]
  int64_t stride = 0;
  int rows = 0;
  int64_t columns = 0;
  // [rows]: f32 logit and int32 token, as Candidate.
  void* top = nullptr;
  // top_workspace_bytes(rows) or more, at 256 bytes, of one launch at a time. It is zero before the
  // first launch, and again after one that failed.
  void* workspace = nullptr;
};
int64_t top_workspace_bytes(int rows);
Result<void> launch_top(const CudaTopArgs& args, const CudaRowsLaunch& launch);
int top_blocks(const CudaTopArgs& args);

}  // namespace gapless
