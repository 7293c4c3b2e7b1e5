// SPDX-License-Identifier: Apache-2.0
//
// Buffers of a stream: those of the caller are only noted; intermediates come from the heap ring of
// their scope's depth and go back to it in order.

#include <algorithm>
#include <optional>

#include "runtime/stream_engine.h"

namespace gapless {

int StreamEngine::ring_number() const {
  return std::min(static_cast<int>(scope_begins_.size()), state_.options.ring_count - 1);
}

BufferFacts StreamEngine::facts_of(BufferId buffer) const {
  if (buffer.index() >= buffers_.size()) return {};
  const StreamBuffer& entry = buffers_[buffer.index()];
  if (entry.bytes < 0 || entry.generation != buffer.id >> BufferId::kIndexBits) return {};
  if (entry.is_closed) return {};
  return {entry.bytes, entry.kind, entry.name};
}

std::byte* StreamEngine::address(BufferId buffer) const {
  return facts_of(buffer).bytes < 0 ? nullptr : state_.addresses[buffer.index()];
}

void StreamEngine::reclaim_heap(int number) {
  std::deque<uint32_t>& order = heap_order_[static_cast<size_t>(number)];
  while (!order.empty()) {
    const uint32_t index = order.front();
    StreamBuffer& buffer = buffers_[index];
    if (!buffer.is_closed) return;
    if (state_.released[index].load(std::memory_order_acquire) != buffer.held_count) return;
    state_.rings[static_cast<size_t>(number)]->heap.release_to(buffer.heap_end);
    map_.forget({buffer.generation << BufferId::kIndexBits | index});
    buffer.bytes = -1;
    constexpr uint32_t kGenerationMask = 0xffffffff >> BufferId::kIndexBits;
    buffer.generation = (buffer.generation + 1) & kGenerationMask;
    state_.addresses[index] = nullptr;
    free_buffers_.push_back(index);
    order.pop_front();
  }
}

Result<uint32_t> StreamEngine::take_buffer_index() {
  if (free_buffers_.empty()) {
    bool may_wait = false;
    for (int i = 0; i < state_.options.ring_count; ++i) {
      const std::deque<uint32_t>& order = heap_order_[static_cast<size_t>(i)];
      if (!order.empty() && buffers_[order.front()].is_closed) may_wait = true;
    }
    if (!may_wait) {
      return fail(ErrorCode::kInvalidInput,
                  "stream: {} buffers are alive and none can be freed before a scope ends",
                  buffers_.size());
    }
    work_until(StreamWait::kBuffers, ring_number(), [this] {
      for (int i = 0; i < state_.options.ring_count; ++i) reclaim_heap(i);
      return !free_buffers_.empty();
    });
  }
  const uint32_t index = free_buffers_.front();
  free_buffers_.pop_front();
  return index;
}

// Edges are found between views of one buffer: memory under two names would have none. Constants
// are never written, so two of them may share.
Result<void> StreamEngine::check_aliases(const BufferSpec& spec) const {
  const std::byte* const begin = static_cast<const std::byte*>(spec.data);
  for (const uint32_t index : callers_buffers_) {
    const StreamBuffer& other = buffers_[index];
    if (spec.kind == BufferKind::kConstant && other.kind == BufferKind::kConstant) continue;
    const std::byte* const other_begin = state_.addresses[index];
    if (begin >= other_begin + other.bytes || other_begin >= begin + spec.bytes) continue;
    return fail(ErrorCode::kInvalidInput,
                "buffer '{}' shares memory with buffer '{}'; edges between them would not be found",
                spec.name, other.name);
  }
  return {};
}

Result<BufferId> StreamEngine::add_buffer(const BufferSpec& spec) {
  if (spec.kind > BufferKind::kIntermediate) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}': there is no buffer kind {}", spec.name,
                static_cast<int>(spec.kind));
  }
  if (spec.bytes < 0) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}': {} bytes", spec.name, spec.bytes);
  }
  if (spec.kind == BufferKind::kIntermediate) return add_intermediate(spec);
  if (spec.data == nullptr && spec.bytes > 0) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}': a stream needs its address now", spec.name);
  }
  GAPLESS_TRY(check_aliases(spec));
  const uint32_t index = GAPLESS_TRY(take_buffer_index());
  StreamBuffer& buffer = buffers_[index];
  buffer.name = spec.name;
  buffer.kind = spec.kind;
  buffer.bytes = spec.bytes;
  buffer.is_closed = false;
  state_.addresses[index] = static_cast<std::byte*>(spec.data);
  callers_buffers_.push_back(index);
  return BufferId{buffer.generation << BufferId::kIndexBits | index};
}

Result<BufferId> StreamEngine::add_intermediate(const BufferSpec& spec) {
  const int number = ring_number();
  StreamRing& ring = *state_.rings[static_cast<size_t>(number)];
  const uint64_t bytes = static_cast<uint64_t>(spec.bytes);
  if (bytes > ring.heap.capacity()) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}': {} bytes, but a heap ring has {}",
                spec.name, spec.bytes, ring.heap.capacity());
  }
  const uint32_t index = GAPLESS_TRY(take_buffer_index());
  std::deque<uint32_t>& order = heap_order_[static_cast<size_t>(number)];
  std::optional<BumpRing::Place> place = ring.heap.allocate(bytes, kBufferAlignment);
  if (!place) reclaim_heap(number);
  while (!place) {
    place = ring.heap.allocate(bytes, kBufferAlignment);
    if (place) break;
    // The oldest buffer belongs to a scope that is still open: waiting would be for ever.
    if (!buffers_[order.front()].is_closed) {
      free_buffers_.push_front(index);
      return fail(ErrorCode::kInvalidInput,
                  "buffer '{}': {} bytes do not fit: scopes that are still open hold {} of the {} "
                  "bytes of heap ring {}, from buffer '{}' on",
                  spec.name, spec.bytes, ring.heap.used(), ring.heap.capacity(), number,
                  buffers_[order.front()].name);
    }
    const size_t before = order.size();
    work_until(StreamWait::kHeap, number, [this, number, before, &order] {
      reclaim_heap(number);
      return order.size() < before;
    });
  }
  StreamBuffer& buffer = buffers_[index];
  buffer.name = spec.name;
  buffer.kind = BufferKind::kIntermediate;
  buffer.bytes = spec.bytes;
  buffer.is_closed = false;
  buffer.heap_end = place->end;
  buffer.held_count = 0;
  state_.released[index].store(0, std::memory_order_relaxed);
  state_.addresses[index] = ring.heap_memory + place->offset;
  order.push_back(index);
  scope_buffers_.push_back(index);
  int64_t used = 0;
  for (const std::unique_ptr<StreamRing>& each : state_.rings) {
    used += static_cast<int64_t>(each->heap.used());
  }
  heap_peak_bytes_ = std::max(heap_peak_bytes_, used);
  return BufferId{buffer.generation << BufferId::kIndexBits | index};
}

Result<void> StreamEngine::end_scope() {
  if (scope_begins_.empty()) {
    return fail(ErrorCode::kInvalidInput, "stream: end_scope() without begin_scope()");
  }
  for (size_t i = scope_begins_.back(); i < scope_buffers_.size(); ++i) {
    buffers_[scope_buffers_[i]].is_closed = true;
  }
  scope_buffers_.resize(scope_begins_.back());
  scope_begins_.pop_back();
  return {};
}

}  // namespace gapless
