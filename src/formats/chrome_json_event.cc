// SPDX-License-Identifier: Apache-2.0

#include "formats/chrome_json_event.h"

#include <charconv>
#include <cstring>

#include "base/decimal.h"
#include "base/json_text.h"

namespace gapless {
namespace {

constexpr int64_t kLargestTime = int64_t{1} << 62;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The field that a key names; nullptr for one that is not kept.
JsonValue* field_of(ChromeEvent& event, std::string_view key) {
  switch (key.size()) {
    case 2:
      if (key == "ph") return &event.phase;
      if (key == "ts") return &event.time;
      if (key == "id") return &event.id;
      if (key == "bp") return &event.binding;
      return nullptr;
    case 3:
      if (key == "pid") return &event.process;
      if (key == "tid") return &event.thread;
      if (key == "dur") return &event.duration;
      if (key == "cat") return &event.category;
      if (key == "id2") return &event.id2;
      return nullptr;
    case 4:
      if (key == "name") return &event.name;
      if (key == "args") return &event.args;
      return nullptr;
    case 5:
      return key == "scope" ? &event.scope : nullptr;
    default:
      return nullptr;
  }
}

// "123.456" in nanoseconds, when it is as plain as nearly all times are; -1 otherwise.
int64_t plain_microseconds(std::string_view text) {
  constexpr int64_t kMostWholeDigits = 16;  // times 1000 they fit into 64 bits
  const char* at = text.data();
  const char* end = at + text.size();
  uint64_t value = 0;
  const char* whole_end = end - at > kMostWholeDigits ? at + kMostWholeDigits : end;
  for (; at < whole_end && is_digit(*at); ++at)
    value = value * 10 + static_cast<uint64_t>(*at - '0');
  if (at == text.data()) return -1;
  int scale = 1000;
  if (at < end && *at == '.') {
    for (++at; at < end && is_digit(*at) && scale > 1; ++at, scale /= 10) {
      value = value * 10 + static_cast<uint64_t>(*at - '0');
    }
  }
  if (at != end) return -1;
  value *= static_cast<uint64_t>(scale);
  return value <= static_cast<uint64_t>(kLargestTime) ? static_cast<int64_t>(value) : -1;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

JsonStatus read_chrome_event(JsonCursor& cursor, ChromeEvent& event) {
  event = {};
  cursor.skip_space();
  if (*cursor.at != '{') {
    event.is_object = false;
    return cursor.read_value(event.args);
  }
  ++cursor.at;
  cursor.skip_space();
  if (*cursor.at == '}') {
    ++cursor.at;
    return JsonStatus::kOk;
  }
  while (true) {
    JsonValue key;
    JsonValue value;
    if (const JsonStatus status = cursor.read_key(key); status != JsonStatus::kOk) return status;
    if (const JsonStatus status = cursor.read_value(value); status != JsonStatus::kOk) {
      return status;
    }
    ++event.field_count;
    if (value.kind == JsonKind::kLiteral && value.text == "null") value = {};
    if (JsonValue* field = field_of(event, key.text)) {
      *field = value;
    } else if (key.text != "s") {  // the reach of an instant: only how a viewer draws it
      ++event.other_count;
    }
    cursor.skip_space();
    const char c = *cursor.at;
    if (c != ',' && c != '}') return cursor.stopped();
    ++cursor.at;
    if (c == '}') return JsonStatus::kOk;
  }
}

std::optional<int64_t> chrome_time_ns(const JsonValue& value) {
  if (value.kind != JsonKind::kNumber && value.kind != JsonKind::kString) return std::nullopt;
  const int64_t plain = plain_microseconds(value.text);
  if (plain >= 0) return plain;
  std::optional<int64_t> time_ns = parse_decimal(value.text, 3);
  if (!time_ns) time_ns = parse_decimal(trimmed(chrome_text(value)), 3);
  if (!time_ns || *time_ns > kLargestTime || *time_ns < -kLargestTime) return std::nullopt;
  return time_ns;
}

std::optional<int64_t> chrome_integer(const JsonValue& value) {
  if (value.kind != JsonKind::kNumber && value.kind != JsonKind::kString) return std::nullopt;
  int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  return parse_decimal(value.text, 0);
}

std::optional<double> chrome_number(const JsonValue& value) {
  if (value.kind == JsonKind::kLiteral) {
    if (value.text == "true") return 1.0;
    if (value.text == "false") return 0.0;
  } else if (value.kind != JsonKind::kNumber && value.kind != JsonKind::kString) {
    return std::nullopt;
  }
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (stop != end || value.text.empty() || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) return std::nullopt;
  return number;
}

std::string chrome_text(const JsonValue& value) {
  if (!value.has_escapes) return std::string(value.text);
  std::string text;
  append_json_unescaped(text, value.text);
  return text;
}

uint64_t chrome_id(const JsonValue& value) {
  std::string_view text = value.text;
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  if (is_hex) text.remove_prefix(2);
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, is_hex ? 16 : 10);
  if (error == std::errc() && stop == end && !text.empty()) return number;
  return hash_text(value.text);
}

uint64_t hash_text(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  uint64_t hash = text.size() * kMultiplier;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  while (text.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    mix(word);
    text.remove_prefix(8);
  }
  uint64_t word = 0;
  if (!text.empty()) std::memcpy(&word, text.data(), text.size());
  mix(word);
  return hash;
}

}  // namespace gapless
