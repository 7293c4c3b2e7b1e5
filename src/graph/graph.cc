// SPDX-License-Identifier: Apache-2.0

#include "graph/graph.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "base/check.h"

namespace gapless {
namespace {

// Of a machine that is balanced: it computes this much while it moves one byte.
constexpr double kFlopsPerByte = 50.0;
constexpr size_t kNamedTasksOfCycle = 8;

// Stable: edges of one key keep their order.
template <typename KeyOf>
std::vector<GraphEdge> counting_sort(const std::vector<GraphEdge>& edges, uint32_t key_count,
                                     KeyOf key_of) {
  std::vector<uint32_t> position(size_t{key_count} + 1, 0);
  for (const GraphEdge& edge : edges) ++position[size_t{key_of(edge)} + 1];
  std::partial_sum(position.begin(), position.end(), position.begin());
  std::vector<GraphEdge> sorted(edges.size());
  for (const GraphEdge& edge : edges) sorted[position[key_of(edge)]++] = edge;
  return sorted;
}

// Joins edges between the same two tasks, which lie side by side, into one of the strongest kind.
void join_duplicates(std::vector<GraphEdge>& edges) {
  size_t kept = 0;
  for (const GraphEdge& edge : edges) {
    const bool same = kept > 0 && edges[kept - 1].producer == edge.producer &&
                      edges[kept - 1].consumer == edge.consumer;
    if (same) {
      edges[kept - 1].kind = std::min(edges[kept - 1].kind, edge.kind);
    } else {
      edges[kept++] = edge;
    }
  }
  edges.resize(kept);
}

bool numbers_are_an_order(const Graph& graph) {
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const std::span<const Edge> producers = graph.producers_of(task);
    if (!producers.empty() && producers.back().task >= task) return false;
  }
  return true;
}

// One cycle among the tasks whose `waits_for` is not 0, in the order in which they would run. Each
// of them has a producer that waits as well, so that walking back must come round.
std::vector<uint32_t> find_cycle(const Graph& graph, const std::vector<uint32_t>& waits_for) {
  const auto first =
      std::find_if(waits_for.begin(), waits_for.end(), [](uint32_t count) { return count != 0; });
  std::vector<uint32_t> path;
  std::vector<uint32_t> place(graph.task_count(), kNoIndex);  // in `path`
  uint32_t task = static_cast<uint32_t>(first - waits_for.begin());
  while (place[task] == kNoIndex) {
    place[task] = static_cast<uint32_t>(path.size());
    path.push_back(task);
    for (const Edge& edge : graph.producers_of(task)) {
      if (waits_for[edge.task] == 0) continue;
      task = edge.task;
      break;
    }
  }
  std::vector<uint32_t> cycle(path.begin() + place[task], path.end());
  std::reverse(cycle.begin(), cycle.end());
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  return cycle;
}

Error cycle_error(const Graph& graph, const std::vector<uint32_t>& cycle) {
  if (cycle.size() == 1) {
    return fail(ErrorCode::kInvalidInput, "{} waits for itself", task_text(graph, cycle[0]));
  }
  std::string text;
  for (size_t i = 0; i < std::min(cycle.size(), kNamedTasksOfCycle); ++i) {
    text += task_text(graph, cycle[i]) + " -> ";
  }
  text += cycle.size() > kNamedTasksOfCycle ? "..." : task_text(graph, cycle[0]);
  return fail(ErrorCode::kInvalidInput, "{} tasks wait for each other: {}", cycle.size(), text);
}

}  // namespace

std::string_view edge_kind_name(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kData:
      return "data";
    case EdgeKind::kOrder:
      return "order";
    case EdgeKind::kLifetime:
      return "lifetime";
  }
  return "";
}

std::string task_text(const Graph& graph, uint32_t task) {
  if (!graph.kernels.contains(graph.tasks[task].kernel)) return fmt::format("task {}", task);
  return fmt::format("task {} ({})", task, graph.kernel_name(task));
}

Result<void> set_edges(Graph& graph, std::vector<GraphEdge> edges) {
  const uint32_t task_count = graph.task_count();
  if (edges.size() > std::numeric_limits<uint32_t>::max()) {
    return fail(ErrorCode::kInvalidInput, "{} edges are more than a graph can hold", edges.size());
  }
  for (const GraphEdge& edge : edges) {
    if (edge.producer < task_count && edge.consumer < task_count) continue;
    return fail(ErrorCode::kInvalidInput,
                "an edge from task {} to task {}, but the graph has {} tasks", edge.producer,
                edge.consumer, task_count);
  }
  edges = counting_sort(edges, task_count, [](const GraphEdge& edge) { return edge.producer; });
  edges = counting_sort(edges, task_count, [](const GraphEdge& edge) { return edge.consumer; });
  join_duplicates(edges);

  graph.producer_begin.assign(size_t{task_count} + 1, 0);
  graph.successor_begin.assign(size_t{task_count} + 1, 0);
  for (const GraphEdge& edge : edges) {
    ++graph.producer_begin[size_t{edge.consumer} + 1];
    ++graph.successor_begin[size_t{edge.producer} + 1];
  }
  std::partial_sum(graph.producer_begin.begin(), graph.producer_begin.end(),
                   graph.producer_begin.begin());
  std::partial_sum(graph.successor_begin.begin(), graph.successor_begin.end(),
                   graph.successor_begin.begin());
  graph.producers.resize(edges.size());
  graph.successors.resize(edges.size());
  std::vector<uint32_t> position(graph.successor_begin.begin(), graph.successor_begin.end() - 1);
  for (size_t i = 0; i < edges.size(); ++i) {
    graph.producers[i] = {edges[i].producer, edges[i].kind};
    graph.successors[position[edges[i].producer]++] = {edges[i].consumer, edges[i].kind};
  }
  return {};
}

std::vector<GraphEdge> edges_of(const Graph& graph) {
  std::vector<GraphEdge> edges;
  edges.reserve(graph.producers.size());
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const Edge& edge : graph.producers_of(task)) edges.push_back({edge.task, task, edge.kind});
  }
  return edges;
}

Result<std::vector<uint32_t>> topological_order(const Graph& graph) {
  const uint32_t task_count = graph.task_count();
  std::vector<uint32_t> order(task_count);
  std::iota(order.begin(), order.end(), 0);
  if (numbers_are_an_order(graph)) return order;

  order.clear();
  std::vector<uint32_t> waits_for(task_count);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t task = 0; task < task_count; ++task) {
    waits_for[task] = static_cast<uint32_t>(graph.producers_of(task).size());
    if (waits_for[task] == 0) ready.push(task);
  }
  while (!ready.empty()) {
    const uint32_t task = ready.top();
    ready.pop();
    order.push_back(task);
    for (const Edge& edge : graph.successors_of(task)) {
      if (--waits_for[edge.task] == 0) ready.push(edge.task);
    }
  }
  if (order.size() < task_count) return cycle_error(graph, find_cycle(graph, waits_for));
  return order;
}

std::vector<double> longest_remaining(const Graph& graph, std::span<const double> task_cost) {
  GAPLESS_CHECK(task_cost.size() == graph.tasks.size());
  const Result<std::vector<uint32_t>> order = topological_order(graph);
  GAPLESS_CHECK(order.has_value());
  std::vector<double> remaining(graph.tasks.size(), 0.0);
  for (size_t i = order->size(); i-- > 0;) {
    const uint32_t task = (*order)[i];
    double longest = 0.0;
    for (const Edge& edge : graph.successors_of(task)) {
      longest = std::max(longest, remaining[edge.task]);
    }
    remaining[task] = task_cost[task] + longest;
  }
  return remaining;
}

std::vector<double> cost_of_tasks(const Graph& graph) {
  std::vector<double> cost(graph.tasks.size(), 0.0);
  std::vector<double> known;
  for (size_t task = 0; task < cost.size(); ++task) {
    const CostHint& hint = graph.tasks[task].cost;
    cost[task] =
        std::max(static_cast<double>(hint.bytes), static_cast<double>(hint.flops) / kFlopsPerByte);
    if (cost[task] > 0.0) known.push_back(cost[task]);
  }
  double usual = 1.0;
  if (!known.empty()) {
    const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
    std::nth_element(known.begin(), middle, known.end());
    usual = *middle;
  }
  for (double& value : cost) {
    if (value <= 0.0) value = usual;
  }
  return cost;
}

}  // namespace gapless
