// SPDX-License-Identifier: Apache-2.0
//
// RawFileBuilder: trace files put together byte by byte, good ones and bad ones, for tests, fuzz
// seeds and the example in docs/trace-format.md. It shares nothing with the recorder but the
// structs of gapless/trace_format.h, so that a mistake in one does not hide in the other.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gapless/trace_format.h"

namespace gapless {

struct RawRecord {
  RecordKind kind = RecordKind::kNone;
  uint64_t ticks = 0;
  uint16_t lane = 0;
  uint16_t name = kNoName;
  uint32_t value = kNoValue;
};
std::string encode_record(const RawRecord& record);
// The two records of a counter.
std::string encode_counter(const RawRecord& record, double value);
std::string encode_payload(double value);
std::string encode_edge(uint32_t producer, uint32_t consumer);
// The two records of a cost.
std::string encode_cost(uint32_t task, uint64_t bytes, uint64_t flops);

struct RawChunk {
  ChunkType type = ChunkType::kRecords;
  uint32_t writer = 0;
  uint32_t sequence = 0;
  bool sealed = true;
  ChunkEncoding encoding = ChunkEncoding::kPlain;
  uint64_t raw_bytes = 0;  // 0: as many as are stored
};

class RawFileBuilder {
 public:
  // `stride_bytes` 0: chunks are packed, each padded to eight bytes.
  explicit RawFileBuilder(uint64_t stride_bytes = 0,
                          uint64_t first_chunk_offset = sizeof(FileHeader));

  // Returns where the chunk begins.
  size_t add_chunk(const RawChunk& chunk, std::string_view payload);
  // Zeros where a chunk could be.
  void add_gap(size_t bytes) { bytes_.append(bytes, '\0'); }

  const std::string& bytes() const { return bytes_; }

 private:
  uint64_t stride_bytes_;
  std::string bytes_;
};

std::span<const std::byte> as_bytes(std::string_view text);

// Makes every checksum in `file` right, walking it as a reader does; for files that were changed.
// `file` may hold anything.
void repair_checksums(std::string& file);

}  // namespace gapless
