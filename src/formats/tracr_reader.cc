// SPDX-License-Identifier: Apache-2.0
//
// Reading happens in two rounds. The first (tracr_proc.h) takes each proc by itself. The second
// knows all procs and therefore the common time, merges the threads of each proc in order of time
// and hands the events to a TraceBuilder.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "formats/tracr.h"
#include "formats/tracr_proc.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

constexpr size_t kProgressRecords = 65536;
constexpr uint32_t kNoThread = 0xffffffff;

bool has_core_prefix(std::string_view name, std::string_view word, std::string_view abbreviation) {
  if (name.starts_with(word)) return true;
  if (!name.starts_with(abbreviation) || name.size() == abbreviation.size()) return false;
  const char next = name[abbreviation.size()];
  return next == '_' || (next >= '0' && next <= '9');
}

// The lanes of the device dialect are known by name. "AICPU_0" is no AIC.
LaneKind kind_by_name(std::string_view name) {
  if (name.starts_with("AICPU")) return LaneKind::kScheduler;
  if (has_core_prefix(name, "AICube", "AIC")) return LaneKind::kCubeCore;
  if (has_core_prefix(name, "AIVector", "AIV")) return LaneKind::kVectorCore;
  if (name == "INVALID") return LaneKind::kOther;
  return LaneKind::kThread;
}

// What to add to the times of each proc. TraCR knows no common clock: it takes every proc to have
// passed START at the same instant.
std::vector<int64_t> align_procs(TraceBuilder& builder,
                                 const std::vector<PreparedTracrProc>& procs) {
  std::vector<int64_t> shifts_ns(procs.size(), 0);
  const auto on_one_clock = [](const PreparedTracrProc& p) { return p.metadata.one_clock; };
  if (procs.size() < 2 || std::all_of(procs.begin(), procs.end(), on_one_clock)) return shifts_ns;
  uint64_t unknown_count = 0;
  const PreparedTracrProc* reference = nullptr;
  const auto anchor_ns = [](const PreparedTracrProc& p) {
    return p.metadata.start_ns != 0 ? p.metadata.start_ns : p.first_ns;
  };
  for (size_t i = 0; i < procs.size(); ++i) {
    if (procs[i].record_count == 0) continue;
    if (reference == nullptr) reference = &procs[i];
    if (procs[i].metadata.start_ns == 0) ++unknown_count;
    shifts_ns[i] = anchor_ns(*reference) - anchor_ns(procs[i]);
  }
  if (unknown_count > 0) {
    builder.add_finding(
        {Severity::kWarning, "alignment-unknown",
         fmt::format("{} of {} procs have no start_time; their first records were put at the start "
                     "of the others, so times of different procs cannot be compared",
                     unknown_count, procs.size()),
         kNoIndex, unknown_count});
    return shifts_ns;
  }
  builder.add_finding({Severity::kInfo, "procs-aligned",
                       fmt::format("{} procs were aligned by their start_time, as if all had "
                                   "started at the same instant",
                                   procs.size()),
                       kNoIndex, procs.size()});
  return shifts_ns;
}

// Gives the records of one proc to the builder and keeps count of what is wrong with them.
class ProcEvents {
 public:
  ProcEvents(TraceBuilder& builder, PreparedTracrProc& proc, int64_t shift_ns);
  void add(const TracrRecord& record, uint32_t thread);
  void report();

 private:
  struct Channel {
    uint32_t lane = kNoIndex;
    uint32_t open_by = kNoThread;     // thread that began the open event
    uint32_t first_user = kNoThread;  // thread of the first SET
    bool is_shared = false;
  };

  Channel& channel_of(uint16_t number);
  uint32_t add_lane(uint16_t number);
  uint32_t name_of(uint16_t event);
  void set(Channel& channel, const TracrRecord& record, uint32_t thread, int64_t time_ns);
  void count_cut(const Channel& channel, uint32_t thread);
  void report_ranges();
  void report_shared_channels();
  void report_core_lanes();

  TraceBuilder& builder_;
  PreparedTracrProc& proc_;
  int64_t shift_ns_;
  uint32_t device_;
  std::vector<Channel> channels_;
  std::vector<uint32_t> names_;        // by event; kNoIndex: not used yet
  std::map<uint32_t, uint32_t> args_;  // extra id -> number of its arguments
  uint32_t pair_event_ = kNoIndex;     // Running_Task_Pair
  uint32_t orchestrating_event_ = kNoIndex;
  uint64_t undeclared_channel_count_ = 0;
  uint16_t largest_channel_ = 0;
  uint64_t unnamed_event_count_ = 0;
  uint16_t largest_event_ = 0;
  uint64_t cut_count_ = 0;
  uint64_t pair_count_ = 0;
};

ProcEvents::ProcEvents(TraceBuilder& builder, PreparedTracrProc& proc, int64_t shift_ns)
    : builder_(builder), proc_(proc), shift_ns_(shift_ns) {
  const TracrMetadata& metadata = proc.metadata;
  const std::string& name = metadata.device_name.empty() ? proc.name : metadata.device_name;
  device_ = builder.add_device({name, proc.number});
  for (uint32_t channel = 0; channel < metadata.channel_count; ++channel) {
    channel_of(static_cast<uint16_t>(channel));
  }
  for (const auto& [extra, label] : metadata.extra_labels) {
    args_.emplace(extra, builder.intern(extra_label_args(label)));
  }
  for (uint32_t event = 0; event < metadata.labels.size(); ++event) {
    if (metadata.labels[event] == "Running_Task_Pair") pair_event_ = event;
    if (metadata.labels[event] == "Orchestrating") orchestrating_event_ = event;
  }
}

uint32_t ProcEvents::add_lane(uint16_t number) {
  const TracrMetadata& metadata = proc_.metadata;
  Lane lane;
  lane.device = device_;
  lane.number = number;
  lane.name = number < metadata.channel_names.size() ? metadata.channel_names[number]
                                                     : fmt::format("Channel_{}", number + 1);
  if (number < metadata.lanes.size()) {
    const TracrLaneNotes& notes = metadata.lanes[number];
    lane.kind = notes.kind;
    lane.meaning = notes.meaning;
    lane.number = notes.number;
    lane.dropped_count = notes.dropped_count;
    return builder_.add_lane(std::move(lane));
  }
  lane.kind = kind_by_name(lane.name);
  if (lane.kind == LaneKind::kCubeCore || lane.kind == LaneKind::kVectorCore) {
    lane.meaning = SpanMeaning::kDispatchToFinish;
  }
  return builder_.add_lane(std::move(lane));
}

ProcEvents::Channel& ProcEvents::channel_of(uint16_t number) {
  if (number >= channels_.size()) channels_.resize(size_t{number} + 1);
  Channel& channel = channels_[number];
  if (channel.lane == kNoIndex) channel.lane = add_lane(number);
  return channel;
}

uint32_t ProcEvents::name_of(uint16_t event) {
  const std::vector<std::string>& labels = proc_.metadata.labels;
  if (event >= labels.size() && !labels.empty()) {
    ++unnamed_event_count_;
    largest_event_ = std::max(largest_event_, event);
  }
  if (event >= names_.size()) names_.resize(size_t{event} + 1, kNoIndex);
  if (names_[event] == kNoIndex) {
    names_[event] =
        builder_.intern(event < labels.size() ? labels[event] : fmt::format("event {}", event));
  }
  return names_[event];
}

void ProcEvents::count_cut(const Channel& channel, uint32_t thread) {
  if (channel.open_by != kNoThread && channel.open_by != thread) ++cut_count_;
}

void ProcEvents::set(Channel& channel, const TracrRecord& record, uint32_t thread,
                     int64_t time_ns) {
  count_cut(channel, thread);
  if (channel.first_user == kNoThread) channel.first_user = thread;
  if (channel.first_user != thread) channel.is_shared = true;
  channel.open_by = thread;
  builder_.switch_to(channel.lane, time_ns, name_of(record.event), record.extra);
  if (record.event == pair_event_) ++pair_count_;
  Lane& lane = builder_.trace().lanes[channel.lane];
  if (record.event == orchestrating_event_ && lane.kind == LaneKind::kScheduler &&
      proc_.metadata.lanes.empty()) {
    lane.kind = LaneKind::kOrchestrator;
  }
  if (args_.empty()) return;
  const auto args = args_.find(record.extra);
  if (args != args_.end()) builder_.set_args(builder_.open_span(channel.lane), args->second);
}

void ProcEvents::add(const TracrRecord& record, uint32_t thread) {
  if (record.channel >= proc_.metadata.channel_count) {
    ++undeclared_channel_count_;
    largest_channel_ = std::max(largest_channel_, record.channel);
  }
  Channel& channel = channel_of(record.channel);
  const int64_t time_ns = static_cast<int64_t>(record.time_ns) + shift_ns_;
  switch (record.event) {
    case kTracrReset:
      count_cut(channel, thread);
      channel.open_by = kNoThread;
      builder_.switch_off(channel.lane, time_ns);
      return;
    case kTracrFlowStart:
    case kTracrFlowEnd:
      builder_.flow(channel.lane, time_ns, record.extra,
                    record.event == kTracrFlowStart ? FlowPhase::kOut : FlowPhase::kIn,
                    builder_.open_span(channel.lane));
      return;
    default:
      set(channel, record, thread, time_ns);
  }
}

void ProcEvents::report_ranges() {
  const TracrMetadata& metadata = proc_.metadata;
  if (undeclared_channel_count_ > 0 && metadata.channel_count == 0) {
    proc_.add_finding(Severity::kInfo, "channels-undeclared",
                      fmt::format("neither num_channels nor channel_names is given (TraCR then "
                                  "takes 1 channel); {} records use channels up to {}, and each "
                                  "channel used has a lane",
                                  undeclared_channel_count_, largest_channel_),
                      undeclared_channel_count_);
  } else if (undeclared_channel_count_ > 0) {
    proc_.add_finding(
        Severity::kWarning, "channel-out-of-range",
        fmt::format("{} records name channels up to {}, but only {} are declared; "
                    "each got a lane",
                    undeclared_channel_count_, largest_channel_, metadata.channel_count),
        undeclared_channel_count_);
  }
  if (unnamed_event_count_ > 0) {
    proc_.add_finding(Severity::kWarning, "event-out-of-range",
                      fmt::format("{} records name events up to {}, but metadata.json has {} "
                                  "labels (it misses markers made after it was written); shown by "
                                  "number",
                                  unnamed_event_count_, largest_event_, metadata.labels.size()),
                      unnamed_event_count_);
  }
}

void ProcEvents::report_shared_channels() {
  uint64_t shared_count = 0;
  std::string first;
  for (const Channel& channel : channels_) {
    if (!channel.is_shared) continue;
    if (++shared_count == 1) first = builder_.trace().lanes[channel.lane].name;
  }
  if (shared_count == 0 && cut_count_ == 0) return;
  const std::string which = shared_count > 0 ? fmt::format(" ({} is the first)", first) : "";
  proc_.add_finding(
      cut_count_ > 0 ? Severity::kWarning : Severity::kInfo, "shared-channel",
      fmt::format("{} channels are set by more than one thread{}; {} events were ended by another "
                  "thread than the one that began them and may be cut short",
                  shared_count, which, cut_count_),
      cut_count_);
}

void ProcEvents::report_core_lanes() {
  uint64_t core_count = 0;
  for (const Channel& channel : channels_) {
    if (channel.lane == kNoIndex) continue;
    const Lane& lane = builder_.trace().lanes[channel.lane];
    if (lane.meaning == SpanMeaning::kDispatchToFinish) ++core_count;
  }
  if (core_count > 0) {
    proc_.add_finding(Severity::kInfo, "dispatch-to-finish",
                      fmt::format("a span on the {} core lanes lasts from dispatch until the "
                                  "scheduler saw the completion; it is not execution on the core",
                                  core_count),
                      core_count);
  }
  if (pair_count_ > 0) {
    proc_.add_finding(
        Severity::kWarning, "paired-dispatch",
        fmt::format("{} Running_Task_Pair events: each cuts the span of the task before it, ends "
                    "when that task completes, and the paired task's own execution is drawn as "
                    "empty lane; bubbles on core lanes are partly artefacts of this",
                    pair_count_),
        pair_count_);
  }
}

void ProcEvents::report() {
  report_ranges();
  report_shared_channels();
  report_core_lanes();
  Property dialect{proc_.name + ".dialect",
                   std::string(tracr_dialect_name(proc_.metadata.dialect))};
  std::vector<Property>& properties = builder_.trace().properties;
  const auto same_key = [&](const Property& p) { return p.key == dialect.key; };
  if (std::none_of(properties.begin(), properties.end(), same_key)) {
    properties.push_back(std::move(dialect));
  }
  for (Finding& finding : proc_.findings) builder_.add_finding(std::move(finding));
}

struct ReadProgress {
  const Progress& callback;
  uint64_t total_bytes;
  uint64_t record_count = 0;

  void step() {
    if (++record_count % kProgressRecords != 0 || !callback) return;
    callback(record_count * sizeof(TracrRecord), total_bytes);
  }
};

// Merges the runs of a proc by time; of equal times the thread that comes first in the directory,
// and within a thread the order of the file.
void add_records(ProcEvents& events, const PreparedTracrProc& proc, ReadProgress& progress) {
  struct Head {
    uint64_t time_ns;
    uint32_t run;
    bool operator>(const Head& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : run > other.run;
    }
  };
  std::vector<TracrRun> runs = proc.runs;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  const auto push = [&](uint32_t run) {
    if (runs[run].next == runs[run].end) return;
    heads.push({proc.threads[runs[run].thread].records[runs[run].next].time_ns, run});
  };
  for (uint32_t run = 0; run < runs.size(); ++run) push(run);
  while (!heads.empty()) {
    TracrRun& run = runs[heads.top().run];
    const uint32_t index = heads.top().run;
    heads.pop();
    events.add(proc.threads[run.thread].records[run.next], run.thread);
    ++run.next;
    push(index);
    progress.step();
  }
}

// Where a path leads: the proc folders, or why there are none.
bool is_proc_folder(const std::string& path) {
  const Result<std::vector<std::string>> entries = list_directory(path);
  if (!entries) return false;
  return std::any_of(entries->begin(), entries->end(), [&](const std::string& name) {
    return number_after(name, "thread.").has_value() && is_directory(path + "/" + name);
  });
}

// Names of the folders "<prefix><number>", by number.
std::vector<std::string> numbered_folders(const std::string& path, std::string_view prefix) {
  std::vector<std::pair<int64_t, std::string>> found;
  const Result<std::vector<std::string>> entries = list_directory(path);
  if (!entries) return {};
  for (const std::string& name : *entries) {
    const std::optional<int64_t> number = number_after(name, prefix);
    if (number && is_directory(path + "/" + name)) found.emplace_back(*number, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [number, name] : found) names.push_back(std::move(name));
  return names;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Folders in `path` that are called as TraCR calls them and hold procs.
std::vector<std::string> run_folders(const std::string& path) {
  const Result<std::vector<std::string>> entries = list_directory(path);
  std::vector<std::string> runs;
  if (!entries) return runs;
  for (const std::string& name : *entries) {
    const bool is_run_name = name.ends_with("tracr") || number_after(name, "tracr_").has_value();
    if (is_run_name && !numbered_folders(path + "/" + name, "proc.").empty()) runs.push_back(name);
  }
  return runs;
}

Result<std::vector<std::string>> find_proc_folders(const std::string& path) {
  std::string root = path;
  std::vector<std::string> procs = numbered_folders(root, "proc.");
  if (procs.empty() && is_proc_folder(path)) return std::vector<std::string>{path};
  if (procs.empty()) {
    const std::vector<std::string> runs = run_folders(path);
    if (runs.size() > 1) {
      return fail(ErrorCode::kInvalidInput, "{}: holds {} TraCR runs ({}); name one of them", path,
                  runs.size(), fmt::join(runs, ", "));
    }
    if (runs.empty()) {
      return fail(ErrorCode::kInvalidInput,
                  "{}: not a TraCR directory: there is no proc.<id> folder in it", path);
    }
    root = path + "/" + runs.front();
    procs = numbered_folders(root, "proc.");
  }
  for (std::string& proc : procs) proc = root + "/" + proc;
  return procs;
}

// The files of a proc stay mapped as long as the bytes are used.
struct ProcFiles {
  TracrProc proc;
  std::vector<MappedFile> files;
};

Result<ProcFiles> open_proc(const std::string& folder) {
  ProcFiles opened;
  opened.proc.name = folder.substr(folder.rfind('/') + 1);
  const std::vector<std::string> entries = GAPLESS_TRY(list_directory(folder));
  if (std::find(entries.begin(), entries.end(), "metadata.json") != entries.end()) {
    opened.proc.metadata = GAPLESS_TRY(read_text_file(folder + "/metadata.json"));
  }
  for (const std::string& name : numbered_folders(folder, "thread.")) {
    const std::string thread_folder = folder + "/" + name;
    const std::vector<std::string> files = GAPLESS_TRY(list_directory(thread_folder));
    if (std::find(files.begin(), files.end(), "traces.bts") == files.end()) continue;
    opened.files.push_back(GAPLESS_TRY(MappedFile::open(thread_folder + "/traces.bts")));
    opened.proc.threads.push_back({name, opened.files.back().bytes()});
  }
  return opened;
}

}  // namespace

bool is_tracr_directory(const std::string& path) {
  const std::string folder = without_slashes(path);
  return is_proc_folder(folder) || !numbered_folders(folder, "proc.").empty() ||
         !run_folders(folder).empty();
}

Result<Trace> read_tracr_procs(std::span<const TracrProc> procs, const std::string& path,
                               const ReadOptions& options) {
  std::vector<PreparedTracrProc> prepared;
  uint64_t byte_count = 0;
  size_t thread_count = 0;
  size_t record_count = 0;
  for (const TracrProc& proc : procs) {
    thread_count += proc.threads.size();
    for (const TracrThread& thread : proc.threads) byte_count += thread.bytes.size();
    prepared.push_back(prepare_tracr_proc(proc, options));
    record_count += prepared.back().record_count;
  }
  if (record_count == 0) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no whole record in it: {} procs, {} threads, {} bytes of records", path,
                procs.size(), thread_count, byte_count);
  }
  TraceBuilder builder("tracr");
  ReadProgress progress{options.progress, byte_count};
  const std::vector<int64_t> shifts_ns = align_procs(builder, prepared);
  for (size_t i = 0; i < prepared.size(); ++i) {
    ProcEvents events(builder, prepared[i], shifts_ns[i]);
    add_records(events, prepared[i], progress);
    events.report();
    prepared[i] = {};
  }
  return builder.finish();
}

Result<Trace> read_tracr(const std::string& path, const ReadOptions& options) {
  const std::vector<std::string> folders = GAPLESS_TRY(find_proc_folders(without_slashes(path)));
  std::vector<ProcFiles> opened;
  std::vector<TracrProc> procs;
  for (const std::string& folder : folders) {
    opened.push_back(GAPLESS_TRY(open_proc(folder)));
    procs.push_back(opened.back().proc);
  }
  return read_tracr_procs(procs, path, options);
}

}  // namespace gapless
