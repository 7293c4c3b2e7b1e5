// SPDX-License-Identifier: Apache-2.0
//
// ChunkFile: a trace file under recording, handed out as mapped chunks of one size.
//
// The file is the memory: what is stored in a chunk is in the page cache, and stays there when the
// process is killed. Blocks are reserved before they are mapped, so that a full disk is an answer
// of make_chunk() and never a SIGBUS in the program that is watched. All calls may come from any
// thread; none takes a lock.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gapless/trace_format.h"

namespace gapless {

// A chunk in memory. Who has the pointer owns it.
struct Chunk {
  std::byte* memory = nullptr;
  uint64_t offset = 0;
  Chunk* next = nullptr;    // in a list of ready or of full chunks
  uint16_t lane = kNoLane;  // of the thread that filled it, for records that name none

  ChunkHeader& header() const { return *reinterpret_cast<ChunkHeader*>(memory); }
  std::byte* payload() const { return memory + sizeof(ChunkHeader); }
  Record* records() const { return reinterpret_cast<Record*>(payload()); }
};

class ChunkFile {
 public:
  static constexpr uint64_t kChunkBytes = 256 * 1024;
  static constexpr uint64_t kFirstChunkOffset = 64 * 1024;  // the largest page size we meet
  static constexpr size_t kPayloadBytes = kChunkBytes - sizeof(ChunkHeader);
  static constexpr size_t kRecordsPerChunk = kPayloadBytes / sizeof(Record);

  ChunkFile() = default;
  ChunkFile(const ChunkFile&) = delete;
  ChunkFile& operator=(const ChunkFile&) = delete;
  ~ChunkFile();

  // Empty when the file is there with its header; else what went wrong.
  std::string create(const std::string& path);

  // A zeroed chunk whose pages are there already: no store into it has to wait. Takes about 80 us.
  // nullptr when the disk or the address space is full.
  Chunk* make_chunk();

  // Writes the part of the header that makes the chunk findable.
  static void identify(Chunk& chunk, ChunkType type, uint32_t writer, uint32_t sequence);
  // Declares the first `bytes` of the payload final.
  static void seal(Chunk& chunk, uint64_t bytes);
  // How many records are in an open chunk.
  static size_t count_records(const Chunk& chunk);
  // Empties a chunk for its next use.
  static void clear(Chunk& chunk);

  // Gives the memory back; the bytes stay in the file.
  static void unmap(Chunk* chunk);
  // Gives back the disk blocks behind the first `bytes` of the payload, which become zero.
  void punch(const Chunk& chunk, uint64_t bytes);

  uint64_t end_offset() const { return end_offset_.load(std::memory_order_relaxed); }
  // Cuts the file if it is longer; nothing after `offset` may be mapped. Returns its size.
  uint64_t shrink_to(uint64_t offset);
  void close();

 private:
  int fd_ = -1;
  std::unique_ptr<char[]> zeros_ = std::make_unique<char[]>(kChunkBytes);  // what chunks begin as
  std::atomic<uint64_t> end_offset_ = kFirstChunkOffset;
};

}  // namespace gapless
