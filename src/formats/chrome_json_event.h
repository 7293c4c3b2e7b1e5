// SPDX-License-Identifier: Apache-2.0
//
// One event of a Chrome trace: its fields, where they lie in the text, and what they say.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json_scanner.h"

namespace gapless {

// Fields that are absent, or null, have the kind kNone. Of a field that comes twice the last
// counts.
struct ChromeEvent {
  JsonValue name;
  JsonValue category;
  JsonValue phase;
  JsonValue time;
  JsonValue duration;
  JsonValue process;
  JsonValue thread;
  JsonValue id;
  JsonValue id2;      // {"local": id} or {"global": id}
  JsonValue scope;    // of an id
  JsonValue binding;  // "bp"
  JsonValue args;
  uint32_t field_count = 0;
  uint32_t other_count = 0;  // fields that a trace has no place for
  bool is_object = true;     // false: a number or text where an event should be
};

JsonStatus read_chrome_event(JsonCursor& cursor, ChromeEvent& event);

// Microseconds, as a number or a string, to nanoseconds. Nothing when it is no number, or one of
// more than 146 years: sums of two times then always fit.
std::optional<int64_t> chrome_time_ns(const JsonValue& value);

// A whole number, or a string that holds one.
std::optional<int64_t> chrome_integer(const JsonValue& value);
// What a counter shows: a number, a string that holds one, or true and false.
std::optional<double> chrome_number(const JsonValue& value);
// What a string says; of other values their text.
std::string chrome_text(const JsonValue& value);

// Flow and async ids: numbers, "0x1f", or any other text, which is hashed.
uint64_t chrome_id(const JsonValue& value);
// One for the letters and their order; not for files, where it would have to stay the same.
uint64_t hash_text(std::string_view text);

}  // namespace gapless
