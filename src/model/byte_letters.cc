// SPDX-License-Identifier: Apache-2.0

#include "model/byte_letters.h"

#include <array>
#include <cstddef>

namespace gapless {
namespace {

constexpr int kByteCount = 256;
constexpr int kFirstNumbered = 0x100;
constexpr int kLetterEnd = kFirstNumbered + 68;  // 68 bytes are not printable in Latin-1

constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<int16_t, kByteCount> make_letters() {
  std::array<int16_t, kByteCount> letters{};
  int numbered = kFirstNumbered;
  for (int byte = 0; byte < kByteCount; ++byte) {
    letters[static_cast<size_t>(byte)] =
        static_cast<int16_t>(is_printable(byte) ? byte : numbered++);
  }
  return letters;
}

constexpr std::array<int16_t, kByteCount> kLetters = make_letters();

// The byte of each code point below kLetterEnd; -1 where it is no letter.
constexpr std::array<int16_t, kLetterEnd> make_bytes() {
  std::array<int16_t, kLetterEnd> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < kByteCount; ++byte) {
    bytes[static_cast<size_t>(kLetters[byte])] = static_cast<int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<int16_t, kLetterEnd> kBytes = make_bytes();

}  // namespace

std::string letter_of_byte(uint8_t byte) {
  const int letter = kLetters[byte];
  if (letter < 0x80) return std::string(1, static_cast<char>(letter));
  return {static_cast<char>(0xc0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 0x3f))};
}

std::optional<std::string> bytes_of_letters(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  for (size_t at = 0; at < piece.size(); ++at) {
    size_t code = static_cast<uint8_t>(piece[at]);
    if (code >= 0x80) {
      // All letters have at most two bytes.
      if (code < 0xc2 || code > 0xdf || at + 1 == piece.size()) return std::nullopt;
      const size_t low = static_cast<uint8_t>(piece[++at]);
      if ((low & 0xc0) != 0x80) return std::nullopt;
      code = ((code & 0x1f) << 6) | (low & 0x3f);
    }
    if (code >= kBytes.size() || kBytes[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[code]);
  }
  return bytes;
}

}  // namespace gapless
