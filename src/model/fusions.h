// SPDX-License-Identifier: Apache-2.0
//
// Fusions: which neighbouring steps of a layer are one task. Each flag has one meaning; all of them
// off is the layer as the paper writes it, for comparison.

#pragma once

#include "base/dtype.h"

namespace gapless {

struct Fusions {
  // Gate and up are one matmul over interleaved weights with SiLU(gate) x up in its epilogue. Off:
  // two matmuls and a silu task.
  bool dual_gate_up = true;
  // Per-head norm, rope and cache write of a token are one task. Off: qk_norm, then rope.
  bool qk_norm_rope = true;
  // 1 / rms is applied behind the projection (which is linear) and not before it. This moves a cast
  // point: x * gamma is what is cast or quantised.
  bool deferred_norm = true;
  // out_proj and down_proj add the residual in their epilogue. Off: a task of its own.
  bool residual = true;
  bool operator==(const Fusions&) const = default;
};

// All of them, except that x * gamma stays normed where it could leave the range of f16.
inline Fusions default_fusions(DType weights) { return {.deferred_norm = weights != DType::kF16}; }

}  // namespace gapless
