// SPDX-License-Identifier: Apache-2.0
//
// Graph: tasks, the views they touch and the edges between them, frozen.
//
// Made by a GraphBuilder; read by everything that runs, plans, checks, prints or simulates. In a
// graph that a builder made, task t depends only on tasks with smaller numbers, so that the numbers
// themselves are a legal order. Edges lie in one array by consumer and in one by producer.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/task.h"
#include "trace/trace.h"

namespace gapless {

// One task that another waits for. EdgeKind is the trace's: data (it reads what the producer
// wrote), order (it overwrites what the producer read or wrote, or the user said so), lifetime (it
// uses memory that the producer's data occupied).
struct Edge {
  uint32_t task = 0;  // the other end
  EdgeKind kind = EdgeKind::kData;
  bool operator==(const Edge&) const = default;
};

struct GraphTask {
  KernelId kernel;
  CoreKind core = CoreKind::kAny;
  bool gang = false;
  int32_t block_count = 1;
  uint32_t first_argument = 0;
  uint32_t first_scalar = 0;
  uint16_t argument_count = 0;
  uint16_t scalar_count = 0;
  uint32_t scope = 0;  // index of Graph::scopes
  Predicate predicate = {};
  CostHint cost = {};
  const std::vector<CostHint>* block_costs = nullptr;  // as in TaskSpec
};

struct GraphBuffer {
  std::string name;
  BufferKind kind = BufferKind::kIntermediate;
  int64_t bytes = 0;
  void* data = nullptr;  // where it was when the graph was made; nullptr: bound later
  uint32_t scope = 0;
};

// Scope 0 is the whole graph.
struct GraphScope {
  uint32_t parent = 0;
  uint32_t depth = 0;
  uint32_t first_task = 0;
  uint32_t end_task = 0;  // one past the last task added while it was open
};

struct Graph {
  KernelTable kernels;
  std::vector<GraphTask> tasks;
  std::vector<Argument> arguments;
  std::vector<Scalar> scalars;
  std::vector<GraphBuffer> buffers;
  std::vector<GraphScope> scopes;
  // Edges into task t: producers[producer_begin[t] .. producer_begin[t + 1]), smallest task first.
  std::vector<uint32_t> producer_begin;
  std::vector<Edge> producers;
  // Edges out of task t, smallest task first.
  std::vector<uint32_t> successor_begin;
  std::vector<Edge> successors;

  uint32_t task_count() const { return static_cast<uint32_t>(tasks.size()); }
  std::span<const Argument> arguments_of(uint32_t task) const {
    return {arguments.data() + tasks[task].first_argument, tasks[task].argument_count};
  }
  std::span<const Scalar> scalars_of(uint32_t task) const {
    return {scalars.data() + tasks[task].first_scalar, tasks[task].scalar_count};
  }
  std::span<const Edge> producers_of(uint32_t task) const {
    return {producers.data() + producer_begin[task],
            producer_begin[task + 1] - producer_begin[task]};
  }
  std::span<const Edge> successors_of(uint32_t task) const {
    return {successors.data() + successor_begin[task],
            successor_begin[task + 1] - successor_begin[task]};
  }
  const std::string& kernel_name(uint32_t task) const { return kernels[tasks[task].kernel].name; }
};

// "data", "order", "lifetime".
std::string_view edge_kind_name(EdgeKind kind);
// "task 17 (gate_up)": how every message names a task.
std::string task_text(const Graph& graph, uint32_t task);

// An edge of a graph that is being made.
struct GraphEdge {
  uint32_t producer = 0;
  uint32_t consumer = 0;
  EdgeKind kind = EdgeKind::kData;
};
// Replaces the graph's edges. Of several between the same two tasks the strongest kind stays: data,
// then order, then lifetime. An edge to a task that does not exist is an error. Edges against the
// order of the numbers are taken; whether they make a cycle is for topological_order() to find.
Result<void> set_edges(Graph& graph, std::vector<GraphEdge> edges);
std::vector<GraphEdge> edges_of(const Graph& graph);

// A legal order, of several possible the one with the smallest numbers first. A cycle is an error
// that names its tasks.
Result<std::vector<uint32_t>> topological_order(const Graph& graph);

// The length of the longest path from each task to an end of the graph, itself included, in the
// unit of `task_cost`: the priority of the task. The graph must have no cycle.
std::vector<double> longest_remaining(const Graph& graph, std::span<const double> task_cost);
// What a task costs by its hint, in bytes moved: on a machine that computes 50 flops meanwhile, the
// larger of the two. A task without a hint costs the median of the others, or 1 when none has one.
std::vector<double> cost_of_tasks(const Graph& graph);

}  // namespace gapless
