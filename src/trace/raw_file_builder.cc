// SPDX-License-Identifier: Apache-2.0

#include "trace/raw_file_builder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"

namespace gapless {
namespace {

template <typename T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T load(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void store(std::string& bytes, size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

void sign_identity(ChunkHeader& header) {
  header.identity_crc = crc32c(&header, offsetof(ChunkHeader, identity_crc));
}

void sign_seal(ChunkHeader& header) {
  constexpr size_t kBegin = offsetof(ChunkHeader, stored_bytes);
  header.seal_crc = crc32c(&header.stored_bytes, offsetof(ChunkHeader, seal_crc) - kBegin);
}

void repair_entries(std::string& file, size_t begin, size_t end) {
  while (end - begin >= sizeof(MetadataEntry)) {
    MetadataEntry entry = load<MetadataEntry>(file, begin);
    if (entry.entry_bytes < sizeof(entry) || entry.entry_bytes > end - begin) return;
    entry.crc = 0;
    const char* body = file.data() + begin + sizeof(entry);
    entry.crc = crc32c(body, entry.entry_bytes - sizeof(entry), crc32c(&entry, sizeof(entry)));
    store(file, begin, entry);
    begin += std::min((size_t{entry.entry_bytes} + 7) / 8 * 8, end - begin);
  }
}

// Returns the size of the chunk, as its header says.
uint64_t repair_chunk(std::string& file, size_t offset) {
  ChunkHeader header = load<ChunkHeader>(file, offset);
  sign_identity(header);
  const size_t begin = offset + sizeof(header);
  const uint64_t stored = std::min<uint64_t>(header.stored_bytes, file.size() - begin);
  if (header.type == ChunkType::kMetadata) repair_entries(file, begin, begin + stored);
  header.payload_crc = crc32c(file.data() + begin, stored);
  if (header.state == ChunkState::kSealed) sign_seal(header);
  store(file, offset, header);
  return header.allocated_bytes;
}

}  // namespace

std::string encode_record(const RawRecord& record) {
  Record raw = {};
  raw.head = record.ticks << kKindBits | static_cast<uint64_t>(record.kind);
  raw.value = record.value;
  raw.name = record.name;
  raw.lane = record.lane;
  return bytes_of(raw);
}

std::string encode_payload(double value) {
  return bytes_of(uint64_t{static_cast<uint8_t>(RecordKind::kPayload)}) +
         bytes_of(std::bit_cast<uint64_t>(value));
}

std::string encode_counter(const RawRecord& record, double value) {
  return encode_record(record) + encode_payload(value);
}

std::string encode_edge(uint32_t producer, uint32_t consumer) {
  return bytes_of(uint64_t{static_cast<uint8_t>(RecordKind::kEdge)}) +
         bytes_of(uint64_t{consumer} | uint64_t{producer} << 32);
}

std::string encode_cost(uint32_t task, uint64_t bytes, uint64_t flops) {
  return encode_record({RecordKind::kTaskCost, bytes, kNoLane, kNoName, task}) +
         bytes_of(uint64_t{static_cast<uint8_t>(RecordKind::kPayload)}) + bytes_of(flops);
}

RawFileBuilder::RawFileBuilder(uint64_t stride_bytes, uint64_t first_chunk_offset)
    : stride_bytes_(stride_bytes) {
  FileHeader header = {};
  std::memcpy(header.magic, kFileMagic, sizeof(kFileMagic));
  header.version = kTraceVersion;
  header.byte_order = kByteOrderMark;
  header.first_chunk_offset = first_chunk_offset;
  header.stride_bytes = stride_bytes;
  header.crc = crc32c(&header, offsetof(FileHeader, crc));
  bytes_ = bytes_of(header);
  if (first_chunk_offset > bytes_.size()) bytes_.resize(first_chunk_offset, '\0');
}

size_t RawFileBuilder::add_chunk(const RawChunk& chunk, std::string_view payload) {
  const size_t offset = bytes_.size();
  ChunkHeader header = {};
  const size_t packed_bytes = sizeof(header) + (payload.size() + 7) / 8 * 8;
  header.magic = kChunkMagic;
  header.type = chunk.type;
  header.allocated_bytes = stride_bytes_ == 0 ? packed_bytes : stride_bytes_;
  GAPLESS_CHECK(packed_bytes <= header.allocated_bytes);
  header.writer = chunk.writer;
  header.sequence = chunk.sequence;
  sign_identity(header);
  if (chunk.sealed) {
    header.stored_bytes = payload.size();
    header.raw_bytes = chunk.raw_bytes == 0 ? payload.size() : chunk.raw_bytes;
    header.encoding = chunk.encoding;
    header.state = ChunkState::kSealed;
    header.payload_crc = crc32c(payload.data(), payload.size());
    sign_seal(header);
  }
  bytes_ += bytes_of(header);
  bytes_ += payload;
  bytes_.resize(offset + header.allocated_bytes, '\0');
  return offset;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

void repair_checksums(std::string& file) {
  if (file.size() < sizeof(FileHeader)) return;
  FileHeader header = load<FileHeader>(file, 0);
  header.crc = crc32c(&header, offsetof(FileHeader, crc));
  store(file, 0, header);
  uint64_t offset = std::max<uint64_t>(header.first_chunk_offset, sizeof(header));
  while (offset < file.size() && file.size() - offset >= sizeof(ChunkHeader)) {
    const uint64_t left = file.size() - offset;
    const bool is_chunk = load<uint32_t>(file, offset) == kChunkMagic;
    const uint64_t step = is_chunk ? repair_chunk(file, offset) : header.stride_bytes;
    if (step < sizeof(ChunkHeader) || step > left) return;
    offset += step;
  }
}

}  // namespace gapless
