// SPDX-License-Identifier: Apache-2.0

#include "trace/metadata_log.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace gapless {
namespace {

template <typename Body>
std::string encode_body(const Body& body, std::string_view text = {}) {
  std::string bytes(sizeof(body) + text.size(), '\0');
  std::memcpy(bytes.data(), &body, sizeof(body));
  std::copy(text.begin(), text.end(), bytes.begin() + sizeof(body));
  return bytes;
}

std::string joined(std::string_view first, std::string_view second) {
  std::string text(first);
  text.push_back('\0');
  text.append(second);
  return text;
}

}  // namespace

std::string encode_entry(MetadataKind kind, uint32_t id, std::string_view body) {
  MetadataEntry header = {};
  header.entry_bytes = static_cast<uint32_t>(sizeof(header) + body.size());
  header.kind = kind;
  header.id = id;
  header.crc = crc32c(body.data(), body.size(), crc32c(&header, sizeof(header)));
  std::string entry = encode_body(header, body);
  entry.resize((entry.size() + 7) / 8 * 8, '\0');
  return entry;
}

std::string encode_name(uint32_t id, std::string_view text) {
  return encode_entry(MetadataKind::kName, id, text);
}
std::string encode_lane(uint32_t id, const LaneBody& body, std::string_view name) {
  return encode_entry(MetadataKind::kLane, id, encode_body(body, name));
}
std::string encode_device(uint32_t id, int64_t number, std::string_view name) {
  return encode_entry(MetadataKind::kDevice, id, encode_body(DeviceBody{number}, name));
}
std::string encode_anchor(const AnchorBody& anchor) {
  return encode_entry(MetadataKind::kAnchor, 0, encode_body(anchor));
}
std::string encode_clock(const ClockBody& clock) {
  return encode_entry(MetadataKind::kClock, 0, encode_body(clock));
}
std::string encode_property(std::string_view key, std::string_view value) {
  return encode_entry(MetadataKind::kProperty, 0, joined(key, value));
}
std::string encode_finding(const FindingBody& body, std::string_view code, std::string_view text) {
  return encode_entry(MetadataKind::kFinding, 0, encode_body(body, joined(code, text)));
}
std::string encode_end(const EndBody& end) {
  return encode_entry(MetadataKind::kEnd, 0, encode_body(end));
}

bool MetadataLog::make_room(size_t bytes) {
  if (bytes > ChunkFile::kPayloadBytes) return false;
  if (!chunks_.empty() && used_bytes_ + bytes <= ChunkFile::kPayloadBytes) return true;
  Chunk* chunk = file_.make_chunk();
  if (chunk == nullptr) return false;
  ChunkFile::identify(*chunk, ChunkType::kMetadata, 0, static_cast<uint32_t>(chunks_.size()));
  chunks_.push_back(chunk);
  used_bytes_ = 0;
  return true;
}

bool MetadataLog::append(const std::string& entry) {
  return make_room(entry.size() + kClosingBytes) && append_closing(entry);
}

bool MetadataLog::append_closing(const std::string& entry) {
  if (!make_room(entry.size())) return false;
  // All but the size first: a reader of an open chunk stops at an entry of zero bytes.
  std::byte* target = chunks_.back()->payload() + used_bytes_;
  std::memcpy(target + sizeof(uint32_t), entry.data() + sizeof(uint32_t),
              entry.size() - sizeof(uint32_t));
  uint32_t entry_bytes = 0;
  std::memcpy(&entry_bytes, entry.data(), sizeof(entry_bytes));
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(target))
      .store(entry_bytes, std::memory_order_release);
  used_bytes_ += entry.size();
  return true;
}

void MetadataLog::close() {
  for (Chunk* chunk : chunks_) {
    const bool is_last = chunk == chunks_.back();
    // Chunks before the last may end with unused bytes; they are zero and stop the reader.
    const size_t bytes = is_last ? used_bytes_ : ChunkFile::kPayloadBytes;
    ChunkFile::seal(*chunk, bytes);
    file_.punch(*chunk, bytes);
    ChunkFile::unmap(chunk);
  }
  chunks_.clear();
}

}  // namespace gapless
