// SPDX-License-Identifier: Apache-2.0
//
// MetadataLog: names, lanes, anchors and the rest, appended to metadata chunks as they come to be,
// so that a killed program leaves them in the file too. Cold path; the caller holds a lock.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gapless/trace_format.h"
#include "trace/chunk_file.h"
#include "trace/registry.h"

namespace gapless {

// One entry, encoded: header, body, padding to eight bytes.
std::string encode_entry(MetadataKind kind, uint32_t id, std::string_view body);
std::string encode_name(uint32_t id, std::string_view text);
std::string encode_lane(uint32_t id, const LaneBody& body, std::string_view name);
std::string encode_device(uint32_t id, int64_t number, std::string_view name);
std::string encode_anchor(const AnchorBody& anchor);
std::string encode_clock(const ClockBody& clock);
std::string encode_property(std::string_view key, std::string_view value);
std::string encode_finding(const FindingBody& body, std::string_view code, std::string_view text);
std::string encode_end(const EndBody& end);

class MetadataLog {
 public:
  explicit MetadataLog(ChunkFile& file) : file_(file) {}

  // False when there was no room for it: the file could not grow, or it is larger than a chunk.
  // Some room is always left for append_closing().
  bool append(const std::string& entry);
  // For the few entries that end a file, up to kClosingBytes of them: needs no new chunk once there
  // is one.
  bool append_closing(const std::string& entry);
  // Seals the chunks and unmaps them.
  void close();

 private:
  static constexpr size_t kClosingBytes = 4096;
  bool make_room(size_t bytes);

  ChunkFile& file_;
  std::vector<Chunk*> chunks_;
  size_t used_bytes_ = 0;  // of the last chunk's payload
};

}  // namespace gapless
