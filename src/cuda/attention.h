// SPDX-License-Identifier: Apache-2.0
//
// Paged decode attention on the GPU: what kernels/attention.h does, in one launch.
//
// The cut into items is that of kernels/attention_plan.h: chunks of a fixed number of tokens,
// merged in their order. What a sequence gives depends on its own tokens only, bit for bit, not on
// the batch it is in nor on which SM does what. Lengths and page table are read on the device at
// run time, so a launch captured in a graph can be replayed while sequences grow.
//
// Cast points: q has the type of the pages, the probabilities are cast to it, and their sum is that
// of the cast ones; everything else is f32. Sequences of length 0 give zeros.
//
// A launch moves each key and value once (attention_plan.h: kv_bytes), and is bound by that.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"
#include "cuda/attention_launch.h"
#include "cuda/device.h"
#include "kernels/attention_plan.h"
#include "kernels/kv_cache.h"

namespace gapless {

struct CudaAttentionShape {
  KvShape kv;  // bf16 or f16; pages lie as cuda/kv_pages.h says
  int q_heads = 0;
  int chunk_tokens = kDefaultChunkTokens;
  DType output_dtype = DType::kBf16;  // that of the pages, or f32
  int max_batch = 0;                  // at most 256
  int max_tokens = 0;                 // of one sequence
};

// For measurements; results do not depend on it. 0: we choose.
struct CudaAttentionTuning {
  int ring_slots = 0;   // tiles of 16 tokens that a warp has in flight at most
  int pair_tiles = -1;  // that a pair counts as beside those it has, at most 4096; -1: we choose
  // Of the bandwidth of the memory's pins: with what all is to be read. The more, the more warps
  // are late and have more tiles in flight.
  double due_share = 0;
};

struct CudaAttentionArgs {
  const void* pages = nullptr;
  int64_t page_count = 0;
  int batch = 0;
  float scale = 0.0f;                // on the scores; not 0
  const void* q = nullptr;           // [batch][q_heads][head_dim], of the pages' type, at 16 bytes
  const int32_t* lengths = nullptr;  // [batch], tokens including the newest one
  const int32_t* page_table = nullptr;  // [batch][page_table_stride]
  int64_t page_table_stride = 0;
  // Prepared, at 256 bytes, of one launch at a time. Where things lie in it depends on the shape
  // and on workspace_bytes: prepare it again before a launch that has another of these.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  void* output = nullptr;  // [batch][q_heads][head_dim], at 16 bytes
  // The launch may begin while the launch before it on the stream still runs, and then reads keys
  // and values ahead. q, the newest token's key and value and everything older launches left are
  // waited for; lengths, page table and the other tokens must be of launches that had ended when
  // the launch before began (one that lets this launch start before it has waited begins late
  // enough behind a matmul with holds_next). So a batch with several rows of one sequence (their
  // tokens are written by the same launch before) must not start early: the row of the last token
  // would read those of the others too soon.
  bool starts_early = false;
  // schedule_bytes() at 16 bytes, or nothing. The launch leaves there what its blocks take; with
  // has_schedules it has it from there instead: a launch with the same lengths, batch, page table
  // stride and workspace, that had ended as above, has left it.
  void* schedules = nullptr;
  bool has_schedules = false;
  RecorderLaunch recorder = {};  // with a level: the launch records what its blocks do
};

// What a launch takes, for a device with these limits. Needs no device itself.
struct CudaAttentionConfig {
  AttentionForm form;
  AttentionBuffers buffers;
  int calm_slots = 0;    // of the ring, that a warp keeps full which is not late
  float tile_ns = 0.0f;  // for a tile, if all memory were for it
  int pair_tiles = 0;
  AttentionShared shared;
  int grid_limit = 0;  // blocks that the device holds at once: one an SM
};
Result<CudaAttentionConfig> configure_cuda_attention(const CudaAttentionShape& shape,
                                                     const CudaLimits& limits,
                                                     const CudaAttentionTuning& tuning = {});

// The workspace that these lengths need, exactly; for `batch` sequences of up to `max_tokens` each.
int64_t cuda_attention_workspace_bytes(const CudaAttentionShape& shape,
                                       std::span<const int32_t> lengths);
int64_t cuda_attention_workspace_bytes(const CudaAttentionShape& shape);

class CudaAttention {
 public:
  // Shapes that the kernel cannot do are errors with their numbers.
  static Result<CudaAttention> make(const CudaAttentionShape& shape,
                                    const CudaAttentionTuning& tuning = {});

  const CudaAttentionShape& shape() const { return shape_; }
  const CudaAttentionConfig& config() const { return config_; }

  // Once for a workspace, and again after a launch that failed.
  Result<void> prepare(void* workspace, int64_t bytes, CudaStream stream) const;
  int64_t schedule_bytes() const;
  // Of the launch with these numbers; what a recorder must have room for.
  int blocks(const CudaAttentionArgs& args) const;
  // Starts the attention; returns before it is done.
  Result<void> launch(const CudaAttentionArgs& args, CudaStream stream) const;
  // Waits for the stream. Lengths, pages or partials that launches found out of range since
  // prepare() are an error.
  Result<void> check_launches(const CudaAttentionArgs& args, CudaStream stream) const;

 private:
  CudaAttention(const CudaAttentionShape& shape, const CudaAttentionConfig& config)
      : shape_(shape), config_(config) {}

  CudaAttentionShape shape_;
  CudaAttentionConfig config_;
};

}  // namespace gapless
