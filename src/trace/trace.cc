// SPDX-License-Identifier: Apache-2.0

#include "trace/trace.h"

#include <algorithm>

namespace gapless {

// texts_ points into ids_, so a copy has to point into its own.
NameTable::NameTable(const NameTable& other) : ids_(other.ids_), texts_(other.texts_.size()) {
  for (const auto& [text, id] : ids_) texts_[id] = &text;
}

NameTable& NameTable::operator=(const NameTable& other) {
  NameTable copy(other);
  *this = std::move(copy);
  return *this;
}

uint32_t NameTable::intern(std::string_view text) {
  const auto [entry, inserted] =
      ids_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (inserted) texts_.push_back(&entry->first);
  return entry->second;
}

uint32_t NameTable::find(std::string_view text) const {
  const auto entry = ids_.find(std::string(text));
  return entry == ids_.end() ? kNoIndex : entry->second;
}

std::string_view task_time_name(TaskTime time) {
  constexpr std::string_view kNames[kTaskTimeCount] = {"submit", "ready", "dispatch", "receive",
                                                       "start",  "end",   "finish"};
  return kNames[static_cast<size_t>(time)];
}

std::string_view severity_name(Severity severity) {
  constexpr std::string_view kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

TimeRange time_range(const Trace& trace) {
  TimeRange range{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  const auto include = [&range](const std::vector<int64_t>& times) {
    for (const int64_t time : times) {
      if (time == kAbsent) continue;
      range.begin_ns = std::min(range.begin_ns, time);
      range.end_ns = std::max(range.end_ns, time);
    }
  };
  include(trace.spans.begin_ns);
  include(trace.spans.end_ns);
  for (const std::vector<int64_t>& times : trace.tasks.time_ns) include(times);
  include(trace.counters.time_ns);
  include(trace.instants.time_ns);
  include(trace.flows.time_ns);
  return range.begin_ns > range.end_ns ? TimeRange{} : range;
}

size_t memory_bytes(const Trace& trace) {
  size_t bytes = 0;
  for_each_column(trace, [&bytes](int, int, const auto& column) {
    bytes += column.capacity() * sizeof(column[0]);
  });
  constexpr size_t kBytesPerName = 64;  // a hash node, a string and a pointer
  for (uint32_t id = 0; id < trace.names.size(); ++id) {
    bytes += kBytesPerName + trace.names[id].size();
  }
  return bytes;
}

}  // namespace gapless
