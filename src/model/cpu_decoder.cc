// SPDX-License-Identifier: Apache-2.0

#include "model/cpu_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/kv_cache.h"
#include "model/random_values.h"
#include "model/step_rows.h"

namespace gapless {
namespace {

KvShape kv_shape(const ModelConfig& config, const CpuDecoderOptions& options) {
  return {.dtype = options.kv_dtype,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .page_tokens = options.page_tokens};
}

AttentionProblem attention_problem(const ModelConfig& config, const CpuDecoderOptions& options,
                                   int core_count) {
  return {.kv = kv_shape(config, options),
          .q_heads = config.q_heads,
          .core_count = core_count,
          .chunk_tokens = options.chunk_tokens,
          .output_dtype = DType::kF32};
}

int pages_of(int length, int page_tokens) { return (length + page_tokens - 1) / page_tokens; }

CacheRequest cache_request(const CpuDecoderOptions& options) {
  return {.max_sequences = options.max_sequences,
          .max_length = options.max_length,
          .page_tokens = options.page_tokens,
          .page_count = options.page_count};
}

int64_t page_count_of(const CpuDecoderOptions& options) { return cache_request(options).pages(); }

Result<void> check_options(const ModelWeights& weights, const CpuDecoderOptions& options) {
  const ModelConfig& config = weights.config;
  GAPLESS_TRY(check_kv_shape(kv_shape(config, options)));
  GAPLESS_TRY(check_packing(weights.dual_gate_up, options.fusions.dual_gate_up));
  return check_cache(cache_request(options), config);
}

}  // namespace

int64_t kv_cache_bytes(const ModelConfig& config, const CpuDecoderOptions& options) {
  return page_count_of(options) * kv_page_bytes(kv_shape(config, options)) * config.layers;
}

int64_t CpuDecoder::cache_bytes() const { return kv_cache_bytes(config(), options_); }

Result<std::unique_ptr<CpuDecoder>> CpuDecoder::create(CpuDevice& device,
                                                       const ModelWeights& weights,
                                                       const CpuDecoderOptions& options) {
  GAPLESS_TRY(check_options(weights, options));
  GAPLESS_TRY(
      plan_attention(attention_problem(weights.config, options, device.worker_count()), {}));
  KvPagePool pool = GAPLESS_TRY(KvPagePool::create(
      {.page_count = static_cast<int>(page_count_of(options)),
       .page_tokens = options.page_tokens,
       .max_sequences = options.max_sequences,
       .max_sequence_pages = pages_of(options.max_length, options.page_tokens)}));
  std::unique_ptr<CpuDecoder> decoder(new CpuDecoder(device, options, std::move(pool)));
  GAPLESS_TRY(decoder->allocate(weights));
  return decoder;
}

Result<void> CpuDecoder::allocate(const ModelWeights& weights) {
  const ModelConfig& config = weights.config;
  model_.weights = &weights;
  model_.fusions = options_.fusions;
  model_.level = options_.level;
  model_.core_count = device_.worker_count();
  model_.kv = kv_shape(config, options_);
  model_.page_count = pool_.shape().page_count;
  model_.chunk_tokens = options_.chunk_tokens;
  model_.rope = RopeTable(config.rope_theta, config.head_dim, options_.max_length);
  const size_t layer_bytes = static_cast<size_t>(model_.page_count * kv_page_bytes(model_.kv));
  for (int layer = 0; layer < config.layers; ++layer) {
    pages_.push_back(GAPLESS_TRY(HugeBuffer::allocate(layer_bytes)));
    model_.pages.push_back(pages_.back().data());
  }
  // The most that any step can need; what is never touched costs no memory.
  const int64_t chunks = chunk_count(options_.max_length, options_.chunk_tokens);
  model_.partial_bytes =
      kMaxMatmulRows * config.kv_heads * chunks * partial_floats(config.q_heads, model_.kv) * 4;
  partials_ = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(model_.partial_bytes)));
  model_.partials = reinterpret_cast<float*>(partials_.data());
  hidden_in_.resize(static_cast<size_t>(kMaxMatmulRows) * static_cast<size_t>(config.hidden));
  hidden_out_.resize(hidden_in_.size());
  top_.resize(static_cast<size_t>(kMaxMatmulRows) * kMaxTopK);
  model_.hidden_in = hidden_in_.data();
  model_.hidden_out = hidden_out_.data();
  model_.top = top_.data();
  return {};
}

KvPages CpuDecoder::layer_pages(int layer) const {
  return {.shape = model_.kv,
          .data = model_.pages[static_cast<size_t>(layer)],
          .page_count = model_.page_count};
}

Result<int> CpuDecoder::fork(int source, int length) {
  GAPLESS_TRY(check_fork(pool_, source, length));
  return pool_.fork(source, length);
}

// ---- Rows and their pages.

void CpuDecoder::copy_page(int32_t from, int32_t to) {
  const size_t bytes = static_cast<size_t>(kv_page_bytes(model_.kv));
  for (const HugeBuffer& pages : pages_)
    std::memcpy(pages.data() + static_cast<size_t>(to) * bytes,
                pages.data() + static_cast<size_t>(from) * bytes, bytes);
}

CopyPage CpuDecoder::page_copier() {
  return [this](int32_t from, int32_t to) -> Result<void> {
    copy_page(from, to);
    return {};
  };
}

Result<void> CpuDecoder::prepare_state(std::span<const StepRow> rows) {
  StepState& state = model_.state;
  const int32_t longest = *std::max_element(state.lengths.begin(), state.lengths.end());
  state.page_table_stride = pages_of(longest, options_.page_tokens);
  state.page_table.assign(rows.size() * static_cast<size_t>(state.page_table_stride), 0);
  state.tokens.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    state.tokens.push_back(rows[i].token);
    const int page_count = pages_of(state.lengths[i], options_.page_tokens);
    std::copy_n(pool_.pages(rows[i].sequence).begin(), page_count,
                state.page_table.begin() + static_cast<int64_t>(i) * state.page_table_stride);
  }
  attention_plan_ =
      GAPLESS_TRY(plan_step_attention(attention_problem(config(), options_, model_.core_count),
                                      kAttentionBlocksPerCore * model_.core_count, state));
  GAPLESS_CHECK(attention_plan_.workspace_bytes <= model_.partial_bytes);
  return {};
}

// ---- Steps.

Result<CpuDecoder::Recorded*> CpuDecoder::recorded(const StepForm& form) {
  ++use_count_;
  const auto place = graphs_.find(form);
  if (place != graphs_.end()) {
    place->second.last_use = use_count_;
    return &place->second;
  }
  if (form.head_rows > 0 && form.head == HeadOutput::kLogits && logits_.empty()) {
    logits_.resize(static_cast<size_t>(kMaxMatmulRows) * static_cast<size_t>(config().vocabulary));
    model_.logits = logits_.data();
  }
  StepGraph graph = GAPLESS_TRY(build_step_graph(model_, form));
  Replay replay =
      GAPLESS_TRY(Replay::prepare(device_, std::move(graph.graph), {.shadow = options_.shadow}));
  Recorded recorded = {.jobs = std::move(graph.jobs),
                       .replay = std::make_unique<Replay>(std::move(replay)),
                       .last_use = use_count_};
  if (graphs_.size() >= kMaxGraphs)
    graphs_.erase(std::min_element(
        graphs_.begin(), graphs_.end(),
        [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; }));
  return &graphs_.emplace(form, std::move(recorded)).first->second;
}

Result<const Graph*> CpuDecoder::graph(const StepForm& form) {
  return &GAPLESS_TRY(recorded(form))->replay->graph();
}

Result<void> CpuDecoder::run(const StepForm& form, std::span<const StepRow> rows) {
  model_.state.lengths = GAPLESS_TRY(append_rows(pool_, rows, options_.max_length, page_copier()));
  Result<void> ran = [&]() -> Result<void> {
    Recorded* recorded_step = GAPLESS_TRY(recorded(form));
    GAPLESS_TRY(prepare_state(rows));
    GAPLESS_TRY(recorded_step->replay->run());
    return {};
  }();
  if (!ran) take_back_rows(pool_, rows);
  return ran;
}

Result<StepResult> CpuDecoder::step(const StepRequest& request) {
  GAPLESS_TRY(check_step(request, config(), model_.weights->has_head));
  model_.state.head_rows.assign(request.head_rows.begin(), request.head_rows.end());
  StepForm form = {.rows = static_cast<int>(request.rows.size()),
                   .head_rows = static_cast<int>(request.head_rows.size())};
  if (form.head_rows > 0) {
    form.head = request.head;
    if (form.head == HeadOutput::kTop) form.top_k = request.top_k;
  }
  GAPLESS_TRY(run(form, request.rows));
  StepResult result;
  const size_t head_rows = request.head_rows.size();
  if (form.head == HeadOutput::kLogits) {
    const size_t vocabulary = static_cast<size_t>(config().vocabulary);
    result.logits = std::span<const float>(logits_).first(head_rows * vocabulary);
  } else {
    result.top =
        std::span<const Candidate>(top_).first(head_rows * static_cast<size_t>(form.top_k));
  }
  return result;
}

Result<std::span<const float>> CpuDecoder::step_hidden(std::span<const int> sequences,
                                                       std::span<const float> x, int layers) {
  GAPLESS_CHECK(layers >= 0 && layers <= config().layers);
  GAPLESS_TRY(check_row_count(sequences.size()));
  const size_t count = sequences.size() * static_cast<size_t>(config().hidden);
  if (x.size() != count)
    return fail(ErrorCode::kInvalidInput, "{} rows of {} values need {} values, found {}",
                sequences.size(), config().hidden, count, x.size());
  std::copy(x.begin(), x.end(), hidden_in_.begin());
  std::vector<StepRow> rows;
  for (const int sequence : sequences) rows.push_back({.sequence = sequence});
  GAPLESS_TRY(
      run({.rows = static_cast<int>(rows.size()), .layers = layers, .takes_tokens = false}, rows));
  return std::span<const float>(hidden_out_).first(count);
}

// ---- What the cache holds.

Result<void> CpuDecoder::fill_sequence(int sequence, int new_length, uint64_t seed) {
  constexpr float kValueScale = 0.5f;
  const size_t head_dim = static_cast<size_t>(model_.kv.head_dim);
  std::vector<float> token(2 * head_dim);
  if (!pool_.is_live(sequence))
    return fail(ErrorCode::kInvalidInput, "there is no sequence {} to fill", sequence);
  const int old_length = pool_.length(sequence);
  for (int at = old_length; at < new_length; ++at) {
    Result<void> appended = append_row(pool_, sequence, options_.max_length, page_copier());
    if (!appended) {
      pool_.truncate(sequence, old_length);
      return appended;
    }
    const int32_t page = pool_.pages(sequence).back();
    for (int layer = 0; layer < config().layers; ++layer) {
      for (int head = 0; head < model_.kv.kv_heads; ++head) {
        const uint64_t place = (static_cast<uint64_t>(layer) * 1024 + static_cast<uint64_t>(head))
                                   << 32 |
                               static_cast<uint64_t>(at);
        fill_normal(seed, place, token);
        for (size_t i = head_dim; i < token.size(); ++i) token[i] *= kValueScale;
        write_kv(layer_pages(layer), page, at % options_.page_tokens, head, token.data(),
                 token.data() + head_dim);
      }
    }
  }
  return {};
}

void CpuDecoder::read_token(int layer, int sequence, int token, int kv_head, float* key,
                            float* value) const {
  const int32_t page = pool_.pages(sequence)[static_cast<size_t>(token / options_.page_tokens)];
  read_kv(layer_pages(layer), page, token % options_.page_tokens, kv_head, key, value);
}

}  // namespace gapless
