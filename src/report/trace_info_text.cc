// SPDX-License-Identifier: Apache-2.0
//
// TraceInfo as text. Facts are "key  value" lines with the key in the first 16 columns, so that
// `grep '^spans'` finds one; tables come after them and findings last.

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/text_table.h"
#include "report/trace_info.h"

namespace gapless {
namespace {

// Findings of one code beyond this are counted, not listed: 77 lanes often have the same to say.
constexpr uint64_t kFindingsShownPerCode = 8;

void add_text(std::string& text, std::string_view key, std::string_view value) {
  add_fact(text, printable(key), printable(value));
}

void add_number(std::string& text, std::string_view key, uint64_t count) {
  add_fact(text, key, std::to_string(count));
}

// What the recorder says of the program and the machine gets a line under its own name; other
// properties follow as they were written.
bool is_headline(std::string_view key) {
  constexpr std::string_view kHeadlines[] = {"program", "command",      "pid", "host", "machine",
                                             "system",  "architecture", "cpu", "cpus", "processes"};
  return std::find(std::begin(kHeadlines), std::end(kHeadlines), key) != std::end(kHeadlines);
}

void add_provenance(std::string& text, const TraceInfo& info) {
  add_text(text, "format", info.format);
  for (const Property& property : info.properties) {
    if (is_headline(property.key)) add_text(text, property.key, property.value);
  }
  for (const Property& property : info.properties) {
    if (is_headline(property.key)) continue;
    if (info.recorder_cost && property.key.starts_with("recorder.")) continue;  // has its own line
    add_text(text, "property", fmt::format("{} = {}", property.key, property.value));
  }
}

void add_clock(std::string& text, const TraceInfo& info) {
  const ClockInfo& clock = info.clock;
  add_text(text, "clock", clock_source_name(clock.source));
  if (clock.source != ClockSource::kNanoseconds) {
    add_text(text, "clock rate", fmt::format("{} Hz", clock.ticks_per_second));
    add_text(text, "clock invariant", clock.invariant ? "yes" : "no");
    add_number(text, "clock anchors", clock.anchor_count);
  }
  if (clock.drift_ppm) {
    add_text(text, "clock drift",
             fmt::format("{:+.3f} ppm, anchors against the nominal rate", *clock.drift_ppm));
  }
  if (info.start_since_1970_ns) add_text(text, "start", format_utc(*info.start_since_1970_ns));
  add_text(
      text, "wall",
      fmt::format("{} ({} ns, first to last time)", format_duration(info.wall_ns), info.wall_ns));
}

void add_totals(std::string& text, const TraceInfo& info) {
  add_number(text, "devices", info.devices.size());
  for (const Device& device : info.devices) {
    add_text(text, "device", fmt::format("{} (number {})", device.name, device.number));
  }
  add_number(text, "lanes", info.lanes.size());
  add_number(text, "spans", info.span_count);
  add_number(text, "tasks", info.task_count);
  for (size_t time = 0; time < kTaskTimeCount && info.task_count > 0; ++time) {
    const uint64_t count = info.task_time_count[time];
    const double share = static_cast<double>(count) / static_cast<double>(info.task_count);
    add_text(text, fmt::format("task {}", task_time_name(static_cast<TaskTime>(time))),
             fmt::format("{} ({})", count, format_share(share)));
  }
  add_number(text, "edges", info.edge_count);
  add_number(text, "counters", info.counter_count);
  add_number(text, "instants", info.instant_count);
  add_text(text, "flows",
           fmt::format("{} points, {} pairs", info.flow_point_count, info.flow_pair_count));
  add_number(text, "dropped", info.dropped_count);
  add_text(text, "memory",
           fmt::format("{} (in memory, once read)", format_bytes(info.model_bytes)));
}

void add_recorder_cost(std::string& text, const TraceInfo& info) {
  if (!info.recorder_cost) return;
  const RecorderCost& cost = *info.recorder_cost;
  add_text(text, "recorder cost",
           fmt::format("{} events x {:.1f} ns = {}, {} of {} {} x wall", cost.event_count,
                       cost.ns_per_event, format_duration(static_cast<int64_t>(cost.cost_ns)),
                       format_share(cost.share), cost.writer_count,
                       cost.writer_count == 1 ? "writer" : "writers"));
}

void add_lane_table(std::string& text, const TraceInfo& info) {
  if (info.lanes.empty()) return;
  std::vector<TableRow> rows = {
      {"LANE", "KIND", "SPANS", "TASKS", "UNION", "OF WALL", "WHICH IS", "DROPPED"}};
  for (const LaneInfo& lane : info.lanes) {
    rows.push_back({printable(lane.name), std::string(lane_kind_name(lane.kind)),
                    std::to_string(lane.span_count), std::to_string(lane.task_count),
                    format_duration(lane.union_ns), format_share(lane.share),
                    std::string(occupancy_name(lane.occupancy)),
                    std::to_string(lane.dropped_count)});
  }
  text += "\nunion of the slices of each lane, as a share of the wall\n";
  text += align_columns(rows, "llrrrrlr", "  ");
}

void add_group_table(std::string& text, const TraceInfo& info) {
  std::vector<TableRow> rows = {{"KIND", "LANES", "SPANS", "TASKS", "SUM OF UNIONS",
                                 "OF LANES x WALL", "WHICH IS", "DROPPED"}};
  for (const LaneGroup& group : info.lane_groups) {
    rows.push_back({std::string(lane_kind_name(group.kind)), std::to_string(group.lane_count),
                    std::to_string(group.span_count), std::to_string(group.task_count),
                    format_duration(group.union_sum_ns), format_share(group.share),
                    std::string(occupancy_name(group.occupancy)),
                    std::to_string(group.dropped_count)});
  }
  text += fmt::format("\n{} lanes by kind (--lanes all shows each)\n", info.lanes.size());
  text += align_columns(rows, "lrrrrrlr", "  ");
}

void add_name_table(std::string& text, const TraceInfo& info, size_t top_names) {
  const size_t shown = std::min(top_names, info.names.size());
  if (shown == 0) return;
  std::vector<TableRow> rows = {{"NAME", "WHICH IS", "COUNT", "SUM", "MEAN", "MIN", "MAX"}};
  for (size_t i = 0; i < shown; ++i) {
    const NameInfo& name = info.names[i];
    const int64_t mean_ns = name.sum_ns / static_cast<int64_t>(name.count);
    rows.push_back({printable(name.name), std::string(occupancy_name(name.occupancy)),
                    std::to_string(name.count), format_duration(name.sum_ns),
                    format_duration(mean_ns), format_duration(name.min_ns),
                    format_duration(name.max_ns)});
  }
  text += fmt::format("\n{} of {} names by sum of durations (nested slices count in each)\n", shown,
                      info.names.size());
  text += align_columns(rows, "llrrrrr", "  ");
}

void add_findings(std::string& text, const TraceInfo& info) {
  text += '\n';
  add_number(text, "findings", info.findings.size());
  std::map<std::string, uint64_t> count_of_code;
  for (const Finding& finding : info.findings) {
    if (++count_of_code[finding.code] > kFindingsShownPerCode) continue;
    add_text(text, "finding",
             fmt::format("{} {}: {}", severity_name(finding.severity), finding.code, finding.text));
  }
  for (const auto& [code, count] : count_of_code) {
    if (count <= kFindingsShownPerCode) continue;
    add_text(text, "finding",
             fmt::format("{} more of {} (--json lists them)", count - kFindingsShownPerCode, code));
  }
}

}  // namespace

std::string info_text(const TraceInfo& info, const InfoOptions& options) {
  std::string text;
  add_provenance(text, info);
  add_clock(text, info);
  add_totals(text, info);
  add_recorder_cost(text, info);
  if (info.lanes.size() <= kLanesShown || options.all_lanes) {
    add_lane_table(text, info);
  } else {
    add_group_table(text, info);
  }
  add_name_table(text, info, options.top_names);
  add_findings(text, info);
  return text;
}

}  // namespace gapless
