// SPDX-License-Identifier: Apache-2.0

#include "report/recordings.h"

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

std::string_view property_of(const Trace& trace, std::string_view key) {
  for (const Property& property : trace.properties) {
    if (property.key == key) return property.value;
  }
  return {};
}

// 0 when the property is not there or is not a number.
template <typename Number>
Number number_of(const Trace& trace, std::string_view key) {
  const std::string_view text = property_of(trace, key);
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : 0;
}

void set_property(Trace& trace, std::string_view key, std::string value) {
  for (Property& property : trace.properties) {
    if (property.key != key) continue;
    property.value = std::move(value);
    return;
  }
  trace.properties.push_back({std::string(key), std::move(value)});
}

}  // namespace

Trace merge_recordings(std::vector<Trace> traces) {
  const size_t process_count = traces.size();
  uint64_t events = 0;
  uint64_t writers = 0;
  double cost_ns = 0;
  std::string pids;
  for (const Trace& trace : traces) {
    const uint64_t trace_events = number_of<uint64_t>(trace, "recorder.events");
    events += trace_events;
    writers += number_of<uint64_t>(trace, "recorder.writers");
    cost_ns +=
        static_cast<double>(trace_events) * number_of<double>(trace, "recorder.ns_per_event");
    const std::string_view pid = property_of(trace, "pid");
    if (!pid.empty()) pids += fmt::format("{}{}", pids.empty() ? "" : " ", pid);
  }
  Trace merged = merge_traces(std::move(traces));
  set_property(merged, "processes", std::to_string(process_count));
  if (!pids.empty()) set_property(merged, "pid", pids);
  if (events > 0) {
    set_property(merged, "recorder.events", std::to_string(events));
    set_property(merged, "recorder.writers", std::to_string(writers));
    set_property(merged, "recorder.ns_per_event",
                 fmt::format("{:.3f}", cost_ns / static_cast<double>(events)));
  }
  return merged;
}

}  // namespace gapless
