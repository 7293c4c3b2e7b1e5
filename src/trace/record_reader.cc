// SPDX-License-Identifier: Apache-2.0

#include "trace/record_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "trace/clock.h"

namespace gapless {
namespace {

bool is_task_time(RecordKind kind) {
  return kind >= RecordKind::kTaskSubmit && kind <= RecordKind::kTaskFinish;
}

bool is_known(RecordKind kind) {
  return (kind >= RecordKind::kSpanBegin && kind <= RecordKind::kTaskCost) || is_task_time(kind);
}

// Of kinds that are not known nobody can say what stands where the ticks do in others.
bool is_timed(RecordKind kind) {
  return is_known(kind) && kind != RecordKind::kPayload && kind != RecordKind::kEdge &&
         kind != RecordKind::kTaskCost;
}

// The records of one writer, over all its chunks.
class Cursor {
 public:
  explicit Cursor(std::vector<const FoundChunk*> chunks) : chunks_(std::move(chunks)) {
    std::sort(chunks_.begin(), chunks_.end(),
              [](const FoundChunk* a, const FoundChunk* b) { return a->sequence < b->sequence; });
    settle();
  }

  bool at_end() const { return chunk_ == chunks_.size(); }
  const Record& record() const { return record_; }
  RecordKind kind() const { return static_cast<RecordKind>(record_.head & kKindMask); }
  // Where this record stands among those of others: records without a time stay with the one
  // before them.
  uint64_t ticks() const { return ticks_; }

  void next() {
    offset_ += sizeof(Record);
    settle();
  }

 private:
  // Loads the record at the position, moving on to the next chunk where one ends.
  void settle() {
    while (chunk_ < chunks_.size()) {
      const std::span<const std::byte> bytes = chunks_[chunk_]->payload;
      if (offset_ + sizeof(Record) <= bytes.size()) {
        std::memcpy(&record_, bytes.data() + offset_, sizeof(Record));
        if (record_.head != 0) {
          if (is_timed(kind())) ticks_ = record_.head >> kKindBits;
          return;
        }
      }
      ++chunk_;
      offset_ = 0;
    }
  }

  std::vector<const FoundChunk*> chunks_;
  size_t chunk_ = 0;
  size_t offset_ = 0;
  Record record_ = {};
  uint64_t ticks_ = 0;
};

// Feeds records to the builder, with the numbers of the file turned into those of the trace.
class Decoder {
 public:
  Decoder(const Metadata& metadata, TraceBuilder& builder);
  // Takes one record, and the payload that belongs to it. Returns how many were taken.
  uint64_t decode(Cursor& cursor);

 private:
  uint32_t lane(uint16_t id);
  uint32_t name(uint16_t id);
  uint32_t name_or_placeholder(uint16_t id);
  uint64_t decode_untimed(RecordKind kind, const Record& record, Cursor& cursor);
  void decode_edge(const Record& record);
  uint64_t decode_cost(const Record& record, Cursor& cursor);
  void decode_on_lane(RecordKind kind, const Record& record, uint32_t lane_index, int64_t time_ns);
  uint64_t decode_counter(const Record& record, uint32_t lane_index, int64_t time_ns,
                          Cursor& cursor);

  TraceBuilder& builder_;
  ClockMap clock_;
  std::vector<uint32_t> lanes_;  // by the file's number; kNoIndex: not described
  std::vector<uint32_t> names_;
  uint32_t placeholder_ = kNoIndex;  // the name of what has none; made when needed
};

std::vector<AnchorBody> anchor_bodies(const TraceClock& clock) {
  std::vector<AnchorBody> bodies;
  for (const Anchor& anchor : clock.anchors) bodies.push_back({anchor.ticks, anchor.time_ns});
  return bodies;
}

Decoder::Decoder(const Metadata& metadata, TraceBuilder& builder)
    : builder_(builder),
      clock_(anchor_bodies(metadata.clock), metadata.clock.ticks_per_second),
      lanes_(size_t{kNoLane} + 1, kNoIndex),
      names_(size_t{kNoName} + 1, kNoIndex) {
  std::map<uint32_t, uint32_t> devices;
  for (const auto& [id, device] : metadata.devices) devices[id] = builder.add_device(device);
  if (devices.empty()) devices[0] = builder.add_device({"unknown process", 0});
  for (const auto& [id, described] : metadata.lanes) {
    if (id >= kNoLane) continue;
    Lane lane = described;
    const auto device = devices.find(lane.device);
    lane.device = device == devices.end() ? 0 : device->second;
    lanes_[id] = builder.add_lane(std::move(lane));
  }
  for (const auto& [id, text] : metadata.names) {
    if (id < kNoName) names_[id] = builder.intern(text);
  }
  builder.trace().clock = metadata.clock;
}

uint32_t Decoder::lane(uint16_t id) {
  if (lanes_[id] != kNoIndex || id == kNoLane) return lanes_[id];
  builder_.count_finding(Severity::kWarning, "unknown-lane",
                         "lanes have events but no description in the file");
  Lane unknown;
  unknown.name = fmt::format("lane {}", id);
  unknown.kind = LaneKind::kOther;
  unknown.number = id;
  lanes_[id] = builder_.add_lane(std::move(unknown));
  return lanes_[id];
}

uint32_t Decoder::name(uint16_t id) {
  if (names_[id] != kNoIndex || id == kNoName) return names_[id];
  builder_.count_finding(Severity::kWarning, "unknown-name",
                         "names are used but not given in the file");
  names_[id] = builder_.intern(fmt::format("name {}", id));
  return names_[id];
}

uint32_t Decoder::name_or_placeholder(uint16_t id) {
  if (id != kNoName) return name(id);
  if (placeholder_ == kNoIndex) placeholder_ = builder_.intern("(no name)");
  return placeholder_;
}

uint64_t Decoder::decode(Cursor& cursor) {
  const Record record = cursor.record();
  const RecordKind kind = cursor.kind();
  cursor.next();
  if (!is_timed(kind)) return decode_untimed(kind, record, cursor);
  const int64_t time_ns = clock_.to_ns(record.head >> kKindBits);
  const uint32_t lane_index = lane(record.lane);
  if (is_task_time(kind)) {
    const int time = static_cast<int>(kind) - static_cast<int>(RecordKind::kTaskSubmit);
    builder_.task_time(record.value, static_cast<TaskTime>(time), time_ns, lane_index,
                       name(record.name));
    return 1;
  }
  if (kind == RecordKind::kCounter) return decode_counter(record, lane_index, time_ns, cursor);
  decode_on_lane(kind, record, lane_index, time_ns);
  return 1;
}

uint64_t Decoder::decode_untimed(RecordKind kind, const Record& record, Cursor& cursor) {
  if (kind == RecordKind::kTaskCost) return decode_cost(record, cursor);
  if (kind == RecordKind::kEdge) {
    decode_edge(record);
  } else if (kind == RecordKind::kPayload) {
    builder_.count_finding(Severity::kInfo, "payload-without-record",
                           "values lost the record they belong to (it was overwritten)");
  } else {
    builder_.count_finding(Severity::kWarning, "unknown-record",
                           "records are of a kind this build does not know; left out");
  }
  return 1;
}

void Decoder::decode_edge(const Record& record) {
  const uint32_t producer = uint32_t{record.name} | uint32_t{record.lane} << 16;
  const uint64_t edge_kind = record.head >> kKindBits;
  if (edge_kind >= kEdgeKindCount) {
    builder_.count_finding(Severity::kWarning, "unknown-edge-kind",
                           "edges are of a kind this build does not know; taken as data");
  }
  builder_.edge(producer, record.value,
                edge_kind < kEdgeKindCount ? static_cast<EdgeKind>(edge_kind) : EdgeKind::kData);
}

uint64_t payload_bits(const Record& payload) {
  return uint64_t{payload.value} | uint64_t{payload.name} << 32 | uint64_t{payload.lane} << 48;
}

uint64_t Decoder::decode_cost(const Record& record, Cursor& cursor) {
  if (cursor.at_end() || cursor.kind() != RecordKind::kPayload) {
    builder_.count_finding(Severity::kWarning, "cost-without-flops",
                           "costs of tasks lost their second record; left out");
    return 1;
  }
  const uint64_t flops = std::min(payload_bits(cursor.record()), kMaxTaskCost);
  cursor.next();
  builder_.task_cost(record.value, static_cast<int64_t>(record.head >> kKindBits),
                     static_cast<int64_t>(flops));
  return 2;
}

uint64_t Decoder::decode_counter(const Record& record, uint32_t lane_index, int64_t time_ns,
                                 Cursor& cursor) {
  if (cursor.at_end() || cursor.kind() != RecordKind::kPayload) {
    builder_.count_finding(Severity::kWarning, "counter-without-value",
                           "counter samples lost their value; left out");
    return 1;
  }
  const Record payload = cursor.record();
  cursor.next();
  if (lane_index == kNoIndex) {
    builder_.count_finding(Severity::kWarning, "no-lane", "events are for no lane; left out");
    return 2;
  }
  builder_.counter(lane_index, time_ns, name_or_placeholder(record.name),
                   std::bit_cast<double>(payload_bits(payload)));
  return 2;
}

void Decoder::decode_on_lane(RecordKind kind, const Record& record, uint32_t lane_index,
                             int64_t time_ns) {
  if (lane_index == kNoIndex) {
    builder_.count_finding(Severity::kWarning, "no-lane", "events are for no lane; left out");
    return;
  }
  switch (kind) {
    case RecordKind::kSpanBegin:
      builder_.begin(lane_index, time_ns, name_or_placeholder(record.name), record.value);
      return;
    case RecordKind::kSpanEnd:
      builder_.end(lane_index, time_ns);
      return;
    case RecordKind::kSwitch:
      if (record.name == kNoName) {
        builder_.switch_off(lane_index, time_ns);
      } else {
        builder_.switch_to(lane_index, time_ns, name(record.name), record.value);
      }
      return;
    case RecordKind::kInstant:
      builder_.instant(lane_index, time_ns, name_or_placeholder(record.name), record.value);
      return;
    case RecordKind::kFlowOut:
    case RecordKind::kFlowIn:
      builder_.flow(lane_index, time_ns, record.value,
                    kind == RecordKind::kFlowOut ? FlowPhase::kOut : FlowPhase::kIn,
                    builder_.open_span(lane_index));
      return;
    default:  // the other kinds do not come here
      return;
  }
}

// Which writer comes next: the one whose record is the earliest, of several the first.
struct Turn {
  uint64_t ticks;
  size_t cursor;
};

bool is_later(const Turn& a, const Turn& b) {
  return a.ticks != b.ticks ? a.ticks > b.ticks : a.cursor > b.cursor;
}

}  // namespace

uint64_t read_records(const std::vector<FoundChunk>& chunks, const Metadata& metadata,
                      TraceBuilder& builder, const Progress& progress) {
  Decoder decoder(metadata, builder);
  std::map<uint32_t, std::vector<const FoundChunk*>> by_writer;
  uint64_t total = 0;
  for (const FoundChunk& chunk : chunks) {
    if (chunk.type != ChunkType::kRecords) continue;
    by_writer[chunk.writer].push_back(&chunk);
    total += chunk.payload.size() / sizeof(Record);
  }
  std::vector<Cursor> cursors;
  std::vector<Turn> turns;
  for (auto& [writer, list] : by_writer) {
    cursors.emplace_back(std::move(list));
    if (!cursors.back().at_end()) turns.push_back({cursors.back().ticks(), cursors.size() - 1});
  }
  // A heap of writers by the time of their next record. The front one is followed for as long as
  // it is the earliest, so that stretches of one writer cost no heap operation.
  std::make_heap(turns.begin(), turns.end(), is_later);
  uint64_t done = 0;
  uint64_t next_progress = 0;
  constexpr uint64_t kProgressInterval = 1 << 16;
  while (!turns.empty()) {
    std::pop_heap(turns.begin(), turns.end(), is_later);
    Cursor& cursor = cursors[turns.back().cursor];
    const uint64_t others = turns.size() > 1 ? turns.front().ticks : ~uint64_t{0};
    do {
      done += decoder.decode(cursor);
      if (progress && done >= next_progress) {
        progress(done, total);
        next_progress = done + kProgressInterval;
      }
    } while (!cursor.at_end() && cursor.ticks() <= others);
    if (cursor.at_end()) {
      turns.pop_back();
    } else {
      turns.back().ticks = cursor.ticks();
      std::push_heap(turns.begin(), turns.end(), is_later);
    }
  }
  return done;
}

}  // namespace gapless
