// SPDX-License-Identifier: Apache-2.0

#include "trace/metadata_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/crc32c.h"

namespace gapless {
namespace {

// Takes a fixed-size body off the front of `text`. False when it is too short.
template <typename Body>
bool take(std::string_view& text, Body& body) {
  if (text.size() < sizeof(body)) return false;
  std::memcpy(&body, text.data(), sizeof(body));
  text.remove_prefix(sizeof(body));
  return true;
}

bool read_lane(uint32_t id, std::string_view text, Metadata& metadata) {
  LaneBody body;
  if (!take(text, body)) return false;
  Lane lane;
  lane.name = text;
  const int kind = std::min<int>(static_cast<int>(body.kind), kLaneKindCount - 1);
  lane.kind = static_cast<LaneKind>(kind);
  lane.device = body.device;
  lane.number = body.number;
  lane.meaning = body.meaning == 1 ? SpanMeaning::kDispatchToFinish : SpanMeaning::kExecution;
  lane.dropped_count = body.dropped_count;
  metadata.lanes[id] = std::move(lane);
  return true;
}

bool read_clock(std::string_view text, Metadata& metadata) {
  ClockBody body;
  if (!take(text, body)) return false;
  metadata.clock.source = static_cast<ClockSource>(std::min<int>(static_cast<int>(body.source), 3));
  metadata.clock.invariant = body.invariant != 0;
  metadata.clock.ticks_per_second = body.ticks_per_second;
  metadata.clock.wall_minus_time_ns = body.wall_minus_time_ns;
  return true;
}

bool read_property(std::string_view text, Metadata& metadata) {
  const size_t zero = text.find('\0');
  if (zero == std::string_view::npos) return false;
  const std::string key(text.substr(0, zero));
  const std::string value(text.substr(zero + 1));
  const auto same = [&key](const Property& property) { return property.key == key; };
  const auto found = std::find_if(metadata.properties.begin(), metadata.properties.end(), same);
  if (found != metadata.properties.end()) {
    found->value = value;
  } else {
    metadata.properties.push_back({key, value});
  }
  return true;
}

bool read_finding(std::string_view text, Metadata& metadata) {
  FindingBody body;
  if (!take(text, body)) return false;
  const size_t zero = text.find('\0');
  if (zero == std::string_view::npos) return false;
  Finding finding;
  finding.severity = static_cast<Severity>(std::min<int>(body.severity, 2));
  finding.code = text.substr(0, zero);
  finding.text = text.substr(zero + 1);
  finding.lane = body.lane;
  finding.count = body.count;
  metadata.findings.push_back(std::move(finding));
  return true;
}

// False when the body does not fit its kind. Kinds of later versions are passed over.
bool read_entry(const MetadataEntry& entry, std::string_view text, Metadata& metadata) {
  switch (entry.kind) {
    case MetadataKind::kName:
      metadata.names[entry.id] = text;
      return true;
    case MetadataKind::kLane:
      return read_lane(entry.id, text, metadata);
    case MetadataKind::kDevice: {
      DeviceBody body;
      if (!take(text, body)) return false;
      metadata.devices[entry.id] = Device{std::string(text), body.number};
      return true;
    }
    case MetadataKind::kAnchor: {
      AnchorBody body;
      if (!take(text, body)) return false;
      metadata.clock.anchors.push_back({body.ticks, body.time_ns});
      return true;
    }
    case MetadataKind::kClock:
      return read_clock(text, metadata);
    case MetadataKind::kProperty:
      return read_property(text, metadata);
    case MetadataKind::kFinding:
      return read_finding(text, metadata);
    case MetadataKind::kEnd: {
      EndBody body;
      if (!take(text, body)) return false;
      metadata.end = body;
      return true;
    }
  }
  return true;
}

bool has_good_crc(MetadataEntry entry, std::string_view body) {
  const uint32_t crc = std::exchange(entry.crc, 0);
  return crc == crc32c(body.data(), body.size(), crc32c(&entry, sizeof(entry)));
}

// Reads entries until the chunk ends or there is an empty one. Returns how many are damaged: each
// is passed over, and when its size makes no sense, what follows it too.
uint64_t read_chunk(const FoundChunk& chunk, Metadata& metadata) {
  std::span<const std::byte> bytes = chunk.payload;
  uint64_t damaged_count = 0;
  while (bytes.size() >= sizeof(MetadataEntry)) {
    MetadataEntry entry;
    std::memcpy(&entry, bytes.data(), sizeof(entry));
    if (entry.entry_bytes == 0) break;
    if (entry.entry_bytes < sizeof(entry) || entry.entry_bytes > bytes.size()) {
      return damaged_count + 1;
    }
    const std::string_view body(reinterpret_cast<const char*>(bytes.data()) + sizeof(entry),
                                entry.entry_bytes - sizeof(entry));
    if (!has_good_crc(entry, body) || !read_entry(entry, body, metadata)) ++damaged_count;
    const size_t padded = (size_t{entry.entry_bytes} + 7) / 8 * 8;
    bytes = bytes.subspan(std::min(padded, bytes.size()));
  }
  return damaged_count;
}

}  // namespace

Metadata read_metadata(const std::vector<FoundChunk>& chunks) {
  Metadata metadata;
  for (const FoundChunk& chunk : chunks) {
    if (chunk.type != ChunkType::kMetadata) continue;
    const uint64_t damaged_count = read_chunk(chunk, metadata);
    if (damaged_count == 0) continue;
    metadata.findings.push_back(
        {Severity::kError, "damaged-metadata",
         fmt::format("{} entries of the metadata in the chunk at byte {} are damaged; left out",
                     damaged_count, chunk.offset),
         kNoIndex, damaged_count});
  }
  return metadata;
}

}  // namespace gapless
