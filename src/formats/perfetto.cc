// SPDX-License-Identifier: Apache-2.0

#include "formats/perfetto.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/check.h"
#include "base/file.h"
#include "formats/proto_encoder.h"
#include "formats/slice_arrows.h"
#include "formats/slice_layout.h"

namespace gapless {
namespace {

// Field numbers of the messages in Perfetto's protos/perfetto/trace.
namespace packet_field {
constexpr uint32_t kInTrace = 1;
constexpr uint32_t kClockSnapshot = 6;
constexpr uint32_t kTimestamp = 8;
constexpr uint32_t kSequenceId = 10;
constexpr uint32_t kTrackEvent = 11;
constexpr uint32_t kInternedData = 12;
constexpr uint32_t kSequenceFlags = 13;
constexpr uint32_t kTrackDescriptor = 60;
}  // namespace packet_field

namespace event_field {
constexpr uint32_t kCategoryId = 3;
constexpr uint32_t kDebugAnnotation = 4;
constexpr uint32_t kType = 9;
constexpr uint32_t kNameId = 10;
constexpr uint32_t kTrack = 11;
constexpr uint32_t kDoubleValue = 44;
constexpr uint32_t kFlowId = 47;
constexpr uint32_t kLastFlowId = 48;
}  // namespace event_field

namespace annotation_field {
constexpr uint32_t kNameId = 1;
constexpr uint32_t kUnsigned = 3;
constexpr uint32_t kTextId = 17;
}  // namespace annotation_field

namespace interned_field {
constexpr uint32_t kCategories = 1;
constexpr uint32_t kEventNames = 2;
constexpr uint32_t kAnnotationNames = 3;
constexpr uint32_t kAnnotationTexts = 29;
}  // namespace interned_field

namespace track_field {
constexpr uint32_t kUuid = 1;
constexpr uint32_t kName = 2;
constexpr uint32_t kProcess = 3;
constexpr uint32_t kParent = 5;
constexpr uint32_t kCounter = 8;
constexpr uint32_t kChildOrdering = 11;
constexpr uint32_t kOrderRank = 12;
constexpr uint32_t kDescription = 14;
constexpr uint32_t kMergeBehavior = 15;
}  // namespace track_field

enum EventType : uint8_t { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };
constexpr uint64_t kExplicitOrder = 3;
constexpr uint64_t kNeverMerge = 2;
constexpr uint64_t kRealtimeClock = 1;
constexpr uint64_t kBoottimeClock = 6;
constexpr uint64_t kStateCleared = 1;
constexpr uint64_t kNeedsState = 2;

// Numbers of interned debug annotation names.
constexpr uint8_t kValueAnnotation = 1;
constexpr uint8_t kTaskAnnotation = 2;
constexpr uint8_t kArgsAnnotation = 3;

// Everything in a packet but the arrows takes less than this, so that with a few arrows the length
// of a packet still fits into one byte.
constexpr size_t kPlainPacketBytes = 80;
constexpr size_t kArrowBytes = 10;
constexpr size_t kArrowsInPlace = 4;
static_assert(kPlainPacketBytes + kArrowsInPlace * kArrowBytes < 0x80);

constexpr size_t kInternedPacketBytes = 48 * 1024;
constexpr size_t kProgressSlices = 32 * 1024;  // a bit more than a MiB

class PerfettoWriter {
 public:
  PerfettoWriter(const Trace& trace, OutputFile& file, const Progress& progress)
      : trace_(trace),
        file_(file),
        progress_(progress),
        layout_(trace),
        arrows_(layout_),
        finder_(layout_),
        slice_count_(layout_.slice_count()),
        origin_ns_(time_range(trace).begin_ns) {}

  void write() {
    write_clock();
    write_names();
    write_processes();
    write_row_tracks();
    write_slices();
    write_instants();
    write_counters();
    if (progress_) progress_(slice_count_, slice_count_);
  }

 private:
  // Numbers of tracks: two for a device, one for a row, then the counters.
  uint64_t process_uuid(size_t device) const { return 1 + 2 * device; }
  uint64_t group_uuid(size_t device) const { return 2 + 2 * device; }
  uint64_t row_uuid(size_t row) const { return 1 + 2 * trace_.devices.size() + row; }
  uint64_t first_counter_uuid() const { return row_uuid(layout_.rows.size()); }

  // Interned numbers start at 1. The name after all others is for tasks of an unknown kernel.
  uint64_t name_id(uint32_t name) const {
    return name == kNoIndex ? trace_.names.size() + 1 : uint64_t{name} + 1;
  }
  uint64_t rebased(int64_t time_ns) const {
    return static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(origin_ns_);
  }

  void append_packet(const ProtoMessage& packet) {
    ProtoMessage framed;
    file_.append(framed.message(packet_field::kInTrace, packet).bytes());
  }

  void write_clock();
  void write_names();
  void append_interned(uint32_t field, const std::vector<bool>& is_used);
  void flush_interned(ProtoMessage& interned);
  void write_processes();
  void write_row_tracks();
  void write_slices();
  void write_slice_begin(uint32_t row, uint32_t slice, int64_t begin_ns);
  void write_slice_end(uint32_t row, int64_t end_ns);
  char* put_slice(char* out, uint64_t uuid, uint32_t slice, std::span<const ArrowPoint> points);
  void write_instants();
  void write_counters();

  const Trace& trace_;
  OutputFile& file_;
  const Progress& progress_;
  const SliceLayout layout_;
  const SliceArrows arrows_;
  RowFinder finder_;
  const size_t slice_count_;
  const int64_t origin_ns_;
  size_t done_count_ = 0;
  bool state_is_cleared_ = false;
  std::string scratch_;
};

// Opens a packet with a track event in place: the two lengths are one byte each and are set by
// close_packet().
struct OpenPacket {
  char* begin;
  char* event_begin;
};

char* open_packet(char* out, uint64_t time, uint64_t flags, OpenPacket& packet) {
  *out++ = static_cast<char>(proto_tag(packet_field::kInTrace, WireType::kBytes));
  packet.begin = ++out;
  out = put_field(out, packet_field::kTimestamp, time);
  out = put_field(out, packet_field::kSequenceId, 1);
  if (flags != 0) out = put_field(out, packet_field::kSequenceFlags, flags);
  *out++ = static_cast<char>(proto_tag(packet_field::kTrackEvent, WireType::kBytes));
  packet.event_begin = ++out;
  return out;
}

void close_packet(const OpenPacket& packet, const char* end) {
  GAPLESS_DCHECK(end - packet.begin < 0x80);
  packet.begin[-1] = static_cast<char>(end - packet.begin);
  packet.event_begin[-1] = static_cast<char>(end - packet.event_begin);
}

char* put_number_annotation(char* out, uint8_t name, uint64_t value) {
  *out++ = static_cast<char>(proto_tag(event_field::kDebugAnnotation, WireType::kBytes));
  char* const begin = ++out;
  out = put_field(out, annotation_field::kNameId, name);
  out = put_field(out, annotation_field::kUnsigned, value);
  begin[-1] = static_cast<char>(out - begin);
  return out;
}

char* put_text_annotation(char* out, uint8_t name, uint64_t text_id) {
  *out++ = static_cast<char>(proto_tag(event_field::kDebugAnnotation, WireType::kBytes));
  char* const begin = ++out;
  out = put_field(out, annotation_field::kNameId, name);
  out = put_field(out, annotation_field::kTextId, text_id);
  begin[-1] = static_cast<char>(out - begin);
  return out;
}

void PerfettoWriter::write_clock() {
  constexpr uint32_t kClocks = 1;
  constexpr uint32_t kPrimaryClock = 2;
  constexpr uint32_t kClockId = 1;
  constexpr uint32_t kClockTime = 2;
  ProtoMessage snapshot;
  snapshot.message(kClocks, ProtoMessage().number(kClockId, kBoottimeClock).number(kClockTime, 0));
  if (trace_.clock.wall_minus_time_ns != 0) {
    const uint64_t wall_ns =
        static_cast<uint64_t>(origin_ns_) + static_cast<uint64_t>(trace_.clock.wall_minus_time_ns);
    snapshot.message(kClocks,
                     ProtoMessage().number(kClockId, kRealtimeClock).number(kClockTime, wall_ns));
  }
  snapshot.number(kPrimaryClock, kBoottimeClock);
  append_packet(ProtoMessage()
                    .number(packet_field::kSequenceId, 1)
                    .message(packet_field::kClockSnapshot, snapshot));
}

void PerfettoWriter::flush_interned(ProtoMessage& interned) {
  const uint64_t flags = std::exchange(state_is_cleared_, true) ? kNeedsState : kStateCleared;
  append_packet(ProtoMessage()
                    .number(packet_field::kSequenceId, 1)
                    .number(packet_field::kSequenceFlags, flags)
                    .message(packet_field::kInternedData, interned));
  interned.clear();
}

void PerfettoWriter::append_interned(uint32_t field, const std::vector<bool>& is_used) {
  constexpr uint32_t kId = 1;
  constexpr uint32_t kText = 2;
  ProtoMessage interned;
  for (uint32_t name = 0; name < is_used.size(); ++name) {
    if (!is_used[name]) continue;
    interned.message(
        field, ProtoMessage().number(kId, uint64_t{name} + 1).text(kText, trace_.names[name]));
    if (interned.bytes().size() > kInternedPacketBytes) flush_interned(interned);
  }
  if (!interned.bytes().empty()) flush_interned(interned);
}

// Only what is used: one table of the trace holds names, categories and arguments.
void PerfettoWriter::write_names() {
  const auto used_in = [this](std::initializer_list<const std::vector<uint32_t>*> columns) {
    std::vector<bool> is_used(trace_.names.size());
    for (const std::vector<uint32_t>* column : columns) {
      for (const uint32_t name : *column) {
        if (name != kNoIndex) is_used[name] = true;
      }
    }
    return is_used;
  };
  ProtoMessage constants;
  const auto add = [&constants](uint32_t field, uint64_t id, std::string_view text) {
    constants.message(field, ProtoMessage().number(1, id).text(2, text));
  };
  add(interned_field::kEventNames, name_id(kNoIndex), kUnknownKernel);
  add(interned_field::kAnnotationNames, kValueAnnotation, "value");
  add(interned_field::kAnnotationNames, kTaskAnnotation, "task");
  add(interned_field::kAnnotationNames, kArgsAnnotation, "args");
  flush_interned(constants);

  const std::vector<bool> event_names =
      used_in({&trace_.spans.name, &trace_.tasks.kernel, &trace_.instants.name});
  append_interned(interned_field::kEventNames, event_names);
  append_interned(interned_field::kCategories, used_in({&trace_.spans.category}));
  append_interned(interned_field::kAnnotationTexts, used_in({&trace_.spans.args}));
}

void PerfettoWriter::write_processes() {
  constexpr uint32_t kPid = 1;
  constexpr uint32_t kProcessName = 6;
  std::string about = fmt::format("time 0 is {} ns on the clock of the trace", origin_ns_);
  for (const Property& property : trace_.properties) {
    about += fmt::format("\n{}: {}", property.key, property.value);
  }
  const std::vector<uint32_t> pids = process_numbers(trace_);
  for (size_t device = 0; device < trace_.devices.size(); ++device) {
    const std::string& name = trace_.devices[device].name;
    ProtoMessage process;
    process.number(track_field::kUuid, process_uuid(device));
    process.message(track_field::kProcess,
                    ProtoMessage().number(kPid, pids[device]).text(kProcessName, name));
    if (device == 0) process.text(track_field::kDescription, about);
    append_packet(ProtoMessage()
                      .number(packet_field::kSequenceId, 1)
                      .message(packet_field::kTrackDescriptor, process));
    ProtoMessage group;
    group.number(track_field::kUuid, group_uuid(device));
    group.number(track_field::kParent, process_uuid(device));
    group.text(track_field::kName, "lanes");
    group.number(track_field::kChildOrdering, kExplicitOrder);
    append_packet(ProtoMessage()
                      .number(packet_field::kSequenceId, 1)
                      .message(packet_field::kTrackDescriptor, group));
  }
}

void PerfettoWriter::write_row_tracks() {
  for (size_t index = 0; index < layout_.rows.size(); ++index) {
    const SliceRow& row = layout_.rows[index];
    const Lane& lane = trace_.lanes[row.lane];
    ProtoMessage track;
    track.number(track_field::kUuid, row_uuid(index));
    track.number(track_field::kParent, group_uuid(lane.device));
    track.text(track_field::kName, row_name(trace_, row));
    track.number(track_field::kOrderRank, index);
    track.number(track_field::kMergeBehavior, kNeverMerge);
    if (lane.dropped_count != 0) {
      track.text(track_field::kDescription,
                 fmt::format("{} events were dropped while recording", lane.dropped_count));
    }
    append_packet(ProtoMessage()
                      .number(packet_field::kSequenceId, 1)
                      .message(packet_field::kTrackDescriptor, track));
  }
}

// In order of time over all tracks. What has ended on a track is closed when something begins
// there; the viewer sorts by time, and within a track this order is the right one where times are
// equal.
void PerfettoWriter::write_slices() {
  std::vector<std::vector<int64_t>> open_ends_ns(layout_.rows.size());  // innermost last
  layout_.visit_in_time([&](uint32_t slice, int64_t begin_ns, int64_t end_ns) {
    const uint32_t row = finder_.row_of_next(layout_.lane(slice), slice);
    std::vector<int64_t>& ends_ns = open_ends_ns[row];
    for (; !ends_ns.empty() && ends_ns.back() <= begin_ns; ends_ns.pop_back()) {
      write_slice_end(row, ends_ns.back());
    }
    write_slice_begin(row, slice, begin_ns);
    ends_ns.push_back(end_ns);
    if (++done_count_ % kProgressSlices == 0 && progress_) progress_(done_count_, slice_count_);
  });
  for (uint32_t row = 0; row < open_ends_ns.size(); ++row) {
    std::vector<int64_t>& ends_ns = open_ends_ns[row];
    for (; !ends_ns.empty(); ends_ns.pop_back()) write_slice_end(row, ends_ns.back());
  }
}

// The track event that begins a slice, without its length.
char* PerfettoWriter::put_slice(char* out, uint64_t uuid, uint32_t slice,
                                std::span<const ArrowPoint> points) {
  out = put_field(out, event_field::kType, kSliceBegin);
  out = put_field(out, event_field::kTrack, uuid);
  out = put_field(out, event_field::kNameId, name_id(layout_.name(slice)));
  if (layout_.is_task(slice)) {
    out = put_number_annotation(out, kTaskAnnotation, trace_.tasks.id[layout_.task(slice)]);
  } else {
    const SpanColumns& spans = trace_.spans;
    if (spans.value[slice] != kNoValue) {
      out = put_number_annotation(out, kValueAnnotation, spans.value[slice]);
    }
    if (!spans.category.empty() && spans.category[slice] != kNoIndex) {
      out = put_field(out, event_field::kCategoryId, name_id(spans.category[slice]));
    }
    if (!spans.args.empty() && spans.args[slice] != kNoIndex) {
      out = put_text_annotation(out, kArgsAnnotation, name_id(spans.args[slice]));
    }
  }
  for (const ArrowPoint& point : points) {
    const bool is_last = point.phase == FlowPhase::kIn;
    out = put_fixed64(out, is_last ? event_field::kLastFlowId : event_field::kFlowId, point.arrow);
  }
  return out;
}

void PerfettoWriter::write_slice_begin(uint32_t row, uint32_t slice, int64_t begin_ns) {
  const uint64_t uuid = row_uuid(row);
  const uint64_t time = rebased(begin_ns);
  const std::span<const ArrowPoint> points = arrows_.points_of(slice);
  if (points.size() <= kArrowsInPlace) [[likely]] {
    char* const begin = file_.reserve(kPlainPacketBytes + kArrowsInPlace * kArrowBytes);
    OpenPacket packet;
    char* out = open_packet(begin, time, kNeedsState, packet);
    out = put_slice(out, uuid, slice, points);
    close_packet(packet, out);
    file_.advance(static_cast<size_t>(out - begin));
    return;
  }
  scratch_.resize(kPlainPacketBytes + points.size() * kArrowBytes);
  const char* end = put_slice(scratch_.data(), uuid, slice, points);
  const size_t event_bytes = static_cast<size_t>(end - scratch_.data());
  append_packet(ProtoMessage()
                    .number(packet_field::kTimestamp, time)
                    .number(packet_field::kSequenceId, 1)
                    .number(packet_field::kSequenceFlags, kNeedsState)
                    .text(packet_field::kTrackEvent, {scratch_.data(), event_bytes}));
}

void PerfettoWriter::write_slice_end(uint32_t row, int64_t end_ns) {
  char* const begin = file_.reserve(kPlainPacketBytes);
  OpenPacket packet;
  char* out = open_packet(begin, rebased(end_ns), 0, packet);
  out = put_field(out, event_field::kType, kSliceEnd);
  out = put_field(out, event_field::kTrack, row_uuid(row));
  close_packet(packet, out);
  file_.advance(static_cast<size_t>(out - begin));
}

void PerfettoWriter::write_instants() {
  const InstantColumns& instants = trace_.instants;
  for (size_t i = 0; i < instants.size(); ++i) {
    char* const begin = file_.reserve(kPlainPacketBytes);
    OpenPacket packet;
    char* out = open_packet(begin, rebased(instants.time_ns[i]), kNeedsState, packet);
    out = put_field(out, event_field::kType, kInstant);
    out = put_field(out, event_field::kTrack, row_uuid(finder_.first_row(instants.lane[i])));
    out = put_field(out, event_field::kNameId, name_id(instants.name[i]));
    if (instants.value[i] != kNoValue) {
      out = put_number_annotation(out, kValueAnnotation, instants.value[i]);
    }
    close_packet(packet, out);
    file_.advance(static_cast<size_t>(out - begin));
  }
}

// A track for each counter of each lane, described where its first sample comes.
void PerfettoWriter::write_counters() {
  const CounterColumns& counters = trace_.counters;
  std::unordered_map<uint64_t, uint64_t> uuids;  // by lane and name
  for (size_t i = 0; i < counters.size(); ++i) {
    const uint64_t key = uint64_t{counters.lane[i]} << 32 | counters.name[i];
    const auto [entry, is_first] = uuids.try_emplace(key, first_counter_uuid() + uuids.size());
    if (is_first) {
      ProtoMessage track;
      track.number(track_field::kUuid, entry->second);
      track.number(track_field::kParent, row_uuid(finder_.first_row(counters.lane[i])));
      track.text(track_field::kName, trace_.names[counters.name[i]]);
      track.message(track_field::kCounter, ProtoMessage());
      track.number(track_field::kMergeBehavior, kNeverMerge);
      append_packet(ProtoMessage()
                        .number(packet_field::kSequenceId, 1)
                        .message(packet_field::kTrackDescriptor, track));
    }
    char* const begin = file_.reserve(kPlainPacketBytes);
    OpenPacket packet;
    char* out = open_packet(begin, rebased(counters.time_ns[i]), 0, packet);
    out = put_field(out, event_field::kType, kCounter);
    out = put_field(out, event_field::kTrack, entry->second);
    out = put_fixed64(out, event_field::kDoubleValue, std::bit_cast<uint64_t>(counters.value[i]));
    close_packet(packet, out);
    file_.advance(static_cast<size_t>(out - begin));
  }
}

}  // namespace

Result<void> write_perfetto(const Trace& trace, const std::string& path,
                            const WriteOptions& options) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  PerfettoWriter(trace, file, options.progress).write();
  return file.commit();
}

}  // namespace gapless
