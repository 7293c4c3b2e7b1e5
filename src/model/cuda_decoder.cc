// SPDX-License-Identifier: Apache-2.0

#include "model/cuda_decoder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cuda/fill.h"
#include "cuda/kv_pages.h"
#include "kernels/cpu_level.h"
#include "kernels/kv_cache.h"
#include "model/cuda_weight_plan.h"

namespace gapless {
namespace {

int pages_of(int length, int page_tokens) { return (length + page_tokens - 1) / page_tokens; }

KvShape kv_shape_of(const ModelConfig& config, const CudaDecoderOptions& options) {
  return {.dtype = options.kv_dtype,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .page_tokens = options.page_tokens};
}

CacheRequest cache_request(const CudaDecoderOptions& options) {
  return {.max_sequences = options.max_sequences,
          .max_length = options.max_length,
          .page_tokens = options.page_tokens,
          .page_count = options.page_count};
}

int64_t page_count_of(const CudaDecoderOptions& options) { return cache_request(options).pages(); }

Result<void> check_options(const CudaModelWeights& weights, const CudaDecoderOptions& options) {
  const ModelConfig& config = weights.config;
  GAPLESS_TRY(check_kv_shape(kv_shape_of(config, options)));
  if (options.kv_dtype != DType::kBf16 && options.kv_dtype != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "keys and values in {}; on a GPU they are bf16 or f16",
                dtype_name(options.kv_dtype));
  GAPLESS_TRY(check_packing(weights.dual_gate_up, options.fusions.dual_gate_up));
  return check_cache(cache_request(options), config);
}

// Several rows of one sequence.
bool is_prefill(std::span<const StepRow> rows) {
  std::vector<int> sequences;
  for (const StepRow& row : rows) sequences.push_back(row.sequence);
  std::sort(sequences.begin(), sequences.end());
  return std::adjacent_find(sequences.begin(), sequences.end()) != sequences.end();
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<RecordedLaunch> recorded_launches(std::span<const CudaNode> nodes) {
  std::vector<RecordedLaunch> launches;
  for (const CudaNode& node : nodes)
    launches.push_back({.name = node.name,
                        .layer = node.layer,
                        .blocks = node.blocks,
                        .bytes = node.bytes,
                        .flops = node.flops});
  return launches;
}

}  // namespace

int64_t cuda_kv_cache_bytes(const ModelConfig& config, const CudaDecoderOptions& options) {
  return page_count_of(options) * config.layers *
         cuda_kv_page_bytes(config.kv_heads, config.head_dim, options.page_tokens);
}

namespace {

CudaStepOptions step_options(const ModelConfig& config, const CudaDecoderOptions& options) {
  return {.fusions = options.fusions,
          .kv = kv_shape_of(config, options),
          .chunk_tokens = options.chunk_tokens,
          .page_count = page_count_of(options),
          .max_length = options.max_length,
          .starts_early = options.starts_early};
}

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

}  // namespace

int64_t cuda_decoder_bytes(const ModelConfig& config, const WeightOptions& weights,
                           const CudaDecoderOptions& options) {
  constexpr int64_t kGrain = int64_t{2} << 20;  // a layer's pages begin at a multiple of it
  return cuda_kv_cache_bytes(config, options) + config.layers * kGrain +
         CudaStepModel::step_bytes(config, weights, step_options(config, options));
}

Result<void> check_cuda_decoder_memory(const ModelConfig& config, const WeightOptions& weights,
                                       const CudaDecoderOptions& options, int64_t weight_bytes,
                                       const CudaMemory& memory) {
  GAPLESS_TRY(check_cuda_memory(config, weights.dtype, weight_bytes, memory));
  const int64_t decoder_bytes = cuda_decoder_bytes(config, weights, options);
  if (decoder_bytes <= memory.free_bytes - weight_bytes) return {};
  const int64_t cache_bytes = cuda_kv_cache_bytes(config, options);
  return fail(ErrorCode::kSystem,
              "keys and values of {} sequence{} of {} tokens in {} layers take {:.1f} GB of GPU "
              "memory, the weights {:.1f} GB and a step {:.1f} GB, and {:.1f} of {:.1f} GB are "
              "free; take fewer or shorter sequences, or fewer layers",
              options.max_sequences, options.max_sequences == 1 ? "" : "s", options.max_length,
              config.layers, gigabytes(cache_bytes), gigabytes(weight_bytes),
              gigabytes(decoder_bytes - cache_bytes), gigabytes(memory.free_bytes),
              gigabytes(memory.total_bytes));
}

Result<std::unique_ptr<CudaDecoder>> CudaDecoder::create(const CudaModelWeights& weights,
                                                         const CudaDecoderOptions& options) {
  GAPLESS_TRY(check_options(weights, options));
  KvPagePool pool = GAPLESS_TRY(KvPagePool::create(
      {.page_count = static_cast<int>(page_count_of(options)),
       .page_tokens = options.page_tokens,
       .max_sequences = options.max_sequences,
       .max_sequence_pages = pages_of(options.max_length, options.page_tokens)}));
  OwnedCudaStream stream = GAPLESS_TRY(OwnedCudaStream::make());
  CudaStepModel model = GAPLESS_TRY(
      CudaStepModel::make(weights, step_options(weights.config, options), stream.get()));
  std::unique_ptr<CudaDecoder> decoder(
      new CudaDecoder(options, std::move(pool), std::move(stream), std::move(model)));
  decoder->inputs_ = GAPLESS_TRY(PinnedBuffer::allocate(
      decoder->model_.input_bytes(decoder->max_rows()), "memory for the inputs of steps"));
  return decoder;
}

Result<int> CudaDecoder::fork(int source, int length) {
  GAPLESS_TRY(check_fork(pool_, source, length));
  last_form_.reset();
  return pool_.fork(source, length);
}

CopyPage CudaDecoder::page_copier() {
  return [this](int32_t from, int32_t to) -> Result<void> {
    const KvShape& kv = kv_shape();
    const int64_t bytes = cuda_kv_page_bytes(kv.kv_heads, kv.head_dim, kv.page_tokens);
    for (int layer = 0; layer < config().layers; ++layer) {
      std::byte* pages = model_.pages(layer);
      GAPLESS_TRY(copy_on_device(pages + to * bytes, pages + from * bytes, bytes, stream_.get()));
    }
    return {};
  };
}

// ---- Steps.

Result<void> CudaDecoder::write_inputs(std::span<const StepRow> rows,
                                       std::span<const int> head_rows) {
  const CudaStepInputs inputs = model_.inputs_in(inputs_.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    inputs.tokens[i] = rows[i].token;
    inputs.lengths[i] = lengths_[i];
    int32_t* pages = inputs.page_table + static_cast<int64_t>(i) * inputs.page_table_stride;
    const int count = pages_of(lengths_[i], options_.page_tokens);
    std::copy_n(pool_.pages(rows[i].sequence).begin(), count, pages);
    std::fill(pages + count, pages + inputs.page_table_stride, 0);
  }
  std::copy(head_rows.begin(), head_rows.end(), inputs.head_rows);
  return copy_to_device(model_.inputs(), inputs_.data(),
                        model_.input_bytes(static_cast<int>(rows.size())), stream_.get());
}

Result<const CudaGraph*> CudaDecoder::captured(const CudaStepForm& form) {
  ++use_count_;
  const auto place = graphs_.find(form);
  if (place != graphs_.end()) {
    place->second.last_use = use_count_;
    return &place->second.graph;
  }
  const std::vector<CudaNode> nodes = model_.nodes(form, {});
  const auto start_all = [&nodes](CudaStream stream) -> Result<void> {
    for (const CudaNode& node : nodes) GAPLESS_TRY(node.start({.stream = stream}));
    return {};
  };
  Captured captured = {.graph = GAPLESS_TRY(CudaGraph::capture(stream_.get(), start_all)),
                       .last_use = use_count_};
  if (graphs_.size() >= kMaxGraphs)
    graphs_.erase(std::min_element(
        graphs_.begin(), graphs_.end(),
        [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; }));
  return &graphs_.emplace(form, std::move(captured)).first->second.graph;
}

Result<void> CudaDecoder::start(const StepForm& form, std::span<const StepRow> rows,
                                std::span<const int> head_rows) {
  const CudaStepForm cuda_form = {.step = form, .is_prefill = is_prefill(rows)};
  const CudaGraph* graph = GAPLESS_TRY(captured(cuda_form));
  GAPLESS_TRY(write_inputs(rows, head_rows));
  GAPLESS_TRY(graph->launch(stream_.get()));
  last_form_ = cuda_form;
  return {};
}

Result<void> CudaDecoder::run(const StepForm& form, std::span<const StepRow> rows,
                              std::span<const int> head_rows) {
  last_form_.reset();
  lengths_ = GAPLESS_TRY(append_rows(pool_, rows, options_.max_length, page_copier()));
  Result<void> ran = start(form, rows, head_rows);
  // The pinned inputs are ours again, and nothing runs that others may free, error or not.
  const Result<void> checked = model_.check_launches(stream_.get());
  if (ran && !checked) ran = checked;
  if (ran) return {};
  take_back_rows(pool_, rows);
  last_form_.reset();
  // What a launch that failed left in workspaces must not meet the next one. Where this fails too,
  // the device is lost, and the next step will say so.
  static_cast<void>(model_.prepare(stream_.get()));
  return ran;
}

// Pinned memory is copied to several times as fast as other, but takes its time to make: as much as
// was needed so far is kept.
Result<std::span<const float>> CudaDecoder::read_logits(int64_t rows) {
  const int64_t count = rows * config().vocabulary;
  if (logits_.bytes() < count * 4)
    logits_ = GAPLESS_TRY(PinnedBuffer::allocate(count * 4, "memory for logits"));
  GAPLESS_TRY(copy_from_device(logits_.data(), model_.logits(), count * 4, stream_.get()));
  GAPLESS_TRY(synchronize(stream_.get()));
  return std::span<const float>(reinterpret_cast<const float*>(logits_.data()),
                                static_cast<size_t>(count));
}

Result<StepResult> CudaDecoder::read_head(const StepRequest& request) {
  const int64_t head_rows = std::ssize(request.head_rows);
  const int64_t vocabulary = config().vocabulary;
  StepResult result;
  if (head_rows == 0) return result;
  const bool is_top = request.head == HeadOutput::kTop;
  const size_t top_k = static_cast<size_t>(request.top_k);
  if (is_top) top_.resize(static_cast<size_t>(head_rows) * top_k);
  if (is_top && top_k == 1) {
    GAPLESS_TRY(copy_from_device(top_.data(), model_.top(), head_rows * int64_t{sizeof(Candidate)},
                                 stream_.get()));
    GAPLESS_TRY(synchronize(stream_.get()));
    result.top = top_;
    return result;
  }
  const std::span<const float> logits = GAPLESS_TRY(read_logits(head_rows));
  if (!is_top) {
    result.logits = logits;
    return result;
  }
  const CpuLevel level = usable_cpu_levels().back();
  for (int64_t row = 0; row < head_rows; ++row)
    take_top(level,
             logits.subspan(static_cast<size_t>(row * vocabulary), static_cast<size_t>(vocabulary)),
             0, std::span<Candidate>(top_).subspan(static_cast<size_t>(row) * top_k, top_k));
  result.top = top_;
  return result;
}

Result<StepResult> CudaDecoder::step(const StepRequest& request) {
  GAPLESS_TRY(check_step(request, config(), weights().has_head));
  StepForm form = {.rows = static_cast<int>(request.rows.size()),
                   .head_rows = static_cast<int>(request.head_rows.size())};
  if (form.head_rows > 0) {
    form.head = request.head;
    // All but the greedy form leave the logits, whatever is then taken from them.
    if (form.head == HeadOutput::kTop && request.top_k > 1) form.head = HeadOutput::kLogits;
  }
  GAPLESS_TRY(run(form, request.rows, request.head_rows));
  return read_head(request);
}

Result<std::span<const float>> CudaDecoder::step_hidden(std::span<const int> sequences,
                                                        std::span<const float> x, int layers) {
  GAPLESS_CHECK(layers >= 0 && layers <= config().layers);
  GAPLESS_TRY(check_row_count(sequences.size()));
  const size_t count = sequences.size() * static_cast<size_t>(config().hidden);
  if (x.size() != count)
    return fail(ErrorCode::kInvalidInput, "{} rows of {} values need {} values, found {}",
                sequences.size(), config().hidden, count, x.size());
  GAPLESS_TRY(
      copy_to_device(model_.hidden_in(), x.data(), static_cast<int64_t>(count) * 4, stream_.get()));
  std::vector<StepRow> rows;
  for (const int sequence : sequences) rows.push_back({.sequence = sequence});
  GAPLESS_TRY(run({.rows = static_cast<int>(rows.size()), .layers = layers, .takes_tokens = false},
                  rows, {}));
  hidden_out_.resize(count);
  GAPLESS_TRY(copy_from_device(hidden_out_.data(), model_.hidden_out(),
                               static_cast<int64_t>(count) * 4, stream_.get()));
  GAPLESS_TRY(synchronize(stream_.get()));
  return std::span<const float>(hidden_out_);
}

// ---- The last step, again and again.

std::vector<CudaNode> CudaDecoder::last_nodes() const {
  return last_form_ ? model_.nodes(*last_form_, lengths_) : std::vector<CudaNode>();
}

Result<std::vector<double>> CudaDecoder::time_launches(const CudaGraph& graph, int count,
                                                       std::vector<HostStep>* host_steps) {
  std::vector<CudaEvent> events;
  for (int i = 0; i <= count; ++i) events.push_back(GAPLESS_TRY(CudaEvent::make()));
  // One more than count: the first has nothing before it that it could follow.
  for (int i = 0; i <= count; ++i) {
    HostStep host_step = {.launch_begin_ns = now_ns()};
    GAPLESS_TRY(graph.launch(stream_.get()));
    GAPLESS_TRY(events[static_cast<size_t>(i)].record(stream_.get()));
    host_step.launch_end_ns = now_ns();
    if (host_steps != nullptr) host_steps->push_back(host_step);
  }
  GAPLESS_TRY(model_.check_launches(stream_.get()));
  std::vector<double> seconds;
  for (size_t i = 1; i < events.size(); ++i)
    seconds.push_back(GAPLESS_TRY(events[i].seconds_since(events[i - 1])));
  return seconds;
}

Result<void> CudaDecoder::warm_up(const CudaGraph& graph, int count) {
  for (int i = 0; i < count; ++i) GAPLESS_TRY(graph.launch(stream_.get()));
  return synchronize(stream_.get());  // so that the host's launches are beside the steps
}

Result<std::vector<double>> CudaDecoder::repeat_step(int count, int warm_count) {
  if (!last_form_) return fail(ErrorCode::kInvalidInput, "there is no step to repeat");
  const CudaGraph* graph = GAPLESS_TRY(captured(*last_form_));
  GAPLESS_TRY(warm_up(*graph, warm_count));
  return time_launches(*graph, count, nullptr);
}

Result<std::vector<double>> CudaDecoder::repeat_step_recorded(int count, RecordLevel level,
                                                              int warm_count) {
  if (!last_form_) return fail(ErrorCode::kInvalidInput, "there is no step to repeat");
  const std::vector<CudaNode> nodes = last_nodes();
  int64_t step_bytes = 0;
  for (const CudaNode& node : nodes) step_bytes += int64_t{node.blocks} * device_block_bytes(level);
  const int64_t most = std::max<int64_t>(1, kMaxRecordingBytes / std::max<int64_t>(step_bytes, 1));
  // The first one does not count, but it is a step of the recording.
  const int capacity = static_cast<int>(std::min<int64_t>(most, int64_t{count} + 1));
  recording_.reset();
  Recording recording = {
      .recorder = GAPLESS_TRY(CudaRecorder::make(recorded_launches(nodes), capacity, level)),
      .host_steps = {}};
  CudaRecorder& recorder = recording.recorder;
  const auto start_all = [&](CudaStream stream) -> Result<void> {
    for (size_t i = 0; i < nodes.size(); ++i)
      GAPLESS_TRY(
          nodes[i].start({.stream = stream, .recorder = recorder.launch(static_cast<int>(i))}));
    return {};
  };
  const CudaGraph graph = GAPLESS_TRY(CudaGraph::capture(stream_.get(), start_all));
  GAPLESS_TRY(warm_up(graph, warm_count));
  if (warm_count > 0) GAPLESS_TRY(recorder.reset());
  std::vector<double> seconds = GAPLESS_TRY(time_launches(graph, count, &recording.host_steps));
  recording.host_steps.resize(std::min(recording.host_steps.size(), static_cast<size_t>(capacity)));
  recording_.emplace(std::move(recording));
  return seconds;
}

Result<DeviceRecording> CudaDecoder::take_recording() {
  if (!recording_) return fail(ErrorCode::kInvalidInput, "no step was recorded");
  DeviceRecording taken = GAPLESS_TRY(recording_->recorder.read());
  taken.host_steps = std::move(recording_->host_steps);
  recording_.reset();
  return taken;
}

// ---- What the cache holds.

// Of tokens that have their places.
Result<void> CudaDecoder::fill_tokens(int sequence, int first_token, uint64_t seed) {
  const std::span<const int32_t> pages = pool_.pages(sequence);
  const int64_t bytes = static_cast<int64_t>(pages.size_bytes());
  DeviceBuffer page_buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "pages of a sequence"));
  GAPLESS_TRY(copy_to_device(page_buffer.data(), pages.data(), bytes, stream_.get()));
  for (int layer = 0; layer < config().layers; ++layer)
    GAPLESS_TRY(
        launch_fill_kv({.shape = kv_shape(),
                        .pages = model_.pages(layer),
                        .page_count = model_.options().page_count,
                        .sequence_pages = reinterpret_cast<const int32_t*>(page_buffer.data()),
                        .first_token = first_token,
                        .end_token = pool_.length(sequence),
                        .layer = layer,
                        .seed = seed},
                       stream_.get()));
  return synchronize(stream_.get());
}

Result<void> CudaDecoder::fill_sequence(int sequence, int new_length, uint64_t seed) {
  if (!pool_.is_live(sequence))
    return fail(ErrorCode::kInvalidInput, "there is no sequence {} to fill", sequence);
  const int old_length = pool_.length(sequence);
  if (new_length <= old_length) return {};
  last_form_.reset();
  for (int at = old_length; at < new_length; ++at) {
    Result<void> appended = append_row(pool_, sequence, options_.max_length, page_copier());
    if (!appended) {
      pool_.truncate(sequence, old_length);
      return appended;
    }
  }
  Result<void> filled = fill_tokens(sequence, old_length, seed);
  if (!filled) pool_.truncate(sequence, old_length);
  return filled;
}

Result<std::vector<float>> CudaDecoder::copy_hidden() const {
  std::vector<float> hidden(lengths_.size() * static_cast<size_t>(config().hidden));
  GAPLESS_TRY(
      copy_from_device(hidden.data(), model_.hidden_out(), std::ssize(hidden) * 4, stream_.get()));
  GAPLESS_TRY(synchronize(stream_.get()));
  return hidden;
}

Result<std::vector<std::byte>> CudaDecoder::copy_layer_pages(int layer) const {
  GAPLESS_CHECK(layer >= 0 && layer < config().layers);
  if (model_.layer_page_bytes() > available_memory_bytes())
    return fail(ErrorCode::kSystem,
                "a copy of a layer's keys and values takes {:.1f} GB of the host's memory, and "
                "{:.1f} GB are available",
                gigabytes(model_.layer_page_bytes()), gigabytes(available_memory_bytes()));
  std::vector<std::byte> bytes(static_cast<size_t>(model_.layer_page_bytes()));
  GAPLESS_TRY(copy_from_device(bytes.data(), model_.pages(layer), model_.layer_page_bytes(),
                               stream_.get()));
  GAPLESS_TRY(synchronize(stream_.get()));
  return bytes;
}

}  // namespace gapless
