// SPDX-License-Identifier: Apache-2.0
//
// JsonWalk: a large JSON text member by member and element by element.
//
// The lists of a trace are walked and never held; what is taken at once (one row, one object) must
// fit into the scanner's window, and is skipped and counted when it does not. A text that is cut
// short or damaged is read up to that place, and stop() says where it is.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/input_stream.h"
#include "base/json_scanner.h"
#include "base/result.h"

namespace gapless {

class JsonWalk {
 public:
  // The stream must outlive the walk.
  JsonWalk(InputStream& input, const Progress& progress)
      : input_(input), scanner_(input, window_for(input), progress) {}

  // The first byte of the text, after a byte order mark and white space; 0: there is none.
  Result<char> begin();
  // The first byte of what comes next.
  Result<char> peek() { return scanner_.peek(); }

  // Calls visit(key) for each member of the object here, or visit() for each element of the list
  // here. Each call must take one value, and return false when it could not. Returns false when the
  // text cannot be followed any further.
  template <typename Visit>
  Result<bool> members(Visit visit) {
    scanner_.take();
    bool is_closed = GAPLESS_TRY(closes('}'));
    while (!is_closed) {
      const std::optional<std::string> key = GAPLESS_TRY(take_key());
      if (!key || !GAPLESS_TRY(visit(std::string_view(*key)))) return false;
      if (!GAPLESS_TRY(separator('}', is_closed))) return false;
    }
    return true;
  }
  template <typename Visit>
  Result<bool> elements(Visit visit) {
    scanner_.take();
    bool is_closed = GAPLESS_TRY(closes(']'));
    while (!is_closed) {
      if (!GAPLESS_TRY(visit())) return false;
      if (!GAPLESS_TRY(separator(']', is_closed))) return false;
    }
    return true;
  }

  // Takes one value, which stays until the next step. One that is too large is kNone, and counted.
  Result<bool> value(JsonValue& value);
  Result<bool> skip();

  // kOk while the text can be followed; kNeedMore: it is cut short; kBad: it is not JSON there.
  JsonStatus status() const { return status_; }
  uint64_t too_large_count() const { return too_large_count_; }
  // Why the walk ended early: "cut short at byte 12", "damaged at byte 7 (...)"; empty: it did not.
  std::string stop() const;
  // After the last value: the place of anything that follows it.
  Result<std::optional<uint64_t>> trailing_offset();

 private:
  // Small files, of which there may be many, do not need the whole window.
  static JsonWindow window_for(const InputStream& input) {
    JsonWindow window;
    const uint64_t size = input.source_size();
    if (size > 0 && size < window.start_bytes) window.start_bytes = std::max<size_t>(size, 4096);
    return window;
  }

  Result<bool> closes(char closing);
  Result<bool> separator(char closing, bool& is_closed);
  Result<std::optional<std::string>> take_key();
  bool stop_at(JsonStatus status);

  InputStream& input_;
  JsonScanner scanner_;
  JsonStatus status_ = JsonStatus::kOk;
  uint64_t stop_offset_ = 0;
  uint64_t too_large_count_ = 0;
};

// Calls visit(value) for the elements of a list that JsonCursor::read_value has accepted.
template <typename Visit>
void for_each_element(std::string_view list, Visit visit) {
  JsonCursor cursor{list.data(), list.data() + list.size()};
  if (cursor.take('[') != JsonStatus::kOk) return;
  JsonValue value;
  while (cursor.read_value(value) == JsonStatus::kOk) {
    visit(value);
    if (cursor.take(',') != JsonStatus::kOk) return;
  }
}

// Calls visit(key, member) for the members of a value that is an object. Anything else has none,
// nor has one that is too deep to have been looked at closely.
template <typename Visit>
void for_each_field(const JsonValue& value, Visit visit) {
  if (value.kind == JsonKind::kObject && !value.is_too_deep) for_each_member(value.text, visit);
}

// The text that a string value means.
std::string json_text(const JsonValue& value);
// A number, or a string of one, without a double in between. Nothing: it is neither, or it does not
// fit. Microseconds become nanoseconds.
std::optional<uint64_t> json_unsigned(const JsonValue& value);
std::optional<int64_t> json_integer(const JsonValue& value);
std::optional<int64_t> json_microseconds_ns(const JsonValue& value);

}  // namespace gapless
