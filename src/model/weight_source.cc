// SPDX-License-Identifier: Apache-2.0
//
// A layer after the other: its matrices are made, then all their rows are dealt to the threads, a
// panel at a time.

#include "model/weight_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "model/deal.h"

namespace gapless {
namespace {

constexpr std::array<LayerWeight, 7> kMatrices = {
    LayerWeight::kGate, LayerWeight::kUp, LayerWeight::kDown, LayerWeight::kQ,
    LayerWeight::kOut,  LayerWeight::kK,  LayerWeight::kV,
};
constexpr double kGigabyte = 1e9;
constexpr int64_t kSpareBytes = int64_t{256} << 20;  // for the cache, the graph and the system

// Rows of one matrix, and where they go.
struct PackTarget {
  WeightTensor tensor;
  PackedMatrix* to = nullptr;
  Interleave interleave = Interleave::kNone;
  int which = 0;
};

PackedMatrix& matrix_of(LayerWeights& layer, LayerWeight weight, bool dual_gate_up) {
  switch (weight) {
    case LayerWeight::kQ:
      return layer.q;
    case LayerWeight::kK:
      return layer.k;
    case LayerWeight::kV:
      return layer.v;
    case LayerWeight::kOut:
      return layer.out;
    case LayerWeight::kGate:
      return dual_gate_up ? layer.gate_up : layer.gate;
    case LayerWeight::kUp:
      return dual_gate_up ? layer.gate_up : layer.up;
    default:
      return layer.down;
  }
}

// What a packed matrix takes, padding, gaps and huge pages included.
int64_t packed_bytes(DType dtype, const WeightTensor& tensor) {
  const int64_t panels = (tensor.rows + kPanelRows - 1) / kPanelRows;
  const int64_t lines = (tensor.columns + line_k(dtype) - 1) / line_k(dtype);
  const int64_t scales = dtype == DType::kS8 ? panels * kPanelRows * 4 : 0;
  return panels * (lines * kLineBytes + kPanelGap) + scales +
         static_cast<int64_t>(HugeBuffer::kAlignment);
}

// The first number behind `key` in the text of a file; the first of all without a key.
std::optional<int64_t> read_number(const std::string& path, std::string_view key = {}) {
  const Result<std::string> text = read_text_file(path);
  if (!text) return std::nullopt;
  const size_t at = text->find(key);
  if (at == std::string::npos) return std::nullopt;
  const size_t digits = text->find_first_not_of(": ", at + key.size());
  if (digits == std::string::npos) return std::nullopt;
  int64_t value = 0;
  const std::from_chars_result read =
      std::from_chars(text->data() + digits, text->data() + text->size(), value);
  return read.ec == std::errc() ? std::optional<int64_t>(value) : std::nullopt;
}

// Memory is given when it is touched, and a process that touches too much is killed: ask first.
Result<void> check_memory(const ModelConfig& config, DType dtype, int64_t needed_bytes) {
  const int64_t available = available_memory_bytes();
  if (needed_bytes <= available - kSpareBytes) return {};
  return fail(ErrorCode::kSystem,
              "{} layers of {} in {} take {:.1f} GB of memory, and {:.1f} GB are free; take fewer "
              "layers or a smaller type",
              config.layers, config.name.empty() ? "the model" : config.name, dtype_name(dtype),
              static_cast<double>(needed_bytes) / kGigabyte,
              static_cast<double>(available) / kGigabyte);
}

class Packer {
 public:
  Packer(const WeightOptions& options, WeightSource& source, ModelWeights& weights)
      : options_(options), source_(source), weights_(weights) {}

  Result<void> pack_all() {
    GAPLESS_TRY(plan());
    report(0);
    weights_.layers.resize(static_cast<size_t>(weights_.config.layers));
    for (int layer = 0; layer < weights_.config.layers; ++layer) GAPLESS_TRY(pack_layer(layer));
    if (options_.with_head) GAPLESS_TRY(pack_head());
    return {};
  }

 private:
  DType head_dtype() const {
    return options_.dtype == DType::kS8 ? source_.head_dtype() : options_.dtype;
  }

  // Bytes to pack, for progress, and whether there is memory for them.
  Result<void> plan() {
    const ModelConfig& config = weights_.config;
    int64_t memory_bytes = 0;
    for (const LayerWeight weight : kMatrices) {
      const WeightTensor tensor = layer_tensor(config, 0, weight);
      total_bytes_ += config.layers * bytes_of(tensor, options_.dtype);
      memory_bytes += config.layers * packed_bytes(options_.dtype, tensor);
    }
    if (options_.with_head) {
      const WeightTensor head = head_tensor(config);
      total_bytes_ += bytes_of(head, head_dtype());
      memory_bytes += packed_bytes(head_dtype(), head) + source_.embedding_bytes();
    }
    return check_memory(config, options_.dtype, memory_bytes);
  }

  static int64_t bytes_of(const WeightTensor& tensor, DType dtype) {
    return tensor.rows * tensor.columns * dtype_bytes(dtype);
  }

  void report(int64_t bytes) {
    if (options_.progress)
      options_.progress(static_cast<uint64_t>(done_bytes_ + bytes),
                        static_cast<uint64_t>(total_bytes_));
  }

  Result<void> pack_layer(int layer) {
    const ModelConfig& config = weights_.config;
    LayerWeights& to = weights_.layers[static_cast<size_t>(layer)];
    to.input_norm = GAPLESS_TRY(read_norm(layer, LayerWeight::kInputNorm));
    to.q_norm = GAPLESS_TRY(read_norm(layer, LayerWeight::kQNorm));
    to.k_norm = GAPLESS_TRY(read_norm(layer, LayerWeight::kKNorm));
    to.post_norm = GAPLESS_TRY(read_norm(layer, LayerWeight::kPostNorm));
    std::vector<PackTarget> targets;
    for (const LayerWeight weight : kMatrices) {
      const bool is_half = weight == LayerWeight::kGate || weight == LayerWeight::kUp;
      const bool is_paired = options_.dual_gate_up && is_half;
      targets.push_back({.tensor = layer_tensor(config, layer, weight),
                         .to = &matrix_of(to, weight, options_.dual_gate_up),
                         .interleave = is_paired ? Interleave::kPairs : Interleave::kNone,
                         .which = is_paired && weight == LayerWeight::kUp ? 1 : 0});
    }
    return pack(targets, options_.dtype);
  }

  Result<std::vector<float>> read_norm(int layer, LayerWeight weight) {
    return source_.read_norm(layer_tensor(weights_.config, layer, weight));
  }

  Result<void> pack_head() {
    const ModelConfig& config = weights_.config;
    weights_.final_norm = GAPLESS_TRY(source_.read_norm(final_norm_tensor(config)));
    const WeightTensor tensor = embedding_tensor(config);
    weights_.embedding = GAPLESS_TRY(source_.open_embedding(tensor));
    const int64_t panels = (tensor.rows + kPanelRows - 1) / kPanelRows;
    GAPLESS_TRY(deal({.count = panels, .thread_count = options_.thread_count}, [&](int64_t panel) {
      return source_.finish_embedding(tensor, rows_of(tensor, panel), weights_.embedding);
    }));
    GAPLESS_TRY(pack({{.tensor = head_tensor(config),
                       .to = &weights_.head,
                       .interleave = Interleave::kNone,
                       .which = 0}},
                     head_dtype()));
    weights_.has_head = true;
    return {};
  }

  static RowRange rows_of(const WeightTensor& tensor, int64_t panel) {
    const int64_t row = panel * kPanelRows;
    return {.row = row, .count = std::min<int64_t>(kPanelRows, tensor.rows - row)};
  }

  // Makes the matrices (s8 ones are written once over for that), then packs their rows.
  Result<void> pack(const std::vector<PackTarget>& targets, DType dtype) {
    GAPLESS_TRY(deal({.count = std::ssize(targets), .thread_count = options_.thread_count},
                     [&](int64_t i) { return create(targets[static_cast<size_t>(i)], dtype); }));
    struct Job {
      const PackTarget* target;
      int64_t panel;
    };
    std::vector<Job> jobs;
    int64_t bytes = 0;
    for (const PackTarget& target : targets) {
      const int64_t panels = (target.tensor.rows + kPanelRows - 1) / kPanelRows;
      for (int64_t panel = 0; panel < panels; ++panel) jobs.push_back({&target, panel});
      bytes += bytes_of(target.tensor, dtype);
    }
    const DealOptions dealing = {
        .count = std::ssize(jobs),
        .thread_count = options_.thread_count,
        .on_progress = [&](int64_t done) {
          report(static_cast<int64_t>(static_cast<double>(bytes) * static_cast<double>(done) /
                                      static_cast<double>(jobs.size())));
        }};
    GAPLESS_TRY(deal(dealing, [&](int64_t i) {
      const Job& job = jobs[static_cast<size_t>(i)];
      const PackTarget& target = *job.target;
      return source_.pack_rows(target.tensor, rows_of(target.tensor, job.panel), *target.to,
                               target.which);
    }));
    done_bytes_ += bytes;
    return {};
  }

  // The second half of a pair is made with the first.
  static Result<void> create(const PackTarget& target, DType dtype) {
    if (target.which == 1) return {};
    *target.to = GAPLESS_TRY(
        PackedMatrix::create(dtype, target.tensor.rows, target.tensor.columns, target.interleave));
    return {};
  }

  const WeightOptions& options_;
  WeightSource& source_;
  ModelWeights& weights_;
  int64_t total_bytes_ = 0;
  int64_t done_bytes_ = 0;
};

}  // namespace

int64_t available_memory_bytes() {
  const std::optional<int64_t> kib = read_number("/proc/meminfo", "MemAvailable");
  int64_t available = kib ? *kib * 1024 : std::numeric_limits<int64_t>::max();
  // In a container the machine's memory is not ours. Cached files count there too, but give way.
  const std::optional<int64_t> limit = read_number("/sys/fs/cgroup/memory.max");
  const std::optional<int64_t> used = read_number("/sys/fs/cgroup/memory.stat", "anon ");
  if (limit) available = std::min(available, std::max<int64_t>(0, *limit - used.value_or(0)));
  return available;
}

WeightTensor layer_tensor(const ModelConfig& config, int layer, LayerWeight weight) {
  const std::vector<int64_t> shape = layer_weight_shape(config, weight);
  const std::string name = layer_weight_name(layer, weight);
  if (shape.size() == 1) return {name, WeightRole::kNorm, 1, shape[0]};
  const bool is_residual = weight == LayerWeight::kOut || weight == LayerWeight::kDown;
  return {name, is_residual ? WeightRole::kResidual : WeightRole::kProjection, shape[0], shape[1]};
}

WeightTensor embedding_tensor(const ModelConfig& config) {
  return {std::string(kEmbeddingName), WeightRole::kEmbedding, config.vocabulary, config.hidden};
}

WeightTensor final_norm_tensor(const ModelConfig& config) {
  return {std::string(kFinalNormName), WeightRole::kNorm, 1, config.hidden};
}

WeightTensor head_tensor(const ModelConfig& config) {
  if (config.tied_embeddings) return embedding_tensor(config);
  return {std::string(kHeadName), WeightRole::kHead, config.vocabulary, config.hidden};
}

Result<void> check_weight_options(const ModelConfig& config, const WeightOptions& options) {
  const DType dtype = options.dtype;
  if (dtype != DType::kS8 && dtype != DType::kBf16 && dtype != DType::kF16 && dtype != DType::kF32)
    return fail(ErrorCode::kInvalidInput, "weights are s8, bf16, f16 or f32, not {}",
                dtype_name(dtype));
  if (options.layers < 0 || options.layers > config.layers)
    return fail(ErrorCode::kInvalidInput, "{} layers of a model that has {}", options.layers,
                config.layers);
  if (options.thread_count < 0)
    return fail(ErrorCode::kInvalidInput, "{} threads cannot pack weights", options.thread_count);
  return {};
}

Result<ModelWeights> pack_weights(const ModelConfig& config, const WeightOptions& options,
                                  WeightSource& source) {
  GAPLESS_TRY(check_weight_options(config, options));
  ModelWeights weights;
  weights.config = config;
  if (options.layers > 0) weights.config.layers = options.layers;
  weights.dtype = options.dtype;
  weights.dual_gate_up = options.dual_gate_up;
  GAPLESS_TRY(Packer(options, source, weights).pack_all());
  return weights;
}

int64_t LayerWeights::weight_bytes() const {
  int64_t bytes = 0;
  for (const PackedMatrix* matrix : {&q, &k, &v, &out, &gate_up, &gate, &up, &down})
    bytes += matrix->weight_bytes();
  return bytes;
}

}  // namespace gapless
