// SPDX-License-Identifier: Apache-2.0
//
// Chunks on their way between a writer and the keeper. The links are in the chunks, so that moving
// them about allocates nothing.

#pragma once

#include <atomic>

#include "trace/chunk_file.h"

namespace gapless {

// A list that one side pushes to and one other side takes from, without locks.
class ChunkList {
 public:
  void push(Chunk* chunk);
  Chunk* pop();       // for one thread at a time
  Chunk* take_all();  // newest first
  int count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Chunk*> head_ = nullptr;
  std::atomic<int> count_ = 0;
};

// Chunks in the order they came. For whoever holds the lock.
class ChunkQueue {
 public:
  void push(Chunk* chunk);
  Chunk* pop();  // the oldest; nullptr when there is none

 private:
  Chunk* oldest_ = nullptr;
  Chunk* newest_ = nullptr;
};

}  // namespace gapless
