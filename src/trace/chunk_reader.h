// SPDX-License-Identifier: Apache-2.0
//
// The chunks of a trace file, found and checked. What is damaged, cut off or was never sealed is
// left out or read as far as it goes, and said.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "gapless/trace_format.h"
#include "trace/trace.h"

namespace gapless {

struct FoundChunk {
  ChunkType type;
  uint32_t writer;
  uint32_t sequence;
  uint64_t offset;  // in the file
  bool sealed;      // false: the payload ends at its first empty slot
  std::span<const std::byte> payload;
  std::vector<std::byte> decoded;  // what `payload` points to when it was compressed
};

struct ChunkScan {
  std::vector<FoundChunk> chunks;
  std::vector<Finding> findings;
};

// Whether these bytes begin a file of ours, of any version.
bool is_trace_file(std::span<const std::byte> first_bytes);

// `name` is for messages. Fails only when the file header does not let us begin.
Result<ChunkScan> scan_chunks(std::span<const std::byte> file, const std::string& name,
                              const Progress& progress);

}  // namespace gapless
