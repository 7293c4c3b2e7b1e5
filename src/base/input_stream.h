// SPDX-License-Identifier: Apache-2.0
//
// InputStream: bytes from front to back, from memory, a file, or a gzip file (recognised by its
// first bytes), in bounded memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace gapless {

class InputStream {
 public:
  static Result<InputStream> open_file(const std::string& path);
  // The bytes must outlive the stream. `name` is for messages.
  static InputStream from_memory(std::span<const std::byte> bytes, std::string name);

  InputStream(InputStream&&) noexcept;
  InputStream& operator=(InputStream&&) noexcept;
  ~InputStream();

  // Fills `out` as far as there are bytes; fewer than asked for means the end.
  Result<size_t> read(std::span<char> out);

  // For progress: bytes of the (compressed) source taken so far, and its size; 0 when not known.
  uint64_t source_position() const;
  uint64_t source_size() const;

  // After the end: a gzip source stopped in the middle or is damaged there; why. Empty: all is
  // well.
  const std::string& damage() const;
  const std::string& name() const;

 private:
  struct State;
  explicit InputStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace gapless
