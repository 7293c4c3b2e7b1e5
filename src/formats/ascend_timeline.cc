// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_timeline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include <fmt/core.h>

#include "formats/ascend_kinds.h"
#include "formats/json_walk.h"

namespace gapless {
namespace {

constexpr size_t kMostUnnamed = size_t{1} << 21;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Task types whose time is work of a core. All others are copies, events, waits and markers.
bool is_kernel_core(std::string_view core) {
  constexpr std::array<std::string_view, 12> kParts = {"AI_CORE", "AICORE", "AI_VECTOR", "AIVEC",
                                                       "AI_CPU",  "AICPU",  "MIX_AI",    "DSA",
                                                       "DVPP",    "CCU",    "DPU",       "FUSION"};
  if (is_missing_cell(core) || core == "FFTS_PLUS") return true;
  return std::any_of(kParts.begin(), kParts.end(),
                     [core](std::string_view part) { return has(core, part); });
}

bool is_copy(std::string_view name, std::string_view core) {
  for (const std::string_view text : {name, core}) {
    if (text.starts_with("MEMCPY") || text.starts_with("MEMSET")) return true;
  }
  return false;
}

uint64_t thread_key(const JsonValue& thread) { return chrome_id(thread); }

uint32_t task_number(const JsonValue& value) {
  const std::optional<uint64_t> number = json_unsigned(value);
  return number && *number < kNoIndex ? static_cast<uint32_t>(*number) : kNoIndex;
}

std::optional<int32_t> stream_number(const JsonValue& value) {
  const std::optional<int64_t> number = json_integer(value);
  if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*number);
}

// "Communication(Not Overlapped)" as "communication_not_overlapped".
std::string overlap_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      key += static_cast<char>(c - 'A' + 'a');
    } else if (c >= 'a' && c <= 'z') {
      key += c;
    } else if (c != ')') {
      key += '_';
    }
  }
  return key;
}

}  // namespace

uint32_t AscendTimeline::process_of(const JsonValue& number) {
  const auto [found, is_fresh] = process_numbers_.emplace(
      number.is_present() ? chrome_id(number) : 0, static_cast<uint32_t>(processes_.size()));
  if (is_fresh) {
    processes_.emplace_back();
    processes_.back().number = chrome_integer(number).value_or(-1);
  }
  return found->second;
}

AscendTimeline::Role AscendTimeline::role_of(std::string_view name) {
  // Older profilers say "Task Scheduler" and "HCCL".
  if (name == "Ascend Hardware" || name == "Task Scheduler") return Role::kHardware;
  if (name == "Communication" || name == "HCCL") return Role::kCommunication;
  if (name == "Overlap Analysis") return Role::kOverlap;
  if (name == "CANN") return Role::kCalls;
  return name == "MSTX" || name == "mstx" ? Role::kMarks : Role::kOther;
}

void AscendTimeline::add_metadata(const ChromeEvent& event) {
  JsonValue text;
  for_each_field(event.args, [&text](const JsonValue&, const JsonValue& value) { text = value; });
  if (!text.is_present()) return;
  const uint32_t index = process_of(event.process);
  Process& process = processes_[index];
  const std::string_view what = event.name.text;
  if (what == "thread_name") {
    threads_[{index, thread_key(event.thread)}] = chrome_text(text);
  } else if (what == "process_sort_index") {
    process.sort_index = chrome_integer(text).value_or(-1);
  } else if (what == "process_labels" && text.text.starts_with("NPU")) {
    process.labelled_device = trailing_number(text.text).value_or(-1);
  } else if (what == "process_name") {
    process.name = chrome_text(text);
    process.role = role_of(process.name);
  }
}

void AscendTimeline::add_flow(const ChromeEvent& event, bool is_start) {
  const bool is_call = event.category.text == "HostToDevice";
  if (!is_call && event.category.text != "async_npu") return;
  const std::optional<int64_t> time_ns = chrome_time_ns(event.time);
  if (!time_ns || !event.id.is_present()) return;
  const uint64_t id = chrome_id(event.id);
  if (is_start) {
    starts_.push_back({id, *time_ns, is_call});
  } else {
    ends_.push_back({process_of(event.process), thread_key(event.thread), *time_ns, is_call, id});
  }
}

void AscendTimeline::add(const ChromeEvent& event) {
  const uint32_t index = process_of(event.process);
  const Role role = processes_[index].role;
  const bool is_host = role == Role::kCalls || role == Role::kMarks;
  if (role == Role::kOther || (is_host && !events_.options().keep_host)) return;
  const bool is_task = has(event.args.text, "\"Task Type\"");
  if (event.category.is_present() && role == Role::kUnknown && !is_task) return;
  Process& process = processes_[index];
  // Parts of collectives are told by what only they have.
  if (!is_task && has(event.args.text, "\"notify_id\"")) {
    ++process.part_count;
    return;
  }
  const std::optional<EventTimes> times = event_times(event, process.losses);
  if (!times) return;
  if (times->start_ns <= 0) {
    ++process.losses[static_cast<size_t>(KernelEventLoss::kNotPositive)];
    return;
  }
  WaitingEvent waiting{.start_ns = times->start_ns,
                       .duration_ns = times->duration_ns,
                       .thread = thread_key(event.thread),
                       .process = index,
                       .name = kNoIndex,
                       .core = kNoIndex,
                       .stream = CaptureTable::kNoStream,
                       .task = kNoIndex,
                       .is_task = is_task};
  if (is_task) return add_task(event, waiting);
  if (role == Role::kUnknown && unnamed_count_ >= kMostUnnamed) {
    ++process.unplaced_count;
    return;
  }
  if (role == Role::kUnknown) ++unnamed_count_;
  waiting.name = events_.intern(event.name);
  waiting_.push_back(waiting);
}

void AscendTimeline::add_task(const ChromeEvent& event, WaitingEvent& waiting) {
  JsonValue core;
  std::optional<int32_t> stream;
  for_each_field(event.args, [&](const JsonValue& key, const JsonValue& value) {
    if (key.text == "Task Type") {
      core = value;
    } else if (key.text == "Physic Stream Id" || key.text == "Stream Id") {
      stream = stream_number(value);
    } else if (key.text == "Task Id") {
      waiting.task = task_number(value);
    }
  });
  waiting.stream = stream.value_or(CaptureTable::kNoStream);
  waiting.name = events_.intern(event.name);
  if (!is_kernel_core(core.text) && !is_copy(event.name.text, core.text)) {
    ++processes_[waiting.process].non_kernels[waiting.name];
    return;
  }
  if (!is_missing_cell(core.text)) waiting.core = events_.intern(core);
  waiting_.push_back(waiting);
}

// Newer versions pack the host's process, the place of the process in the view, and the device into
// the number; older ones count. The place is known from elsewhere, so it shows which it is.
int32_t AscendTimeline::device_of(const Process& process) const {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (process.labelled_device >= 0 && process.labelled_device <= kLargest) {
    return static_cast<int32_t>(process.labelled_device);
  }
  const bool is_packed = process.number >= 1024 && process.sort_index >= 0 &&
                         ((process.number >> 5) & 31) == process.sort_index;
  if (is_packed) return static_cast<int32_t>(process.number & 31);
  return events_.options().default_device;
}

std::string_view AscendTimeline::thread_name(uint32_t process, uint64_t thread) const {
  const auto found = threads_.find({process, thread});
  return found == threads_.end() ? std::string_view() : found->second;
}

void AscendTimeline::append(KernelRow row, const WaitingEvent& waiting) {
  row.start_ns = waiting.start_ns;
  row.duration_ns = waiting.duration_ns;
  row.name = waiting.name;
  row.launch_ns = launch_of(waiting);
  row.step = events_.step_at(row.launch_ns == kAbsent ? row.start_ns : row.launch_ns);
  CaptureTable& table = events_.table();
  if (row.kind == KernelKind::kCopy) {
    row.type = row.name;
  } else {
    const auto [type, is_fresh] = types_.emplace(row.name, 0);
    if (is_fresh) type->second = events_.intern(derived_kernel_type(table.names[row.name]));
    row.type = type->second;
    ++table.derived_type_count;
  }
  table.append(row);
  ++row_count_;
}

void AscendTimeline::place_task(const WaitingEvent& waiting, const Process& process) {
  if (process.role != Role::kHardware && process.role != Role::kUnknown) {
    ++foreign_task_count_;
    return;
  }
  if (process.role == Role::kUnknown) ++unnamed_task_count_;
  KernelRow row;
  row.device = device_of(process);
  row.stream = waiting.stream;
  if (row.stream == CaptureTable::kNoStream) {
    const std::string_view thread = thread_name(waiting.process, waiting.thread);
    const int64_t stream = thread.starts_with("Stream") ? trailing_number(thread).value_or(-1) : -1;
    if (stream <= std::numeric_limits<int32_t>::max()) row.stream = static_cast<int32_t>(stream);
  }
  row.task = waiting.task;
  row.core = waiting.core;
  const CaptureTable& table = events_.table();
  const std::string_view name = table.names[waiting.name];
  std::string_view core = waiting.core == kNoIndex ? std::string_view() : table.names[waiting.core];
  const bool is_copy_row = is_copy(name, core);
  if (has(core, "AICPU")) core = "AI_CPU";
  row.kind = is_copy_row
                 ? KernelKind::kCopy
                 : ascend_kernel_kind(
                       {.name = name, .type = {}, .core = core, .has_stream = row.stream >= 0});
  append(row, waiting);
}

void AscendTimeline::place_collective(const WaitingEvent& waiting, Process& process) {
  if (thread_name(waiting.process, waiting.thread).starts_with("Plane")) {
    ++process.part_count;
    return;
  }
  KernelRow row;
  row.device = device_of(process);
  row.kind = KernelKind::kCollective;
  row.core = events_.intern(process.name == "HCCL" ? "HCCL" : "COMMUNICATION");
  append(row, waiting);
}

void AscendTimeline::place_host(const WaitingEvent& waiting, const Process& process) {
  if (!events_.options().keep_host) return;
  const std::string_view category = process.role == Role::kCalls ? "call" : "range";
  events_.add_host_span({.begin_ns = waiting.start_ns,
                         .end_ns = waiting.start_ns + waiting.duration_ns,
                         .process = process.number,
                         .thread = static_cast<int64_t>(waiting.thread),
                         .name = waiting.name,
                         .category = events_.intern(category)});
}

void AscendTimeline::place(const WaitingEvent& waiting) {
  Process& process = processes_[waiting.process];
  if (waiting.is_task) return place_task(waiting, process);
  switch (process.role) {
    case Role::kCommunication:
      return place_collective(waiting, process);
    case Role::kOverlap: {
      int64_t& sum_ns = overlap_ns_[{waiting.process, waiting.name}];
      if (__builtin_add_overflow(sum_ns, waiting.duration_ns, &sum_ns)) {
        sum_ns = std::numeric_limits<int64_t>::max();
      }
      return;
    }
    case Role::kCalls:
    case Role::kMarks:
      return place_host(waiting, process);
    case Role::kUnknown:
      ++process.unplaced_count;
      return;
    case Role::kHardware:
      // A row of the device without a task type is none that we know.
      ++process.non_kernels[waiting.name];
      return;
    case Role::kOther:
      return;
  }
}

// From here on starts_ has the time of each id, and ends_ is in the order of place and time.
void AscendTimeline::pair_flows() {
  std::sort(starts_.begin(), starts_.end(), [](const FlowStart& a, const FlowStart& b) {
    return std::tie(a.is_call, a.id, a.time_ns) < std::tie(b.is_call, b.id, b.time_ns);
  });
  uint64_t lone_end_count = 0;
  std::vector<FlowEnd> paired;
  for (const FlowEnd& end : ends_) {
    // Ids may come again: the last departure that is not after the arrival, or else the first.
    auto start = std::upper_bound(
        starts_.begin(), starts_.end(), end, [](const FlowEnd& wanted, const FlowStart& candidate) {
          return std::tie(wanted.is_call, wanted.id, wanted.time_ns) <
                 std::tie(candidate.is_call, candidate.id, candidate.time_ns);
        });
    const auto fits = [&end](const FlowStart& candidate) {
      return candidate.is_call == end.is_call && candidate.id == end.id;
    };
    if (start != starts_.begin() && fits(*std::prev(start))) --start;
    if (start == starts_.end() || !fits(*start)) {
      ++lone_end_count;
      continue;
    }
    start->is_paired = true;
    paired.push_back(end);
    paired.back().id = static_cast<uint64_t>(start->time_ns);
  }
  ends_ = std::move(paired);
  std::sort(ends_.begin(), ends_.end(), [](const FlowEnd& a, const FlowEnd& b) {
    return std::tie(a.process, a.thread, a.time_ns, b.is_call, a.id) <
           std::tie(b.process, b.thread, b.time_ns, a.is_call, b.id);
  });
  const uint64_t lone_start_count = static_cast<uint64_t>(std::count_if(
      starts_.begin(), starts_.end(), [](const FlowStart& s) { return !s.is_paired; }));
  if (lone_end_count + lone_start_count == 0) return;
  events_.add_finding(Severity::kInfo, "unpaired-flows", lone_end_count + lone_start_count,
                      fmt::format("{} arrows from the host to devices have no end and {} no begin: "
                                  "their kernels' launches are not known from them",
                                  lone_start_count, lone_end_count));
}

// When the driver's call began, or else the framework's operator.
int64_t AscendTimeline::launch_of(const WaitingEvent& waiting) const {
  const auto end = std::lower_bound(
      ends_.begin(), ends_.end(), waiting, [](const FlowEnd& a, const WaitingEvent& b) {
        return std::tie(a.process, a.thread, a.time_ns) < std::tie(b.process, b.thread, b.start_ns);
      });
  const bool is_found = end != ends_.end() && end->process == waiting.process &&
                        end->thread == waiting.thread && end->time_ns == waiting.start_ns;
  return is_found ? static_cast<int64_t>(end->id) : kAbsent;
}

void AscendTimeline::report_processes() {
  uint64_t part_count = 0;
  uint64_t unplaced_count = 0;
  uint64_t other_count = 0;
  std::map<std::string, uint64_t> others;
  for (const Process& process : processes_) {
    const bool is_device = process.role == Role::kHardware || process.role == Role::kCommunication;
    if (is_device || process.role == Role::kUnknown) {
      events_.add_losses(process.losses);
      part_count += process.part_count;
    }
    const bool is_host = process.role == Role::kCalls || process.role == Role::kMarks;
    const bool is_wanted = is_host ? events_.options().keep_host : process.role != Role::kOther;
    if (is_wanted) unplaced_count += process.unplaced_count;
    if (is_device) events_.add_dropped(process.unplaced_count);
    for (const auto& [name, count] : process.non_kernels) {
      others[std::string(events_.table().names[name])] += count;
      other_count += count;
    }
  }
  events_.add_dropped(part_count + other_count + foreign_task_count_);
  if (foreign_task_count_ > 0) {
    events_.add_finding(Severity::kWarning, "other-process", foreign_task_count_,
                        fmt::format("{} events have a task type but are of processes that are no "
                                    "device; left out",
                                    foreign_task_count_));
  }
  if (other_count > 0) {
    std::vector<std::pair<std::string, uint64_t>> sorted(others.begin(), others.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    constexpr size_t kShown = 6;
    std::string text;
    for (size_t i = 0; i < std::min(sorted.size(), kShown); ++i) {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", sorted[i].second, sorted[i].first);
    }
    if (sorted.size() > kShown) text += ", ...";
    events_.add_finding(
        Severity::kInfo, "not-a-kernel", other_count,
        fmt::format("{} tasks of devices are no kernels ({}); left out", other_count, text));
  }
  if (part_count > 0) {
    events_.add_finding(Severity::kInfo, "collective-parts", part_count,
                        fmt::format("{} events are parts of collectives, whose time the "
                                    "collectives have; left out",
                                    part_count));
  }
  if (unplaced_count + unnamed_task_count_ > 0) {
    events_.add_finding(
        Severity::kWarning, "process-not-named", unplaced_count + unnamed_task_count_,
        fmt::format("{} events are of processes that the file does not name in time: {} of them "
                    "are kernels by their task type and kept, the others left out",
                    unplaced_count + unnamed_task_count_, unnamed_task_count_));
  }
}

void AscendTimeline::report_overlap() {
  uint64_t lane_count = 0;
  for (const Process& process : processes_) lane_count += process.role == Role::kOverlap ? 1 : 0;
  CaptureTable& table = events_.table();
  for (const auto& [place, sum_ns] : overlap_ns_) {
    const std::string device =
        lane_count > 1 ? fmt::format("{}.", device_of(processes_[place.first])) : "";
    const std::string key =
        fmt::format("ascend.overlap.{}{}_ns", device, overlap_key(table.names[place.second]));
    table.properties.push_back({key, fmt::format("{}", sum_ns)});
  }
}

void AscendTimeline::finish() {
  const auto is_ours = [](const Process& process) {
    return process.role != Role::kUnknown && process.role != Role::kOther;
  };
  const bool has_tasks = std::any_of(waiting_.begin(), waiting_.end(),
                                     [](const WaitingEvent& event) { return event.is_task; });
  if (!has_tasks && std::none_of(processes_.begin(), processes_.end(), is_ours)) return;
  pair_flows();
  for (const WaitingEvent& waiting : waiting_) place(waiting);
  waiting_ = {};
  report_processes();
  report_overlap();
  CaptureTable& table = events_.table();
  table.types_derived = table.derived_type_count > 0;
  if (!table.types_derived) return;
  events_.add_finding(Severity::kWarning, "types-derived", table.derived_type_count,
                      fmt::format("{} rows have no type; it was made of the name and is less "
                                  "certain",
                                  table.derived_type_count));
}

}  // namespace gapless
