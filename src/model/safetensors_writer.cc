// SPDX-License-Identifier: Apache-2.0

#include "model/safetensors_writer.h"

#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/json_text.h"
#include "model/safetensors.h"

namespace gapless {
namespace {

constexpr size_t kHeaderAlignment = 8;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = utf8_sequence_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

Result<void> check_name(const std::string& path, const std::string& name,
                        std::set<std::string_view>& seen) {
  if (name == kSafetensorsMetadataKey) {
    return fail(ErrorCode::kInvalidInput, "{}: no tensor can be named {}", path, name);
  }
  if (!is_utf8(name)) {
    return fail(ErrorCode::kInvalidInput, "{}: the name of tensor {} is not UTF-8", path,
                seen.size());
  }
  if (!seen.insert(name).second) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} is given twice", path, quoted_name(name));
  }
  return {};
}

// Where the tensor ends when it begins at `begin`.
Result<int64_t> place(const std::string& path, const TensorSpec& tensor, int64_t begin) {
  const std::optional<int64_t> bytes = tensor_bytes(tensor.shape, tensor.dtype);
  int64_t end = 0;
  if (!bytes || __builtin_add_overflow(begin, *bytes, &end)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} of shape {}: a size is negative, or all are too large", path,
                quoted_name(tensor.name), shape_text(tensor.shape));
  }
  if (tensor.shape.size() > kMaxTensorDimensions) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} has {} dimensions; at most {} are known",
                path, quoted_name(tensor.name), tensor.shape.size(), kMaxTensorDimensions);
  }
  if (*bytes > 0 && begin % dtype_bytes(tensor.dtype) != 0) {
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} of type {} would begin at byte {}, which is not a multiple of {}; "
                "give the tensors with wider elements first",
                path, quoted_name(tensor.name), dtype_name(tensor.dtype), begin,
                dtype_bytes(tensor.dtype));
  }
  return end;
}

void append_metadata(std::string& header, const std::map<std::string, std::string>& metadata) {
  if (metadata.empty()) return;
  append_json_string(header, kSafetensorsMetadataKey);
  header += ":{";
  for (const auto& [key, value] : metadata) {
    append_json_string(header, key);
    header += ':';
    append_json_string(header, value);
    header += ',';
  }
  header.back() = '}';
  header += ',';
}

// The header with its length before it.
Result<std::string> make_header(const std::string& path, const std::vector<TensorSpec>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  append_metadata(header, metadata);
  std::set<std::string_view> seen;
  int64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    GAPLESS_TRY(check_name(path, tensor.name, seen));
    const int64_t end = GAPLESS_TRY(place(path, tensor, begin));
    append_json_string(header, tensor.name);
    header +=
        fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                    safetensors_dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  while (header.size() % kHeaderAlignment != 0) header += ' ';
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} tensors need a header of {} bytes; the format allows {}: write several "
                "files",
                path, tensors.size(), header.size(), kMaxSafetensorsHeaderBytes);
  }
  const uint64_t length = header.size();
  std::array<char, sizeof(length)> prefix = {};
  std::memcpy(prefix.data(), &length, sizeof(length));
  header.insert(0, prefix.data(), prefix.size());
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, OutputFile file,
                                     std::vector<Pending> tensors)
    : path_(std::move(path)), file_(std::move(file)), tensors_(std::move(tensors)) {}

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path, std::vector<TensorSpec> tensors,
    const std::map<std::string, std::string>& metadata) {
  const std::string header = GAPLESS_TRY(make_header(path, tensors, metadata));
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  file.append(header);
  std::vector<Pending> pending;
  pending.reserve(tensors.size());
  for (TensorSpec& tensor : tensors) {
    const int64_t bytes = tensor_bytes(tensor.shape, tensor.dtype).value();
    pending.push_back({std::move(tensor.name), bytes});
  }
  return SafetensorsWriter(path, std::move(file), std::move(pending));
}

void SafetensorsWriter::skip_finished() {
  while (current_ < tensors_.size() && current_bytes_ == tensors_[current_].bytes) {
    ++current_;
    current_bytes_ = 0;
  }
}

Result<void> SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  skip_finished();
  if (current_ == tensors_.size()) {
    return fail(ErrorCode::kInvalidInput, "{}: {} bytes for tensor {} after all data was written",
                path_, bytes.size(), quoted_name(name));
  }
  const Pending& tensor = tensors_[current_];
  if (name != tensor.name) {
    return fail(ErrorCode::kInvalidInput, "{}: data for tensor {} while {} has {} of its {} bytes",
                path_, quoted_name(name), quoted_name(tensor.name), current_bytes_, tensor.bytes);
  }
  if (std::ssize(bytes) > tensor.bytes - current_bytes_) {
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} takes {} bytes; {} were written and {} more were given", path_,
                quoted_name(name), tensor.bytes, current_bytes_, bytes.size());
  }
  file_.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  current_bytes_ += std::ssize(bytes);
  return {};
}

Result<void> SafetensorsWriter::commit() {
  skip_finished();
  if (current_ != tensors_.size()) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} has {} of its {} bytes, {} more follow",
                path_, quoted_name(tensors_[current_].name), current_bytes_,
                tensors_[current_].bytes, tensors_.size() - current_ - 1);
  }
  return file_.commit();
}

}  // namespace gapless
