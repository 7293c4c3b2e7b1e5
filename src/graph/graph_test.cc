// SPDX-License-Identifier: Apache-2.0

#include "graph/graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/random_graph.h"

namespace gapless {
namespace {

std::vector<Edge> to_vector(std::span<const Edge> edges) { return {edges.begin(), edges.end()}; }

TEST(Graph, NamesATaskWithItsKernel) {
  Graph graph = make_graph_of_edges(2, {});
  EXPECT_EQ(task_text(graph, 1), "task 1 (task)");
  graph.tasks[1].kernel = KernelId{};
  EXPECT_EQ(task_text(graph, 1), "task 1");
}

TEST(SetEdges, SortsBothWays) {
  const Graph graph = make_graph_of_edges(4, {{2, 3, EdgeKind::kOrder},
                                              {0, 3, EdgeKind::kData},
                                              {0, 1, EdgeKind::kLifetime},
                                              {1, 3, EdgeKind::kData}});
  EXPECT_TRUE(graph.producers_of(0).empty());
  EXPECT_EQ(to_vector(graph.producers_of(1)), (std::vector<Edge>{{0, EdgeKind::kLifetime}}));
  EXPECT_EQ(to_vector(graph.producers_of(3)),
            (std::vector<Edge>{{0, EdgeKind::kData}, {1, EdgeKind::kData}, {2, EdgeKind::kOrder}}));
  EXPECT_EQ(to_vector(graph.successors_of(0)),
            (std::vector<Edge>{{1, EdgeKind::kLifetime}, {3, EdgeKind::kData}}));
  EXPECT_TRUE(graph.successors_of(3).empty());
}

TEST(SetEdges, KeepsTheStrongestKindOfDuplicates) {
  const Graph graph = make_graph_of_edges(3, {{0, 1, EdgeKind::kLifetime},
                                              {0, 2, EdgeKind::kLifetime},
                                              {0, 1, EdgeKind::kData},
                                              {0, 2, EdgeKind::kOrder},
                                              {0, 1, EdgeKind::kOrder}});
  EXPECT_EQ(graph.producers.size(), 2u);
  EXPECT_EQ(to_vector(graph.successors_of(0)),
            (std::vector<Edge>{{1, EdgeKind::kData}, {2, EdgeKind::kOrder}}));
}

TEST(SetEdges, RefusesTasksThatDoNotExistAndChangesNothing) {
  Graph graph = make_graph_of_edges(3, {{0, 1, EdgeKind::kData}});
  const Result<void> refused = set_edges(graph, {{0, 2, EdgeKind::kData}, {1, 3, EdgeKind::kData}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "an edge from task 1 to task 3, but the graph has 3 tasks");
  EXPECT_EQ(graph.producers.size(), 1u);
}

TEST(SetEdges, TakesAGraphWithoutTasks) {
  const Graph graph = make_graph_of_edges(0, {});
  EXPECT_TRUE(edges_of(graph).empty());
  EXPECT_TRUE(topological_order(graph).value().empty());
}

// Goal: the two arrays hold the same edges, each the strongest of its pair. Method: random edges in
// both directions against a map.
TEST(SetEdges, HoldsWhatAMapWouldHold) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<GraphEdge> edges = edges_of(make_random_edges(seed, 20, 100));
    for (size_t i = 0; i < edges.size(); i += 3) std::swap(edges[i].producer, edges[i].consumer);
    std::map<std::pair<uint32_t, uint32_t>, EdgeKind> expected;
    for (const GraphEdge& edge : edges) {
      const auto [at, is_new] = expected.try_emplace({edge.consumer, edge.producer}, edge.kind);
      if (!is_new) at->second = std::min(at->second, edge.kind);
    }
    const Graph graph = make_graph_of_edges(20, edges);
    std::map<std::pair<uint32_t, uint32_t>, EdgeKind> by_successor;
    for (uint32_t task = 0; task < 20; ++task) {
      for (const Edge& edge : graph.successors_of(task)) {
        by_successor.emplace(std::pair(edge.task, task), edge.kind);
      }
    }
    EXPECT_EQ(by_successor, expected);
    EXPECT_EQ(graph.successors.size(), expected.size());
    auto next = expected.begin();
    ASSERT_EQ(edges_of(graph).size(), expected.size());
    for (const GraphEdge& edge : edges_of(graph)) {
      EXPECT_EQ(std::pair(edge.consumer, edge.producer), next->first);
      EXPECT_EQ(edge.kind, next->second);
      ++next;
    }
  }
}

TEST(TopologicalOrder, IsTheNumbersWhenTheyAreLegal) {
  const Graph graph = make_graph_of_edges(3, {{0, 2, EdgeKind::kData}});
  EXPECT_EQ(topological_order(graph).value(), (std::vector<uint32_t>{0, 1, 2}));
}

TEST(TopologicalOrder, TakesTheSmallestReadyTaskFirst) {
  const Graph graph = make_graph_of_edges(
      5, {{4, 0, EdgeKind::kData}, {3, 1, EdgeKind::kData}, {1, 4, EdgeKind::kData}});
  EXPECT_EQ(topological_order(graph).value(), (std::vector<uint32_t>{2, 3, 1, 4, 0}));
}

TEST(TopologicalOrder, NamesTheTasksOfACycle) {
  // 0 leads in and 4 leads out; neither is part of it.
  const Graph graph = make_graph_of_edges(5, {{0, 3, EdgeKind::kData},
                                              {3, 2, EdgeKind::kData},
                                              {2, 1, EdgeKind::kData},
                                              {1, 3, EdgeKind::kData},
                                              {1, 4, EdgeKind::kData}});
  const Result<std::vector<uint32_t>> order = topological_order(graph);
  ASSERT_FALSE(order.has_value());
  EXPECT_EQ(order.error().message,
            "3 tasks wait for each other: task 1 (task) -> task 3 (task) -> task 2 (task) -> task "
            "1 (task)");
}

TEST(TopologicalOrder, NamesATaskThatWaitsForItself) {
  const Graph graph = make_graph_of_edges(2, {{1, 1, EdgeKind::kData}});
  EXPECT_EQ(topological_order(graph).error().message, "task 1 (task) waits for itself");
}

TEST(TopologicalOrder, NamesEightTasksOfALongCycle) {
  std::vector<GraphEdge> edges;
  for (uint32_t i = 0; i < 20; ++i) edges.push_back({i, (i + 1) % 20, EdgeKind::kData});
  const std::string message = topological_order(make_graph_of_edges(20, edges)).error().message;
  EXPECT_EQ(message.rfind("20 tasks wait for each other: task 0 (task) -> task 1 (task)", 0), 0u);
  const std::string end = "task 7 (task) -> ...";
  EXPECT_EQ(message.substr(message.size() - end.size()), end);
}

TEST(TopologicalOrder, PutsProducersFirstInRandomGraphs) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const uint32_t task_count = 40;
    std::vector<GraphEdge> edges = edges_of(make_random_edges(seed, task_count, 80));
    for (GraphEdge& edge : edges) {  // renumbered, so that the numbers are no order
      edge.producer = (edge.producer * 17 + 5) % task_count;
      edge.consumer = (edge.consumer * 17 + 5) % task_count;
    }
    const Graph graph = make_graph_of_edges(task_count, edges);
    const std::vector<uint32_t> order = topological_order(graph).value();
    std::vector<size_t> position(task_count, task_count);
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    for (const GraphEdge& edge : edges) {
      EXPECT_LT(position[edge.producer], position[edge.consumer]);
      EXPECT_LT(position[edge.consumer], task_count);
    }
  }
}

TEST(LongestRemaining, AddsTheLongerBranch) {
  // A diamond: 0 -> {1, 2} -> 3.
  const Graph graph = make_graph_of_edges(4, {{0, 1, EdgeKind::kData},
                                              {0, 2, EdgeKind::kData},
                                              {1, 3, EdgeKind::kOrder},
                                              {2, 3, EdgeKind::kLifetime}});
  const std::vector<double> cost = {1, 10, 20, 5};
  EXPECT_EQ(longest_remaining(graph, cost), (std::vector<double>{26, 15, 25, 5}));
}

TEST(CostOfTasks, IsTheLargerOfBytesAndFlops) {
  Graph graph = make_graph_of_edges(4, {});
  graph.tasks[0].cost = {.bytes = 100, .flops = 500};
  graph.tasks[1].cost = {.bytes = 100, .flops = 50000};
  graph.tasks[2].cost = {.bytes = 0, .flops = 25000};
  EXPECT_EQ(cost_of_tasks(graph), (std::vector<double>{100, 1000, 500, 500}));
}

TEST(CostOfTasks, IsOneWhereNothingIsKnown) {
  EXPECT_EQ(cost_of_tasks(make_graph_of_edges(2, {})), (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace gapless
