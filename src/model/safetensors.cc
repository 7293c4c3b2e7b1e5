// SPDX-License-Identifier: Apache-2.0

#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace gapless {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kShownNameBytes = 200;
constexpr std::string_view kLfsPointer = "version https://git-lfs";
constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();

// In the order of DType.
constexpr std::array<std::string_view, kDTypeCount> kDTypeNames = {"U8",  "I8",  "F16", "BF16",
                                                                   "F32", "I32", "I64", "F64"};

struct HeaderEntry {
  std::string name;
  std::string dtype_name = {};
  std::vector<int64_t> shape = {};
  std::vector<int64_t> offsets = {};
};

// Takes the header apart as it is read. Depth 1 is the header, 2 a tensor or the metadata, 3 the
// numbers of a shape or of the offsets; deeper does not exist, so the memory stays in proportion to
// the header. Each function answers false to stop, with `problem` saying why.
class HeaderParser : public json::json_sax_t {
 public:
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool null() override { return refuse_value("null"); }
  bool boolean(bool) override { return refuse_value("a truth value"); }
  bool binary(json::binary_t&) override { return refuse_value("binary data"); }
  bool number_integer(json::number_integer_t value) override {
    return refuse_value(fmt::format("{}, where no negative number can stand,", value));
  }
  bool number_float(json::number_float_t, const std::string& text) override {
    return refuse_value(fmt::format("{}, which is no whole number below 2^63,",
                                    std::string_view(text).substr(0, kShownNameBytes)));
  }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (depth_ != 3) return refuse_value("a number");
    if (value > static_cast<uint64_t>(kMaxNumber)) {
      return refuse_value(fmt::format("{}, which is no whole number below 2^63,", value));
    }
    const size_t limit = key_ == "shape" ? kMaxTensorDimensions : 2;
    if (numbers().size() == limit) {
      return refuse(
          fmt::format("tensor {}: {} has more than {} numbers", quoted_name(name()), key_, limit));
    }
    numbers().push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      metadata[key_] = value;
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return refuse_value("a text");
    if (value.empty()) return refuse_value("an empty text");
    entries.back().dtype_name = value;
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ >= 2) return refuse_value("an object");
    ++depth_;
    if (depth_ == 2 && !in_metadata_) entries.push_back({.name = key_});
    return true;
  }

  bool key(std::string& value) override {
    if (depth_ == 1) in_metadata_ = value == kSafetensorsMetadataKey;
    std::set<std::string>& seen = depth_ == 1 ? names_ : keys_;
    if (!seen.insert(value).second) {
      if (depth_ == 1) return refuse(fmt::format("{} is there twice", quoted_name(value)));
      return refuse(fmt::format("{} has {} twice", quoted_name(name()), quoted_name(value)));
    }
    const bool known = value == "dtype" || value == "shape" || value == "data_offsets";
    if (depth_ == 2 && !in_metadata_ && !known) {
      return refuse(fmt::format("tensor {} has {}, which is not part of the format",
                                quoted_name(name()), quoted_name(value)));
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata_ && !is_complete()) return false;
    keys_.clear();
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || key_ == "dtype") return refuse_value("a list");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return refuse(fmt::format("the header is not valid JSON at its byte {}", position));
  }

 private:
  bool refuse(std::string text) {
    problem = std::move(text);
    return false;
  }

  bool refuse_value(std::string_view value) {
    if (depth_ == 0) return refuse(fmt::format("the header is {} and no object", value));
    if (depth_ == 1) return refuse(fmt::format("{} is {} and no object", quoted_name(key_), value));
    if (in_metadata_) {
      return refuse(fmt::format("metadata {} is {} and no text", quoted_name(key_), value));
    }
    if (depth_ == 2) {
      return refuse(fmt::format("tensor {}: {} is {} and not {}", quoted_name(name()), key_, value,
                                key_ == "dtype" ? "the name of a type" : "a list of numbers"));
    }
    return refuse(
        fmt::format("tensor {}: {} has {} among its numbers", quoted_name(name()), key_, value));
  }

  bool is_complete() {
    for (const char* needed : {"dtype", "shape", "data_offsets"}) {
      if (keys_.contains(needed)) continue;
      return refuse(fmt::format("tensor {} has no {}", quoted_name(name()), needed));
    }
    if (entries.back().offsets.size() != 2) {
      return refuse(fmt::format("tensor {}: data_offsets has {} numbers and not 2",
                                quoted_name(name()), entries.back().offsets.size()));
    }
    return true;
  }

  std::string name() const {
    return in_metadata_ ? std::string(kSafetensorsMetadataKey) : entries.back().name;
  }
  std::vector<int64_t>& numbers() {
    return key_ == "shape" ? entries.back().shape : entries.back().offsets;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string key_;
  std::set<std::string> names_;  // of depth 1
  std::set<std::string> keys_;   // of depth 2
};

// The header's text, without the length before it.
Result<std::string_view> find_header(const std::string& path, std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} bytes are too few for a safetensors file; download it again", path,
                bytes.size());
  }
  const char* text = reinterpret_cast<const char*>(bytes.data());
  if (std::string_view(text, bytes.size()).starts_with(kLfsPointer)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: is a Git LFS pointer and not the weights; run 'git lfs pull' in its folder",
                path);
  }
  uint64_t length = 0;
  std::memcpy(&length, text, kLengthBytes);
  if (length > kMaxSafetensorsHeaderBytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: not a safetensors file: its header would have {} bytes; the format allows {}",
                path, length, kMaxSafetensorsHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: cut short in its header: {} of {} bytes; download it again", path,
                bytes.size(), kLengthBytes + length);
  }
  const std::string_view header(text + kLengthBytes, length);
  if (!header.starts_with('{')) {
    return fail(ErrorCode::kInvalidInput,
                "{}: not a safetensors file: its header does not begin with '{{'", path);
  }
  return header;
}

// Range and size of one tensor, seen alone.
Result<void> check_entry(const std::string& path, const HeaderEntry& entry, int64_t data_bytes) {
  const int64_t begin = entry.offsets[0];
  const int64_t end = entry.offsets[1];
  if (end < begin) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} ends at byte {}, before it begins at {}",
                path, quoted_name(entry.name), end, begin);
  }
  if (end > data_bytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} ends at byte {} of the data, of which the file has {}; it is cut "
                "short: download it again",
                path, quoted_name(entry.name), end, data_bytes);
  }
  const std::optional<DType> dtype = parse_safetensors_dtype(entry.dtype_name);
  if (!dtype) return {};
  const std::optional<int64_t> wanted = tensor_bytes(entry.shape, *dtype);
  if (!wanted) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} of shape {} is larger than 2^63 bytes",
                path, quoted_name(entry.name), shape_text(entry.shape));
  }
  if (*wanted != end - begin) {
    return fail(ErrorCode::kInvalidInput,
                "{}: tensor {} of shape {} and type {} has {} bytes; it must have {}", path,
                quoted_name(entry.name), shape_text(entry.shape), entry.dtype_name, end - begin,
                *wanted);
  }
  return {};
}

// Entries in the order of their data: each begins where the one before it ends.
Result<void> check_layout(const std::string& path, const std::vector<HeaderEntry>& entries,
                          int64_t data_bytes) {
  int64_t position = 0;
  std::string_view before;
  for (const HeaderEntry& entry : entries) {
    const int64_t begin = entry.offsets[0];
    if (begin < position) {
      return fail(ErrorCode::kInvalidInput,
                  "{}: tensor {} begins at byte {} of the data, inside {}, which ends at {}", path,
                  quoted_name(entry.name), begin, quoted_name(before), position);
    }
    if (begin > position) {
      return fail(ErrorCode::kInvalidInput,
                  "{}: bytes {} to {} of the data, before tensor {}, belong to no tensor", path,
                  position, begin, quoted_name(entry.name));
    }
    position = entry.offsets[1];
    before = entry.name;
  }
  if (position != data_bytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} bytes follow the last tensor; the format allows none", path,
                data_bytes - position);
  }
  return {};
}

bool lies_before(const HeaderEntry& a, const HeaderEntry& b) {
  return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  return kDTypeNames[static_cast<size_t>(dtype)];
}

std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  for (size_t i = 0; i < kDTypeNames.size(); ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string quoted_name(std::string_view name) {
  const std::string_view part = name.substr(0, kShownNameBytes);
  std::string text = json(part).dump(-1, ' ', true, json::error_handler_t::replace);
  if (part.size() < name.size()) text += "...";
  return text;
}

std::optional<int64_t> tensor_bytes(std::span<const int64_t> shape, DType dtype) {
  int64_t bytes = dtype_bytes(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(path, GAPLESS_TRY(MappedFile::open(path)));
  const std::span<const std::byte> bytes = file.file_.bytes();
  const std::string_view header = GAPLESS_TRY(find_header(path, bytes));

  HeaderParser parser;
  if (!json::sax_parse(header, &parser)) {
    return fail(ErrorCode::kInvalidInput, "{}: {}", path, parser.problem);
  }
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header.size());
  const int64_t data_bytes = std::ssize(data);
  std::vector<HeaderEntry>& entries = parser.entries;
  for (const HeaderEntry& entry : entries) GAPLESS_TRY(check_entry(path, entry, data_bytes));
  std::sort(entries.begin(), entries.end(), lies_before);
  GAPLESS_TRY(check_layout(path, entries, data_bytes));

  file.metadata_ = std::move(parser.metadata);
  file.tensors_.reserve(entries.size());
  for (HeaderEntry& entry : entries) {
    const size_t begin = static_cast<size_t>(entry.offsets[0]);
    const size_t end = static_cast<size_t>(entry.offsets[1]);
    file.tensors_.push_back({.name = std::move(entry.name),
                             .dtype_name = std::move(entry.dtype_name),
                             .dtype = std::nullopt,
                             .shape = std::move(entry.shape),
                             .bytes = data.subspan(begin, end - begin)});
    file.tensors_.back().dtype = parse_safetensors_dtype(file.tensors_.back().dtype_name);
  }
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), 0);
  std::sort(file.by_name_.begin(), file.by_name_.end(), [&file](uint32_t a, uint32_t b) {
    return file.tensors_[a].name < file.tensors_[b].name;
  });
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

Result<const StoredTensor*> SafetensorsFile::require(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} is not among its {}", path_,
                quoted_name(name), tensors_.size());
  }
  GAPLESS_TRY(check_usable(path_, *tensor));
  return tensor;
}

Result<void> check_usable(const std::string& path, const StoredTensor& tensor) {
  if (!tensor.dtype) {
    return fail(ErrorCode::kInvalidInput, "{}: tensor {} has type {}; known are {}", path,
                quoted_name(tensor.name), quoted_name(tensor.dtype_name),
                fmt::join(kDTypeNames, ", "));
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  const uintptr_t alignment = static_cast<uintptr_t>(dtype_bytes(*tensor.dtype));
  if (!tensor.bytes.empty() && address % alignment != 0) {
    return fail(ErrorCode::kInvalidInput,
                "{}: the data of tensor {} is not aligned to its type {}; load and save the file "
                "with safetensors 0.3 or later",
                path, quoted_name(tensor.name), tensor.dtype_name);
  }
  return {};
}

}  // namespace gapless
