// SPDX-License-Identifier: Apache-2.0
//
// TraceInfo as JSON: the facts of the text with exact numbers. Keys keep their order and units are
// in their names.

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "report/trace_info.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

Json clock_json(const ClockInfo& clock) {
  Json json = {{"source", clock_source_name(clock.source)},
               {"ticks_per_second", clock.ticks_per_second},
               {"invariant", clock.invariant},
               {"anchor_count", clock.anchor_count}};
  json["drift_ppm"] = clock.drift_ppm ? Json(*clock.drift_ppm) : Json(nullptr);
  return json;
}

Json lane_json(const LaneInfo& lane) {
  return {{"name", lane.name},
          {"device", lane.device},
          {"kind", lane_kind_name(lane.kind)},
          {"span_count", lane.span_count},
          {"task_count", lane.task_count},
          {"union_ns", lane.union_ns},
          {"union_is", occupancy_name(lane.occupancy)},
          {"share_of_wall", lane.share},
          {"dropped_count", lane.dropped_count}};
}

Json group_json(const LaneGroup& group) {
  return {{"kind", lane_kind_name(group.kind)},   {"lane_count", group.lane_count},
          {"span_count", group.span_count},       {"task_count", group.task_count},
          {"union_sum_ns", group.union_sum_ns},   {"union_is", occupancy_name(group.occupancy)},
          {"share_of_lanes_x_wall", group.share}, {"dropped_count", group.dropped_count}};
}

Json name_json(const NameInfo& name) {
  return {{"name", name.name},     {"slices_are", occupancy_name(name.occupancy)},
          {"count", name.count},   {"sum_ns", name.sum_ns},
          {"min_ns", name.min_ns}, {"max_ns", name.max_ns}};
}

Json finding_json(const TraceInfo& info, const Finding& finding) {
  Json json = {{"severity", severity_name(finding.severity)},
               {"code", finding.code},
               {"text", finding.text},
               {"count", finding.count}};
  json["lane"] = finding.lane < info.lanes.size() ? Json(info.lanes[finding.lane].name) : nullptr;
  return json;
}

Json totals_json(const TraceInfo& info) {
  Json times = Json::object();
  for (size_t time = 0; time < kTaskTimeCount; ++time) {
    times[std::string(task_time_name(static_cast<TaskTime>(time)))] = info.task_time_count[time];
  }
  return {{"span_count", info.span_count},
          {"task_count", info.task_count},
          {"task_time_count", times},
          {"edge_count", info.edge_count},
          {"counter_count", info.counter_count},
          {"instant_count", info.instant_count},
          {"flow_point_count", info.flow_point_count},
          {"flow_pair_count", info.flow_pair_count},
          {"dropped_count", info.dropped_count},
          {"model_bytes", info.model_bytes}};
}

Json recorder_json(const std::optional<RecorderCost>& cost) {
  if (!cost) return nullptr;
  return {{"event_count", cost->event_count},
          {"ns_per_event", cost->ns_per_event},
          {"writer_count", cost->writer_count},
          {"cost_ns", cost->cost_ns},
          {"share_of_writers_x_wall", cost->share}};
}

}  // namespace

std::string info_json(const TraceInfo& info, const InfoOptions& options) {
  Json json;
  json["format"] = info.format;
  json["properties"] = Json::object();
  for (const Property& property : info.properties) {
    json["properties"][property.key] = property.value;
  }
  json["clock"] = clock_json(info.clock);
  json["start_since_1970_ns"] =
      info.start_since_1970_ns ? Json(*info.start_since_1970_ns) : Json(nullptr);
  json["wall_ns"] = info.wall_ns;
  json["totals"] = totals_json(info);
  json["devices"] = Json::array();
  for (const Device& device : info.devices) {
    json["devices"].push_back({{"name", device.name}, {"number", device.number}});
  }
  json["lanes"] = Json::array();
  for (const LaneInfo& lane : info.lanes) json["lanes"].push_back(lane_json(lane));
  json["lane_groups"] = Json::array();
  for (const LaneGroup& group : info.lane_groups) json["lane_groups"].push_back(group_json(group));
  json["names"] = Json::array();
  for (size_t i = 0; i < std::min(options.top_names, info.names.size()); ++i) {
    json["names"].push_back(name_json(info.names[i]));
  }
  json["recorder_cost"] = recorder_json(info.recorder_cost);
  json["findings"] = Json::array();
  for (const Finding& finding : info.findings) {
    json["findings"].push_back(finding_json(info, finding));
  }
  // Names of a trace may be any bytes; what is not UTF-8 is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
