// SPDX-License-Identifier: Apache-2.0

#include "trace/trace_difference.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

using Columns = std::map<std::pair<int, int>, std::string>;

Columns column_bytes(const Trace& trace) {
  Columns columns;
  for_each_column(trace, [&columns](int table, int column, const auto& values) {
    columns[{table, column}].assign(reinterpret_cast<const char*>(values.data()),
                                    values.size() * sizeof(values[0]));
  });
  return columns;
}

std::string column_difference(const Trace& a, const Trace& b) {
  const Columns b_columns = column_bytes(b);
  for (const auto& [key, bytes] : column_bytes(a)) {
    const std::string& other = b_columns.at(key);
    if (bytes == other) continue;
    const auto at = std::mismatch(bytes.begin(), bytes.end(), other.begin(), other.end()).first;
    return fmt::format("table {} column {}: {} and {} bytes, different from byte {} on", key.first,
                       key.second, bytes.size(), other.size(), at - bytes.begin());
  }
  return {};
}

bool is_same(const Device& a, const Device& b) { return a.name == b.name && a.number == b.number; }

bool is_same(const Lane& a, const Lane& b) {
  return a.name == b.name && a.kind == b.kind && a.device == b.device && a.number == b.number &&
         a.meaning == b.meaning && a.dropped_count == b.dropped_count;
}

bool is_same(const Property& a, const Property& b) { return a.key == b.key && a.value == b.value; }

bool is_same(const Anchor& a, const Anchor& b) {
  return a.ticks == b.ticks && a.time_ns == b.time_ns;
}

bool is_same(const Finding& a, const Finding& b) {
  return a.severity == b.severity && a.code == b.code && a.text == b.text && a.lane == b.lane &&
         a.count == b.count;
}

template <typename T>
std::string list_difference(const char* what, const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return fmt::format("{} and {} {}", a.size(), b.size(), what);
  for (size_t i = 0; i < a.size(); ++i) {
    if (!is_same(a[i], b[i])) return fmt::format("number {} of the {}", i, what);
  }
  return {};
}

std::string name_difference(const NameTable& a, const NameTable& b) {
  if (a.size() != b.size()) return fmt::format("{} and {} names", a.size(), b.size());
  for (uint32_t id = 0; id < a.size(); ++id) {
    if (a[id] != b[id]) return fmt::format("name {}: \"{}\" and \"{}\"", id, a[id], b[id]);
  }
  return {};
}

std::string clock_difference(const TraceClock& a, const TraceClock& b) {
  const bool same = a.source == b.source && a.invariant == b.invariant &&
                    a.ticks_per_second == b.ticks_per_second &&
                    a.wall_minus_time_ns == b.wall_minus_time_ns;
  if (!same) return "the clock";
  return list_difference("anchors", a.anchors, b.anchors);
}

}  // namespace

std::string first_difference(const Trace& a, const Trace& b) {
  const std::string differences[] = {
      name_difference(a.names, b.names),
      list_difference("devices", a.devices, b.devices),
      list_difference("lanes", a.lanes, b.lanes),
      clock_difference(a.clock, b.clock),
      list_difference("properties", a.properties, b.properties),
      column_difference(a, b),
  };
  const auto first = std::find_if(std::begin(differences), std::end(differences),
                                  [](const std::string& text) { return !text.empty(); });
  return first == std::end(differences) ? std::string() : *first;
}

bool has_more_findings(const Trace& trace, const Trace& original) {
  return std::any_of(trace.findings.begin(), trace.findings.end(), [&](const Finding& finding) {
    return std::none_of(original.findings.begin(), original.findings.end(),
                        [&](const Finding& other) { return is_same(finding, other); });
  });
}

}  // namespace gapless
