// SPDX-License-Identifier: Apache-2.0

#include "trace/chunk_list.h"

#include <utility>

namespace gapless {

void ChunkList::push(Chunk* chunk) {
  count_.fetch_add(1, std::memory_order_relaxed);
  chunk->next = head_.load(std::memory_order_relaxed);
  while (!head_.compare_exchange_weak(chunk->next, chunk, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

// One thread takes, so a head cannot go and come back between the load and the exchange.
Chunk* ChunkList::pop() {
  Chunk* head = head_.load(std::memory_order_acquire);
  while (head != nullptr &&
         !head_.compare_exchange_weak(head, head->next, std::memory_order_acquire,
                                      std::memory_order_acquire)) {
  }
  if (head != nullptr) count_.fetch_sub(1, std::memory_order_relaxed);
  return head;
}

Chunk* ChunkList::take_all() {
  count_.store(0, std::memory_order_relaxed);
  return head_.exchange(nullptr, std::memory_order_acquire);
}

void ChunkQueue::push(Chunk* chunk) {
  chunk->next = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->next) = chunk;
  newest_ = chunk;
}

Chunk* ChunkQueue::pop() {
  Chunk* chunk = oldest_;
  if (chunk == nullptr) return nullptr;
  oldest_ = chunk->next;
  if (oldest_ == nullptr) newest_ = nullptr;
  return chunk;
}

}  // namespace gapless
