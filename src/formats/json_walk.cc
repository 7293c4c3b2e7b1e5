// SPDX-License-Identifier: Apache-2.0

#include "formats/json_walk.h"

#include <charconv>
#include <system_error>

#include <fmt/core.h>

#include "base/decimal.h"
#include "base/json_text.h"

namespace gapless {
namespace {

constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

bool holds_number(const JsonValue& value) {
  return value.kind == JsonKind::kNumber || value.kind == JsonKind::kString;
}

template <typename Number>
std::optional<Number> parse_digits(std::string_view text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

bool JsonWalk::stop_at(JsonStatus status) {
  status_ = status;
  stop_offset_ = status == JsonStatus::kNeedMore ? scanner_.end_offset() : scanner_.bad_offset();
  return false;
}

Result<char> JsonWalk::begin() {
  if (GAPLESS_TRY(scanner_.peek()) == kUtf8Mark[0]) {
    GAPLESS_TRY(scanner_.read([](JsonCursor& cursor) {
      for (const char c : kUtf8Mark) {
        if (*cursor.at != c) return cursor.stopped();
        ++cursor.at;
      }
      return JsonStatus::kOk;
    }));
  }
  return scanner_.peek();
}

Result<bool> JsonWalk::closes(char closing) {
  const bool is_closed = GAPLESS_TRY(scanner_.peek()) == closing;
  if (is_closed) scanner_.take();
  return is_closed;
}

// A comma or the closing bracket. Some writers leave a comma before the bracket.
Result<bool> JsonWalk::separator(char closing, bool& is_closed) {
  is_closed = GAPLESS_TRY(closes(closing));
  if (is_closed) return true;
  if (GAPLESS_TRY(scanner_.peek()) == ',') {
    scanner_.take();
    is_closed = GAPLESS_TRY(closes(closing));
    return true;
  }
  return stop_at(GAPLESS_TRY(scanner_.read([](JsonCursor& c) { return c.stopped(); })));
}

Result<std::optional<std::string>> JsonWalk::take_key() {
  JsonValue key;
  const JsonStatus status =
      GAPLESS_TRY(scanner_.read([&key](JsonCursor& cursor) { return cursor.read_key(key); }));
  if (status == JsonStatus::kOk) return std::optional<std::string>(json_text(key));
  stop_at(status);
  return std::optional<std::string>();
}

Result<bool> JsonWalk::value(JsonValue& value) {
  const JsonStatus status =
      GAPLESS_TRY(scanner_.read([&value](JsonCursor& cursor) { return cursor.read_value(value); }));
  if (status == JsonStatus::kOk) return true;
  value = {};
  if (status != JsonStatus::kTooLarge) return stop_at(status);
  ++too_large_count_;
  return skip();
}

Result<bool> JsonWalk::skip() {
  const JsonStatus status = GAPLESS_TRY(scanner_.skip_value());
  return status == JsonStatus::kOk ? true : stop_at(status);
}

std::string JsonWalk::stop() const {
  const std::string& damage = input_.damage();
  const std::string reason = damage.empty() ? "" : fmt::format(" ({})", damage);
  if (status_ == JsonStatus::kNeedMore) {
    return fmt::format("cut short at byte {}{}", stop_offset_, reason);
  }
  if (status_ != JsonStatus::kOk) return fmt::format("damaged at byte {}{}", stop_offset_, reason);
  if (!damage.empty()) return fmt::format("damaged at byte {}{}", scanner_.end_offset(), reason);
  return "";
}

Result<std::optional<uint64_t>> JsonWalk::trailing_offset() {
  const char next = GAPLESS_TRY(scanner_.peek());
  if (next == '\0' && scanner_.offset() == scanner_.end_offset()) return std::optional<uint64_t>();
  return std::optional<uint64_t>(scanner_.offset());
}

std::string json_text(const JsonValue& value) {
  if (!value.has_escapes) return std::string(value.text);
  std::string text;
  append_json_unescaped(text, value.text);
  return text;
}

std::optional<uint64_t> json_unsigned(const JsonValue& value) {
  if (!holds_number(value)) return std::nullopt;
  if (const std::optional<uint64_t> number = parse_digits<uint64_t>(value.text)) return number;
  const std::optional<int64_t> number = parse_decimal(value.text, 0);
  if (!number || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

std::optional<int64_t> json_integer(const JsonValue& value) {
  if (!holds_number(value)) return std::nullopt;
  if (const std::optional<int64_t> number = parse_digits<int64_t>(value.text)) return number;
  return parse_decimal(value.text, 0);
}

std::optional<int64_t> json_microseconds_ns(const JsonValue& value) {
  if (!holds_number(value)) return std::nullopt;
  return parse_decimal(value.text, 3);
}

}  // namespace gapless
