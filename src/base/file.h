// SPDX-License-Identifier: Apache-2.0
//
// Files: whole files in, files out that are there completely or not at all.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gapless {

// Called by readers and writers about once a MiB: bytes (or rows) done, and how many there are; 0
// when that is not known. May be empty.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

// A file mapped for reading. Empty files are valid and have no bytes.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Appends to a temporary file beside `path`; commit() renames it into place. Without commit()
// nothing is left behind and what was at `path` stays. Errors are kept until commit(), so that
// encoders need not look after each append. A path that is not a plain file (a pipe, a device), and
// one that stands for a descriptor (/dev/stdout, whatever it leads to), is written to directly. A
// symbolic link stays: the file that it leads to is replaced.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();

  void append(std::string_view text) {
    if (text.size() <= capacity_ - used_) {
      std::copy(text.begin(), text.end(), buffer_.get() + used_);
      used_ += text.size();
      return;
    }
    append_slow(text);
  }

  // At least `bytes` (<= kMaxReserve) of room to encode into in place; advance() by what was used.
  static constexpr size_t kMaxReserve = 64 * 1024;
  char* reserve(size_t bytes) {
    if (bytes > capacity_ - used_) flush();
    return buffer_.get() + used_;
  }
  void advance(size_t bytes) { used_ += bytes; }

  uint64_t bytes_written() const { return flushed_ + used_; }
  Result<void> commit();

 private:
  OutputFile() = default;
  void append_slow(std::string_view text);
  void flush();

  std::string path_;
  std::string temporary_path_;  // empty: written directly
  int fd_ = -1;
  int error_ = 0;  // the first errno
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t used_ = 0;
  uint64_t flushed_ = 0;
};

// Whether the path stands for an open descriptor: /dev/stdout, /dev/fd/3.
bool is_descriptor_path(const std::string& path);

// The whole file, which must not be larger than `limit_bytes`.
Result<std::string> read_text_file(const std::string& path, size_t limit_bytes = 64 << 20);
// Through an OutputFile.
Result<void> write_text_file(const std::string& path, std::string_view text);

// Names (not paths) in a directory, sorted.
Result<std::vector<std::string>> list_directory(const std::string& path);
bool is_directory(const std::string& path);
// Makes the directory and its parents; one that exists is fine.
Result<void> make_directories(const std::string& path);

}  // namespace gapless
