// SPDX-License-Identifier: Apache-2.0

#include "base/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>

namespace gapless {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr int kNoHex = -1;

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool is_continuation(std::string_view text, size_t i) {
  return i < text.size() && (byte_at(text, i) & 0xc0) == 0x80;
}

// True when nothing but the bytes themselves may follow: no quote, backslash or control character.
bool is_plain(uint8_t c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

void append_escape(std::string& out, uint8_t c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default:
      break;
  }
  out += "\\u00";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

// The number of four hexadecimal digits at `at`; kNoHex when they are not there.
int hex4(std::string_view raw, size_t at) {
  if (at + 4 > raw.size()) return kNoHex;
  uint16_t value = 0;
  const char* end = raw.data() + at + 4;
  const auto [stop, error] = std::from_chars(raw.data() + at, end, value, 16);
  return error == std::errc() && stop == end ? value : kNoHex;
}

void append_code_point(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// Appends the character of the \u escape whose digits begin at `at`; returns where it ends.
size_t append_unicode_escape(std::string& out, std::string_view raw, size_t at) {
  const int first = hex4(raw, at);
  if (first == kNoHex) {
    out += 'u';
    return at;
  }
  const bool is_high = first >= 0xd800 && first < 0xdc00;
  const bool is_low = first >= 0xdc00 && first < 0xe000;
  if (!is_high && !is_low) {
    append_code_point(out, static_cast<uint32_t>(first));
    return at + 4;
  }
  const bool has_second = is_high && raw.substr(at + 4, 2) == "\\u";
  const int second = has_second ? hex4(raw, at + 6) : kNoHex;
  if (second < 0xdc00 || second >= 0xe000) {
    out += kReplacement;
    return at + 4;
  }
  const uint32_t code = 0x10000u + (static_cast<uint32_t>(first - 0xd800) << 10) +
                        static_cast<uint32_t>(second - 0xdc00);
  append_code_point(out, code);
  return at + 10;
}

}  // namespace

size_t utf8_sequence_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const uint8_t first = byte_at(text, 0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !is_continuation(text, 1)) return 0;
  if (first < 0xe0) return 2;
  const uint8_t second = byte_at(text, 1);
  if (!is_continuation(text, 2)) return 0;
  if (first < 0xf0) {
    const bool overlong = first == 0xe0 && second < 0xa0;
    const bool surrogate = first == 0xed && second >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  const bool overlong = first == 0xf0 && second < 0x90;
  const bool too_large = first == 0xf4 && second >= 0x90;
  return overlong || too_large || !is_continuation(text, 3) ? 0 : 4;
}

void append_json_escaped(std::string& out, std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    size_t plain_end = i;
    while (plain_end < text.size() && is_plain(byte_at(text, plain_end))) ++plain_end;
    out += text.substr(i, plain_end - i);
    i = plain_end;
    if (i == text.size()) return;
    if (byte_at(text, i) < 0x80) {
      append_escape(out, byte_at(text, i++));
      continue;
    }
    const size_t bytes = utf8_sequence_bytes(text.substr(i));
    out += bytes == 0 ? kReplacement : text.substr(i, bytes);
    i += bytes == 0 ? 1 : bytes;
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

void append_json_unescaped(std::string& out, std::string_view raw) {
  size_t i = 0;
  while (i < raw.size()) {
    const size_t escape = raw.find('\\', i);
    out += raw.substr(i, escape - i);
    if (escape == std::string_view::npos || escape + 1 == raw.size()) return;
    i = escape + 2;
    switch (raw[escape + 1]) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'u':
        i = append_unicode_escape(out, raw, i);
        break;
      default:
        out += raw[escape + 1];
        break;
    }
  }
}

char* write_json_number(char* out, double value) {
  constexpr size_t kMaxBytes = 32;
  if (std::isfinite(value)) return std::to_chars(out, out + kMaxBytes, value).ptr;
  const std::string_view text = std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
  return out + text.copy(out, text.size());
}

}  // namespace gapless
