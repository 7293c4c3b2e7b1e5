// SPDX-License-Identifier: Apache-2.0

#include "model/step_graph.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "graph/graph_builder.h"
#include "kernels/packed_rows.h"

namespace gapless {
namespace {

// Tiles of the head: more than of a layer's matmul, so that a tile's logits stay in L2.
constexpr int64_t kHeadTilePanels = 64;

template <typename Job>
Scalar pointer_to(const Job& job) {
  return Scalar::fixed(std::bit_cast<int64_t>(&job));
}

View columns(const View& view, int64_t begin, int64_t end) {
  return slice(view, 1, begin, std::min<int64_t>(end, view.shape[1]) - begin);
}

// Packed rows, and the factors that the matmul has to apply when the norm was deferred.
struct PackedInput {
  View rows;
  View factors;
  bool has_factors = false;
};

class StepGraphBuilder {
 public:
  StepGraphBuilder(const StepModel& model, const StepForm& form)
      : model_(model),
        config_(model.weights->config),
        form_(form),
        layer_count_(form.layers == 0 ? config_.layers : form.layers),
        jobs_(std::make_unique<StepJobs>()) {}

  Result<StepGraph> build() {
    plan_ = GAPLESS_TRY(plan_layer({.config = config_,
                                    .weights = model_.weights->dtype,
                                    .kv_dtype = model_.kv.dtype,
                                    .fusions = model_.fusions,
                                    .page_tokens = model_.kv.page_tokens,
                                    .chunk_tokens = model_.chunk_tokens,
                                    .rows = form_.rows,
                                    .core_count = model_.core_count,
                                    .pack_rows = model_.pack_rows,
                                    .level = model_.level}));
    partials_ = GAPLESS_TRY(add_bytes("partials", model_.partials, model_.partial_bytes));
    View x = GAPLESS_TRY(add_input());
    for (int layer = 0; layer < layer_count_; ++layer) {
      builder_.begin_scope();
      x = GAPLESS_TRY(add_layer(layer, x));
      GAPLESS_TRY(builder_.end_scope());
    }
    if (form_.head_rows > 0) GAPLESS_TRY(add_head(x));
    Graph graph = GAPLESS_TRY(builder_.finish());
    return StepGraph{.graph = std::move(graph), .jobs = std::move(jobs_)};
  }

 private:
  // ---- Buffers.

  Result<View> add_floats(std::string_view name, int64_t rows, int64_t width) {
    const BufferId buffer =
        GAPLESS_TRY(builder_.add_buffer({.name = name, .bytes = rows * width * 4}));
    return dense_view(buffer, DType::kF32, {rows, width});
  }
  // The caller's memory, as bytes.
  Result<View> add_bytes(std::string_view name, void* data, int64_t bytes) {
    const BufferId buffer = GAPLESS_TRY(builder_.add_buffer(
        {.name = name, .kind = BufferKind::kExternal, .bytes = bytes, .data = data}));
    return dense_view(buffer, DType::kU8, {bytes / kLineBytes, kLineBytes});
  }
  Result<View> add_external_floats(std::string_view name, float* data, int64_t rows,
                                   int64_t width) {
    const BufferId buffer = GAPLESS_TRY(builder_.add_buffer(
        {.name = name, .kind = BufferKind::kExternal, .bytes = rows * width * 4, .data = data}));
    return dense_view(buffer, DType::kF32, {rows, width});
  }
  Result<View> add_packed(std::string_view name, DType weights, int64_t rows, int64_t k) {
    const int64_t bytes = packed_rows_block_bytes(weights, model_.level, rows, k);
    const BufferId buffer = GAPLESS_TRY(builder_.add_buffer({.name = name, .bytes = bytes}));
    return dense_view(buffer, DType::kU8, {bytes});
  }

  // ---- Tasks.

  struct NewTask {
    std::string_view name;
    KernelFunction run = nullptr;
    std::initializer_list<Scalar> scalars;
    std::span<const Argument> arguments;
    int block_count = 1;
    CostHint cost = {};
    const std::vector<CostHint>* block_costs = nullptr;
  };
  Result<void> add(const NewTask& task) {
    const std::string name(task.name);
    auto place = kernels_.find(name);
    if (place == kernels_.end()) {
      const KernelId id = GAPLESS_TRY(builder_.add_kernel(name, task.run));
      place = kernels_.emplace(name, id).first;
    }
    GAPLESS_TRY(builder_.add_task({.kernel = place->second,
                                   .arguments = task.arguments,
                                   .scalars = {task.scalars.begin(), task.scalars.size()},
                                   .block_count = task.block_count,
                                   .cost = task.cost,
                                   .block_costs = task.block_costs}));
    return {};
  }

  // A kernel of the layer's plan that is one task of several blocks.
  template <typename Job>
  Result<void> add_blocks(LayerKernel kernel, KernelFunction run, const Job& job,
                          std::initializer_list<Argument> arguments) {
    const KernelPlan& plan = *plan_.find(kernel);
    return add(
        {.name = plan.name,
         .run = run,
         .scalars = {pointer_to(job)},
         .arguments = {arguments.begin(), arguments.size()},
         .block_count = plan.task_count,
         .cost = {.bytes = plan.bytes, .flops = plan.flops},
         // Its lengths are the step's, not the graph's.
         .block_costs = kernel == LayerKernel::kAttention ? &model_.state.block_costs : nullptr});
  }

  Result<PackedInput> add_pack(LayerKernel kernel, const View& x, const float* gamma) {
    const int64_t k = x.shape[1];
    const bool deferred = gamma != nullptr && model_.fusions.deferred_norm;
    const DType weights = model_.weights->dtype;
    const PackJob& job = jobs_->packs.emplace_back(PackJob{.level = model_.level,
                                                           .weights = weights,
                                                           .rows = form_.rows,
                                                           .k = k,
                                                           .gamma = gamma,
                                                           .eps = eps(),
                                                           .deferred = deferred,
                                                           .block_rows = model_.pack_rows});
    const KernelPlan& plan = *plan_.find(kernel);
    PackedInput packed = {.rows = GAPLESS_TRY(add_packed(plan.name, weights, form_.rows, k)),
                          .factors = {},
                          .has_factors = deferred};
    if (gamma == nullptr) {
      GAPLESS_TRY(add_blocks(kernel, pack_task, job, {in(x), out(packed.rows)}));
    } else if (deferred) {
      packed.factors = GAPLESS_TRY(add_floats("inverse_rms", 1, form_.rows));
      GAPLESS_TRY(
          add_blocks(kernel, pack_task, job, {in(x), out(packed.rows), out(packed.factors)}));
    } else {
      const View normed = GAPLESS_TRY(add_floats("normed", form_.rows, k));
      GAPLESS_TRY(add_blocks(kernel, pack_task, job, {in(x), out(packed.rows), out(normed)}));
    }
    return packed;
  }

  // One task a tile. `residual`: nothing, or [rows][n] to add.
  Result<void> add_matmul(LayerKernel kernel, const PackedMatrix& weights, const PackedInput& input,
                          const View* residual, const View& y) {
    const KernelPlan& plan = *plan_.find(kernel);
    const MatmulJob& job =
        jobs_->matmuls.emplace_back(MatmulJob{.level = model_.level,
                                              .weights = &weights,
                                              .rows = form_.rows,
                                              .has_factor = input.has_factors,
                                              .has_residual = residual != nullptr});
    for (const MatmulTilePlan& tile : plan.tiles)
      GAPLESS_TRY(add_tile(plan, tile, job, input, residual, y));
    return {};
  }

  Result<void> add_tile(const KernelPlan& plan, const MatmulTilePlan& tile, const MatmulJob& job,
                        const PackedInput& input, const View* residual, const View& y) {
    const int64_t panels_per_column = job.weights->interleave() == Interleave::kPairs ? 2 : 1;
    const int64_t begin = tile.first_panel / panels_per_column * kPanelRows;
    const int64_t end = (tile.first_panel + tile.panel_count) / panels_per_column * kPanelRows;
    std::vector<Argument> arguments = {in(input.rows)};
    if (input.has_factors) arguments.push_back(in(input.factors));
    if (residual != nullptr) arguments.push_back(in(columns(*residual, begin, end)));
    arguments.push_back(out(columns(y, begin, end)));
    return add({.name = plan.name,
                .run = matmul_task,
                .scalars = {pointer_to(job), Scalar::fixed(tile.first_panel),
                            Scalar::fixed(tile.panel_count)},
                .arguments = arguments,
                .cost = share_of(plan, tile.panel_count, job.weights->panel_count())});
  }

  static CostHint share_of(const KernelPlan& plan, int64_t part, int64_t whole) {
    const double share = static_cast<double>(part) / static_cast<double>(whole);
    return {.bytes = static_cast<int64_t>(static_cast<double>(plan.bytes) * share),
            .flops = static_cast<int64_t>(static_cast<double>(plan.flops) * share)};
  }

  // ---- The parts of a step.

  Result<View> add_input() {
    // A layer's output lives longer than the layer's scope: two carries take turns.
    for (View& carry : carries_)
      carry = GAPLESS_TRY(add_floats("carry", form_.rows, config_.hidden));
    if (!form_.takes_tokens)
      return add_external_floats("hidden_in", model_.hidden_in, form_.rows, config_.hidden);
    const View x = GAPLESS_TRY(add_floats("x", form_.rows, config_.hidden));
    const EmbeddingJob& job =
        jobs_->embeddings.emplace_back(EmbeddingJob{.level = model_.level,
                                                    .table = &model_.weights->embedding,
                                                    .state = &model_.state,
                                                    .rows = form_.rows,
                                                    .columns = config_.hidden});
    const Argument arguments[] = {out(x)};
    GAPLESS_TRY(add({.name = "embedding",
                     .run = embedding_task,
                     .scalars = {pointer_to(job)},
                     .arguments = arguments}));
    return x;
  }

  Result<View> add_layer(int layer, const View& x) {
    const LayerWeights& weights = model_.weights->layers[static_cast<size_t>(layer)];
    const LayerJob& job = jobs_->layers.emplace_back(LayerJob{.level = model_.level,
                                                              .config = &config_,
                                                              .weights = &weights,
                                                              .rope = &model_.rope,
                                                              .state = &model_.state,
                                                              .kv = model_.kv,
                                                              .page_count = model_.page_count,
                                                              .chunk_tokens = model_.chunk_tokens,
                                                              .rows = form_.rows});
    const View attended = GAPLESS_TRY(add_attention(layer, job, x));
    const PackedInput packed = GAPLESS_TRY(add_pack(LayerKernel::kOutPack, attended, nullptr));
    const View middle = GAPLESS_TRY(add_floats("h", form_.rows, config_.hidden));
    GAPLESS_TRY(add_projection({LayerKernel::kOutProj, LayerKernel::kOutResidual}, weights.out,
                               packed, x, middle));
    const View mlp = GAPLESS_TRY(add_gate_up(weights, middle));
    const PackedInput mlp_rows = GAPLESS_TRY(add_pack(LayerKernel::kMlpPack, mlp, nullptr));
    const View y = GAPLESS_TRY(add_layer_output(layer));
    GAPLESS_TRY(add_projection({LayerKernel::kDownProj, LayerKernel::kDownResidual}, weights.down,
                               mlp_rows, middle, y));
    return y;
  }

  // The rows of the last layer go to the caller when nobody else reads them.
  Result<View> add_layer_output(int layer) {
    if (layer + 1 == layer_count_ && form_.head_rows == 0)
      return add_external_floats("hidden_out", model_.hidden_out, form_.rows, config_.hidden);
    return carries_[layer % 2];
  }

  // Norm, q, k and v, rope, attention: [rows][q heads x head_dim].
  Result<View> add_attention(int layer, const LayerJob& job, const View& x) {
    using enum LayerKernel;
    const LayerWeights& weights = *job.weights;
    const int64_t rows = form_.rows;
    const PackedInput packed = GAPLESS_TRY(add_pack(kRmsNorm, x, weights.input_norm.data()));
    const View q = GAPLESS_TRY(add_floats("q", rows, weights.q.n()));
    const View k = GAPLESS_TRY(add_floats("k", rows, weights.k.n()));
    const View v = GAPLESS_TRY(add_floats("v", rows, weights.v.n()));
    GAPLESS_TRY(add_matmul(kQProj, weights.q, packed, nullptr, q));
    GAPLESS_TRY(add_matmul(kKProj, weights.k, packed, nullptr, k));
    GAPLESS_TRY(add_matmul(kVProj, weights.v, packed, nullptr, v));
    const View pages = GAPLESS_TRY(add_bytes("kv", model_.pages[static_cast<size_t>(layer)],
                                             model_.page_count * kv_page_bytes(model_.kv)));
    if (model_.fusions.qk_norm_rope) {
      GAPLESS_TRY(add_blocks(kQkNormRope, qk_norm_rope_task, job,
                             {inout(q), inout(k), in(v), inout(pages)}));
    } else {
      GAPLESS_TRY(add_blocks(kQkNorm, qk_norm_task, job, {inout(q), inout(k)}));
      GAPLESS_TRY(add_blocks(kRope, rope_task, job, {inout(q), inout(k), in(v), inout(pages)}));
    }
    const View attended = GAPLESS_TRY(add_floats("attended", rows, weights.q.n()));
    GAPLESS_TRY(add_blocks(kAttention, attention_task, job,
                           {in(q), in(pages), out(partials_), out(attended)}));
    GAPLESS_TRY(add_blocks(kAttentionCombine, attention_combine_task, job,
                           {in(partials_), inout(attended)}));
    return attended;
  }

  struct ProjectionKernels {
    LayerKernel matmul;
    LayerKernel residual;
  };
  // y = x W^T + residual.
  Result<void> add_projection(const ProjectionKernels& kernels, const PackedMatrix& weights,
                              const PackedInput& input, const View& residual, const View& y) {
    if (model_.fusions.residual) return add_matmul(kernels.matmul, weights, input, &residual, y);
    const View delta = GAPLESS_TRY(add_floats("delta", form_.rows, weights.n()));
    GAPLESS_TRY(add_matmul(kernels.matmul, weights, input, nullptr, delta));
    const RowsJob& job = jobs_->rows.emplace_back(
        RowsJob{.level = model_.level, .rows = form_.rows, .columns = weights.n()});
    return add_blocks(kernels.residual, residual_task, job, {in(residual), in(delta), out(y)});
  }

  // SiLU(gate) x up of the normed rows: [rows][intermediate].
  Result<View> add_gate_up(const LayerWeights& weights, const View& middle) {
    using enum LayerKernel;
    const PackedInput packed = GAPLESS_TRY(add_pack(kPostNorm, middle, weights.post_norm.data()));
    const View mlp = GAPLESS_TRY(add_floats("mlp", form_.rows, config_.intermediate));
    if (model_.fusions.dual_gate_up) {
      GAPLESS_TRY(add_matmul(kGateUp, weights.gate_up, packed, nullptr, mlp));
      return mlp;
    }
    const View gate = GAPLESS_TRY(add_floats("gate", form_.rows, config_.intermediate));
    const View up = GAPLESS_TRY(add_floats("up", form_.rows, config_.intermediate));
    GAPLESS_TRY(add_matmul(kGateProj, weights.gate, packed, nullptr, gate));
    GAPLESS_TRY(add_matmul(kUpProj, weights.up, packed, nullptr, up));
    const RowsJob& job = jobs_->rows.emplace_back(
        RowsJob{.level = model_.level, .rows = form_.rows, .columns = config_.intermediate});
    GAPLESS_TRY(add_blocks(kSilu, silu_task, job, {in(gate), in(up), out(mlp)}));
    return mlp;
  }

  // The last norm is never deferred: all logits would have to be scaled.
  Result<void> add_head(const View& x) {
    const PackedMatrix& head = model_.weights->head;
    const int64_t rows = form_.head_rows;
    const PackJob& job =
        jobs_->packs.emplace_back(PackJob{.level = model_.level,
                                          .weights = head.dtype(),
                                          .rows = rows,
                                          .k = config_.hidden,
                                          .gamma = model_.weights->final_norm.data(),
                                          .eps = eps(),
                                          .source = &model_.state.head_rows});
    const View packed = GAPLESS_TRY(add_packed("head_rows", head.dtype(), rows, config_.hidden));
    const View normed = GAPLESS_TRY(add_floats("normed", rows, config_.hidden));
    const Argument arguments[] = {in(x), out(packed), out(normed)};
    GAPLESS_TRY(add({.name = "final_norm",
                     .run = pack_task,
                     .scalars = {pointer_to(job)},
                     .arguments = arguments,
                     .block_count = static_cast<int>((rows + kRowGroup - 1) / kRowGroup)}));
    const MatmulPlan plan = GAPLESS_TRY(
        plan_matmul({.weights = head.dtype(),
                     .m = rows,
                     .k = head.k(),
                     .n = head.n(),
                     .core_count = model_.core_count,
                     .level = model_.level,
                     .panels_per_tile = std::min<int64_t>(kHeadTilePanels, head.panel_count())}));
    return form_.head == HeadOutput::kLogits ? add_logits(plan, packed) : add_top(plan, packed);
  }

  Result<void> add_logits(const MatmulPlan& plan, const View& packed) {
    const PackedMatrix& head = model_.weights->head;
    const View logits =
        GAPLESS_TRY(add_external_floats("logits", model_.logits, form_.head_rows, head.n()));
    const MatmulJob& job = jobs_->matmuls.emplace_back(
        MatmulJob{.level = model_.level, .weights = &head, .rows = form_.head_rows});
    const KernelPlan kernel = head_kernel(plan);
    const PackedInput input = {.rows = packed, .factors = {}};
    for (const MatmulTilePlan& tile : plan.tiles)
      GAPLESS_TRY(add_tile(kernel, tile, job, input, nullptr, logits));
    return {};
  }

  Result<void> add_top(const MatmulPlan& plan, const View& packed) {
    const PackedMatrix& head = model_.weights->head;
    const int64_t tile_count = std::ssize(plan.tiles);
    const int64_t width = form_.head_rows * form_.top_k * 2;  // a candidate is two words
    const HeadJob& job =
        jobs_->heads.emplace_back(HeadJob{.level = model_.level,
                                          .weights = &head,
                                          .rows = form_.head_rows,
                                          .top_k = form_.top_k,
                                          .tile_count = static_cast<int>(tile_count)});
    const View tops = GAPLESS_TRY(add_floats("tile_tops", tile_count, width));
    const View top =
        GAPLESS_TRY(add_external_floats("top", reinterpret_cast<float*>(model_.top), 1, width));
    const KernelPlan kernel = head_kernel(plan);
    for (int64_t i = 0; i < tile_count; ++i) {
      const MatmulTilePlan& tile = plan.tiles[static_cast<size_t>(i)];
      builder_.begin_scope();
      const View scratch = GAPLESS_TRY(
          add_floats("tile_logits", 1, lm_head_scratch_floats(form_.head_rows, tile.panel_count)));
      const Argument arguments[] = {in(packed), out(scratch), out(slice(tops, 0, i, 1))};
      GAPLESS_TRY(add({.name = kernel.name,
                       .run = head_top_task,
                       .scalars = {pointer_to(job), Scalar::fixed(tile.first_panel),
                                   Scalar::fixed(tile.panel_count)},
                       .arguments = arguments,
                       .cost = share_of(kernel, tile.panel_count, head.panel_count())}));
      GAPLESS_TRY(builder_.end_scope());
    }
    const Argument arguments[] = {in(tops), out(top)};
    return add({.name = "merge_top",
                .run = merge_top_task,
                .scalars = {pointer_to(job)},
                .arguments = arguments});
  }

  static KernelPlan head_kernel(const MatmulPlan& plan) {
    return {.name = "lm_head",
            .tile = {},
            .bytes = plan.weight_bytes + plan.activation_bytes,
            .flops = static_cast<int64_t>(plan.flops)};
  }

  float eps() const { return static_cast<float>(config_.rms_eps); }

  const StepModel& model_;
  const ModelConfig& config_;
  const StepForm form_;
  const int layer_count_;
  std::unique_ptr<StepJobs> jobs_;
  LayerPlan plan_;
  GraphBuilder builder_;
  std::map<std::string, KernelId> kernels_;
  View partials_;
  View carries_[2];
};

// plan_layer checks the rows.
Result<void> check_form(const StepModel& model, const StepForm& form) {
  const ModelWeights& weights = *model.weights;
  if (form.layers < 0 || form.layers > weights.config.layers)
    return fail(ErrorCode::kInvalidInput, "a step through {} layers; model '{}' has {}",
                form.layers, weights.config.name, weights.config.layers);
  if (form.head_rows < 0 || form.head_rows > form.rows)
    return fail(ErrorCode::kInvalidInput, "a step of {} rows with the head for {} of them",
                form.rows, form.head_rows);
  if ((form.takes_tokens || form.head_rows > 0) && !weights.has_head)
    return fail(ErrorCode::kInvalidInput, "model '{}' was made without embedding and head",
                weights.config.name);
  if (form.head_rows > 0 && form.head == HeadOutput::kTop && form.top_k < 1)
    return fail(ErrorCode::kInvalidInput, "the {} largest logits of a row; must be at least 1",
                form.top_k);
  if (model.fusions.dual_gate_up != weights.dual_gate_up)
    return fail(ErrorCode::kInvalidInput, "gate and up are {} in the weights and {} in the step",
                weights.dual_gate_up ? "one" : "two", weights.dual_gate_up ? "two" : "one");
  return {};
}

}  // namespace

Result<StepGraph> build_step_graph(const StepModel& model, const StepForm& form) {
  GAPLESS_TRY(check_form(model, form));
  return StepGraphBuilder(model, form).build();
}

}  // namespace gapless
