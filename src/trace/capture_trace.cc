// SPDX-License-Identifier: Apache-2.0

#include "trace/capture_trace.h"

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

// Properties: names of kernels, each with a semicolon behind it.
constexpr std::string_view kCollectivesKey = "capture.collectives";
constexpr std::string_view kCopiesKey = "capture.copies";
// Names of lanes.
constexpr std::string_view kCommunicationLane = "Communication";
constexpr std::string_view kUnknownLane = "Kernels";
constexpr std::string_view kEchoLane = "Collectives";
constexpr std::string_view kWrappersLane = "Wrappers";
constexpr std::string_view kWrappersEnd = " wrappers";

// The lanes of one stream. Rows come in the order of their start, so that a lane whose row has
// ended is free for good: the free one with the smallest number is taken.
class StreamLanes {
 public:
  struct Place {
    size_t lane;  // 0: the stream's first
    bool is_new;
  };

  Place place(int64_t start_ns, int64_t end_ns) {
    while (!busy_.empty() && busy_.top().first <= start_ns) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    const bool is_new = free_.empty();
    const size_t lane = is_new ? lane_count_++ : free_.top();
    if (!is_new) free_.pop();
    busy_.emplace(end_ns, lane);
    return {lane, is_new};
  }

 private:
  using Busy = std::pair<int64_t, size_t>;  // end and lane
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy_;
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> free_;
  size_t lane_count_ = 0;
};

class KernelTraceMaker {
 public:
  KernelTraceMaker(const CaptureTable& table, DedupRule rule)
      : table_(table), collectives_(find_collective_rows(table, rule)) {}
  Trace make();

 private:
  // kEcho and kWrappers tell of time that other lanes show: they stand for no core.
  enum class Group : uint8_t { kStream, kUnknownStream, kCommunication, kEcho, kWrappers };
  using Key = std::tuple<int32_t, Group, int32_t>;  // device, group, stream
  struct Stream {
    StreamLanes places;
    std::vector<uint32_t> lanes;
  };

  void find_echoes();
  Key key_of(size_t row) const;
  uint32_t device_of(int32_t number);
  static std::string lane_name(const Key& key);
  uint32_t add_lane(const Key& key, size_t place);
  void place_row(uint32_t row);
  void add_tasks();
  void add_host();
  void add_steps();
  void add_findings();
  void add_kinds();

  const CaptureTable& table_;
  const CollectiveRows collectives_;
  std::vector<bool> is_echo_;  // by row: a summary whose kernels are on streams
  TraceBuilder builder_{"capture"};
  std::map<int32_t, uint32_t> devices_;
  std::map<Key, Stream> streams_;
  uint64_t moved_count_ = 0;
};

void KernelTraceMaker::find_echoes() {
  is_echo_.assign(table_.size(), false);
  for (size_t row = 0; row < table_.size(); ++row) {
    const uint32_t counted_by = collectives_.counted_by[row];
    if (counted_by == kNoIndex || counted_by == row) continue;
    is_echo_[counted_by] = table_.stream[counted_by] == CaptureTable::kNoStream;
  }
}

KernelTraceMaker::Key KernelTraceMaker::key_of(size_t row) const {
  const int32_t device = table_.device[row];
  const int32_t stream = table_.stream[row];
  if (is_echo_[row]) return {device, Group::kEcho, 0};
  if (table_.kind[row] == KernelKind::kAiCpuCollective) return {device, Group::kWrappers, stream};
  if (stream != CaptureTable::kNoStream) return {device, Group::kStream, stream};
  const bool is_collective = table_.kind[row] == KernelKind::kCollective;
  return {device, is_collective ? Group::kCommunication : Group::kUnknownStream, 0};
}

uint32_t KernelTraceMaker::device_of(int32_t number) {
  std::vector<Device>& devices = builder_.trace().devices;
  const auto [entry, is_new] = devices_.try_emplace(number, static_cast<uint32_t>(devices.size()));
  if (is_new) {
    const std::string& word = table_.device_word;
    const bool is_known = number != CaptureTable::kNoDevice;
    devices.push_back({is_known ? fmt::format("{} {}", word, number) : word, number});
  }
  return entry->second;
}

std::string KernelTraceMaker::lane_name(const Key& key) {
  const auto [device, group, stream] = key;
  switch (group) {
    case Group::kStream:
      return fmt::format("Stream {}", stream);
    case Group::kUnknownStream:
      return std::string(kUnknownLane);
    case Group::kCommunication:
      return std::string(kCommunicationLane);
    case Group::kEcho:
      return std::string(kEchoLane);
    case Group::kWrappers:
      break;
  }
  return stream == CaptureTable::kNoStream ? std::string(kWrappersLane)
                                           : fmt::format("Stream {}{}", stream, kWrappersEnd);
}

uint32_t KernelTraceMaker::add_lane(const Key& key, size_t place) {
  const auto [device, group, stream] = key;
  Lane lane;
  lane.device = device_of(device);
  const bool is_core = group != Group::kEcho && group != Group::kWrappers;
  lane.kind = is_core ? LaneKind::kStream : LaneKind::kOther;
  lane.number = group == Group::kStream || group == Group::kWrappers ? stream : -1;
  lane.name = lane_name(key);
  if (place > 0) lane.name += fmt::format(" ({})", place + 1);
  return builder_.add_lane(std::move(lane));
}

void KernelTraceMaker::place_row(uint32_t row) {
  const Key key = key_of(row);
  Stream& stream = streams_[key];
  const StreamLanes::Place place = stream.places.place(table_.start_ns[row], table_.end_ns(row));
  if (place.is_new) stream.lanes.push_back(add_lane(key, place.lane));
  builder_.trace().tasks.lane[row] = stream.lanes[place.lane];
  if (std::get<Group>(key) == Group::kStream && place.lane > 0) ++moved_count_;
}

void KernelTraceMaker::add_tasks() {
  const size_t count = table_.size();
  TaskColumns& tasks = builder_.trace().tasks;
  tasks.id.resize(count);
  tasks.lane.resize(count);
  tasks.kernel.resize(count);
  for (std::vector<int64_t>& times : tasks.time_ns) times.assign(count, kAbsent);
  std::vector<int64_t>& ends = tasks.time_ns[static_cast<size_t>(TaskTime::kEnd)];
  tasks.time_ns[static_cast<size_t>(TaskTime::kStart)] = table_.start_ns;
  if (!table_.launch_ns.empty()) {
    tasks.time_ns[static_cast<size_t>(TaskTime::kSubmit)] = table_.launch_ns;
  }
  for (size_t row = 0; row < count; ++row) {
    tasks.id[row] = row;
    tasks.kernel[row] = table_.type[row] != kNoIndex ? table_.type[row] : table_.name[row];
    ends[row] = table_.end_ns(row);
  }
  for (const uint32_t row : rows_in_order(table_)) place_row(row);
}

void KernelTraceMaker::add_host() {
  std::map<int64_t, uint32_t> processes;
  std::map<std::pair<int64_t, int64_t>, uint32_t> threads;
  Trace& trace = builder_.trace();
  for (const HostSpan& span : table_.host) {
    const auto [process, is_new_process] =
        processes.try_emplace(span.process, static_cast<uint32_t>(trace.devices.size()));
    if (is_new_process) {
      trace.devices.push_back({fmt::format("Process {}", span.process), span.process});
    }
    const auto [thread, is_new] = threads.try_emplace({span.process, span.thread}, kNoIndex);
    if (is_new) {
      thread->second = builder_.add_lane({.name = fmt::format("Thread {}", span.thread),
                                          .kind = LaneKind::kThread,
                                          .device = process->second,
                                          .number = span.thread});
    }
    const uint32_t row =
        builder_.add_span(thread->second, span.begin_ns, span.end_ns, span.name, kNoValue);
    if (span.category != kNoIndex) builder_.set_category(row, span.category);
  }
}

void KernelTraceMaker::add_steps() {
  if (table_.steps.empty()) return;
  const uint32_t lane = builder_.add_lane({.name = "Forward passes",
                                           .kind = LaneKind::kOrchestrator,
                                           .device = device_of(table_.device.front())});
  const uint32_t name = builder_.intern("step");
  for (const CaptureStep& step : table_.steps) {
    builder_.add_span(lane, step.begin_ns, step.end_ns, name, step.number);
  }
}

void KernelTraceMaker::add_findings() {
  if (moved_count_ > 0) {
    builder_.add_finding(
        {Severity::kInfo, "overlapping-rows",
         fmt::format("{} of {} rows begin before another one on their stream has ended; they are "
                     "on further lanes of that stream",
                     moved_count_, table_.size()),
         kNoIndex, moved_count_});
  }
  if (collectives_.merged_count > 0) {
    builder_.add_finding(
        {Severity::kInfo, "collectives-told-twice",
         fmt::format("{} kernels of collectives repeat the time of a summary row; the summaries "
                     "are on lanes that stand for no core",
                     collectives_.merged_count),
         kNoIndex, collectives_.merged_count});
  }
  if (collectives_.wrapper_count > 0) {
    builder_.add_finding({Severity::kInfo, "wrappers",
                          fmt::format("{} wrappers on the AI CPU hold waiting; they are on lanes "
                                      "that stand for no core",
                                      collectives_.wrapper_count),
                          kNoIndex, collectives_.wrapper_count});
  }
}

// A kernel's rows are of one kind, but for those of a collective, whose kernels and summaries have
// one type.
void KernelTraceMaker::add_kinds() {
  std::set<std::string_view> collectives;
  std::set<std::string_view> copies;
  for (size_t row = 0; row < table_.size(); ++row) {
    const uint32_t kernel = builder_.trace().tasks.kernel[row];
    const KernelKind kind = table_.kind[row];
    if (kernel == kNoIndex || kind == KernelKind::kCompute || kind == KernelKind::kAiCpu) continue;
    (kind == KernelKind::kCopy ? copies : collectives).insert(table_.names[kernel]);
  }
  const auto add = [this](std::string_view key, const std::set<std::string_view>& names) {
    std::string text;
    for (const std::string_view name : names) text += fmt::format("{};", name);
    builder_.trace().properties.push_back({std::string(key), std::move(text)});
  };
  add(kCollectivesKey, collectives);
  add(kCopiesKey, copies);
}

Trace KernelTraceMaker::make() {
  Trace& trace = builder_.trace();
  trace.format = table_.format;
  trace.names = table_.names;
  trace.properties = table_.properties;
  trace.findings = table_.findings;
  find_echoes();
  add_tasks();
  add_host();
  add_steps();
  add_findings();
  add_kinds();
  return builder_.finish();
}

const std::string* find_property(const Trace& trace, std::string_view key) {
  for (const Property& property : trace.properties) {
    if (property.key == key) return &property.value;
  }
  return nullptr;
}

// What the lane of a trace that trace_of has made says about its rows.
struct LaneRows {
  bool is_summaries = false;
  bool is_wrappers = false;
  bool has_stream = true;
};

LaneRows rows_of_lane(const Lane& lane) {
  const std::string_view name = lane.name;
  const auto is_or_further = [name](std::string_view first) {
    return name == first ||
           (name.starts_with(first) && name.substr(first.size()).starts_with(" ("));
  };
  LaneRows rows;
  rows.is_summaries = is_or_further(kCommunicationLane) || is_or_further(kEchoLane);
  rows.is_wrappers =
      lane.kind == LaneKind::kOther && !rows.is_summaries &&
      (name.find(kWrappersEnd) != std::string_view::npos || is_or_further(kWrappersLane));
  rows.has_stream = !rows.is_summaries && !is_or_further(kUnknownLane) && lane.number >= 0;
  return rows;
}

}  // namespace

Trace trace_of(const CaptureTable& table, DedupRule rule) {
  return KernelTraceMaker(table, rule).make();
}

KernelKinds::KernelKinds(const Trace& trace) {
  const std::string* collectives = find_property(trace, kCollectivesKey);
  const std::string* copies = find_property(trace, kCopiesKey);
  kinds_.assign(trace.names.size(), KernelKind::kCompute);
  if (collectives == nullptr || copies == nullptr) {
    for (uint32_t name = 0; name < kinds_.size(); ++name) {
      kinds_[name] = named_kernel_kind(trace.names[name]);
    }
    return;
  }
  const auto mark = [&](std::string_view text, KernelKind kind) {
    while (!text.empty()) {
      const size_t end = text.find(';');
      const uint32_t name = trace.names.find(text.substr(0, end));
      if (name != kNoIndex) kinds_[name] = kind;
      if (end == std::string_view::npos) return;
      text.remove_prefix(end + 1);
    }
  };
  mark(*collectives, KernelKind::kCollective);
  mark(*copies, KernelKind::kCopy);
}

CaptureTable capture_of(const Trace& trace) {
  CaptureTable table;
  table.format = trace.format;
  table.device_word = "device";
  table.names = trace.names;
  table.properties = trace.properties;
  table.findings = trace.findings;
  const bool is_capture = find_property(trace, kCollectivesKey) != nullptr;
  const KernelKinds kinds(trace);
  std::vector<LaneRows> lanes;
  bool has_summaries = false;
  for (const Lane& lane : trace.lanes) {
    lanes.push_back(is_capture ? rows_of_lane(lane) : LaneRows{});
    has_summaries = has_summaries || lanes.back().is_summaries;
  }
  const TaskColumns& tasks = trace.tasks;
  for (size_t row = 0; row < tasks.size(); ++row) {
    const uint32_t lane = tasks.lane[row];
    const int64_t start_ns = tasks.at(TaskTime::kStart)[row];
    const int64_t end_ns = tasks.at(TaskTime::kEnd)[row];
    if (lane == kNoIndex || start_ns == kAbsent || end_ns < start_ns) {
      ++table.dropped_count;
      continue;
    }
    KernelRow kernel;
    kernel.start_ns = start_ns;
    kernel.duration_ns = end_ns - start_ns;
    kernel.device = static_cast<int32_t>(trace.lanes[lane].device);
    kernel.stream = !is_capture              ? static_cast<int32_t>(lane)
                    : lanes[lane].has_stream ? static_cast<int32_t>(trace.lanes[lane].number)
                                             : CaptureTable::kNoStream;
    kernel.name = tasks.kernel[row];
    kernel.type = tasks.kernel[row];
    kernel.kind = kinds.of(kernel.type);
    if (kernel.kind == KernelKind::kCollective && has_summaries && !lanes[lane].is_summaries) {
      kernel.kind = KernelKind::kFragment;
    }
    if (lanes[lane].is_wrappers) kernel.kind = KernelKind::kAiCpuCollective;
    kernel.launch_ns = tasks.at(TaskTime::kSubmit)[row];
    table.append(kernel);
  }
  keep_rows(table, rows_in_order(table));
  return table;
}

}  // namespace gapless
