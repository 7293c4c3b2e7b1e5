// SPDX-License-Identifier: Apache-2.0
//
// The launches of a step in their order, with what each moves and computes.

#include <cmath>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "cuda/rows.h"
#include "kernels/attention_plan.h"
#include "kernels/sampling.h"
#include "model/cuda_step.h"
#include "model/layer_plan.h"

namespace gapless {

class CudaNodeList {
 public:
  CudaNodeList(const CudaStepModel& model, const CudaStepForm& form,
               std::span<const int32_t> lengths)
      : model_(model),
        weights_(*model.weights_),
        config_(weights_.config),
        fusions_(model.options_.fusions),
        form_(form),
        inputs_(model.inputs_in(model.inputs())),
        lengths_(lengths),
        rows_(form.step.rows) {}

  std::vector<CudaNode> build() && {
    const float* x = model_.hidden_in();
    if (form_.step.takes_tokens) {
      add_embedding();
      x = model_.hidden_out();
    }
    const int layers = form_.step.layers > 0 ? form_.step.layers : config_.layers;
    for (layer_ = 0; layer_ < layers; ++layer_) {
      add_layer(x);
      x = model_.hidden_out();
    }
    layer_ = -1;
    if (form_.step.head_rows > 0) add_head();
    return std::move(nodes_);
  }

 private:
  // The first launch of a step comes behind a copy, which nobody overtakes.
  bool starts_early() const { return model_.options_.starts_early && !nodes_.empty(); }
  std::string name_of(LayerKernel kernel) const {
    return std::string(layer_kernel_name(kernel, weights_.dtype));
  }
  const CudaLayerWeights& layer() const { return weights_.layers[static_cast<size_t>(layer_)]; }
  bool is_s8() const { return weights_.dtype == DType::kS8; }
  int64_t heads_elements() const { return int64_t{config_.q_heads} * config_.head_dim; }

  // The attention reads older tokens ahead, where all that a step adds are the newest ones: it then
  // starts with the heads before it, which the matmul in front of them holds until it has waited.
  bool attention_starts_with_heads() const {
    return model_.options_.starts_early && !form_.is_prefill;
  }
  // Rows are made for a matmul, which reads nothing but weights ahead of its wait.
  template <typename Args>
  bool lets_next_start() const {
    if (std::is_same_v<Args, CudaHeadsArgs>) return attention_starts_with_heads();
    return model_.options_.starts_early && std::is_same_v<Args, CudaRowsArgs>;
  }

  template <typename Args>
  void add(std::string name, int blocks, int64_t bytes, int64_t flops, const Args& args,
           Result<void> (*launch_op)(const Args&, const CudaRowsLaunch&)) {
    const bool is_early = starts_early();
    const bool lets_next_start = this->lets_next_start<Args>();
    nodes_.push_back({.name = std::move(name),
                      .layer = layer_,
                      .blocks = blocks,
                      .bytes = bytes,
                      .flops = flops,
                      .start = [=](const CudaNodeLaunch& launch) {
                        return launch_op(args, {.stream = launch.stream,
                                                .starts_early = is_early,
                                                .lets_next_start = lets_next_start,
                                                .recorder = launch.recorder});
                      }});
  }

  void add_embedding() {
    const CudaEmbedArgs args = {.table = weights_.embedding.data(),
                                .table_dtype = weights_.embedding_dtype,
                                .tokens = inputs_.tokens,
                                .rows = rows_,
                                .hidden = config_.hidden,
                                .x = model_.hidden_out()};
    const int64_t bytes =
        int64_t{rows_} * config_.hidden * (dtype_bytes(weights_.embedding_dtype) + 4);
    add("embedding", embed_blocks(args), bytes, 0, args, launch_embed);
  }

  // ---- Rows for a matmul.

  struct RowsSource {
    const float* x = nullptr;
    int64_t k = 0;
    int64_t x_stride = 0;
    const float* gamma = nullptr;
    const int32_t* row_of = nullptr;
    int rows = 0;
    DType dtype = DType::kBf16;
  };
  bool is_deferred(const RowsSource& source) const {
    return source.gamma != nullptr && fusions_.deferred_norm && source.row_of == nullptr;
  }

  void add_rows(std::string name, const RowsSource& source) {
    const bool needs_factors = source.dtype == DType::kS8 || is_deferred(source);
    const CudaRowsArgs args = {
        .x = source.x,
        .x_stride = source.x_stride,
        .row_of = source.row_of,
        .rows = source.rows,
        .k = source.k,
        .gamma = source.gamma,
        .eps = static_cast<float>(config_.rms_eps),
        .is_deferred = is_deferred(source),
        .dtype = source.dtype,
        .y = model_.rows_.data(),
        .k_stride = cuda_padded_k(source.k),
        .factors = needs_factors ? CudaStepModel::floats(model_.factors_) : nullptr};
    const int64_t elements = int64_t{source.rows} * source.k;
    const int64_t flops = elements * (source.gamma != nullptr ? 4 : 1);
    add(std::move(name), rows_blocks(args), elements * (4 + dtype_bytes(source.dtype)), flops, args,
        launch_rows);
  }

  void add_norm(LayerKernel kernel, const float* x, const float* gamma) {
    add_rows(name_of(kernel), {.x = x,
                               .k = config_.hidden,
                               .x_stride = config_.hidden,
                               .gamma = gamma,
                               .rows = rows_,
                               .dtype = weights_.dtype});
  }

  // ---- Matmuls.

  struct Product {
    const CudaMatrix* matrix = nullptr;
    const CudaStepMatmul* kernel = nullptr;
    const void* x = nullptr;
    bool has_factors = false;
    bool holds_next = false;
    const float* residual = nullptr;
    void* output = nullptr;
    int64_t output_stride = 0;
    int rows = 0;
  };

  void add_matmul(std::string name, const Product& product) {
    const CudaMatrix& matrix = *product.matrix;
    const CudaMatmul& matmul = product.kernel->matmul;
    CudaMatmulArgs args;
    args.weights = matrix.weights.data();
    args.weight_scales = CudaStepModel::floats(matrix.scales);
    args.tokens = product.rows;
    args.x = product.x;
    args.x_stride = matrix.shape.k;
    args.token_scales = product.has_factors ? CudaStepModel::floats(model_.factors_) : nullptr;
    args.residual = product.residual;
    args.residual_dtype = DType::kF32;
    args.residual_stride = product.output_stride;
    args.output = product.output;
    args.output_stride = product.output_stride;
    args.workspace = product.kernel->workspace.data();
    args.workspace_bytes = product.kernel->workspace.bytes();
    args.starts_early = starts_early();
    args.holds_next = product.holds_next;
    const int64_t halves = matrix.shape.is_gated ? 2 : 1;
    const int64_t output_bytes = matrix.shape.columns * dtype_bytes(matmul.shape().output_dtype);
    const int64_t row_bytes = matrix.shape.k * dtype_bytes(matrix.shape.dtype) + output_bytes +
                              (product.residual != nullptr ? output_bytes : 0);
    nodes_.push_back(
        {.name = std::move(name),
         .layer = layer_,
         .blocks = matmul.config(product.rows).blocks,
         .bytes = matrix.weight_bytes() + matrix.scales.bytes() + product.rows * row_bytes,
         .weight_bytes = matrix.weight_bytes(),
         .flops = 2 * product.rows * halves * matrix.shape.columns * matrix.shape.k,
         .is_matmul = true,
         .start = [&matmul, args](const CudaNodeLaunch& launch) {
           CudaMatmulArgs recorded = args;
           recorded.recorder = launch.recorder;
           return matmul.launch(recorded, launch.stream);
         }});
  }

  // A projection back to the stream, with or without the residual in it.
  void add_residual_matmul(LayerKernel kernel, LayerKernel residual_kernel, Product product,
                           const float* residual, float* output) {
    product.output_stride = config_.hidden;
    product.rows = rows_;
    product.residual = fusions_.residual ? residual : nullptr;
    product.output = fusions_.residual ? output : CudaStepModel::floats(model_.projected_);
    add_matmul(name_of(kernel), product);
    if (fusions_.residual) return;
    const CudaPairArgs args = {.a = residual,
                               .b = CudaStepModel::floats(model_.projected_),
                               .rows = rows_,
                               .columns = config_.hidden,
                               .stride = config_.hidden,
                               .y = output};
    const int64_t elements = int64_t{rows_} * config_.hidden;
    add(name_of(residual_kernel), pair_blocks(args), elements * 12, elements, args, launch_add);
  }

  // ---- A layer.

  void add_layer(const float* x) {
    float* h = CudaStepModel::floats(model_.h_);
    add_norm(LayerKernel::kRmsNorm, x, layer().input_norm);
    add_matmul("qkv_proj", {.matrix = &layer().qkv,
                            .kernel = &*model_.qkv_proj_,
                            .x = model_.rows_.data(),
                            .has_factors = is_s8() || fusions_.deferred_norm,
                            .holds_next = attention_starts_with_heads(),
                            .output = model_.qkv_.data(),
                            .output_stride = qkv_stride(),
                            .rows = rows_});
    add_heads();
    add_attention();
    const bool is_cast = model_.attention_->shape().output_dtype == DType::kF32;
    if (is_cast)
      add_rows(name_of(LayerKernel::kOutPack), {.x = CudaStepModel::floats(model_.attended_),
                                                .k = heads_elements(),
                                                .x_stride = heads_elements(),
                                                .rows = rows_,
                                                .dtype = weights_.dtype});
    add_residual_matmul(LayerKernel::kOutProj, LayerKernel::kOutResidual,
                        {.matrix = &layer().out,
                         .kernel = &*model_.out_proj_,
                         .x = is_cast ? model_.rows_.data() : model_.attended_.data(),
                         .has_factors = is_s8()},
                        x, h);
    add_norm(LayerKernel::kPostNorm, h, layer().post_norm);
    const bool is_packed = add_gate_up();
    add_residual_matmul(LayerKernel::kDownProj, LayerKernel::kDownResidual,
                        {.matrix = &layer().down,
                         .kernel = &*model_.down_proj_,
                         .x = is_packed ? model_.rows_.data() : model_.mlp_.data(),
                         .has_factors = is_s8()},
                        h, model_.hidden_out());
  }

  int64_t qkv_stride() const {
    return int64_t{config_.q_heads + 2 * config_.kv_heads} * config_.head_dim;
  }

  // Behind qkv_proj, and nothing else: attention_starts_with_heads().
  void add_heads() {
    GAPLESS_CHECK(nodes_.back().is_matmul);
    const CudaHeadsArgs args = {.qkv = CudaStepModel::floats(model_.qkv_),
                                .qkv_stride = qkv_stride(),
                                .rows = rows_,
                                .q_heads = config_.q_heads,
                                .kv = model_.options_.kv,
                                .q_gamma = layer().q_norm,
                                .k_gamma = layer().k_norm,
                                .eps = static_cast<float>(config_.rms_eps),
                                .rope = CudaStepModel::floats(model_.rope_),
                                .rope_positions = model_.options_.max_length,
                                .lengths = inputs_.lengths,
                                .page_table = inputs_.page_table,
                                .page_table_stride = inputs_.page_table_stride,
                                .pages = model_.pages(layer_),
                                .page_count = model_.options_.page_count,
                                .q = model_.q_.data()};
    const int64_t elements = int64_t{rows_} * qkv_stride();
    const int64_t normed = int64_t{rows_} * (config_.q_heads + config_.kv_heads) * config_.head_dim;
    const int blocks = heads_blocks(args);
    if (fusions_.qk_norm_rope) {
      add(name_of(LayerKernel::kQkNormRope), blocks, elements * 6, normed * 7, args, launch_heads);
      return;
    }
    add(name_of(LayerKernel::kQkNorm), head_norm_blocks(args), normed * 8, normed * 4, args,
        launch_head_norm);
    add(name_of(LayerKernel::kRope), blocks, elements * 6, normed * 3, args, launch_head_rope);
  }

  void add_attention() {
    const CudaStepOptions& options = model_.options_;
    const CudaAttention& attention = *model_.attention_;
    CudaAttentionArgs args;
    args.pages = model_.pages(layer_);
    args.page_count = options.page_count;
    args.batch = rows_;
    args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    args.q = model_.q_.data();
    args.lengths = inputs_.lengths;
    args.page_table = inputs_.page_table;
    args.page_table_stride = inputs_.page_table_stride;
    args.workspace = model_.attention_workspace_.data();
    args.workspace_bytes = model_.attention_workspace_.bytes();
    args.output = model_.attended_.data();
    args.schedules = model_.schedules_.data();
    args.has_schedules = layer_ > 0;
    args.starts_early = starts_early() && attention_starts_with_heads();
    CudaNode node = {.name = name_of(LayerKernel::kAttention),
                     .layer = layer_,
                     .blocks = attention.blocks(args)};
    int64_t tokens = 0;
    for (const int32_t length : lengths_) tokens += length;
    const int64_t kv_elements = 2 * tokens * config_.kv_heads * config_.head_dim;
    node.weight_bytes = kv_elements * 2;
    node.bytes = node.weight_bytes +
                 rows_ * heads_elements() * (2 + dtype_bytes(attention.shape().output_dtype));
    node.flops = 4 * tokens * heads_elements();
    node.start = [&attention, args](const CudaNodeLaunch& launch) {
      CudaAttentionArgs recorded = args;
      recorded.recorder = launch.recorder;
      return attention.launch(recorded, launch.stream);
    };
    nodes_.push_back(std::move(node));
  }

  // Whether what down_proj takes is in `rows_`.
  bool add_gate_up() {
    const int64_t stride = cuda_padded_k(config_.intermediate);
    const bool has_factors = is_s8() || fusions_.deferred_norm;
    float* mlp = CudaStepModel::floats(model_.mlp_);
    if (weights_.dual_gate_up) {
      add_matmul(name_of(LayerKernel::kGateUp), {.matrix = &layer().gate_up,
                                                 .kernel = &*model_.gate_up_,
                                                 .x = model_.rows_.data(),
                                                 .has_factors = has_factors,
                                                 .output = mlp,
                                                 .output_stride = stride,
                                                 .rows = rows_});
      if (!is_s8()) return false;
    } else {
      add_gate_and_up(stride, has_factors);
    }
    add_rows(name_of(LayerKernel::kMlpPack), {.x = mlp,
                                              .k = config_.intermediate,
                                              .x_stride = stride,
                                              .rows = rows_,
                                              .dtype = weights_.dtype});
    return true;
  }

  void add_gate_and_up(int64_t stride, bool has_factors) {
    const auto add_half = [&](LayerKernel kernel, const CudaMatrix& matrix,
                              const CudaStepMatmul& matmul, const DeviceBuffer& output) {
      add_matmul(name_of(kernel), {.matrix = &matrix,
                                   .kernel = &matmul,
                                   .x = model_.rows_.data(),
                                   .has_factors = has_factors,
                                   .output = output.data(),
                                   .output_stride = stride,
                                   .rows = rows_});
    };
    add_half(LayerKernel::kGateProj, layer().gate, *model_.gate_proj_, model_.gate_);
    add_half(LayerKernel::kUpProj, layer().up, *model_.up_proj_, model_.up_);
    const CudaPairArgs args = {.a = CudaStepModel::floats(model_.gate_),
                               .b = CudaStepModel::floats(model_.up_),
                               .rows = rows_,
                               .columns = config_.intermediate,
                               .stride = stride,
                               .y = CudaStepModel::floats(model_.mlp_)};
    const int64_t elements = int64_t{rows_} * config_.intermediate;
    add(name_of(LayerKernel::kSilu), pair_blocks(args), elements * 12, elements * 5, args,
        launch_silu_multiply);
  }

  // ---- Behind the layers.

  void add_head() {
    const int head_rows = form_.step.head_rows;
    add_rows("final_norm", {.x = model_.hidden_out(),
                            .k = config_.hidden,
                            .x_stride = config_.hidden,
                            .gamma = CudaStepModel::floats(weights_.final_norm),
                            .row_of = inputs_.head_rows,
                            .rows = head_rows,
                            .dtype = weights_.head.shape.dtype});
    add_matmul("lm_head", {.matrix = &weights_.head,
                           .kernel = &*model_.head_,
                           .x = model_.rows_.data(),
                           .output = model_.logits(),
                           .output_stride = config_.vocabulary,
                           .rows = head_rows});
    const bool is_greedy = form_.step.head == HeadOutput::kTop && form_.step.top_k == 1;
    if (!is_greedy) return;
    const CudaTopArgs args = {.logits = model_.logits(),
                              .stride = config_.vocabulary,
                              .rows = head_rows,
                              .columns = config_.vocabulary,
                              .top = model_.top(),
                              .workspace = model_.top_workspace_.data()};
    const int64_t elements = int64_t{head_rows} * config_.vocabulary;
    add("top", top_blocks(args), elements * 4, elements, args, launch_top);
  }

  const CudaStepModel& model_;
  const CudaModelWeights& weights_;
  const ModelConfig& config_;
  const Fusions& fusions_;
  const CudaStepForm& form_;
  CudaStepInputs inputs_;
  std::span<const int32_t> lengths_;
  int rows_ = 0;
  int layer_ = -1;
  std::vector<CudaNode> nodes_;
};

std::vector<CudaNode> CudaStepModel::nodes(const CudaStepForm& form,
                                           std::span<const int32_t> lengths) const {
  GAPLESS_CHECK(form.step.rows >= 1 && form.step.rows <= max_rows());
  return CudaNodeList(*this, form, lengths).build();
}

}  // namespace gapless
