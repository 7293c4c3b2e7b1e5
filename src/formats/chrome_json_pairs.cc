// SPDX-License-Identifier: Apache-2.0

#include "formats/chrome_json_pairs.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace gapless {
namespace {

template <typename Event>
void sort_by_time(std::vector<Event>& events) {
  const auto before = [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; };
  if (std::is_sorted(events.begin(), events.end(), before)) return;
  std::stable_sort(events.begin(), events.end(), before);
}

// The arguments of a begin and of its end, as one object.
uint32_t joined_args(TraceBuilder& builder, uint32_t first, uint32_t second) {
  std::string text(builder.trace().names[first]);
  text.pop_back();
  text += ',';
  text += builder.trace().names[second].substr(1);
  return builder.intern(text);
}

// Ends may bring a category, arguments and a value of their own.
void add_end_details(TraceBuilder& builder, uint32_t span, const ChromeDetails& details) {
  SpanColumns& spans = builder.trace().spans;
  if (details.value != kNoValue && spans.value[span] == kNoValue) spans.value[span] = details.value;
  const auto current = [span](const std::vector<uint32_t>& column) {
    return span < column.size() ? column[span] : kNoIndex;
  };
  if (details.category != kNoIndex && current(spans.category) == kNoIndex) {
    builder.set_category(span, details.category);
  }
  if (details.args == kNoIndex) return;
  const uint32_t args = current(spans.args);
  builder.set_args(span,
                   args == kNoIndex ? details.args : joined_args(builder, args, details.args));
}

}  // namespace

void set_details(TraceBuilder& builder, uint32_t span, const ChromeDetails& details) {
  if (details.category != kNoIndex) builder.set_category(span, details.category);
  if (details.args != kNoIndex) builder.set_args(span, details.args);
}

void ChromePairs::pair_nested(TraceBuilder& builder) {
  sort_by_time(events_);
  for (const Event& event : events_) {
    if (event.kind == Kind::kBegin) {
      builder.begin(event.lane, event.time_ns, event.details.name, event.details.value);
      set_details(builder, builder.open_span(event.lane), event.details);
      continue;
    }
    const uint32_t span = builder.open_span(event.lane);
    if (span != kNoIndex) {
      add_end_details(builder, span, event.details);
      const uint32_t name = builder.trace().spans.name[span];
      if (event.details.name != kNoIndex && event.details.name != name) {
        builder.count_finding(Severity::kWarning, "end-of-other-name",
                              "span ends name another span than the innermost open one, which they "
                              "end all the same",
                              event.lane);
      }
    }
    builder.end(event.lane, event.time_ns);
  }
}

void ChromePairs::pair_async(TraceBuilder& builder) {
  sort_by_time(async_events_);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<uint32_t>> open;  // spans by (lane, id)
  SpanColumns& spans = builder.trace().spans;
  for (const Event& event : async_events_) {
    if (event.kind == Kind::kBegin) {
      const ChromeDetails& details = event.details;
      const uint32_t span =
          builder.add_span(event.lane, event.time_ns, kAbsent, details.name, details.value);
      set_details(builder, span, details);
      open[{event.lane, event.id}].push_back(span);
      continue;
    }
    const auto stack = open.find({event.lane, event.id});
    const auto matches = [&](uint32_t span) {
      return event.details.name == kNoIndex || spans.name[span] == event.details.name;
    };
    if (stack != open.end()) {
      std::vector<uint32_t>& rows = stack->second;
      const auto match = std::find_if(rows.rbegin(), rows.rend(), matches);
      if (match != rows.rend()) {
        spans.end_ns[*match] = event.time_ns;
        add_end_details(builder, *match, event.details);
        rows.erase(std::next(match).base());
        if (rows.empty()) open.erase(stack);
        continue;
      }
    }
    builder.count_finding(Severity::kWarning, "end-without-begin",
                          "async ends have no begin of their id and name; ignored", event.lane);
  }

  const int64_t last_ns = time_range(builder.trace()).end_ns;
  for (const auto& [key, rows] : open) {
    for (const uint32_t span : rows) spans.end_ns[span] = last_ns;
    builder.count_finding(Severity::kWarning, "open-spans",
                          "spans did not end before the trace did; drawn to its end", key.first,
                          rows.size());
  }
}

void ChromePairs::finish(TraceBuilder& builder) {
  pair_nested(builder);
  pair_async(builder);
}

}  // namespace gapless
