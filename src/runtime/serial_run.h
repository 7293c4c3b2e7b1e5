// SPDX-License-Identifier: Apache-2.0
//
// A graph run on the calling thread in any legal order: the oracle for everything that runs it
// faster, and the test that its edges are enough.
//
// If a graph has all the edges it needs, every legal order gives the same bits. run_in_many_orders
// tries it. With shadow on, accesses are checked (runtime/shadow.h), and writes that bypass the
// checks are found by comparing all memory before and after each block: slow, for tests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace gapless {

// Bytes at a cache line, as buffers of a Replay are.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment = std::align_val_t{64};
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* data, size_t) { ::operator delete(data, kAlignment); }
  bool operator==(const LineAllocator&) const = default;
};
using LineBytes = std::vector<std::byte, LineAllocator<std::byte>>;

// Memory for all buffers of a graph, each for itself: nothing is shared, nothing is planned.
// Predicates and scalars read where the graph says they are, not here.
class GraphMemory {
 public:
  // Bytes before and after each buffer, where a write can be noticed.
  static constexpr size_t kGuardBytes = 64;

  // External and constant buffers are copied from where the graph says they are; buffers without
  // an address and intermediates are filled with a pattern made from `seed`.
  GraphMemory(const Graph& graph, uint64_t seed);
  GraphMemory(GraphMemory&&) noexcept = default;
  GraphMemory& operator=(GraphMemory&&) noexcept = default;

  const std::vector<std::byte*>& addresses() const { return addresses_; }
  std::byte* data(BufferId buffer) { return addresses_[buffer.index()]; }
  // All that was allocated, one buffer after the other, guards included.
  const std::vector<LineBytes>& guarded() const { return memory_; }
  // Where two memories differ first, in buffers of the caller (results; intermediates do not
  // count): "buffer 3 ('y') differs at byte 128: 17 and 20"; empty: nowhere.
  static std::string first_difference(const Graph& graph, const GraphMemory& a,
                                      const GraphMemory& b);

 private:
  std::vector<LineBytes> memory_;
  std::vector<std::byte*> addresses_;
};

struct SerialOptions {
  uint64_t order_seed = 0;  // 0: the order of the numbers; others: a random legal order each
  bool shadow = false;
};

struct SerialSummary {
  uint64_t run_count = 0;      // blocks whose kernel was called
  uint64_t skipped_count = 0;  // tasks whose predicate did not hold
};

// The blocks of a task run one after the other, so a gang whose blocks wait for each other cannot
// be run: gangs of more than one block are an error. A task's failure is an error with its name.
Result<SerialSummary> run_serially(const Graph& graph, GraphMemory& memory,
                                   const SerialOptions& options = {});

// Runs the graph in the order of its numbers and in `order_count` random legal orders, all from
// the same memory, and compares the caller's buffers: an error says which order and where.
Result<void> run_in_many_orders(const Graph& graph, int order_count, uint64_t seed);

}  // namespace gapless
