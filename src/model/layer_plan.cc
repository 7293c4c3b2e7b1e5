// SPDX-License-Identifier: Apache-2.0

#include "model/layer_plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "kernels/attention_plan.h"
#include "kernels/packed_rows.h"

namespace gapless {
namespace {

constexpr int64_t kFloatBytes = 4;

bool is_matmul(LayerKernel kernel) {
  switch (kernel) {
    case LayerKernel::kQProj:
    case LayerKernel::kKProj:
    case LayerKernel::kVProj:
    case LayerKernel::kOutProj:
    case LayerKernel::kGateProj:
    case LayerKernel::kUpProj:
    case LayerKernel::kGateUp:
    case LayerKernel::kDownProj:
      return true;
    default:
      return false;
  }
}

std::vector<LayerKernel> kernels_of(const Fusions& fusions) {
  using enum LayerKernel;
  std::vector<LayerKernel> kernels = {kRmsNorm, kQProj, kKProj, kVProj};
  const auto add = [&](std::initializer_list<LayerKernel> more) {
    kernels.insert(kernels.end(), more);
  };
  if (fusions.qk_norm_rope) {
    add({kQkNormRope});
  } else {
    add({kQkNorm, kRope});
  }
  add({kAttention, kAttentionCombine, kOutPack, kOutProj});
  if (!fusions.residual) add({kOutResidual});
  add({kPostNorm});
  if (fusions.dual_gate_up) {
    add({kGateUp});
  } else {
    add({kGateProj, kUpProj, kSilu});
  }
  add({kMlpPack, kDownProj});
  if (!fusions.residual) add({kDownResidual});
  return kernels;
}

// Blocks of a task over rows: at least one a core where there are rows enough.
int row_block_count(const LayerProblem& problem) {
  return std::min(problem.rows, 4 * problem.core_count);
}

int pack_block_count(const LayerProblem& problem) {
  return (problem.rows + problem.pack_rows - 1) / problem.pack_rows;
}

std::string rows_text(int rows) { return fmt::format("{} row{}", rows, rows == 1 ? "" : "s"); }

// Plans one kernel at a time.
class LayerPlanner {
 public:
  explicit LayerPlanner(const LayerProblem& problem) : problem_(problem) {}

  Result<LayerPlan> plan() {
    LayerPlan layer;
    for (const LayerKernel kernel : kernels_of(problem_.fusions)) {
      KernelPlan plan = GAPLESS_TRY(plan_kernel(kernel));
      plan.kernel = kernel;
      plan.name = layer_kernel_name(kernel, problem_.weights);
      plan.is_matmul = is_matmul(kernel);
      layer.task_count += plan.task_count;
      layer.bytes += plan.bytes;
      layer.weight_bytes += plan.weight_bytes;
      layer.flops += plan.flops;
      layer.kernels.push_back(std::move(plan));
    }
    layer.attention_workspace_bytes = workspace_bytes_;
    return layer;
  }

 private:
  Result<KernelPlan> plan_kernel(LayerKernel kernel) {
    using enum LayerKernel;
    const ModelConfig& config = problem_.config;
    const int64_t q_width = int64_t{config.q_heads} * config.head_dim;
    const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;
    switch (kernel) {
      case kRmsNorm:
      case kPostNorm:
        return plan_pack(config.hidden, true);
      case kOutPack:
        return plan_pack(q_width, false);
      case kMlpPack:
        return plan_pack(config.intermediate, false);
      case kQkNorm:  // reads and writes q and k; a square, a sum, two products
        return plan_rows(2 * (q_width + kv_width), 4 * (q_width + kv_width));
      case kRope:
        return plan_rope(6);
      case kQkNormRope:
        return plan_rope(10);
      case kAttention:
      case kAttentionCombine:
        return plan_attention_part(kernel);
      case kOutResidual:
      case kDownResidual:
        return plan_rows(int64_t{3} * config.hidden, config.hidden);
      case kSilu:
        return plan_rows(int64_t{3} * config.intermediate, int64_t{5} * config.intermediate);
      default:
        return plan_matmul_kernel(kernel);
    }
  }

  Result<KernelPlan> plan_matmul_kernel(LayerKernel kernel) const {
    const MatrixShape shape = matrix_shape(problem_.config, kernel);
    const bool is_pair = kernel == LayerKernel::kGateUp;
    MatmulPlan matmul =
        GAPLESS_TRY(plan_matmul({.weights = problem_.weights,
                                 .m = problem_.rows,
                                 .k = shape.k,
                                 .n = shape.n,
                                 .interleave = is_pair ? Interleave::kPairs : Interleave::kNone,
                                 .core_count = problem_.core_count,
                                 .level = problem_.level,
                                 .k_slices = 1}));
    const bool adds_residual = problem_.fusions.residual && (kernel == LayerKernel::kOutProj ||
                                                             kernel == LayerKernel::kDownProj);
    const int64_t residual_bytes = adds_residual ? problem_.rows * shape.n * kFloatBytes : 0;
    const int64_t columns = matmul.panels_per_tile / (is_pair ? 2 : 1) * kPanelRows;
    KernelPlan plan = {.tile = fmt::format("{} x {} x {}{}", problem_.rows, shape.k,
                                           is_pair ? "2 x " : "", std::min(columns, shape.n)),
                       .task_count = static_cast<int>(matmul.tiles.size()),
                       .bytes = matmul.weight_bytes + matmul.activation_bytes +
                                matmul.output_bytes + residual_bytes,
                       .weight_bytes = matmul.weight_bytes,
                       .flops = static_cast<int64_t>(matmul.flops)};
    plan.tiles = std::move(matmul.tiles);
    return plan;
  }

  Result<KernelPlan> plan_pack(int64_t k, bool is_norm) const {
    const int64_t packed =
        packed_rows_block_bytes(problem_.weights, problem_.level, problem_.rows, k);
    const int64_t elements = problem_.rows * k;
    const bool is_s8 = problem_.weights == DType::kS8;
    // A norm that is not deferred leaves its rows in memory on their way.
    const int64_t normed =
        is_norm && !problem_.fusions.deferred_norm ? 2 * elements * kFloatBytes : 0;
    return KernelPlan{.tile = rows_text(std::min(problem_.rows, problem_.pack_rows)),
                      .task_count = pack_block_count(problem_),
                      .bytes = elements * kFloatBytes + normed + packed,
                      .flops = elements * ((is_norm ? 3 : 0) + (is_s8 ? 2 : 0))};
  }

  // `elements` read and written of each row.
  Result<KernelPlan> plan_rows(int64_t elements, int64_t flops) const {
    const int blocks = row_block_count(problem_);
    return KernelPlan{.tile = rows_text((problem_.rows + blocks - 1) / blocks),
                      .task_count = blocks,
                      .bytes = problem_.rows * elements * kFloatBytes,
                      .flops = problem_.rows * flops};
  }

  // `flops` an element. Reads and writes q and k, reads v, writes K and V of one token a row.
  Result<KernelPlan> plan_rope(int64_t flops) const {
    const ModelConfig& config = problem_.config;
    const int64_t q_width = int64_t{config.q_heads} * config.head_dim;
    const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;
    KernelPlan plan =
        GAPLESS_TRY(plan_rows(2 * (q_width + kv_width) + kv_width, flops * (q_width + kv_width)));
    const int64_t scale_bytes = problem_.kv_dtype == DType::kS8 ? config.kv_heads * kFloatBytes : 0;
    plan.bytes += problem_.rows * 2 * (kv_width * dtype_bytes(problem_.kv_dtype) + scale_bytes);
    return plan;
  }

  Result<KernelPlan> plan_attention_part(LayerKernel kernel) {
    const bool is_items = kernel == LayerKernel::kAttention;
    const KvShape kv = {.dtype = problem_.kv_dtype,
                        .kv_heads = problem_.config.kv_heads,
                        .head_dim = problem_.config.head_dim,
                        .page_tokens = problem_.page_tokens};
    const AttentionPlan items = GAPLESS_TRY(plan_attention({.kv = kv,
                                                            .q_heads = problem_.config.q_heads,
                                                            .core_count = problem_.core_count,
                                                            .chunk_tokens = problem_.chunk_tokens,
                                                            .output_dtype = DType::kF32},
                                                           problem_.lengths));
    if (!is_items) {
      return KernelPlan{.tile = rows_text((problem_.rows + row_block_count(problem_) - 1) /
                                          row_block_count(problem_)),
                        .task_count = row_block_count(problem_),
                        .bytes = items.partial_bytes / 2,
                        .flops = items.partial_bytes / 2 / kFloatBytes * 2};
    }
    workspace_bytes_ = items.workspace_bytes;
    return KernelPlan{
        .tile = fmt::format("{} tokens of a kv head", problem_.chunk_tokens),
        .task_count = kAttentionBlocksPerCore * problem_.core_count,
        .bytes = items.kv_bytes + items.q_bytes + items.output_bytes + items.partial_bytes / 2,
        .weight_bytes = items.kv_bytes,
        .flops = static_cast<int64_t>(items.flops)};
  }

  const LayerProblem& problem_;
  int64_t workspace_bytes_ = 0;
};

Result<void> check_problem(const LayerProblem& problem) {
  GAPLESS_TRY(check_model_config(problem.config, problem.config.name));
  if (problem.rows < 1 || problem.rows > kMaxMatmulRows)
    return fail(ErrorCode::kInvalidInput, "a step of {} rows; must be 1 to {}", problem.rows,
                kMaxMatmulRows);
  if (problem.core_count < 1)
    return fail(ErrorCode::kInvalidInput, "a layer for {} cores; must be at least 1",
                problem.core_count);
  if (!problem.lengths.empty() && std::ssize(problem.lengths) != problem.rows)
    return fail(ErrorCode::kInvalidInput, "{} lengths for a step of {} rows",
                problem.lengths.size(), problem.rows);
  return check_kv_shape({.dtype = problem.kv_dtype,
                         .kv_heads = problem.config.kv_heads,
                         .head_dim = problem.config.head_dim,
                         .page_tokens = problem.page_tokens});
}

}  // namespace

std::string_view layer_kernel_name(LayerKernel kernel, DType weights) {
  static constexpr std::array<std::string_view, kLayerKernelCount> kNames = {
      "rms_norm",          "q_proj",    "k_proj",       "v_proj",
      "qk_norm",           "rope",      "qk_norm_rope", "attention",
      "attention_combine", "out_cast",  "out_proj",     "out_residual",
      "post_norm",         "gate_proj", "up_proj",      "silu",
      "gate_up",           "mlp_cast",  "down_proj",    "down_residual"};
  if (weights == DType::kS8 && kernel == LayerKernel::kOutPack) return "out_act_quant";
  if (weights == DType::kS8 && kernel == LayerKernel::kMlpPack) return "mlp_act_quant";
  return kNames[static_cast<size_t>(kernel)];
}

std::string_view layer_group_name(LayerKernel kernel) {
  using enum LayerKernel;
  switch (kernel) {
    case kQProj:
    case kKProj:
    case kVProj:
      return "qkv";
    case kQkNorm:
    case kRope:
    case kQkNormRope:
    case kAttention:
    case kAttentionCombine:
      return "attention";
    case kOutProj:
      return "out";
    case kGateProj:
    case kUpProj:
    case kSilu:
    case kGateUp:
    case kDownProj:
      return "mlp";
    default:
      return "other";
  }
}

MatrixShape matrix_shape(const ModelConfig& config, LayerKernel kernel) {
  const int64_t q_width = int64_t{config.q_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;
  switch (kernel) {
    case LayerKernel::kQProj:
      return {q_width, config.hidden};
    case LayerKernel::kKProj:
    case LayerKernel::kVProj:
      return {kv_width, config.hidden};
    case LayerKernel::kOutProj:
      return {config.hidden, q_width};
    case LayerKernel::kDownProj:
      return {config.hidden, config.intermediate};
    default:
      GAPLESS_CHECK(is_matmul(kernel));
      return {config.intermediate, config.hidden};
  }
}

const KernelPlan* LayerPlan::find(LayerKernel kernel) const {
  for (const KernelPlan& plan : kernels)
    if (plan.kernel == kernel) return &plan;
  return nullptr;
}

Result<LayerPlan> plan_layer(const LayerProblem& problem) {
  GAPLESS_TRY(check_problem(problem));
  return LayerPlanner(problem).plan();
}

}  // namespace gapless
