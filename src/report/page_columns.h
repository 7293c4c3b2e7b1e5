// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the page's columns: numbers as LEB128 varints, compressed by zlib, in base64.
//
// Most numbers are small differences, so that most take one byte before they are compressed.
// Browsers undo base64 and zlib themselves; the page has to read the varints alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gapless {

// 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
constexpr uint64_t zigzag(int64_t number) {
  return (static_cast<uint64_t>(number) << 1) ^ static_cast<uint64_t>(number >> 63);
}

class PageColumns {
 public:
  void add(uint64_t number) {
    if (bytes_.size() - used_ < kMaxVarintBytes) bytes_.resize(2 * bytes_.size() + kMaxVarintBytes);
    char* to = bytes_.data() + used_;
    for (; number >= 0x80; number >>= 7) *to++ = static_cast<char>(number | 0x80);
    *to++ = static_cast<char>(number);
    used_ = static_cast<size_t>(to - bytes_.data());
  }
  void add_signed(int64_t number) { add(zigzag(number)); }
  std::string_view bytes() const { return {bytes_.data(), used_}; }

 private:
  static constexpr size_t kMaxVarintBytes = 10;
  std::string bytes_;  // with room behind what is used
  size_t used_ = 0;
};

// A zlib stream of the bytes; `level` is 1 (quick) to 9 (small).
Result<std::string> compress_bytes(std::string_view bytes, int level);

// With padding, in one line.
void append_base64(std::string& out, std::string_view bytes);

}  // namespace gapless
