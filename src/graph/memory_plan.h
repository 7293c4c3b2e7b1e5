// SPDX-License-Identifier: Apache-2.0
//
// MemoryPlan: where in one arena each intermediate buffer of a graph lies.
//
// Two buffers may share bytes when every task that uses the one comes before every task that uses
// the other in the partial order, not merely in the order of submission: sharing then never makes
// a task wait that would not have waited anyway. When that does not fit, the plan may follow one
// legal order of the tasks and pay with lifetime edges.
//
// Who comes before whom is found for 512 tasks at a time, with one bit each that is passed on along
// the edges. Then the largest buffer is placed first, each at the lowest place that is free of
// buffers it may not share with.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace gapless {

struct MemoryPlanOptions {
  int64_t alignment = 64;   // of offsets, a power of two; sizes are rounded up to it
  int64_t arena_bytes = 0;  // 0: as much as the plan needs
  // Where the plan without new edges is larger than the arena: add lifetime edges until it fits.
  bool may_add_edges = false;
};

struct MemoryPlan {
  // Of each buffer of the graph; -1: not an intermediate. One that no task uses, or of 0 bytes, is
  // at 0, takes no space and is counted nowhere.
  std::vector<int64_t> offsets;
  int64_t peak_bytes = 0;   // the arena it needs
  int64_t sum_bytes = 0;    // without sharing
  int64_t floor_bytes = 0;  // no plan can be smaller: the most that one task needs at once
  std::vector<GraphEdge> lifetime_edges;  // to be added to the graph for this plan to be right
};

// At most this many intermediates that tasks use: who may share with whom is a bit a pair.
inline constexpr size_t kMaxPlannedBuffers = 32768;

// An error names the buffer or the task and the numbers when the arena is too small, and the cycle
// when the graph has one.
Result<MemoryPlan> plan_memory(const Graph& graph, const MemoryPlanOptions& options = {});
// The plan's edges, in the graph. They are every last user of one buffer before every first user of
// the next: reduce_edges() drops those that others among them imply.
Result<void> add_lifetime_edges(Graph& graph, const MemoryPlan& plan);

}  // namespace gapless
