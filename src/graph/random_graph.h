// SPDX-License-Identifier: Apache-2.0
//
// Graphs for tests: random programs that can be run, and graphs of edges alone.
//
// The kernels of a random program read all their inputs and write every element of their outputs,
// with constants mixed in so that no two orders of conflicting tasks give the same bits. What a
// program leaves in its external buffers is therefore a fingerprint of the order in which it ran.
// The same seed gives the same program on every machine.

#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace gapless {

struct RandomGraphOptions {
  int task_count = 200;          // at least; a few that keep what intermediates hold come last
  int buffer_count = 6;          // of the whole graph, half of them external; each scope adds one
  int64_t elements = 256;        // int64 elements of a buffer, about
  double spmd_share = 0.25;      // tasks of 2 to 6 blocks, which write disjoint rows
  double predicate_share = 0.1;  // tasks with a predicate; half of these are skipped
  double after_share = 0.05;     // tasks with an explicit edge as well
  double scope_share = 0.05;     // how often a scope begins rather than a task
  bool reduce_edges = true;
};

// External buffers have no address: to be bound, and filled, by who runs it. Intermediates are
// written in full before they are read.
Graph make_random_graph(uint64_t seed, const RandomGraphOptions& options = {});

// Tasks of one kernel, "task", without arguments.
Graph make_graph_of_edges(uint32_t task_count, std::vector<GraphEdge> edges);
// Random edges from smaller to larger numbers, of random kinds.
Graph make_random_edges(uint64_t seed, uint32_t task_count, uint32_t edge_count);

// at(a, b): whether a path leads from a to b. A bit a pair, found by following edges alone.
class Closure {
 public:
  explicit Closure(const Graph& graph);
  bool at(uint32_t a, uint32_t b) const { return reached_[a][b]; }
  bool operator==(const Closure&) const = default;

 private:
  std::vector<std::vector<bool>> reached_;
};

}  // namespace gapless
