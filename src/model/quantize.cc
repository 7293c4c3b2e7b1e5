// SPDX-License-Identifier: Apache-2.0
//
// One pass over the source. Scales are known when their rows have been read, and stand in a file of
// their own at the end: in front of the integers, where alignment wants them, they would cost
// a second pass.

#include "model/quantize.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "kernels/cpu_level.h"
#include "kernels/elementwise.h"
#include "kernels/packed_matrix.h"
#include "model/deal.h"
#include "model/replaced_folder.h"
#include "model/safetensors_writer.h"
#include "model/stored_rows.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kPieceBytes = int64_t{8} << 20;  // of rows that are made before they are written
constexpr size_t kMaxConfigBytes = 16 << 20;

// What a loader may want beside the weights. None of them speaks of weights.
constexpr const char* kCopiedFiles[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
};

struct OutputTensor {
  const StoredTensor* source = nullptr;
  bool is_quantized = false;
  int64_t bytes() const {
    return is_quantized ? row_count(*source) * row_elements(*source) : std::ssize(source->bytes);
  }
  DType dtype() const { return is_quantized ? DType::kS8 : *source->dtype; }
};

struct Scales {
  std::string name;
  std::vector<float> values;
};

using Shard = std::vector<OutputTensor>;

// Files of at most `shard_bytes`, tensors in the order of the source. Within a file those with wide
// elements come first, for their alignment.
std::vector<Shard> make_shards(const std::vector<OutputTensor>& tensors, int64_t shard_bytes) {
  std::vector<Shard> shards;
  int64_t bytes = 0;
  for (const OutputTensor& tensor : tensors) {
    if (shards.empty() || bytes + tensor.bytes() > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor.bytes();
  }
  for (Shard& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [](const OutputTensor& a, const OutputTensor& b) {
      return dtype_bytes(a.dtype()) > dtype_bytes(b.dtype());
    });
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

std::set<std::string> matrix_names(const ModelConfig& config) {
  std::set<std::string> names;
  for (int layer = 0; layer < config.layers; ++layer)
    for (int i = 0; i < kLayerWeightCount; ++i)
      if (is_matrix(static_cast<LayerWeight>(i)))
        names.insert(layer_weight_name(layer, static_cast<LayerWeight>(i)));
  return names;
}

// A checkpoint with two tensors of one name cannot be opened.
Result<void> check_scale_names(const Checkpoint& source) {
  for (const std::string& matrix : matrix_names(source.config())) {
    const std::string name = scale_name(matrix);
    if (source.find(name) == nullptr) continue;
    return fail(ErrorCode::kInvalidInput, "{}: has a tensor {} already, but no quantization_config",
                source.file_of(name).path(), quoted_name(name));
  }
  return {};
}

class Quantizer {
 public:
  Quantizer(const Checkpoint& source, const QuantizeOptions& options, std::string folder)
      : source_(source), options_(options), folder_(std::move(folder)) {}

  Result<QuantizeSummary> run() {
    const std::vector<OutputTensor> tensors = list_tensors();
    const std::vector<Shard> shards = make_shards(tensors, options_.shard_bytes);
    const size_t file_count = shards.size() + 1;
    for (size_t i = 0; i < shards.size(); ++i)
      GAPLESS_TRY(write_shard(shards[i], shard_name(i, file_count)));
    GAPLESS_TRY(write_scales(shard_name(shards.size(), file_count)));
    GAPLESS_TRY(write_index());
    GAPLESS_TRY(write_config());
    GAPLESS_TRY(copy_files());
    summary_.file_count = static_cast<int>(file_count);
    return std::move(summary_);
  }

 private:
  // All that the source has, in the order in which it has them.
  std::vector<OutputTensor> list_tensors() {
    const std::set<std::string> matrices = matrix_names(source_.config());
    std::vector<OutputTensor> tensors;
    for (const SafetensorsFile& file : source_.files()) {
      for (const StoredTensor& tensor : file.tensors()) {
        if (!tensor.dtype) {
          summary_.left_out.push_back(tensor.name);
          continue;
        }
        tensors.push_back({.source = &tensor, .is_quantized = matrices.contains(tensor.name)});
        summary_.source_bytes += std::ssize(tensor.bytes);
      }
    }
    return tensors;
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  Result<void> write_shard(const Shard& shard, const std::string& name) {
    std::vector<TensorSpec> specs;
    for (const OutputTensor& tensor : shard) {
      specs.push_back({tensor.source->name, tensor.dtype(), tensor.source->shape});
      file_of_[tensor.source->name] = name;
      summary_.written_bytes += tensor.bytes();
    }
    SafetensorsWriter writer =
        GAPLESS_TRY(SafetensorsWriter::create(path(name), specs, {{"format", "pt"}}));
    for (const OutputTensor& tensor : shard) {
      if (tensor.is_quantized)
        GAPLESS_TRY(write_quantized(*tensor.source, writer));
      else
        GAPLESS_TRY(write_stored(*tensor.source, writer));
    }
    return writer.commit();
  }

  // Rows that make a piece; at least one.
  static int64_t piece_rows(const StoredTensor& tensor) {
    const int64_t row_bytes = row_elements(tensor) * dtype_bytes(*tensor.dtype);
    return std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(row_bytes, 1), 1,
                               std::max<int64_t>(row_count(tensor), 1));
  }

  Result<void> write_quantized(const StoredTensor& tensor, SafetensorsWriter& writer) {
    const int64_t k = row_elements(tensor);
    const int64_t rows_together = piece_rows(tensor);
    std::vector<int8_t> rows(static_cast<size_t>(rows_together * k));
    std::vector<double> errors(static_cast<size_t>(rows_together));
    Scales scales = {scale_name(tensor.name), {}};
    scales.values.resize(static_cast<size_t>(row_count(tensor)));
    for (int64_t first = 0; first < row_count(tensor); first += rows_together) {
      const int64_t count = std::min(rows_together, row_count(tensor) - first);
      GAPLESS_TRY(deal({.count = count, .thread_count = options_.thread_count}, [&](int64_t i) {
        return quantize_one({.tensor = tensor,
                             .row = first + i,
                             .quantized = rows.data() + i * k,
                             .scale = scales.values[static_cast<size_t>(first + i)],
                             .error = errors[static_cast<size_t>(i)]});
      }));
      note_errors(tensor.name, first, {errors.data(), static_cast<size_t>(count)});
      GAPLESS_TRY(writer.append(
          tensor.name, std::as_bytes(std::span(rows).first(static_cast<size_t>(count * k)))));
      report(count * k * dtype_bytes(*tensor.dtype));
    }
    scales_.push_back(std::move(scales));
    ++summary_.matrix_count;
    return {};
  }

  struct RowJob {
    const StoredTensor& tensor;
    int64_t row;
    int8_t* quantized;
    float& scale;
    double& error;
  };

  Result<void> quantize_one(const RowJob& job) const {
    GAPLESS_TRY(check_finite(source_, job.tensor, {.row = job.row, .count = 1}, DType::kS8));
    const int64_t k = row_elements(job.tensor);
    const std::byte* row = row_data(job.tensor, job.row);
    job.scale = quantize_row(*job.tensor.dtype, row, k, job.quantized);
    std::vector<float> values(static_cast<size_t>(k));
    cast_row(level_, *job.tensor.dtype, row, k, DType::kF32, values.data());
    double distance = 0.0;
    double length = 0.0;
    for (int64_t i = 0; i < k; ++i) {
      const double value = values[static_cast<size_t>(i)];
      const double change = value - static_cast<double>(job.scale) * job.quantized[i];
      distance += change * change;
      length += value * value;
    }
    job.error = length > 0.0 ? std::sqrt(distance / length) : 0.0;
    return {};
  }

  void note_errors(const std::string& tensor, int64_t first, std::span<const double> errors) {
    for (size_t i = 0; i < errors.size(); ++i) {
      if (errors[i] <= summary_.largest_error.relative) continue;
      summary_.largest_error = {errors[i], tensor, first + static_cast<int64_t>(i)};
    }
  }

  Result<void> write_stored(const StoredTensor& tensor, SafetensorsWriter& writer) {
    const DType dtype = *tensor.dtype;
    const bool is_float = dtype == DType::kBf16 || dtype == DType::kF16 || dtype == DType::kF32;
    const int64_t rows_together = piece_rows(tensor);
    for (int64_t first = 0; first < row_count(tensor); first += rows_together) {
      const int64_t count = std::min(rows_together, row_count(tensor) - first);
      if (is_float)
        GAPLESS_TRY(check_finite(source_, tensor, {.row = first, .count = count}, dtype));
      const int64_t bytes = count * row_elements(tensor) * dtype_bytes(dtype);
      GAPLESS_TRY(
          writer.append(tensor.name, {row_data(tensor, first), static_cast<size_t>(bytes)}));
      report(bytes);
    }
    ++summary_.other_count;
    return {};
  }

  void report(int64_t bytes) {
    done_bytes_ += bytes;
    if (options_.progress)
      options_.progress(static_cast<uint64_t>(done_bytes_),
                        static_cast<uint64_t>(summary_.source_bytes));
  }

  Result<void> write_scales(const std::string& name) {
    std::vector<TensorSpec> specs;
    for (const Scales& scales : scales_) {
      specs.push_back({scales.name, DType::kF32, {std::ssize(scales.values)}});
      file_of_[scales.name] = name;
      summary_.written_bytes += std::ssize(std::as_bytes(std::span(scales.values)));
    }
    SafetensorsWriter writer =
        GAPLESS_TRY(SafetensorsWriter::create(path(name), specs, {{"format", "pt"}}));
    for (const Scales& scales : scales_)
      GAPLESS_TRY(writer.append(scales.name, std::as_bytes(std::span(scales.values))));
    return writer.commit();
  }

  Result<void> write_index() const {
    ordered_json index;
    index["metadata"]["total_size"] = summary_.written_bytes;
    index["weight_map"] = file_of_;
    return write_text_file(path("model.safetensors.index.json"), index.dump(2) + "\n");
  }

  Result<void> write_config() const {
    const std::string text =
        GAPLESS_TRY(read_text_file(source_.folder() + "/config.json", kMaxConfigBytes));
    ordered_json config = ordered_json::parse(text, nullptr, false);
    if (!config.is_object())
      return fail(ErrorCode::kInvalidInput, "{}/config.json: has changed since it was opened",
                  source_.folder());
    config["quantization_config"] = {
        {"quant_method", kQuantMethod},
        {"weights", {{"dtype", "int8"}, {"scale", "per output channel"}, {"symmetric", true}}},
        {"activations", {{"dtype", "int8"}, {"scale", "per token, dynamic"}, {"symmetric", true}}},
        {"not_quantized", {"embed_tokens", "norm", "lm_head"}}};
    return write_text_file(path("config.json"), config.dump(2) + "\n");
  }

  Result<void> copy_files() const {
    for (const char* name : kCopiedFiles) {
      const std::string from = fmt::format("{}/{}", source_.folder(), name);
      std::error_code error;
      if (!fs::exists(from, error)) continue;
      fs::copy_file(from, path(name), error);
      if (error) return fail(ErrorCode::kSystem, "{}: cannot copy: {}", from, error.message());
    }
    return {};
  }

  const Checkpoint& source_;
  const QuantizeOptions& options_;
  std::string folder_;
  std::vector<Scales> scales_;
  std::map<std::string, std::string> file_of_;  // by tensor
  CpuLevel level_ = usable_cpu_levels().back();
  QuantizeSummary summary_;
  int64_t done_bytes_ = 0;
};

}  // namespace

Result<QuantizeSummary> quantize_checkpoint(const Checkpoint& source,
                                            const QuantizeOptions& options) {
  if (source.config().quantized)
    return fail(ErrorCode::kInvalidInput, "{}: is quantised already ({})", source.folder(),
                kQuantMethod);
  if (options.shard_bytes < 1)
    return fail(ErrorCode::kInvalidInput, "files of {} bytes hold no weights", options.shard_bytes);
  GAPLESS_TRY(source.check(expected_weights(source.config())));
  GAPLESS_TRY(check_scale_names(source));
  ReplacedFolder folder = GAPLESS_TRY(ReplacedFolder::begin(
      {.folder = options.folder, .source = source.folder(), .replace = options.replace}));
  QuantizeSummary summary = GAPLESS_TRY(Quantizer(source, options, folder.temporary_path()).run());
  GAPLESS_TRY(folder.commit());
  summary.folder = options.folder;
  return summary;
}

}  // namespace gapless
