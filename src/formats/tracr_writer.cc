// SPDX-License-Identifier: Apache-2.0
//
// A channel holds one event at a time, so nested slices are flattened first: at any time the
// innermost one is written, and the one around it again after it. Slices that overlap without
// nesting are on rows of their own (SliceLayout) and get channels of their own.

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/slice_layout.h"
#include "formats/tracr.h"
#include "formats/tracr_metadata.h"

namespace gapless {
namespace {

constexpr size_t kMaxEvents = kTracrFlowEnd;  // ids below the three special ones
constexpr size_t kMaxChannels = 65535;
// Traces may reach this far from 0 on both sides, so that no sum overflows and all is read back.
constexpr int64_t kLatestTimeNs = int64_t{1} << 61;

// A part of a slice in which nothing lies over it.
struct Piece {
  int64_t begin_ns;
  int64_t end_ns;
  uint32_t slice;
};

// Cuts the properly nested slices of a row into pieces that follow each other.
class Flattener {
 public:
  explicit Flattener(const SliceLayout& layout) : layout_(layout) {}

  std::vector<Piece> flatten(const std::vector<uint32_t>& slices) {
    for (const uint32_t slice : slices) {
      advance_to(layout_.begin_ns(slice));
      open_.push_back({slice, false});
      cursor_ns_ = layout_.begin_ns(slice);
    }
    advance_to(std::numeric_limits<int64_t>::max());
    return put_hidden_slices();
  }

 private:
  struct OpenSlice {
    uint32_t slice;
    bool is_written;
  };

  void write_top(int64_t end_ns) {
    pieces_.push_back({cursor_ns_, end_ns, open_.back().slice});
    open_.back().is_written = true;
    cursor_ns_ = end_ns;
  }

  void advance_to(int64_t time_ns) {
    while (!open_.empty() && layout_.end_ns(open_.back().slice) <= time_ns) {
      const int64_t end_ns = layout_.end_ns(open_.back().slice);
      const bool has_no_length = layout_.begin_ns(open_.back().slice) == end_ns;
      if (cursor_ns_ < end_ns || has_no_length) write_top(end_ns);
      if (!open_.back().is_written) hidden_.push_back(open_.back().slice);
      open_.pop_back();
    }
    if (!open_.empty() && cursor_ns_ < time_ns) write_top(time_ns);
  }

  // A slice that others cover completely keeps its place with a piece of no length at its begin,
  // where one of the others begins too.
  std::vector<Piece> put_hidden_slices() {
    if (hidden_.empty()) return std::move(pieces_);
    std::vector<Piece> all;
    for (const uint32_t slice : hidden_) {
      all.push_back({layout_.begin_ns(slice), layout_.begin_ns(slice), slice});
    }
    all.insert(all.end(), pieces_.begin(), pieces_.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const Piece& a, const Piece& b) { return a.begin_ns < b.begin_ns; });
    return all;
  }

  const SliceLayout& layout_;
  std::vector<OpenSlice> open_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> hidden_;
  int64_t cursor_ns_ = 0;
};

// Numbers of flows that fit in 32 bits: their own, or new ones when one of them does not fit.
class FlowIds {
 public:
  explicit FlowIds(const FlowColumns& flows) {
    is_renumbered_ =
        std::any_of(flows.id.begin(), flows.id.end(), [](uint64_t id) { return id >= kNoValue; });
    if (!is_renumbered_) return;
    for (const uint64_t id : flows.id) numbers_.try_emplace(id, numbers_.size());
  }
  uint32_t operator[](uint64_t id) const {
    return static_cast<uint32_t>(is_renumbered_ ? numbers_.at(id) : id);
  }

 private:
  bool is_renumbered_ = false;
  std::unordered_map<uint64_t, uint64_t> numbers_;
};

// Everything the procs share.
struct WriteContext {
  const std::string& path;  // for messages
  const Trace& trace;
  SliceLayout layout;
  FlowIds flow_ids;
  std::vector<std::vector<uint32_t>> flows_of_row;  // by row of the layout
  int64_t shift_ns;                                 // makes all times positive
  TimeRange range;                                  // before the shift
};

struct ProcRecords {
  TracrMetadata metadata;
  std::vector<TracrRecord> records;
};

class ProcBuilder {
 public:
  ProcBuilder(const WriteContext& context, ProcRecords& out) : context_(context), out_(out) {}

  Result<void> add_device(uint32_t device);

 private:
  struct PlacedFlow {
    size_t piece;
    uint32_t flow;
  };

  void add_row(size_t row, uint16_t channel);
  void add_flow(uint32_t flow, uint16_t channel);
  void add_record(int64_t time_ns, uint16_t channel, uint32_t event, uint32_t extra);
  uint32_t event_of(uint32_t slice);
  uint32_t extra_of(uint32_t slice);
  std::vector<PlacedFlow> place_flows(size_t row, std::span<const Piece> pieces, uint16_t channel);

  const WriteContext& context_;
  ProcRecords& out_;
  std::unordered_map<uint32_t, uint32_t> events_;  // name -> event
};

void ProcBuilder::add_record(int64_t time_ns, uint16_t channel, uint32_t event, uint32_t extra) {
  out_.records.push_back({channel, static_cast<uint16_t>(event), extra,
                          static_cast<uint64_t>(time_ns + context_.shift_ns)});
}

void ProcBuilder::add_flow(uint32_t flow, uint16_t channel) {
  const FlowColumns& flows = context_.trace.flows;
  const bool is_start = flows.phase[flow] == static_cast<uint8_t>(FlowPhase::kOut);
  add_record(flows.time_ns[flow], channel, is_start ? kTracrFlowStart : kTracrFlowEnd,
             context_.flow_ids[flows.id[flow]]);
}

uint32_t ProcBuilder::event_of(uint32_t slice) {
  const uint32_t name = context_.layout.name(slice);
  const auto [entry, is_new] = events_.try_emplace(name, static_cast<uint32_t>(events_.size()));
  if (is_new) {
    out_.metadata.labels.emplace_back(name == kNoIndex ? "task" : context_.trace.names[name]);
  }
  return entry->second;
}

// A task has its id as the extra number when that fits.
uint32_t ProcBuilder::extra_of(uint32_t slice) {
  const SliceLayout& layout = context_.layout;
  if (layout.is_task(slice)) {
    const uint64_t id = context_.trace.tasks.id[layout.task(slice)];
    return id < kNoValue ? static_cast<uint32_t>(id) : kNoValue;
  }
  const uint32_t value = layout.value(slice);
  const std::vector<uint32_t>& args = context_.trace.spans.args;
  if (value == kNoValue || args.empty() || args[slice] == kNoIndex) return value;
  if (out_.metadata.extra_labels.count(value) > 0) return value;
  if (const std::optional<std::string> label = extra_label_of(context_.trace.names[args[slice]])) {
    out_.metadata.extra_labels.emplace(value, *label);
  }
  return value;
}

// A flow belongs between the SET of its span and what ends it. One that has no piece to belong to
// is written at once; sorting by time puts it in its place.
std::vector<ProcBuilder::PlacedFlow> ProcBuilder::place_flows(size_t row,
                                                              std::span<const Piece> pieces,
                                                              uint16_t channel) {
  std::vector<PlacedFlow> placed;
  const FlowColumns& flows = context_.trace.flows;
  for (const uint32_t flow : context_.flows_of_row[row]) {
    const int64_t time_ns = flows.time_ns[flow];
    auto piece = std::lower_bound(pieces.begin(), pieces.end(), time_ns,
                                  [](const Piece& p, int64_t time) { return p.end_ns < time; });
    const auto reaches_flow = [&] { return piece != pieces.end() && piece->begin_ns <= time_ns; };
    while (reaches_flow() && piece->slice != flows.span[flow]) ++piece;
    if (reaches_flow()) {
      placed.push_back({static_cast<size_t>(piece - pieces.begin()), flow});
    } else {
      add_flow(flow, channel);
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const PlacedFlow& a, const PlacedFlow& b) { return a.piece < b.piece; });
  return placed;
}

void ProcBuilder::add_row(size_t row, uint16_t channel) {
  Flattener flattener(context_.layout);
  const std::vector<Piece> pieces = flattener.flatten(context_.layout.rows[row].slices);
  const std::vector<PlacedFlow> flows = place_flows(row, pieces, channel);
  size_t next_flow = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    add_record(pieces[i].begin_ns, channel, event_of(pieces[i].slice), extra_of(pieces[i].slice));
    for (; next_flow < flows.size() && flows[next_flow].piece == i; ++next_flow) {
      add_flow(flows[next_flow].flow, channel);
    }
    const bool continues = i + 1 < pieces.size() && pieces[i + 1].begin_ns == pieces[i].end_ns;
    if (!continues) add_record(pieces[i].end_ns, channel, kTracrReset, kNoValue);
  }
}

Result<void> ProcBuilder::add_device(uint32_t device) {
  const Trace& trace = context_.trace;
  TracrMetadata& metadata = out_.metadata;
  for (size_t row = 0; row < context_.layout.rows.size(); ++row) {
    const SliceRow& slices = context_.layout.rows[row];
    const Lane& lane = trace.lanes[slices.lane];
    if (lane.device != device) continue;
    const size_t channel = metadata.channel_names.size();
    metadata.channel_names.push_back(row_name(trace, slices));
    metadata.lanes.push_back({.kind = lane.kind,
                              .meaning = lane.meaning,
                              .number = lane.number,
                              .dropped_count = slices.sub_lane == 0 ? lane.dropped_count : 0});
    if (channel < kMaxChannels) add_row(row, static_cast<uint16_t>(channel));
  }
  const std::string& name = trace.devices[device].name;
  if (metadata.channel_names.size() > kMaxChannels) {
    return fail(ErrorCode::kInvalidInput, "{}: device {} needs {} channels; TraCR has {}",
                context_.path, name, metadata.channel_names.size(), kMaxChannels);
  }
  if (metadata.labels.size() > kMaxEvents) {
    return fail(ErrorCode::kInvalidInput,
                "{}: device {} has {} different names; TraCR has {} events", context_.path, name,
                metadata.labels.size(), kMaxEvents);
  }
  metadata.channel_count = static_cast<uint32_t>(metadata.channel_names.size());
  metadata.device_name = name;
  metadata.one_clock = true;
  metadata.start_ns = context_.range.begin_ns + context_.shift_ns;
  metadata.end_ns = context_.range.end_ns + context_.shift_ns;
  std::stable_sort(
      out_.records.begin(), out_.records.end(),
      [](const TracrRecord& a, const TracrRecord& b) { return a.time_ns < b.time_ns; });
  return {};
}

// The row in which a flow's span lies, or the first one of its lane.
std::vector<std::vector<uint32_t>> flows_by_row(const Trace& trace, const SliceLayout& layout) {
  std::vector<std::vector<uint32_t>> flows_of(layout.rows.size());
  if (trace.flows.size() == 0) return flows_of;
  std::vector<size_t> row_of_span(layout.span_count);
  std::vector<size_t> row_of_lane(trace.lanes.size());
  for (size_t row = 0; row < layout.rows.size(); ++row) {
    if (layout.rows[row].sub_lane == 0) row_of_lane[layout.rows[row].lane] = row;
    for (const uint32_t slice : layout.rows[row].slices) {
      if (!layout.is_task(slice)) row_of_span[slice] = row;
    }
  }
  for (uint32_t flow = 0; flow < trace.flows.size(); ++flow) {
    const uint32_t span = trace.flows.span[flow];
    const uint32_t lane = trace.flows.lane[flow];
    const bool is_tied = span != kNoIndex && trace.spans.lane[span] == lane;
    flows_of[is_tied ? row_of_span[span] : row_of_lane[lane]].push_back(flow);
  }
  return flows_of;
}

std::string describe_losses(const Trace& trace) {
  std::string text;
  const auto add = [&text](size_t count, std::string_view what) {
    if (count == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(trace.instants.size(), "instants");
  add(trace.counters.size(), "counter samples");
  add(trace.edges.size(), "edges between tasks");
  size_t undrawn_count = 0;
  for (uint32_t task = 0; task < trace.tasks.size(); ++task) {
    if (!is_drawn(trace.tasks, task)) ++undrawn_count;
  }
  add(undrawn_count, "tasks without a lane, a start or an end");
  return text;
}

// Folder numbers: those of the devices, where they can be numbers of folders and differ.
std::vector<int64_t> proc_numbers(const Trace& trace) {
  std::set<int64_t> taken;
  std::vector<int64_t> numbers;
  for (const Device& device : trace.devices) {
    int64_t number = std::max<int64_t>(device.number, 0);
    while (!taken.insert(number).second) ++number;
    numbers.push_back(number);
  }
  return numbers;
}

Result<void> write_records(const std::string& path, const std::vector<TracrRecord>& records) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(records));
  file.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return file.commit();
}

// The directory under construction; gone with this object unless it was put in place.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  Result<void> rename_to(const std::string& target) {
    std::error_code error;
    std::filesystem::rename(path_, target, error);
    if (error) {
      return fail(ErrorCode::kSystem, "{}: cannot rename into place: {}", target, error.message());
    }
    path_.clear();
    return {};
  }

 private:
  std::string path_;
};

// An empty directory may be replaced; anything else at the path stays.
Result<void> check_target(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return {};
  if (!is_directory(path)) {
    return fail(ErrorCode::kInvalidInput, "{}: is there already and is not a directory", path);
  }
  const std::vector<std::string> entries = GAPLESS_TRY(list_directory(path));
  if (entries.empty()) return {};
  return fail(ErrorCode::kInvalidInput,
              "{}: is there already with {} entries in it; a TraCR directory is only written to a "
              "new or an empty one",
              path, entries.size());
}

Result<void> write_procs(const WriteContext& context, const std::string& folder,
                         const Progress& progress) {
  const Trace& trace = context.trace;
  const std::vector<int64_t> numbers = proc_numbers(trace);
  const std::string losses = describe_losses(trace);
  for (uint32_t device = 0; device < trace.devices.size(); ++device) {
    ProcRecords proc;
    proc.metadata.pid = numbers[device];
    if (device == 0) proc.metadata.not_written = losses;
    ProcBuilder builder(context, proc);
    GAPLESS_TRY(builder.add_device(device));
    const std::string proc_folder = fmt::format("{}/proc.{}", folder, numbers[device]);
    GAPLESS_TRY(make_directories(proc_folder));
    GAPLESS_TRY(
        write_text_file(proc_folder + "/metadata.json", format_tracr_metadata(proc.metadata)));
    if (progress) progress(device + 1, trace.devices.size());
    if (proc.records.empty()) continue;
    GAPLESS_TRY(make_directories(proc_folder + "/thread.1"));
    GAPLESS_TRY(write_records(proc_folder + "/thread.1/traces.bts", proc.records));
  }
  return {};
}

}  // namespace

Result<void> write_tracr(const Trace& trace, const std::string& path, const WriteOptions& options) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  GAPLESS_TRY(check_target(target));
  const TimeRange range = time_range(trace);
  if (range.begin_ns <= -kLatestTimeNs || range.end_ns >= kLatestTimeNs) {
    return fail(ErrorCode::kInvalidInput, "{}: times from {} to {} ns do not fit in TraCR", path,
                range.begin_ns, range.end_ns);
  }
  WriteContext context{.path = path,
                       .trace = trace,
                       .layout = SliceLayout(trace),
                       .flow_ids = FlowIds(trace.flows),
                       .flows_of_row = {},
                       .shift_ns = range.begin_ns < 0 ? -range.begin_ns : 0,
                       .range = range};
  if (context.layout.slice_count() == 0) {
    return fail(ErrorCode::kInvalidInput,
                "{}: nothing to write: the trace has no span and no task with a start and an end",
                path);
  }
  context.flows_of_row = flows_by_row(trace, context.layout);
  TemporaryDirectory folder(fmt::format("{}.tmp{}", target, ::getpid()));
  GAPLESS_TRY(make_directories(folder.path()));
  GAPLESS_TRY(write_procs(context, folder.path(), options.progress));
  return folder.rename_to(target);
}

}  // namespace gapless
