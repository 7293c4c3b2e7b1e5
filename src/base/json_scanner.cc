// SPDX-License-Identifier: Apache-2.0

#include "base/json_scanner.h"

#include <bit>
#include <bitset>
#include <cstring>
#include <span>
#include <utility>

namespace gapless {
namespace {

static_assert(std::endian::native == std::endian::little, "plain_bytes counts from the low byte");

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// How many of the eight bytes come before the first quote, backslash or control character.
int plain_bytes(const char* at) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHigh = 0x8080808080808080;
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  const uint64_t quote = word ^ (kOnes * '"');
  const uint64_t backslash = word ^ (kOnes * '\\');
  const uint64_t special = ((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) |
                           ((word - kOnes * 0x20) & ~word);
  return std::countr_zero(special & kHigh) / 8;
}

}  // namespace

JsonStatus JsonCursor::read_string(JsonValue& value) {
  if (*at != '"' || at == end) return stopped();
  const char* begin = ++at;
  value.kind = JsonKind::kString;
  while (true) {
    while (end - at >= 8) {
      const int plain = plain_bytes(at);
      at += plain;
      if (plain < 8) break;
    }
    if (at == end) return JsonStatus::kNeedMore;
    const char c = *at;
    if (c == '"') break;
    if (c == '\0') return JsonStatus::kBad;
    if (static_cast<unsigned char>(c) < 0x20) value.is_lenient = true;
    ++at;
    if (c != '\\') continue;
    value.has_escapes = true;
    if (const JsonStatus status = read_escape(); status != JsonStatus::kOk) return status;
  }
  value.text = {begin, static_cast<size_t>(at - begin)};
  ++at;
  return JsonStatus::kOk;
}

// What follows a backslash.
JsonStatus JsonCursor::read_escape() {
  if (at == end) return JsonStatus::kNeedMore;
  const char letter = *at;
  if (letter != 'u') {
    if (std::string_view("\"\\/bfnrt").find(letter) == std::string_view::npos) {
      return JsonStatus::kBad;
    }
    ++at;
    return JsonStatus::kOk;
  }
  ++at;
  for (int digit = 0; digit < 4; ++digit, ++at) {
    if (at == end || !is_hex(*at)) return stopped();
  }
  return JsonStatus::kOk;
}

// true, false, null, and the numbers that JSON has no digits for but some writers use.
JsonStatus JsonCursor::read_word(const char* begin, JsonValue& value) {
  while (is_letter(*at)) ++at;
  if (at == end) return JsonStatus::kNeedMore;
  value.text = {begin, static_cast<size_t>(at - begin)};
  value.kind = JsonKind::kLiteral;
  if (value.text == "true" || value.text == "false" || value.text == "null") {
    return JsonStatus::kOk;
  }
  value.is_lenient = true;
  if (value.text == "NaN" || value.text == "Infinity" || value.text == "-Infinity") {
    return JsonStatus::kOk;
  }
  at = begin;
  return JsonStatus::kBad;
}

// Numbers and words. Their end is where the next byte does not belong to them, so there must be
// one.
JsonStatus JsonCursor::read_scalar(JsonValue& value) {
  const char* begin = at;
  if (*at == '-') ++at;
  const char* digits = at;
  while (is_digit(*at)) ++at;
  if (at == digits) return read_word(begin, value);
  if (*digits == '0' && at - digits > 1) value.is_lenient = true;
  if (*at == '.') {
    const char* fraction = ++at;
    while (is_digit(*at)) ++at;
    if (at == fraction) value.is_lenient = true;
  }
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '+' || *at == '-') ++at;
    if (!is_digit(*at)) return stopped();
    while (is_digit(*at)) ++at;
  }
  if (at == end) return JsonStatus::kNeedMore;
  value.text = {begin, static_cast<size_t>(at - begin)};
  value.kind = JsonKind::kNumber;
  return JsonStatus::kOk;
}

// From an opening bracket to behind its closing one, by counting; for what lies too deep.
JsonStatus JsonCursor::skip_brackets(JsonValue& value) {
  value.is_too_deep = true;
  int64_t depth = 0;
  while (true) {
    const char c = *at;
    if (c == '\0') return stopped();
    if (c == '"') {
      JsonValue string;
      if (const JsonStatus status = read_string(string); status != JsonStatus::kOk) return status;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
    if (depth == 0) return JsonStatus::kOk;
  }
}

// An object or array and all that is in it. The open brackets are bits, so depth costs no stack.
// One state machine, one state a paragraph.
// NOLINTNEXTLINE(readability-function-size,readability-function-cognitive-complexity)
JsonStatus JsonCursor::skip_nested(JsonValue& value) {
  std::bitset<kMaxJsonDepth> is_object;
  size_t depth = 0;
  bool after_value = false;  // a comma or the closing bracket comes next
  bool may_close = false;    // just after an opening bracket
  do {
    skip_space();
    const char c = *at;
    const char closing = depth > 0 && is_object[depth - 1] ? '}' : ']';
    if ((after_value || may_close) && depth > 0 && c == closing) {
      ++at;
      --depth;
      after_value = true;
      may_close = false;
      continue;
    }
    if (after_value) {
      if (c != ',') return stopped();
      ++at;
      after_value = false;
      may_close = false;
      continue;
    }
    if (depth > 0 && is_object[depth - 1]) {
      JsonValue key;
      if (const JsonStatus status = read_key(key); status != JsonStatus::kOk) return status;
      value.is_lenient |= key.is_lenient;
      skip_space();
    }
    may_close = false;
    if (*at != '{' && *at != '[') {
      JsonValue scalar;
      const JsonStatus status = *at == '"' ? read_string(scalar) : read_scalar(scalar);
      if (status != JsonStatus::kOk) return status;
      value.is_lenient |= scalar.is_lenient;
      after_value = true;
    } else if (depth == kMaxJsonDepth) {
      if (const JsonStatus status = skip_brackets(value); status != JsonStatus::kOk) return status;
      after_value = true;
    } else {
      is_object[depth++] = *at++ == '{';
      may_close = true;
    }
  } while (depth > 0);
  return JsonStatus::kOk;
}

JsonStatus JsonCursor::read_value(JsonValue& value) {
  value = {};
  skip_space();
  if (at == end) return JsonStatus::kNeedMore;
  if (*at == '"') return read_string(value);
  if (*at != '{' && *at != '[') return read_scalar(value);
  const char* begin = at;
  const JsonKind kind = *at == '{' ? JsonKind::kObject : JsonKind::kArray;
  if (const JsonStatus status = skip_nested(value); status != JsonStatus::kOk) return status;
  value.kind = kind;
  value.text = {begin, static_cast<size_t>(at - begin)};
  return JsonStatus::kOk;
}

JsonStatus JsonCursor::read_key(JsonValue& key) {
  key = {};
  skip_space();
  if (const JsonStatus status = read_string(key); status != JsonStatus::kOk) return status;
  return take(':');
}

JsonScanner::JsonScanner(InputStream& input, JsonWindow window, Progress progress)
    : input_(input), window_(window), progress_(std::move(progress)) {
  buffer_.resize(window_.start_bytes + 1);
}

// Moves what is not taken to the front; a value that fills half the window makes it larger, so that
// repeating a parse costs at most as much again as parsing.
Result<bool> JsonScanner::refill() {
  const size_t kept = size_ - position_;
  std::memmove(buffer_.data(), buffer_.data() + position_, kept);
  window_offset_ += position_;
  position_ = 0;
  size_ = kept;
  if (kept >= (buffer_.size() - 1) / 2) buffer_.resize(2 * buffer_.size());
  const size_t room = buffer_.size() - 1 - kept;
  const size_t count = GAPLESS_TRY(input_.read(std::span<char>(buffer_.data() + kept, room)));
  size_ += count;
  buffer_[size_] = '\0';
  if (progress_) progress_(input_.source_position(), input_.source_size());
  return count > 0;
}

Result<char> JsonScanner::peek() {
  while (true) {
    while (position_ < size_ && is_space(buffer_[position_])) ++position_;
    if (position_ < size_) return buffer_[position_];
    if (!GAPLESS_TRY(refill())) return '\0';
  }
}

Result<JsonStatus> JsonScanner::skip_value() {
  GAPLESS_TRY(peek());
  uint64_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  do {
    for (; position_ < size_; ++position_) {
      const char c = buffer_[position_];
      if (in_string) {
        const bool closes = !escaped && c == '"';
        escaped = !escaped && c == '\\';
        in_string = !closes;
      } else if (c == '"') {
        in_string = true;
        continue;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_space(c))) {
        return JsonStatus::kOk;  // behind a number or a word
      } else if (c == '}' || c == ']') {
        --depth;
      } else {
        continue;
      }
      if (depth > 0 || in_string) continue;
      ++position_;
      return JsonStatus::kOk;
    }
  } while (GAPLESS_TRY(refill()));
  return JsonStatus::kNeedMore;
}

}  // namespace gapless
