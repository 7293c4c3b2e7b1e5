// SPDX-License-Identifier: Apache-2.0

#include "model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxIndexBytes = 256 << 20;
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// Anything of that name, readable or not: what is wrong with it is said when it is opened.
bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string folder_name(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, error);
  const std::string name = error ? "" : whole.filename().string();
  return name.empty() ? folder : name;
}

// tensor -> file name, sorted by tensor.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> read_weight_map(const std::string& path) {
  const std::string text = GAPLESS_TRY(read_text_file(path, kMaxIndexBytes));
  const json index = json::parse(text, nullptr, false);
  if (index.is_discarded()) {
    return fail(ErrorCode::kInvalidInput, "{}: is not valid JSON; download it again", path);
  }
  const bool has_map = index.is_object() && index.contains("weight_map");
  if (!has_map || !index["weight_map"].is_object() || index["weight_map"].empty()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: has no weight_map that says which file holds which tensor", path);
  }
  WeightMap map;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) {
      return fail(ErrorCode::kInvalidInput, "{}: tensor {} is in {} and not in a named file", path,
                  quoted_name(name), file.type_name());
    }
    map.emplace(name, file.get<std::string>());
  }
  return map;
}

// A file beside the index, nothing else: the index comes from the same stranger as the weights.
Result<void> check_shard_name(const std::string& path, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
  if (plain) return {};
  return fail(ErrorCode::kInvalidInput,
              "{}: names the file {}; files must lie in the folder itself", path,
              quoted_name(name));
}

Error missing_shard(const std::string& index_path, const std::string& shard,
                    const WeightMap& weight_map) {
  int64_t count = 0;
  std::string_view first;
  for (const auto& [tensor, file] : weight_map) {
    if (file != shard) continue;
    if (count == 0) first = tensor;
    ++count;
  }
  return fail(ErrorCode::kInvalidInput,
              "{}: file {} is missing, which has {} of {} tensors ({} and on); download it too",
              index_path, quoted_name(shard), count, weight_map.size(), quoted_name(first));
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  if (!is_directory(folder)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: is not a folder; give the one that has config.json and {}", folder,
                kSingleFile);
  }
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  GAPLESS_TRY(checkpoint.read_configs());
  // As in transformers, a single file comes before an index.
  const std::string single = fmt::format("{}/{}", folder, kSingleFile);
  const std::string index = fmt::format("{}/{}", folder, kIndexFile);
  if (exists(single)) {
    checkpoint.files_.push_back(GAPLESS_TRY(SafetensorsFile::open(single)));
  } else if (exists(index)) {
    GAPLESS_TRY(checkpoint.open_index(index));
  } else {
    return fail(ErrorCode::kInvalidInput,
                "{}: has neither {} nor {}; only weights in safetensors files are read", folder,
                kSingleFile, kIndexFile);
  }
  GAPLESS_TRY(checkpoint.collect_tensors());
  return checkpoint;
}

Result<void> Checkpoint::read_configs() {
  const std::string path = folder_ + "/config.json";
  if (!exists(path)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: has no config.json; give the folder of a Hugging Face checkpoint", folder_);
  }
  const std::string text = GAPLESS_TRY(read_text_file(path, kMaxConfigBytes));
  config_ = GAPLESS_TRY(parse_model_config(text, path));
  config_.name = folder_name(folder_);

  const std::string generation_path = folder_ + "/generation_config.json";
  if (exists(generation_path)) {
    const std::string generation = GAPLESS_TRY(read_text_file(generation_path, kMaxConfigBytes));
    generation_ =
        GAPLESS_TRY(parse_generation_config(generation, generation_path, config_.vocabulary));
  }
  if (generation_.eos_tokens.empty()) {
    generation_.eos_tokens =
        GAPLESS_TRY(parse_generation_config(text, path, config_.vocabulary)).eos_tokens;
  }
  return {};
}

Result<void> Checkpoint::open_index(const std::string& index_path) {
  const WeightMap weight_map = GAPLESS_TRY(read_weight_map(index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  std::map<std::string_view, size_t> shard_index;
  for (const std::string& shard : shards) {
    GAPLESS_TRY(check_shard_name(index_path, shard));
    const std::string path = fmt::format("{}/{}", folder_, shard);
    if (!exists(path)) return missing_shard(index_path, shard, weight_map);
    shard_index.emplace(shard, files_.size());
    files_.push_back(GAPLESS_TRY(SafetensorsFile::open(path)));
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (files_[shard_index[shard]].find(tensor) != nullptr) continue;
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} should be in {} and is not; index and files are not of the same "
                "model: download both again",
                index_path, quoted_name(tensor), shard);
  }
  return {};
}

Result<void> Checkpoint::collect_tensors() {
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto [place, is_first] = places_.emplace(tensor.name, Place{&file, &tensor});
      if (is_first) continue;
      return fail(ErrorCode::kInvalidInput,
                  "tensor {} is in {} and in {}; remove the one that does not belong there",
                  quoted_name(tensor.name), place->second.file->path(), file.path());
    }
  }
  return {};
}

int64_t Checkpoint::data_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, place] : places_) bytes += std::ssize(place.tensor->bytes);
  return bytes;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.tensor;
}

const SafetensorsFile& Checkpoint::file_of(std::string_view name) const {
  const auto found = places_.find(name);
  GAPLESS_CHECK(found != places_.end());
  return *found->second.file;
}

Result<const StoredTensor*> Checkpoint::require(const ExpectedTensor& expected) const {
  const auto found = places_.find(expected.name);
  if (found == places_.end()) {
    const std::string_view hint = expected.name == kHeadName
                                      ? "; config.json says that embeddings are not tied"
                                      : "; are config.json and the weights of the same model?";
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} is not among its {}{}", folder_,
                quoted_name(expected.name), places_.size(), hint);
  }
  const StoredTensor& tensor = *found->second.tensor;
  const std::string& path = found->second.file->path();
  GAPLESS_TRY(check_usable(path, tensor));
  if (tensor.shape != expected.shape) {
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} has shape {}; by config.json it must be {}", path,
                quoted_name(tensor.name), shape_text(tensor.shape), shape_text(expected.shape));
  }
  const std::vector<DType>& dtypes = expected.dtypes;
  if (std::find(dtypes.begin(), dtypes.end(), *tensor.dtype) == dtypes.end()) {
    std::vector<std::string_view> names;
    for (const DType dtype : dtypes) names.push_back(dtype_name(dtype));
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} is {}; it must be {}", path,
                quoted_name(tensor.name), dtype_name(*tensor.dtype), fmt::join(names, " or "));
  }
  return &tensor;
}

Result<std::vector<std::string>> Checkpoint::check(std::span<const ExpectedTensor> expected) const {
  std::set<std::string_view> asked_for;
  for (const ExpectedTensor& tensor : expected) {
    GAPLESS_TRY(require(tensor));
    asked_for.insert(tensor.name);
  }
  std::vector<std::string> others;
  for (const auto& [name, place] : places_) {
    if (!asked_for.contains(name)) others.emplace_back(name);
  }
  return others;
}

}  // namespace gapless
