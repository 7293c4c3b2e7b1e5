// SPDX-License-Identifier: Apache-2.0
//
// What `gapless info` says of a trace: facts, one a line, and the same as JSON.
//
// Three words for time, never mixed: *wall* is from the first to the last time of the trace, a
// *union* is the part of the wall that a lane's slices cover (nested or overlapping ones once), and
// a *sum* adds durations, so that nested slices count twice.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace gapless {

// What the union of a lane is a union of.
enum class Occupancy : uint8_t {
  kBusy = 0,        // [start, end] of tasks
  kInSpans = 1,     // spans of a lane without such tasks
  kDispatched = 2,  // dispatch to observed completion: not execution
};
std::string_view occupancy_name(Occupancy occupancy);
std::string_view lane_kind_name(LaneKind kind);
std::string_view clock_source_name(ClockSource source);

struct LaneInfo {
  std::string name;
  std::string device;
  LaneKind kind = LaneKind::kThread;
  Occupancy occupancy = Occupancy::kInSpans;
  uint64_t span_count = 0;
  uint64_t task_count = 0;
  int64_t union_ns = 0;
  double share = 0;  // union / wall
  uint64_t dropped_count = 0;
};

// Lanes of one kind and one occupancy.
struct LaneGroup {
  LaneKind kind = LaneKind::kThread;
  Occupancy occupancy = Occupancy::kInSpans;
  uint64_t lane_count = 0;
  uint64_t span_count = 0;
  uint64_t task_count = 0;
  int64_t union_sum_ns = 0;  // over its lanes
  double share = 0;          // of lanes x wall
  uint64_t dropped_count = 0;
};

// All slices of one name that stand for the same thing.
struct NameInfo {
  std::string name;
  Occupancy occupancy = Occupancy::kInSpans;
  uint64_t count = 0;
  int64_t sum_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
};

struct ClockInfo {
  ClockSource source = ClockSource::kNanoseconds;
  bool invariant = true;
  uint64_t ticks_per_second = 0;  // nominal
  uint64_t anchor_count = 0;
  // How much faster the anchors say the clock ran than nominal; nothing with fewer than two.
  std::optional<double> drift_ppm;
};

// What the recorder took from the program, by the properties it leaves in the trace.
struct RecorderCost {
  uint64_t event_count = 0;
  double ns_per_event = 0;
  uint64_t writer_count = 1;
  double cost_ns = 0;
  double share = 0;  // of writers x wall
};

struct TraceInfo {
  std::string format;
  std::vector<Property> properties;
  ClockInfo clock;
  std::optional<int64_t> start_since_1970_ns;
  int64_t wall_ns = 0;
  std::vector<Device> devices;
  std::vector<LaneInfo> lanes;
  std::vector<LaneGroup> lane_groups;
  uint64_t span_count = 0;
  uint64_t task_count = 0;
  std::array<uint64_t, kTaskTimeCount> task_time_count = {};  // tasks that have it, by TaskTime
  uint64_t edge_count = 0;
  uint64_t counter_count = 0;
  uint64_t instant_count = 0;
  uint64_t flow_point_count = 0;
  uint64_t flow_pair_count = 0;  // an out with an in of the same id
  uint64_t dropped_count = 0;
  std::vector<NameInfo> names;  // the largest sum first
  uint64_t model_bytes = 0;
  std::optional<RecorderCost> recorder_cost;
  std::vector<Finding> findings;  // the most severe first
};

TraceInfo describe(const Trace& trace);

struct InfoOptions {
  size_t top_names = 10;
  bool all_lanes = false;  // otherwise more than kLanesShown are summarised by kind
};
inline constexpr size_t kLanesShown = 16;

std::string info_text(const TraceInfo& info, const InfoOptions& options = {});
// All lanes and all findings; `options` limits the names only.
std::string info_json(const TraceInfo& info, const InfoOptions& options = {});

}  // namespace gapless
