// SPDX-License-Identifier: Apache-2.0

#include "formats/json_kernels.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "formats/ascend_timeline.h"
#include "formats/chrome_json_event.h"
#include "formats/json_kernel_events.h"
#include "formats/json_walk.h"
#include "formats/kineto_kernels.h"

namespace gapless {
namespace {

class JsonKernelReader {
 public:
  JsonKernelReader(InputStream& input, const CaptureReadOptions& options)
      : input_(input),
        walk_(input, options.progress),
        events_(table_, options),
        kineto_(events_),
        ascend_(events_) {}

  Result<CaptureTable> read();

 private:
  Result<bool> read_events();
  Result<bool> read_member(std::string_view key);
  void add_event(const ChromeEvent& event);
  void add_complete(const ChromeEvent& event);
  void add_property(std::string_view key, const JsonValue& value);
  Error nothing_here() const;
  void report_frame(std::optional<uint64_t> trailing_offset);
  void finish();

  InputStream& input_;
  JsonWalk walk_;
  CaptureTable table_;
  JsonKernelEvents events_;
  KinetoKernels kineto_;
  AscendTimeline ascend_;
  ChromeEvent event_;
  uint64_t event_count_ = 0;
  uint64_t other_count_ = 0;  // entries of the list that are no objects
  bool has_events_ = false;   // the list was there, empty or not
  bool is_bare_list_ = false;
  bool is_between_events_ = false;  // a list that stops here is whole, but for its bracket
};

void JsonKernelReader::add_complete(const ChromeEvent& event) {
  if (event.category.is_present() && kineto_.add(event)) return;
  if (event.category.text.starts_with("mstx")) return events_.add_host(event, "range");
  if (event.name.text.starts_with("ProfilerStep#")) events_.add_step(event);
  ascend_.add(event);
}

void JsonKernelReader::add_event(const ChromeEvent& event) {
  if (!event.is_object) {
    ++other_count_;
    return;
  }
  if (event.field_count == 0) return;  // some writers end their list with {}
  ++event_count_;
  if (event.phase.text.size() != 1) return;
  switch (event.phase.text[0]) {
    case 'X':
      return add_complete(event);
    case 'M':
      return ascend_.add_metadata(event);
    case 's':
      return ascend_.add_flow(event, true);
    case 'f':
      return ascend_.add_flow(event, false);
    default:
      return;
  }
}

Result<bool> JsonKernelReader::read_events() {
  has_events_ = true;
  is_between_events_ = true;
  return walk_.elements([this]() -> Result<bool> {
    is_between_events_ = GAPLESS_TRY(walk_.peek()) == '\0';
    JsonValue value;
    if (!GAPLESS_TRY(walk_.value(value))) return false;
    is_between_events_ = true;
    if (!value.is_present()) return true;
    JsonCursor cursor{value.text.data(), value.text.data() + value.text.size()};
    if (value.kind != JsonKind::kObject || value.is_too_deep) {
      ++other_count_;
    } else if (read_chrome_event(cursor, event_) == JsonStatus::kOk) {
      add_event(event_);
    }
    return true;
  });
}

void JsonKernelReader::add_property(std::string_view key, const JsonValue& value) {
  constexpr size_t kLargestProperty = 64 * 1024;
  if (!value.is_present() || value.text.size() > kLargestProperty) return;
  const auto same = [key](const Property& property) { return property.key == key; };
  const auto found = std::find_if(table_.properties.begin(), table_.properties.end(), same);
  if (found != table_.properties.end()) {
    found->value = json_text(value);
  } else {
    table_.properties.push_back({std::string(key), json_text(value)});
  }
}

Result<bool> JsonKernelReader::read_member(std::string_view key) {
  const char first = GAPLESS_TRY(walk_.peek());
  if (key == "traceEvents" && first == '[') return read_events();
  is_between_events_ = false;
  const std::string name(key);
  JsonValue value;
  if (!GAPLESS_TRY(walk_.value(value))) return false;
  add_property(name, value);
  return true;
}

// Why a file without a list of events is none of ours.
Error JsonKernelReader::nothing_here() const {
  const std::string stop = walk_.stop();
  if (stop.empty()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: is JSON but has no list of trace events (\"traceEvents\")", input_.name());
  }
  return fail(ErrorCode::kInvalidInput, "{}: {}, before its first trace event", input_.name(),
              stop);
}

void JsonKernelReader::report_frame(std::optional<uint64_t> trailing_offset) {
  const std::string stop = walk_.stop();
  const bool is_cut = walk_.status() == JsonStatus::kNeedMore;
  if (is_cut && is_bare_list_ && is_between_events_ && input_.damage().empty()) {
    events_.add_finding(
        Severity::kInfo, "unclosed-list", 1,
        fmt::format("the list of {} events has no closing bracket: the program that wrote it may "
                    "have been ended",
                    event_count_));
  } else if (!stop.empty()) {
    events_.add_finding(
        Severity::kWarning, is_cut ? "cut-short" : "damaged", 1,
        fmt::format("the file is {}; the {} events before that were read", stop, event_count_));
  }
  if (trailing_offset) {
    events_.add_finding(Severity::kWarning, "trailing-bytes", 1,
                        fmt::format("there is more after the end of the JSON at byte {}; not read",
                                    *trailing_offset));
  }
  if (other_count_ > 0) {
    events_.add_finding(
        Severity::kWarning, "not-an-event", other_count_,
        fmt::format("{} entries of the list of events are no events; left out", other_count_));
  }
  if (walk_.too_large_count() > 0) {
    events_.add_finding(
        Severity::kWarning, "event-too-large", walk_.too_large_count(),
        fmt::format("{} events are larger than 64 MiB; left out", walk_.too_large_count()));
  }
}

void JsonKernelReader::finish() {
  events_.finish_steps();
  kineto_.finish();  // its rows are the first
  ascend_.finish();
  events_.report_losses();
  const bool is_ascend = ascend_.row_count() > kineto_.row_count();
  table_.format = is_ascend ? "ascend-json" : "kineto-json";
  table_.device_word = is_ascend ? "NPU" : "GPU";
  finish_kernel_order(table_, true);
  KernelSource source;
  source.path = input_.name();
  source.row_count = table_.size() + table_.dropped_count;
  table_.sources.push_back(std::move(source));
}

Result<CaptureTable> JsonKernelReader::read() {
  const char first = GAPLESS_TRY(walk_.begin());
  if (first == '\0' && !GAPLESS_TRY(walk_.trailing_offset())) {
    if (!input_.damage().empty()) return nothing_here();
    return fail(ErrorCode::kInvalidInput, "{}: is empty", input_.name());
  }
  if (first != '{' && first != '[') {
    return fail(ErrorCode::kInvalidInput, "{}: not JSON: it begins with byte 0x{:02x}",
                input_.name(), static_cast<unsigned char>(first));
  }
  is_bare_list_ = first == '[';
  const bool is_whole = GAPLESS_TRY(
      is_bare_list_ ? read_events()
                    : walk_.members([this](std::string_view key) { return read_member(key); }));
  const bool is_other =
      event_count_ == 0 && (walk_.status() == JsonStatus::kBad || other_count_ > 0);
  if (!has_events_ || is_other) return nothing_here();
  std::optional<uint64_t> trailing_offset;
  if (is_whole) trailing_offset = GAPLESS_TRY(walk_.trailing_offset());
  report_frame(trailing_offset);
  finish();
  return std::move(table_);
}

}  // namespace

Result<CaptureTable> read_json_kernels(InputStream input, const CaptureReadOptions& options) {
  JsonKernelReader reader(input, options);
  return reader.read();
}

}  // namespace gapless
