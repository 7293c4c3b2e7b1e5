// SPDX-License-Identifier: Apache-2.0
//
// CheckpointCopy: one of the golden checkpoints in a folder of its own, for a test to damage.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/half.h"
#include "base/temporary_directory.h"
#include "model/checkpoint.h"
#include "model/safetensors_writer.h"
#include "tests/golden_test_support.h"

namespace gapless {

inline constexpr const char* kGoldenNames[] = {"bf16-gqa4", "bf16-gqa5-tied", "f32-gqa4-tied",
                                               "f32-gqa5"};

inline std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& folder) {
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message;
    return nullptr;
  }
  return std::make_shared<const Checkpoint>(std::move(checkpoint).value());
}

class CheckpointCopy {
 public:
  explicit CheckpointCopy(const std::string& name) : CheckpointCopy(name, golden_folder(name)) {}
  CheckpointCopy(const std::string& name, const std::string& source) : folder_(path(name)) {
    std::filesystem::copy(source, folder_);
  }

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return directory_.path(name); }

  std::shared_ptr<const Checkpoint> open() const { return open_checkpoint(folder_); }

  // Writes one element of a tensor of kBf16, kF16 or kF32.
  void set_element(std::string_view name, int64_t index, float value) const {
    const Place place = find(name);
    std::byte bytes[4] = {};
    store_from_float(place.dtype, bytes, 0, value);
    const int64_t width = dtype_bytes(place.dtype);
    std::fstream file(place.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place.offset + index * width);
    file.write(reinterpret_cast<const char*>(bytes), width);
    ASSERT_TRUE(file.good());
  }

  // Gives a tensor another name of the same length.
  void rename(std::string_view name, std::string_view new_name) const {
    ASSERT_EQ(name.size(), new_name.size());
    const std::string index = folder_ + "/model.safetensors.index.json";
    replace_in(find(name).path, name, new_name);
    if (std::filesystem::exists(index)) replace_in(index, name, new_name);
  }

  nlohmann::json read_json(const std::string& name) const {
    return nlohmann::json::parse(read_text_file(folder_ + "/" + name).value());
  }
  void write_json(const std::string& name, const nlohmann::json& value) const {
    ASSERT_TRUE(write_text_file(folder_ + "/" + name, value.dump()));
  }

  // With the folder as DIR.
  std::string shown(std::string text) const {
    for (size_t at = text.find(folder_); at != std::string::npos; at = text.find(folder_))
      text.replace(at, folder_.size(), "DIR");
    return text;
  }

 private:
  struct Place {
    std::string path;
    DType dtype = DType::kF32;
    int64_t offset = 0;  // in the file
  };

  Place find(std::string_view name) const {
    const std::shared_ptr<const Checkpoint> checkpoint = open();
    const SafetensorsFile& file = checkpoint->file_of(name);
    const StoredTensor& tensor = *file.find(name);
    const std::byte* data = file.tensors().front().bytes.data();
    int64_t data_bytes = 0;
    for (const StoredTensor& each : file.tensors()) data_bytes += std::ssize(each.bytes);
    const int64_t begin =
        static_cast<int64_t>(std::filesystem::file_size(file.path())) - data_bytes;
    return {file.path(), *tensor.dtype, begin + (tensor.bytes.data() - data)};
  }

  static void replace_in(const std::string& file, std::string_view from, std::string_view to) {
    std::string text = read_text_file(file).value();
    const size_t at = text.find("\"" + std::string(from) + "\"");
    ASSERT_NE(at, std::string::npos);
    text.replace(at + 1, from.size(), to);
    ASSERT_TRUE(write_text_file(file, text));
  }

  TemporaryDirectory directory_;
  std::string folder_;
};

}  // namespace gapless
