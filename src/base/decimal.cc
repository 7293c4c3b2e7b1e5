// SPDX-License-Identifier: Apache-2.0

#include "base/decimal.h"

#include <charconv>
#include <cstring>

namespace gapless {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The pieces of "-12.34e5". Views into the text.
struct Pieces {
  bool negative = false;
  std::string_view whole;
  std::string_view fraction;
  int exponent = 0;
};

std::optional<Pieces> split(std::string_view text) {
  Pieces pieces;
  size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) pieces.negative = text[i++] == '-';
  const size_t whole_begin = i;
  while (i < text.size() && is_digit(text[i])) ++i;
  pieces.whole = text.substr(whole_begin, i - whole_begin);
  if (i < text.size() && text[i] == '.') {
    const size_t fraction_begin = ++i;
    while (i < text.size() && is_digit(text[i])) ++i;
    pieces.fraction = text.substr(fraction_begin, i - fraction_begin);
  }
  if (pieces.whole.empty() && pieces.fraction.empty()) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i + 1 < text.size() && text[i] == '+' && is_digit(text[i + 1])) ++i;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + i, end, pieces.exponent);
    if (error != std::errc() || stop != end) return std::nullopt;
    return pieces;
  }
  if (i != text.size()) return std::nullopt;
  return pieces;
}

}  // namespace

std::optional<int64_t> parse_decimal(std::string_view text, int scale_digits) {
  const std::optional<Pieces> pieces = split(text);
  if (!pieces) return std::nullopt;

  // The digits are whole + fraction; the point of the result lies after `kept` of them.
  const size_t digit_count = pieces->whole.size() + pieces->fraction.size();
  const auto digit = [&](size_t i) {
    const size_t whole = pieces->whole.size();
    return i < whole ? pieces->whole[i] - '0' : pieces->fraction[i - whole] - '0';
  };
  const int64_t kept =
      static_cast<int64_t>(pieces->whole.size()) + int64_t{pieces->exponent} + scale_digits;
  uint64_t value = 0;
  constexpr uint64_t kLimit = uint64_t{1} << 63;
  for (int64_t i = 0; i < kept; ++i) {
    const bool inside = i < static_cast<int64_t>(digit_count);
    const uint64_t next = inside ? static_cast<uint64_t>(digit(static_cast<size_t>(i))) : 0;
    if (!inside && value == 0) return 0;  // 0e999
    if (value > (kLimit - next) / 10) return std::nullopt;
    value = value * 10 + next;
  }
  const bool rounds_up = kept >= 0 && kept < static_cast<int64_t>(digit_count) &&
                         digit(static_cast<size_t>(kept)) >= 5;
  if (rounds_up) ++value;
  if (pieces->negative) {
    if (value > kLimit) return std::nullopt;
    return static_cast<int64_t>(~value + 1);
  }
  if (value >= kLimit) return std::nullopt;
  return static_cast<int64_t>(value);
}

namespace {

// "00" "01" ... "99": two digits a step halve the divisions.
struct DigitPairs {
  char text[200];
  constexpr DigitPairs() : text() {
    for (int i = 0; i < 100; ++i) {
      text[2 * i] = static_cast<char>('0' + i / 10);
      text[2 * i + 1] = static_cast<char>('0' + i % 10);
    }
  }
};
constexpr DigitPairs kPairs;

}  // namespace

char* write_unsigned(char* out, uint64_t value) {
  char buffer[20];
  char* p = buffer + sizeof(buffer);
  while (value >= 100) {
    p -= 2;
    std::memcpy(p, kPairs.text + 2 * (value % 100), 2);
    value /= 100;
  }
  if (value >= 10) {
    p -= 2;
    std::memcpy(p, kPairs.text + 2 * value, 2);
  } else {
    *--p = static_cast<char>('0' + value);
  }
  const size_t size = static_cast<size_t>(buffer + sizeof(buffer) - p);
  std::memcpy(out, p, size);
  return out + size;
}

char* write_integer(char* out, int64_t value) {
  if (value >= 0) return write_unsigned(out, static_cast<uint64_t>(value));
  *out++ = '-';
  return write_unsigned(out, ~static_cast<uint64_t>(value) + 1);
}

char* write_microseconds(char* out, int64_t nanoseconds) {
  uint64_t magnitude = static_cast<uint64_t>(nanoseconds);
  if (nanoseconds < 0) {
    *out++ = '-';
    magnitude = ~magnitude + 1;
  }
  out = write_unsigned(out, magnitude / 1000);
  const uint64_t fraction = magnitude % 1000;
  *out++ = '.';
  *out++ = static_cast<char>('0' + fraction / 100);
  std::memcpy(out, kPairs.text + 2 * (fraction % 100), 2);
  return out + 2;
}

}  // namespace gapless
