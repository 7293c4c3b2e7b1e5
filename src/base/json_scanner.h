// SPDX-License-Identifier: Apache-2.0
//
// JSON of any size, read from front to back in the memory of one window.
//
// JsonCursor takes values apart where they lie; nothing is copied and there is no tree. JsonScanner
// slides a window over an InputStream: a parse that runs out of bytes is repeated with more of
// them, so what is parsed at once must fit into the window's limit, and nothing else is bounded by
// it. Depth costs no stack.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/input_stream.h"
#include "base/result.h"

namespace gapless {

enum class JsonStatus : uint8_t {
  kOk,
  kNeedMore,  // the text ends inside the value
  kBad,       // not JSON from here on
  kTooLarge,  // JsonScanner only: does not fit into the window's limit
};

enum class JsonKind : uint8_t { kNone, kString, kNumber, kLiteral, kObject, kArray };

// One value. Valid as long as the bytes are: until the scanner's next step.
struct JsonValue {
  std::string_view text;  // a string's without its quotes, escapes as they stand
  JsonKind kind = JsonKind::kNone;
  bool has_escapes = false;  // strings: append_json_unescaped says what it means
  // Accepted, but not JSON: NaN, Infinity, 007, or control characters in a string.
  bool is_lenient = false;
  bool is_too_deep = false;  // deeper than kMaxJsonDepth; beyond that only brackets were counted

  bool is_present() const { return kind != JsonKind::kNone; }
};

inline constexpr int kMaxJsonDepth = 512;

// A place in a text. A readable byte must follow the text: zero, or anything when the text is one
// whole value that was read before. After kBad, `at` is the place that is not JSON.
struct JsonCursor {
  const char* at;
  const char* end;

  void skip_space() {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') ++at;
  }
  // Skips white space and then `c`, which must be there.
  JsonStatus take(char c) {
    skip_space();
    if (*at != c || at == end) return stopped();
    ++at;
    return JsonStatus::kOk;
  }
  // Any value, after white space. A number or literal that touches the end may go on: kNeedMore.
  JsonStatus read_value(JsonValue& value);
  // A string and the colon after it.
  JsonStatus read_key(JsonValue& key);
  // Why the byte here does not fit.
  JsonStatus stopped() const { return at == end ? JsonStatus::kNeedMore : JsonStatus::kBad; }

 private:
  JsonStatus read_string(JsonValue& value);
  JsonStatus read_scalar(JsonValue& value);
  JsonStatus read_word(const char* begin, JsonValue& value);
  JsonStatus read_escape();
  JsonStatus skip_nested(JsonValue& value);
  JsonStatus skip_brackets(JsonValue& value);
};

// Calls visit(key, value) for the members of an object that read_value has accepted.
template <typename Visit>
void for_each_member(std::string_view object, Visit visit) {
  JsonCursor cursor{object.data(), object.data() + object.size()};
  if (cursor.take('{') != JsonStatus::kOk) return;
  JsonValue key;
  while (cursor.read_key(key) == JsonStatus::kOk) {
    JsonValue value;
    if (cursor.read_value(value) != JsonStatus::kOk) return;
    visit(key, value);
    if (cursor.take(',') != JsonStatus::kOk) return;
  }
}

struct JsonWindow {
  size_t start_bytes = 1 << 20;
  size_t limit_bytes = 64 << 20;  // of what one parse may need at once
};

class JsonScanner {
 public:
  // The stream must outlive the scanner. `progress` is called once a window.
  JsonScanner(InputStream& input, JsonWindow window, Progress progress);

  // The next byte that is not white space, which is not taken; 0 at the end.
  Result<char> peek();
  // Takes the byte that peek() showed.
  void take() { ++position_; }

  // Runs parse(JsonCursor&) at this place, again from the start whenever it needs more bytes; moves
  // on when it is kOk. kNeedMore: the input ends here. What the parse points to stays until the
  // next step.
  template <typename Parse>
  Result<JsonStatus> read(Parse parse) {
    while (true) {
      JsonCursor cursor{buffer_.data() + position_, buffer_.data() + size_};
      const JsonStatus status = parse(cursor);
      if (status == JsonStatus::kNeedMore) {
        if (size_ - position_ >= window_.limit_bytes) return JsonStatus::kTooLarge;
        if (GAPLESS_TRY(refill())) continue;
        return status;
      }
      if (status == JsonStatus::kOk) position_ = static_cast<size_t>(cursor.at - buffer_.data());
      bad_offset_ = offset_of(cursor.at);
      return status;
    }
  }

  // Skips one value without looking closely, whatever its size.
  Result<JsonStatus> skip_value();

  // Bytes before this place, before the place that was kBad, and before the end of what was read.
  uint64_t offset() const { return window_offset_ + position_; }
  uint64_t bad_offset() const { return bad_offset_; }
  uint64_t end_offset() const { return window_offset_ + size_; }

 private:
  // Reads more bytes behind those not yet taken; false when there are none.
  Result<bool> refill();
  uint64_t offset_of(const char* at) const {
    return window_offset_ + static_cast<uint64_t>(at - buffer_.data());
  }

  InputStream& input_;
  JsonWindow window_;
  Progress progress_;
  std::vector<char> buffer_;  // a zero byte follows the last of size_
  size_t position_ = 0;
  size_t size_ = 0;
  uint64_t window_offset_ = 0;  // of the buffer's first byte in the input
  uint64_t bad_offset_ = 0;
};

}  // namespace gapless
