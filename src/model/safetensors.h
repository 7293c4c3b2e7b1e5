// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsFile: the tensors of one *.safetensors file, mapped and never copied.
//
//   8 bytes    length of the header, little-endian
//   header     {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//   data       the tensors one behind the other: no gap, no overlap, nothing after the last
//
// The file comes from anywhere, so open() believes nothing: what it accepts lies inside the file
// and has the size that shape and type say. The header is read by a parser that holds one tensor at
// a time and stops at the first thing that does not belong there; its cost is linear.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/result.h"

namespace gapless {

inline constexpr size_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr size_t kMaxTensorDimensions = 16;
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

// "BF16", "I8": the format's names of our types, and back.
std::string_view safetensors_dtype_name(DType dtype);
std::optional<DType> parse_safetensors_dtype(std::string_view name);

// Bytes of a tensor; nothing when a dimension is negative or the product does not fit.
std::optional<int64_t> tensor_bytes(std::span<const int64_t> shape, DType dtype);
// For messages: in quotes and on one line, not longer than a line should be. A hostile file may
// have names of megabytes, or with line ends in them.
std::string quoted_name(std::string_view name);
// "[160, 48]"
std::string shape_text(std::span<const int64_t> shape);

struct StoredTensor {
  std::string name;
  std::string dtype_name;      // as the file writes it
  std::optional<DType> dtype;  // nothing: a type we do not compute with
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // in the mapped file
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  // In the order of their data. They stay where they are when the file object is moved.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  // A tensor to compute with: it is there, its type is one of ours and its data is aligned to it.
  Result<const StoredTensor*> require(std::string_view name) const;

 private:
  explicit SafetensorsFile(std::string path, MappedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<uint32_t> by_name_;  // indices of tensors_, in the order of their names
};

// What require() asks of a tensor that was found in `path`.
Result<void> check_usable(const std::string& path, const StoredTensor& tensor);

}  // namespace gapless
