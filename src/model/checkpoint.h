// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: a model folder as Hugging Face lays it out.
//
//   config.json                   figures of the model
//   generation_config.json        optional
//   model.safetensors             all weights, or
//   model.safetensors.index.json  which of several *.safetensors files has which weight
//
// Files are mapped, not read: opening 30 GB costs the headers only. What the index says and what
// the files hold must agree.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "model/safetensors.h"

namespace gapless {

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  // Its name is that of the folder.
  const ModelConfig& config() const { return config_; }
  // The end tokens are those of config.json when generation_config.json has none.
  const GenerationConfig& generation() const { return generation_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  int64_t tensor_count() const { return std::ssize(places_); }
  // Of all tensors.
  int64_t data_bytes() const;

  // In whichever file it is; null when there is none of that name. Stays valid when the checkpoint
  // is moved.
  const StoredTensor* find(std::string_view name) const;
  // The file that has the tensor of that name, which must be there.
  const SafetensorsFile& file_of(std::string_view name) const;
  // The tensor with the shape and one of the types expected.
  Result<const StoredTensor*> require(const ExpectedTensor& expected) const;
  // Requires them all. Names of the tensors that were not expected, sorted: nobody will read them.
  Result<std::vector<std::string>> check(std::span<const ExpectedTensor> expected) const;

 private:
  struct Place {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  Checkpoint() = default;
  Result<void> read_configs();
  Result<void> open_index(const std::string& index_path);
  Result<void> collect_tensors();

  std::string folder_;
  ModelConfig config_;
  GenerationConfig generation_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string_view, Place> places_;  // names live in files_
};

}  // namespace gapless
