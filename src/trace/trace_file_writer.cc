// SPDX-License-Identifier: Apache-2.0

#include "trace/trace_file_writer.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include <zstd.h>

#include "base/crc32c.h"
#include "gapless/trace_format.h"
#include "trace/metadata_log.h"

namespace gapless {
namespace {

constexpr size_t kRowsPerChunk = 1 << 20;
constexpr size_t kMetadataChunkBytes = 1 << 20;

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

class ChunkWriter {
 public:
  ChunkWriter(OutputFile& file, bool compress) : file_(file), compress_(compress) {}

  // Chunks start at multiples of eight bytes.
  void write(ChunkType type, std::string_view payload) {
    ChunkHeader header = {};
    header.magic = kChunkMagic;
    header.type = type;
    header.sequence = sequence_++;
    header.raw_bytes = payload.size();
    header.state = ChunkState::kSealed;
    if (compress_) {
      compressed_.resize(ZSTD_compressBound(payload.size()));
      const size_t size =
          ZSTD_compress(compressed_.data(), compressed_.size(), payload.data(), payload.size(), 1);
      if (ZSTD_isError(size) == 0 && size < payload.size()) {
        payload = std::string_view(compressed_.data(), size);
        header.encoding = ChunkEncoding::kZstd;
      }
    }
    const size_t padding = (8 - payload.size() % 8) % 8;
    header.allocated_bytes = sizeof(header) + payload.size() + padding;
    header.identity_crc = crc32c(&header, offsetof(ChunkHeader, identity_crc));
    header.stored_bytes = payload.size();
    header.payload_crc = crc32c(payload.data(), payload.size());
    constexpr size_t kBegin = offsetof(ChunkHeader, stored_bytes);
    header.seal_crc = crc32c(&header.stored_bytes, offsetof(ChunkHeader, seal_crc) - kBegin);
    file_.append(bytes_of(header));
    file_.append(payload);
    file_.append(std::string_view("\0\0\0\0\0\0\0", padding));
  }

 private:
  OutputFile& file_;
  const bool compress_;
  uint32_t sequence_ = 0;
  std::vector<char> compressed_;
};

// Metadata entries, put together into chunks.
class EntryWriter {
 public:
  explicit EntryWriter(ChunkWriter& chunks) : chunks_(chunks) {}
  void add(const std::string& entry) {
    if (!pending_.empty() && pending_.size() + entry.size() > kMetadataChunkBytes) flush();
    pending_ += entry;
  }
  void flush() {
    if (!pending_.empty()) chunks_.write(ChunkType::kMetadata, pending_);
    pending_.clear();
  }

 private:
  ChunkWriter& chunks_;
  std::string pending_;
};

void write_metadata(const Trace& trace, EntryWriter& entries) {
  for (const Property& property : trace.properties) {
    entries.add(encode_property(property.key, property.value));
  }
  ClockBody clock = {};
  clock.source = trace.clock.source;
  clock.invariant = trace.clock.invariant ? 1 : 0;
  clock.ticks_per_second = trace.clock.ticks_per_second;
  clock.wall_minus_time_ns = trace.clock.wall_minus_time_ns;
  entries.add(encode_clock(clock));
  for (const Anchor& anchor : trace.clock.anchors) {
    entries.add(encode_anchor({anchor.ticks, anchor.time_ns}));
  }
  for (uint32_t id = 0; id < trace.devices.size(); ++id) {
    entries.add(encode_device(id, trace.devices[id].number, trace.devices[id].name));
  }
  for (uint32_t id = 0; id < trace.lanes.size(); ++id) {
    const Lane& lane = trace.lanes[id];
    LaneBody body = {};
    body.number = lane.number;
    body.device = lane.device;
    body.kind = lane.kind;
    body.meaning = static_cast<uint8_t>(lane.meaning);
    body.dropped_count = lane.dropped_count;
    entries.add(encode_lane(id, body, lane.name));
  }
  for (uint32_t id = 0; id < trace.names.size(); ++id) {
    entries.add(encode_name(id, trace.names[id]));
  }
  for (const Finding& finding : trace.findings) {
    FindingBody body = {};
    body.severity = static_cast<uint8_t>(finding.severity);
    body.lane = finding.lane;
    body.count = finding.count;
    entries.add(encode_finding(body, finding.code, finding.text));
  }
  entries.flush();
}

struct ColumnWriter {
  ChunkWriter& chunks;
  const Progress& progress;
  uint64_t rows_total;  // over all columns
  uint64_t rows_done = 0;
  std::string payload = {};

  // The rows from `first` on, as many as go into one chunk.
  template <typename T>
  void write(int table, int column, const std::vector<T>& values, size_t first) {
    if (first >= values.size()) return;
    const size_t rows = std::min(kRowsPerChunk, values.size() - first);
    ColumnBlock block = {};
    block.table = static_cast<uint16_t>(table);
    block.column = static_cast<uint16_t>(column);
    block.element_bytes = sizeof(T);
    block.first_row = first;
    block.row_count = rows;
    payload.assign(bytes_of(block));
    payload.append(reinterpret_cast<const char*>(values.data() + first), rows * sizeof(T));
    chunks.write(ChunkType::kColumns, payload);
    rows_done += rows;
    if (progress) progress(rows_done, rows_total);
  }
};

// All columns of a stretch of rows before those of the next: a file that is cut short keeps whole
// rows.
void write_columns(const Trace& trace, ColumnWriter& columns) {
  size_t longest = 0;
  for_each_column(trace, [&longest](int, int, const auto& values) {
    longest = std::max(longest, values.size());
  });
  for (size_t first = 0; first < longest; first += kRowsPerChunk) {
    for_each_column(trace, [&columns, first](int table, int column, const auto& values) {
      columns.write(table, column, values, first);
    });
  }
}

FileHeader packed_file_header() {
  FileHeader header = {};
  std::memcpy(header.magic, kFileMagic, sizeof(kFileMagic));
  header.version = kTraceVersion;
  header.byte_order = kByteOrderMark;
  header.first_chunk_offset = sizeof(FileHeader);
  header.crc = crc32c(&header, offsetof(FileHeader, crc));
  return header;
}

}  // namespace

Result<void> write_trace_file(const Trace& trace, const std::string& path,
                              const TraceFileOptions& options) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  const FileHeader header = packed_file_header();
  file.append(bytes_of(header));
  ChunkWriter chunks(file, options.compress);
  EntryWriter entries(chunks);
  write_metadata(trace, entries);

  uint64_t elements = 0;
  for_each_column(trace, [&elements](int, int, const auto& values) { elements += values.size(); });
  ColumnWriter columns{chunks, options.progress, elements};
  write_columns(trace, columns);
  // A trace without a row is a trace too: this chunk says that it has columns.
  if (elements == 0) {
    ColumnBlock empty = {};
    empty.table = 1;
    empty.column = 1;
    empty.element_bytes = sizeof(int64_t);
    chunks.write(ChunkType::kColumns, bytes_of(empty));
  }
  // The end entry states the size of the file with itself in it.
  ChunkWriter plain_chunks(file, false);
  const uint64_t rows = trace.spans.size() + trace.tasks.size() + trace.edges.size() +
                        trace.counters.size() + trace.instants.size() + trace.flows.size();
  const size_t entry_bytes = encode_end({}).size();
  const uint64_t file_bytes = file.bytes_written() + sizeof(ChunkHeader) + entry_bytes;
  plain_chunks.write(ChunkType::kMetadata, encode_end({file_bytes, rows}));
  return file.commit();
}

}  // namespace gapless
