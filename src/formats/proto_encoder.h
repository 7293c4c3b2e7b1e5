// SPDX-License-Identifier: Apache-2.0
//
// Protocol buffers on the wire, as far as a writer needs them. Hot paths encode into memory they
// have reserved with put_*; the rest builds a ProtoMessage.

#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace gapless {

enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

inline constexpr int kMaxVarintBytes = 10;

constexpr uint32_t proto_tag(uint32_t field, WireType type) {
  return field << 3 | static_cast<uint32_t>(type);
}

// Needs up to kMaxVarintBytes; returns one past the last.
inline char* put_varint(char* out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// A varint field. Needs up to five bytes more than the value.
inline char* put_field(char* out, uint32_t field, uint64_t value) {
  return put_varint(put_varint(out, proto_tag(field, WireType::kVarint)), value);
}

inline char* put_fixed64(char* out, uint32_t field, uint64_t value) {
  static_assert(std::endian::native == std::endian::little);
  out = put_varint(out, proto_tag(field, WireType::kFixed64));
  std::memcpy(out, &value, sizeof(value));
  return out + sizeof(value);
}

class ProtoMessage {
 public:
  ProtoMessage& number(uint32_t field, uint64_t value) {
    char buffer[2 * kMaxVarintBytes];
    bytes_.append(buffer, put_field(buffer, field, value));
    return *this;
  }
  ProtoMessage& text(uint32_t field, std::string_view value) {
    char buffer[2 * kMaxVarintBytes];
    char* end = put_varint(buffer, proto_tag(field, WireType::kBytes));
    bytes_.append(buffer, put_varint(end, value.size()));
    bytes_.append(value);
    return *this;
  }
  ProtoMessage& message(uint32_t field, const ProtoMessage& value) {
    return text(field, value.bytes_);
  }

  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  std::string bytes_;
};

}  // namespace gapless
