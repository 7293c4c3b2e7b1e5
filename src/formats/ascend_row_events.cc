// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_row_events.h"

#include <fmt/core.h>

namespace gapless {
namespace {

struct EventText {
  Severity severity;
  std::string_view code;
  std::string_view text;  // after the number of rows
};

constexpr std::array<EventText, kRowEventCount> kTexts = {{
    {Severity::kWarning, "no-start", "rows have no start"},
    {Severity::kWarning, "no-duration", "rows have no duration"},
    {Severity::kWarning, "start-exponent",
     "rows have a start such as 1.73641E+15: a spreadsheet has rounded it"},
    {Severity::kWarning, "start-not-positive", "rows start at zero or before"},
    {Severity::kWarning, "duration-negative", "rows have a negative duration"},
    {Severity::kWarning, "time-out-of-range", "rows have a start or end beyond 2^62 ns"},
    {Severity::kWarning, "not-a-number",
     "rows have a start or duration that is no number, or none of 64 bits"},
    {Severity::kWarning, "rows-shifted",
     "rows lack cells in the middle, so that the others do not fit their columns"},
    {Severity::kWarning, "rows-too-long",
     "rows have more cells than the header, and it cannot be told where"},
    {Severity::kWarning, "row-cut-short", "rows end in the middle, where the file ends"},
    {Severity::kWarning, "rows-padded", "rows lack their last cells, which are taken as not said"},
    {Severity::kInfo, "rows-name-joined",
     "rows have a comma in a name without quotes; its parts were joined again"},
    {Severity::kWarning, "rows-tail-ignored",
     "rows have more cells than the header; those behind the duration are taken as not said"},
    {Severity::kWarning, "odd-numbers",
     "rows have a device, stream or task that is no number of 32 bits; it is taken as not said"},
    {Severity::kInfo, "rounded-durations",
     "rows have a duration finer than a nanosecond; it was rounded, half away from zero"},
    {Severity::kWarning, "types-derived",
     "rows have no type; it was made of the name and is less certain"},
    {Severity::kInfo, "rows-outside-steps", "rows belong to no step"},
    {Severity::kInfo, "blank-lines", "blank lines were passed over"},
    {Severity::kInfo, "repeated-header", "more header lines were passed over"},
    {Severity::kWarning, "changed-header",
     "header lines with other columns came on the way; rows behind them are a source of their own"},
    {Severity::kWarning, "broken-quotes",
     "records over several lines, or with a quote that nobody closes, were read line by line"},
}};

}  // namespace

bool is_dropped(RowEvent event) { return event <= RowEvent::kCutShort; }

std::string_view row_event_text(RowEvent event) { return kTexts[static_cast<size_t>(event)].text; }

void RowEvents::count(RowEvent event, const std::string& path, uint64_t record) {
  Entry& entry = entries_[static_cast<size_t>(event)];
  if (entry.count++ > 0) return;
  entry.path = path;
  entry.record = record;
}

uint64_t RowEvents::dropped_count() const {
  uint64_t count = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (is_dropped(static_cast<RowEvent>(i))) count += entries_[i].count;
  }
  return count;
}

RowEvent RowEvents::main_reason() const {
  size_t main = 0;
  for (size_t i = 1; i < entries_.size() && is_dropped(static_cast<RowEvent>(i)); ++i) {
    if (entries_[i].count > entries_[main].count) main = i;
  }
  return static_cast<RowEvent>(main);
}

void RowEvents::report(CaptureTable& table) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.count == 0) continue;
    const EventText& text = kTexts[i];
    const std::string_view ending = is_dropped(static_cast<RowEvent>(i)) ? "; dropped" : "";
    table.findings.push_back({text.severity, std::string(text.code),
                              fmt::format("{} {}{} (first: record {} of {})", entry.count,
                                          text.text, ending, entry.record, entry.path),
                              kNoIndex, entry.count});
  }
}

}  // namespace gapless
