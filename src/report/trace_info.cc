// SPDX-License-Identifier: Apache-2.0

#include "report/trace_info.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace gapless {
namespace {

constexpr size_t kOccupancyCount = 3;

// Times of a damaged trace may lie anywhere in 64 bits; a length that does not fit is the longest.
int64_t length_ns(int64_t begin_ns, int64_t end_ns) {
  int64_t length = 0;
  if (__builtin_sub_overflow(end_ns, begin_ns, &length)) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(length, 0);
}

void add_saturating(int64_t& sum, int64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) sum = std::numeric_limits<int64_t>::max();
}

double share_of(int64_t part_ns, double whole_ns) {
  return whole_ns > 0 ? static_cast<double>(part_ns) / whole_ns : 0;
}

// Adds up what intervals that come in order of their begin cover.
struct Union {
  int64_t covered_until_ns = std::numeric_limits<int64_t>::min();
  int64_t total_ns = 0;

  void add(int64_t begin_ns, int64_t end_ns) {
    add_saturating(total_ns, length_ns(std::max(begin_ns, covered_until_ns), end_ns));
    covered_until_ns = std::max(covered_until_ns, end_ns);
  }
};

bool is_executed(const TaskColumns& tasks, size_t row) {
  return tasks.at(TaskTime::kStart)[row] != kAbsent && tasks.at(TaskTime::kEnd)[row] != kAbsent;
}

// Rows of tasks that ran on a known lane, in order of their start.
std::vector<uint32_t> executed_tasks_in_order(const TaskColumns& tasks) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < tasks.size(); ++row) {
    if (tasks.lane[row] != kNoIndex && is_executed(tasks, row)) rows.push_back(row);
  }
  const std::vector<int64_t>& start_ns = tasks.at(TaskTime::kStart);
  std::stable_sort(rows.begin(), rows.end(),
                   [&start_ns](uint32_t a, uint32_t b) { return start_ns[a] < start_ns[b]; });
  return rows;
}

std::vector<LaneInfo> describe_lanes(const Trace& trace, int64_t wall_ns) {
  std::vector<LaneInfo> lanes(trace.lanes.size());
  std::vector<Union> in_spans(lanes.size());
  std::vector<Union> busy(lanes.size());
  std::vector<bool> has_executed(lanes.size());
  const SpanColumns& spans = trace.spans;
  for (size_t row = 0; row < spans.size(); ++row) {
    ++lanes[spans.lane[row]].span_count;
    in_spans[spans.lane[row]].add(spans.begin_ns[row], spans.end_ns[row]);
  }
  const TaskColumns& tasks = trace.tasks;
  for (const uint32_t lane : tasks.lane) {
    if (lane != kNoIndex) ++lanes[lane].task_count;
  }
  for (const uint32_t row : executed_tasks_in_order(tasks)) {
    busy[tasks.lane[row]].add(tasks.at(TaskTime::kStart)[row], tasks.at(TaskTime::kEnd)[row]);
    has_executed[tasks.lane[row]] = true;
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    const Lane& from = trace.lanes[i];
    LaneInfo& lane = lanes[i];
    lane.name = from.name;
    if (from.device < trace.devices.size()) lane.device = trace.devices[from.device].name;
    lane.kind = from.kind;
    lane.dropped_count = from.dropped_count;
    lane.occupancy = has_executed[i] ? Occupancy::kBusy : Occupancy::kInSpans;
    if (from.meaning == SpanMeaning::kDispatchToFinish) lane.occupancy = Occupancy::kDispatched;
    lane.union_ns = lane.occupancy == Occupancy::kBusy ? busy[i].total_ns : in_spans[i].total_ns;
    lane.share = share_of(lane.union_ns, static_cast<double>(wall_ns));
  }
  return lanes;
}

std::vector<LaneGroup> group_lanes(const std::vector<LaneInfo>& lanes, int64_t wall_ns) {
  std::map<std::pair<LaneKind, Occupancy>, LaneGroup> groups;
  for (const LaneInfo& lane : lanes) {
    LaneGroup& group = groups[{lane.kind, lane.occupancy}];
    group.kind = lane.kind;
    group.occupancy = lane.occupancy;
    ++group.lane_count;
    group.span_count += lane.span_count;
    group.task_count += lane.task_count;
    group.dropped_count += lane.dropped_count;
    add_saturating(group.union_sum_ns, lane.union_ns);
  }
  std::vector<LaneGroup> result;
  for (auto& [key, group] : groups) {
    group.share = share_of(group.union_sum_ns,
                           static_cast<double>(group.lane_count) * static_cast<double>(wall_ns));
    result.push_back(group);
  }
  return result;
}

void add_slice(NameInfo& info, int64_t duration_ns) {
  info.min_ns = info.count == 0 ? duration_ns : std::min(info.min_ns, duration_ns);
  info.max_ns = std::max(info.max_ns, duration_ns);
  add_saturating(info.sum_ns, duration_ns);
  ++info.count;
}

// The largest sum first; equal sums by name, so that the order is the same every time.
std::vector<NameInfo> describe_names(const Trace& trace) {
  const size_t name_count = trace.names.size() + 1;  // the last one: tasks of an unknown kernel
  std::vector<NameInfo> all(name_count * kOccupancyCount);
  const auto entry = [&all, name_count](uint32_t name, Occupancy occupancy) -> NameInfo& {
    const size_t index = std::min<size_t>(name, name_count - 1);
    return all[index * kOccupancyCount + static_cast<size_t>(occupancy)];
  };
  const SpanColumns& spans = trace.spans;
  for (size_t row = 0; row < spans.size(); ++row) {
    const bool executes = trace.lanes[spans.lane[row]].meaning == SpanMeaning::kExecution;
    add_slice(entry(spans.name[row], executes ? Occupancy::kInSpans : Occupancy::kDispatched),
              length_ns(spans.begin_ns[row], spans.end_ns[row]));
  }
  const TaskColumns& tasks = trace.tasks;
  for (size_t row = 0; row < tasks.size(); ++row) {
    if (!is_executed(tasks, row)) continue;
    add_slice(entry(tasks.kernel[row], Occupancy::kBusy),
              length_ns(tasks.at(TaskTime::kStart)[row], tasks.at(TaskTime::kEnd)[row]));
  }
  std::vector<NameInfo> used;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].count == 0) continue;
    const size_t name = i / kOccupancyCount;
    all[i].name = name + 1 == name_count ? "(unknown kernel)"
                                         : std::string(trace.names[static_cast<uint32_t>(name)]);
    all[i].occupancy = static_cast<Occupancy>(i % kOccupancyCount);
    used.push_back(std::move(all[i]));
  }
  std::sort(used.begin(), used.end(), [](const NameInfo& a, const NameInfo& b) {
    if (a.sum_ns != b.sum_ns) return a.sum_ns > b.sum_ns;
    if (a.name != b.name) return a.name < b.name;
    return a.occupancy < b.occupancy;
  });
  return used;
}

ClockInfo describe_clock(const TraceClock& clock) {
  ClockInfo info;
  info.source = clock.source;
  info.invariant = clock.invariant;
  info.ticks_per_second = clock.ticks_per_second;
  info.anchor_count = clock.anchors.size();
  if (clock.anchors.size() < 2 || clock.ticks_per_second == 0) return info;
  const Anchor& first = clock.anchors.front();
  const Anchor& last = clock.anchors.back();
  if (last.ticks <= first.ticks || last.time_ns <= first.time_ns) return info;
  const double ticks = static_cast<double>(last.ticks - first.ticks);
  const double seconds = static_cast<double>(length_ns(first.time_ns, last.time_ns)) * 1e-9;
  const double nominal = static_cast<double>(clock.ticks_per_second);
  info.drift_ppm = (ticks / seconds / nominal - 1) * 1e6;
  return info;
}

// Arrows with both ends: for each id as many as it has both outs and ins.
uint64_t count_flow_pairs(const FlowColumns& flows) {
  struct Ends {
    uint64_t outs = 0;
    uint64_t ins = 0;
  };
  std::unordered_map<uint64_t, Ends> ends_of;
  for (size_t row = 0; row < flows.size(); ++row) {
    const FlowPhase phase = static_cast<FlowPhase>(flows.phase[row]);
    if (phase == FlowPhase::kOut) ++ends_of[flows.id[row]].outs;
    if (phase == FlowPhase::kIn) ++ends_of[flows.id[row]].ins;
  }
  uint64_t pairs = 0;
  for (const auto& [id, ends] : ends_of) pairs += std::min(ends.outs, ends.ins);
  return pairs;
}

template <typename Number>
std::optional<Number> number_property(const Trace& trace, std::string_view key) {
  for (const Property& property : trace.properties) {
    if (property.key != key) continue;
    Number value = 0;
    const char* end = property.value.data() + property.value.size();
    const std::from_chars_result result = std::from_chars(property.value.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end || !(value >= 0)) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

std::optional<RecorderCost> describe_recorder_cost(const Trace& trace, int64_t wall_ns) {
  const std::optional<uint64_t> events = number_property<uint64_t>(trace, "recorder.events");
  const std::optional<double> ns = number_property<double>(trace, "recorder.ns_per_event");
  if (!events || !ns) return std::nullopt;
  RecorderCost cost;
  cost.event_count = *events;
  cost.ns_per_event = *ns;
  cost.writer_count =
      std::max<uint64_t>(number_property<uint64_t>(trace, "recorder.writers").value_or(1), 1);
  cost.cost_ns = static_cast<double>(cost.event_count) * cost.ns_per_event;
  const double thread_ns = static_cast<double>(cost.writer_count) * static_cast<double>(wall_ns);
  cost.share = thread_ns > 0 ? cost.cost_ns / thread_ns : 0;
  return cost;
}

void count_rows(const Trace& trace, TraceInfo& info) {
  info.span_count = trace.spans.size();
  info.task_count = trace.tasks.size();
  for (size_t time = 0; time < kTaskTimeCount; ++time) {
    const std::vector<int64_t>& times = trace.tasks.time_ns[time];
    info.task_time_count[time] =
        times.size() - static_cast<size_t>(std::count(times.begin(), times.end(), kAbsent));
  }
  info.edge_count = trace.edges.size();
  info.counter_count = trace.counters.size();
  info.instant_count = trace.instants.size();
  info.flow_point_count = trace.flows.size();
  info.flow_pair_count = count_flow_pairs(trace.flows);
  for (const Lane& lane : trace.lanes) info.dropped_count += lane.dropped_count;
}

std::vector<Finding> sorted_findings(std::vector<Finding> findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return static_cast<int>(a.severity) > static_cast<int>(b.severity);
  });
  return findings;
}

}  // namespace

std::string_view occupancy_name(Occupancy occupancy) {
  constexpr std::string_view kNames[kOccupancyCount] = {"busy", "in spans", "dispatched"};
  return kNames[static_cast<size_t>(occupancy)];
}

std::string_view lane_kind_name(LaneKind kind) {
  constexpr std::string_view kNames[kLaneKindCount] = {
      "thread", "orchestrator", "scheduler", "worker", "cube", "vector", "stream", "sm", "other"};
  const size_t index = static_cast<size_t>(kind);
  return index < kLaneKindCount ? kNames[index] : "other";
}

std::string_view clock_source_name(ClockSource source) {
  constexpr std::string_view kNames[] = {"nanoseconds", "tsc", "cntvct", "monotonic-raw"};
  const size_t index = static_cast<size_t>(source);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

TraceInfo describe(const Trace& trace) {
  const TimeRange range = time_range(trace);
  TraceInfo info;
  info.format = trace.format;
  info.properties = trace.properties;
  info.clock = describe_clock(trace.clock);
  info.wall_ns = length_ns(range.begin_ns, range.end_ns);
  int64_t start_ns = 0;
  if (trace.clock.wall_minus_time_ns != 0 &&
      !__builtin_add_overflow(range.begin_ns, trace.clock.wall_minus_time_ns, &start_ns)) {
    info.start_since_1970_ns = start_ns;
  }
  info.devices = trace.devices;
  info.lanes = describe_lanes(trace, info.wall_ns);
  info.lane_groups = group_lanes(info.lanes, info.wall_ns);
  count_rows(trace, info);
  info.names = describe_names(trace);
  info.model_bytes = memory_bytes(trace);
  info.recorder_cost = describe_recorder_cost(trace, info.wall_ns);
  info.findings = sorted_findings(trace.findings);
  return info;
}

}  // namespace gapless
