// SPDX-License-Identifier: Apache-2.0

#include "graph/reduce_edges.h"

#include <vector>

#include <gtest/gtest.h>

#include "graph/random_graph.h"

namespace gapless {
namespace {

TEST(ReduceEdges, DropsTheEdgeThatAPathImplies) {
  Graph graph = make_graph_of_edges(
      3, {{0, 1, EdgeKind::kOrder}, {1, 2, EdgeKind::kOrder}, {0, 2, EdgeKind::kData}});
  EXPECT_EQ(reduce_edges(graph), 1u);
  ASSERT_EQ(graph.producers_of(2).size(), 1u);
  EXPECT_EQ(graph.producers_of(2)[0], (Edge{1, EdgeKind::kOrder}));
  EXPECT_EQ(graph.successors_of(0).size(), 1u);
}

TEST(ReduceEdges, KeepsADiamond) {
  Graph graph = make_graph_of_edges(4, {{0, 1, EdgeKind::kData},
                                        {0, 2, EdgeKind::kData},
                                        {1, 3, EdgeKind::kData},
                                        {2, 3, EdgeKind::kData}});
  EXPECT_EQ(reduce_edges(graph), 0u);
  EXPECT_EQ(graph.producers.size(), 4u);
}

TEST(ReduceEdges, WorksAgainstTheNumbers) {
  // 2 -> 0 -> 1 and 2 -> 1.
  Graph graph = make_graph_of_edges(
      3, {{2, 0, EdgeKind::kData}, {0, 1, EdgeKind::kData}, {2, 1, EdgeKind::kData}});
  EXPECT_EQ(reduce_edges(graph), 1u);
  ASSERT_EQ(graph.producers_of(1).size(), 1u);
  EXPECT_EQ(graph.producers_of(1)[0].task, 0u);
}

TEST(ReduceEdges, KeepsWhatItCannotProveWithinTheBudget) {
  // 0 -> 1 -> ... -> 99 -> 100 and 0 -> 100: the proof takes a walk of 100 steps.
  std::vector<GraphEdge> edges = {{0, 100, EdgeKind::kData}};
  for (uint32_t i = 0; i < 100; ++i) edges.push_back({i, i + 1, EdgeKind::kData});
  Graph graph = make_graph_of_edges(101, edges);
  EXPECT_EQ(reduce_edges(graph, 50), 0u);
  EXPECT_EQ(reduce_edges(graph, 1000), 1u);
}

// Goal: reachability stays, and no edge that could go is left. Method: random graphs, numbered in
// order and not, sparse to dense, against the closure.
TEST(ReduceEdges, KeepsTheClosureAndNothingMore) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const uint32_t task_count = 30;
    std::vector<GraphEdge> edges =
        edges_of(make_random_edges(seed, task_count, static_cast<uint32_t>(20 + 4 * seed)));
    if (seed % 2 == 1) {
      for (GraphEdge& edge : edges) {
        edge.producer = (edge.producer * 7 + 3) % task_count;
        edge.consumer = (edge.consumer * 7 + 3) % task_count;
      }
    }
    Graph graph = make_graph_of_edges(task_count, edges);
    const size_t edge_count = graph.producers.size();
    const Closure before(graph);
    const uint64_t dropped = reduce_edges(graph);
    EXPECT_EQ(graph.producers.size() + dropped, edge_count);
    EXPECT_EQ(Closure(graph), before);
    for (const GraphEdge& edge : edges_of(graph)) {
      for (const Edge& other : graph.producers_of(edge.consumer)) {
        EXPECT_FALSE(before.at(edge.producer, other.task))
            << edge.producer << " reaches " << other.task << ", producers of " << edge.consumer;
      }
    }
  }
}

TEST(ReduceEdges, KeepsTheClosureWithASmallBudget) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Graph graph = make_random_edges(seed, 40, 200);
    const Closure before(graph);
    reduce_edges(graph, 1 + seed);
    EXPECT_EQ(Closure(graph), before);
  }
}

}  // namespace
}  // namespace gapless
