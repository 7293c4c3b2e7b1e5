// SPDX-License-Identifier: Apache-2.0
//
// LayerPlan: the kernels of one layer of a decode step in their order, how each is cut into tasks,
// and what each moves and computes. The step graph (model/step_graph.h) is made from it, and
// `gapless plan layer` prints it: the table and the graph cannot disagree.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/cpu_level.h"
#include "kernels/kv_cache.h"
#include "kernels/matmul_plan.h"
#include "kernels/packed_rows.h"
#include "model/fusions.h"
#include "model/model_config.h"

namespace gapless {

enum class LayerKernel : uint8_t {
  kRmsNorm,           // x -> packed rows (s8: quantised)
  kQProj,             //
  kKProj,             //
  kVProj,             //
  kQkNorm,            // without Fusions::qk_norm_rope
  kRope,              // without Fusions::qk_norm_rope; writes K and V
  kQkNormRope,        // writes K and V
  kAttention,         // items of (sequence, kv head, chunk of tokens)
  kAttentionCombine,  // partials of a head in their order
  kOutPack,           // attention output -> packed rows
  kOutProj,           // adds the residual with Fusions::residual
  kOutResidual,       // without Fusions::residual
  kPostNorm,          // h -> packed rows
  kGateProj,          // without Fusions::dual_gate_up
  kUpProj,            // without Fusions::dual_gate_up
  kSilu,              // without Fusions::dual_gate_up
  kGateUp,            // both, and SiLU(gate) x up
  kMlpPack,           // -> packed rows
  kDownProj,          // adds the residual with Fusions::residual
  kDownResidual,      // without Fusions::residual
};
inline constexpr int kLayerKernelCount = 20;
// "gate_up". What packs rows is called by what it does with them: "out_act_quant", "out_cast".
std::string_view layer_kernel_name(LayerKernel kernel, DType weights);

// The part of a layer that a kernel belongs to: "qkv", "attention", "out", "mlp" or "other".
std::string_view layer_group_name(LayerKernel kernel);
inline constexpr std::string_view kLayerGroups[] = {"qkv", "attention", "out", "mlp", "other"};

struct LayerProblem {
  ModelConfig config;
  DType weights = DType::kS8;  // kS8, kBf16, kF16 or kF32
  DType kv_dtype = DType::kBf16;
  Fusions fusions;
  int page_tokens = 128;
  int chunk_tokens = kDefaultChunkTokens;
  int rows = 1;  // 1 .. kMaxMatmulRows
  // Of each row; empty: not known, and what the attention costs stays 0.
  std::vector<int32_t> lengths = {};
  int core_count = 1;
  // Rows that one block packs. Rows of a group of kRowGroup share cache lines: where cores have
  // such lines, a group stays together.
  int pack_rows = kRowGroup;
  CpuLevel level = CpuLevel::kPortable;
};

struct KernelPlan {
  LayerKernel kernel = LayerKernel::kRmsNorm;
  std::string name = {};
  std::string tile;          // what the largest task does: "16 x 5120 x 304", "4 rows"
  int task_count = 0;        // calls of the kernel in a layer: tasks, or blocks of one task
  int64_t bytes = 0;         // of all of them, read and written
  int64_t weight_bytes = 0;  // of those, weights or keys and values: what is not in a cache
  int64_t flops = 0;
  bool is_matmul = false;
  std::vector<MatmulTilePlan> tiles = {};  // matmuls; else the kernel is one task of many blocks
};

struct LayerPlan {
  std::vector<KernelPlan> kernels;  // in the order of a token's way
  int64_t task_count = 0;
  int64_t bytes = 0;
  int64_t weight_bytes = 0;
  int64_t flops = 0;
  int64_t attention_workspace_bytes = 0;  // exact for `lengths`

  const KernelPlan* find(LayerKernel kernel) const;
};

// Attention blocks a core: enough to even out cores of unequal speed.
inline constexpr int kAttentionBlocksPerCore = 12;

Result<LayerPlan> plan_layer(const LayerProblem& problem);

// (n, k) of the matmul that the kernel is; of one of the two for kGateUp.
struct MatrixShape {
  int64_t n = 0;
  int64_t k = 0;
};
MatrixShape matrix_shape(const ModelConfig& config, LayerKernel kernel);

}  // namespace gapless
