// SPDX-License-Identifier: Apache-2.0
//
// y = x W^T on the GPU for few tokens (1 .. 64), in one launch bound by how fast W can be read.
//
// bf16: sums in f32. s8 (A8W8): sums in int32, exact, then times the weight row's scale and times
// the token's. What follows is that of kernels/matmul.h: SiLU(gate) x up for gated weights, plus
// residual, cast to the output's type.
//
// Bricks of weights (matmul_pack.h) are cut evenly over the SMs, whatever the shape; tiles that are
// cut are added in the order of k. A block that has 640 KiB or less would spend much of its time
// with that: there tiles have 64 rows instead of 128, and each of 2 (or 3) blocks for 128 rows has
// a tile of its own (or two thirds of one). Results depend on the weights' shape and how they are
// cut only: not on which block ends first, and not on how many tokens there are. (Of bf16 that is
// measured: one instruction for few tokens and another for many add in one order, and round alike.)

#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "cuda/device.h"
#include "cuda/matmul_launch.h"
#include "cuda/matmul_pack.h"

namespace gapless {

// How weights should be packed for the matmuls of this device: 128 or 64 rows a tile.
int best_tile_rows(const CudaWeightShape& weights, const CudaLimits& limits);

struct CudaMatmulShape {
  CudaWeightShape weights;
  DType output_dtype = DType::kBf16;  // or f32
  int max_tokens = 0;                 // at most 64
};

// For measurements. 0: we choose. Results of s8 do not depend on it, those of bf16 on `blocks`.
struct CudaMatmulTuning {
  int stage_bricks = 0;  // copied together
  int ring_slots = 0;    // stages in flight
  int blocks = 0;
  int read_ahead_kib = 0;  // of weights beyond the ring that a block brings into L2; -1: none
  // The ring takes more than half of an SM: where matmuls do not follow each other directly, so
  // that two blocks of one launch never share an SM while another has none.
  bool takes_sm = false;
};

struct CudaMatmulArgs {
  const void* weights = nullptr;         // packed, at 256 bytes
  const float* weight_scales = nullptr;  // s8: packed
  int tokens = 0;
  const void* x = nullptr;  // [tokens][x_stride], of the weights' type, at 16 bytes
  int64_t x_stride = 0;     // in elements; a multiple of 16 bytes
  // [tokens]: scales of s8 rows; of bf16 rows a factor that was put off, or nothing.
  const float* token_scales = nullptr;
  // [tokens][residual_stride], or nothing. May be the output, of whose type and stride it then is.
  const void* residual = nullptr;
  DType residual_dtype = DType::kBf16;  // or f32
  int64_t residual_stride = 0;
  void* output = nullptr;     // [tokens][output_stride], at 16 bytes
  int64_t output_stride = 0;  // an even number of elements
  // Prepared, at 256 bytes, of one launch at a time. Matmuls may share one on a stream if it has
  // room for each of them.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  // The launch may begin while launches before it on the stream still run, and then reads weights
  // ahead. They must be there already when the last launch begins that does not start early itself
  // or that came behind one with `holds_next`. The rest is waited for.
  bool starts_early = false;
  // The next launch may start as soon as all blocks of this one have. With this, when they have
  // waited, and all that is older than this launch has ended: for a next one that lets a third
  // start before it has waited itself (CudaRowsLaunch::lets_next_start).
  bool holds_next = false;
  RecorderLaunch recorder = {};
};

// What a launch takes. Needs no device itself.
struct CudaMatmulConfig {
  MatmulForm form;
  int stage_bricks = 0;
  int ring_slots = 0;
  int blocks = 0;
  int read_ahead_bytes = 0;
  bool cuts_tiles = false;  // over blocks, which then exchange sums
  int64_t shared_bytes = 0;
};
// With that many tokens.
Result<CudaMatmulConfig> configure_cuda_matmul(const CudaMatmulShape& shape, int tokens,
                                               const CudaLimits& limits,
                                               const CudaMatmulTuning& tuning = {});

class CudaMatmul {
 public:
  // Shapes that the kernel cannot do are errors with their numbers.
  static Result<CudaMatmul> make(const CudaMatmulShape& shape, const CudaMatmulTuning& tuning = {});

  const CudaMatmulShape& shape() const { return shape_; }
  const CudaMatmulConfig& config(int tokens) const;
  // Of a launch with up to max_tokens tokens.
  int64_t workspace_bytes() const;

  // Clears a workspace: once, and again after a launch that failed.
  Result<void> prepare(void* workspace, int64_t bytes, CudaStream stream) const;
  // Starts the matmul; returns before it is done.
  Result<void> launch(const CudaMatmulArgs& args, CudaStream stream) const;

 private:
  static constexpr int kForms = 4;  // 8, 16, 32, 64 tokens

  explicit CudaMatmul(const CudaMatmulShape& shape) : shape_(shape) {}
  Result<void> check_args(const CudaMatmulArgs& args) const;

  CudaMatmulShape shape_;
  bool has_copy_engine_ = false;  // which takes tokens as matmul_tokens.h says
  std::array<CudaMatmulConfig, kForms> configs_;
};

}  // namespace gapless
