// SPDX-License-Identifier: Apache-2.0
//
// The frame of a Chrome trace: a list of events, alone or as "traceEvents" of an object. A file
// that stops or is damaged somewhere gives what lies before that place.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_scanner.h"
#include "formats/chrome_json.h"
#include "formats/chrome_json_builder.h"

namespace gapless {
namespace {

constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

class ChromeJsonReader {
 public:
  ChromeJsonReader(InputStream& input, const ReadOptions& options)
      : input_(input), scanner_(input, JsonWindow{}, options.progress) {}

  Result<Trace> read();

 private:
  // Each returns false when the file cannot be followed any further; stop_ says why.
  Result<bool> read_object();
  Result<bool> read_member();
  Result<bool> read_events();
  Result<bool> read_property(const std::string& key);
  Result<bool> separator(char closing, bool& is_closed);

  bool stop(JsonStatus status);
  Result<void> skip_byte_order_mark();
  Error nothing_here() const;
  void add_stop_finding();

  InputStream& input_;
  JsonScanner scanner_;
  ChromeTraceBuilder builder_;
  ChromeEvent event_;
  JsonStatus stop_ = JsonStatus::kOk;
  uint64_t stop_offset_ = 0;
  bool has_events_ = false;  // the list was there, empty or not
  bool is_bare_list_ = false;
  bool is_between_events_ = false;  // a list that stops here is whole, but for its bracket
};

bool ChromeJsonReader::stop(JsonStatus status) {
  stop_ = status;
  stop_offset_ = status == JsonStatus::kNeedMore ? scanner_.end_offset() : scanner_.bad_offset();
  return false;
}

// A comma or the closing bracket. Some writers leave a comma before the bracket.
Result<bool> ChromeJsonReader::separator(char closing, bool& is_closed) {
  const char c = GAPLESS_TRY(scanner_.peek());
  is_closed = c == closing;
  if (is_closed || c == ',') {
    scanner_.take();
    if (c == ',') is_closed = GAPLESS_TRY(scanner_.peek()) == closing;
    if (c == ',' && is_closed) scanner_.take();
    return true;
  }
  const JsonStatus status =
      GAPLESS_TRY(scanner_.read([](JsonCursor& cursor) { return cursor.stopped(); }));
  return stop(status);
}

Result<bool> ChromeJsonReader::read_events() {
  has_events_ = true;
  scanner_.take();
  bool is_closed = GAPLESS_TRY(scanner_.peek()) == ']';
  if (is_closed) scanner_.take();
  while (!is_closed) {
    is_between_events_ = GAPLESS_TRY(scanner_.peek()) == '\0';
    const JsonStatus status = GAPLESS_TRY(
        scanner_.read([this](JsonCursor& cursor) { return read_chrome_event(cursor, event_); }));
    if (status == JsonStatus::kTooLarge) {
      builder_.count(ChromeLoss::kTooLarge);
      const JsonStatus skipped = GAPLESS_TRY(scanner_.skip_value());
      if (skipped != JsonStatus::kOk) return stop(skipped);
    } else if (status != JsonStatus::kOk) {
      return stop(status);
    } else {
      builder_.add_event(event_);
    }
    is_between_events_ = true;
    if (!GAPLESS_TRY(separator(']', is_closed))) return false;
  }
  return true;
}

Result<bool> ChromeJsonReader::read_property(const std::string& key) {
  JsonValue value;
  const JsonStatus status =
      GAPLESS_TRY(scanner_.read([&value](JsonCursor& cursor) { return cursor.read_value(value); }));
  if (status == JsonStatus::kTooLarge) {
    builder_.count(ChromeLoss::kOtherKey);
    const JsonStatus skipped = GAPLESS_TRY(scanner_.skip_value());
    return skipped == JsonStatus::kOk ? true : stop(skipped);
  }
  if (status != JsonStatus::kOk) return stop(status);
  if (key == "otherData" && value.kind == JsonKind::kObject) {
    builder_.add_other_data(value.text);
  } else if (!builder_.is_ours() || key != "displayTimeUnit") {  // which ours always have
    builder_.add_property(key, value);
  }
  return true;
}

Result<bool> ChromeJsonReader::read_member() {
  JsonValue key;
  const JsonStatus status =
      GAPLESS_TRY(scanner_.read([&key](JsonCursor& cursor) { return cursor.read_key(key); }));
  if (status != JsonStatus::kOk) return stop(status);
  const std::string name = chrome_text(key);
  const char first = GAPLESS_TRY(scanner_.peek());
  if (name == "traceEvents" && first == '[') return read_events();
  return read_property(name);
}

Result<bool> ChromeJsonReader::read_object() {
  scanner_.take();
  bool is_closed = GAPLESS_TRY(scanner_.peek()) == '}';
  if (is_closed) scanner_.take();
  while (!is_closed) {
    if (!GAPLESS_TRY(read_member())) return false;
    is_between_events_ = false;
    if (!GAPLESS_TRY(separator('}', is_closed))) return false;
  }
  return true;
}

Result<void> ChromeJsonReader::skip_byte_order_mark() {
  if (GAPLESS_TRY(scanner_.peek()) != kUtf8Mark[0]) return {};
  GAPLESS_TRY(scanner_.read([](JsonCursor& cursor) {
    for (const char c : kUtf8Mark) {
      if (*cursor.at != c) return cursor.stopped();
      ++cursor.at;
    }
    return JsonStatus::kOk;
  }));
  return {};
}

// Why a file without a list of events is none of ours.
Error ChromeJsonReader::nothing_here() const {
  const std::string& name = input_.name();
  if (!input_.damage().empty()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no trace event can be read: {} (byte {} of the text)", name, input_.damage(),
                stop_offset_);
  }
  if (stop_ == JsonStatus::kNeedMore) {
    return fail(ErrorCode::kInvalidInput, "{}: cut short at byte {}, before its first trace event",
                name, stop_offset_);
  }
  if (stop_ == JsonStatus::kBad) {
    return fail(ErrorCode::kInvalidInput,
                "{}: not JSON from byte {} on, before its first trace event", name, stop_offset_);
  }
  return fail(ErrorCode::kInvalidInput,
              "{}: is JSON but has no list of trace events (\"traceEvents\")", name);
}

void ChromeJsonReader::add_stop_finding() {
  const uint64_t count = builder_.event_count();
  const std::string& damage = input_.damage();
  const std::string reason = damage.empty() ? "" : fmt::format(" ({})", damage);
  if (stop_ == JsonStatus::kNeedMore && damage.empty() && is_bare_list_ && is_between_events_) {
    builder_.add_finding(
        {Severity::kInfo, "unclosed-list",
         fmt::format("the list of {} events has no closing bracket at byte {}: the "
                     "program that wrote it may have been ended",
                     count, stop_offset_),
         kNoIndex, 1});
  } else if (stop_ == JsonStatus::kNeedMore) {
    builder_.add_finding({Severity::kWarning, "cut-short",
                          fmt::format("the file is cut short at byte {}{}; the {} events before "
                                      "that are here",
                                      stop_offset_, reason, count),
                          kNoIndex, 1});
  } else if (stop_ == JsonStatus::kBad || !damage.empty()) {
    const uint64_t offset = stop_ == JsonStatus::kBad ? stop_offset_ : scanner_.end_offset();
    builder_.add_finding({Severity::kWarning, "damaged",
                          fmt::format("the file is damaged at byte {}{}; the {} events before that "
                                      "are here",
                                      offset, reason, count),
                          kNoIndex, 1});
  }
}

Result<Trace> ChromeJsonReader::read() {
  GAPLESS_TRY(skip_byte_order_mark());
  const char first = GAPLESS_TRY(scanner_.peek());
  if (first == '\0' && scanner_.end_offset() == scanner_.offset()) {
    if (!input_.damage().empty()) return nothing_here();
    return fail(ErrorCode::kInvalidInput, "{}: is empty", input_.name());
  }
  if (first != '{' && first != '[') {
    return fail(ErrorCode::kInvalidInput, "{}: not JSON: it begins with byte 0x{:02x}",
                input_.name(), static_cast<unsigned char>(first));
  }
  is_bare_list_ = first == '[';
  const bool is_whole = GAPLESS_TRY(is_bare_list_ ? read_events() : read_object());
  const bool is_other_list = builder_.loss_count(ChromeLoss::kNotAnEvent) > 0;
  const bool has_no_event =
      builder_.event_count() == 0 && (stop_ == JsonStatus::kBad || is_other_list);
  if (!has_events_ || has_no_event) return nothing_here();
  if (is_whole && GAPLESS_TRY(scanner_.peek()) != '\0') {
    builder_.add_finding(
        {Severity::kWarning, "trailing-bytes",
         fmt::format("there is more after the end of the JSON at byte {}; not read",
                     scanner_.offset()),
         kNoIndex, 1});
  }
  add_stop_finding();
  return builder_.finish();
}

}  // namespace

Result<Trace> read_chrome_json(InputStream input, const ReadOptions& options) {
  ChromeJsonReader reader(input, options);
  return reader.read();
}

bool looks_like_chrome_json(std::string_view first_bytes) {
  constexpr std::string_view kSpace = " \t\r\n";
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  const size_t begin = first_bytes.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  const size_t next = first_bytes.find_first_not_of(kSpace, begin + 1);
  const char after = next == std::string_view::npos ? '\0' : first_bytes[next];
  const auto has = [&](std::string_view text) {
    return first_bytes.find(text) != std::string_view::npos;
  };
  if (first_bytes[begin] == '[') {
    if (after == '\0' || after == ']') return true;
    constexpr size_t kShort = 64;  // too little to hold the phase of the first event
    return after == '{' && (has("\"ph\"") || first_bytes.size() - begin < kShort);
  }
  if (first_bytes[begin] != '{' || after != '"') return false;
  if (has("\"traceEvents\"")) return true;
  // What stands before the events in files of Chrome, Kineto and ours; the list may come later.
  constexpr std::array<std::string_view, 8> kFirstKeys = {
      "displayTimeUnit", "otherData",   "schemaVersion", "deviceProperties",
      "metadata",        "stackFrames", "traceName",     "baseTimeNanoseconds"};
  const size_t end = first_bytes.find('"', next + 1);
  const std::string_view key = first_bytes.substr(next + 1, end - next - 1);
  return std::find(kFirstKeys.begin(), kFirstKeys.end(), key) != kFirstKeys.end();
}

}  // namespace gapless
