// SPDX-License-Identifier: Apache-2.0

#include "graph/memory_plan.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/random_graph.h"

namespace gapless {
namespace {

struct UsedBuffer {
  int64_t bytes = 0;
  std::vector<uint32_t> users;
};

Graph with_buffers(Graph graph, const std::vector<UsedBuffer>& buffers) {
  std::vector<std::vector<Argument>> arguments(graph.task_count());
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    GraphBuffer buffer;
    buffer.name = "y" + std::to_string(i);
    buffer.bytes = buffers[i].bytes;
    graph.buffers.push_back(std::move(buffer));
    for (const uint32_t task : buffers[i].users) {
      arguments[task].push_back(inout(View{.buffer = BufferId{i}}));
    }
  }
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    graph.tasks[task].first_argument = static_cast<uint32_t>(graph.arguments.size());
    graph.tasks[task].argument_count = static_cast<uint16_t>(arguments[task].size());
    graph.arguments.insert(graph.arguments.end(), arguments[task].begin(), arguments[task].end());
  }
  return graph;
}

Graph make_chain(uint32_t task_count) {
  std::vector<GraphEdge> edges;
  for (uint32_t i = 1; i < task_count; ++i) edges.push_back({i - 1, i, EdgeKind::kData});
  return make_graph_of_edges(task_count, edges);
}

// Four tasks in two chains: 0 -> 1 and 2 -> 3.
Graph make_two_chains() {
  return make_graph_of_edges(4, {{0, 1, EdgeKind::kData}, {2, 3, EdgeKind::kData}});
}

Graph make_random_problem(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint32_t task_count = static_cast<uint32_t>(20 + random() % 40);
  const uint32_t edge_count = static_cast<uint32_t>(task_count + random() % (3 * task_count));
  std::vector<GraphEdge> edges = edges_of(make_random_edges(seed, task_count, edge_count));
  if (seed % 2 == 1) {  // numbers that are no order: the mirror of one
    for (GraphEdge& edge : edges) {
      edge.producer = task_count - 1 - edge.producer;
      edge.consumer = task_count - 1 - edge.consumer;
    }
  }
  std::vector<UsedBuffer> buffers(5 + random() % 20);
  for (UsedBuffer& buffer : buffers) {
    buffer.bytes = static_cast<int64_t>(random() % 5 == 0 ? 0 : random() % 2000);
    const uint64_t user_count = random() % 5;
    const uint32_t first = static_cast<uint32_t>(random() % task_count);
    for (uint64_t i = 0; i < user_count; ++i) {
      buffer.users.push_back((first + static_cast<uint32_t>(random() % 6)) % task_count);
    }
  }
  return with_buffers(make_graph_of_edges(task_count, edges), buffers);
}

struct Use {
  uint32_t task = 0;
  uint32_t buffer = 0;
};

// Every pair of tasks that use different buffers at common bytes must be in one order, and the
// same for all pairs of these two buffers: neither may come back after the other.
void expect_no_clash(const Graph& graph, const MemoryPlan& plan) {
  const Closure closure(graph);
  std::vector<Use> uses;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const Argument& argument : graph.arguments_of(task)) {
      const uint32_t buffer = argument.view.buffer.index();
      if (graph.buffers[buffer].kind == BufferKind::kIntermediate) uses.push_back({task, buffer});
    }
  }
  const auto overlap = [&](uint32_t a, uint32_t b) {
    return plan.offsets[a] < plan.offsets[b] + graph.buffers[b].bytes &&
           plan.offsets[b] < plan.offsets[a] + graph.buffers[a].bytes;
  };
  std::vector<std::vector<int>> direction(graph.buffers.size(),
                                          std::vector<int>(graph.buffers.size(), 0));
  for (const Use& a : uses) {
    for (const Use& b : uses) {
      if (a.buffer == b.buffer || !overlap(a.buffer, b.buffer)) continue;
      const int found = closure.at(a.task, b.task) ? 1 : closure.at(b.task, a.task) ? -1 : 0;
      EXPECT_NE(found, 0) << "tasks " << a.task << " and " << b.task << " share bytes of buffers "
                          << a.buffer << " and " << b.buffer;
      int& known = direction[a.buffer][b.buffer];
      EXPECT_TRUE(known == 0 || known == found) << "buffers " << a.buffer << ", " << b.buffer;
      known = found;
    }
  }
}

void expect_sane(const Graph& graph, const MemoryPlan& plan, int64_t alignment) {
  ASSERT_EQ(plan.offsets.size(), graph.buffers.size());
  EXPECT_LE(plan.floor_bytes, plan.peak_bytes);
  EXPECT_LE(plan.peak_bytes, plan.sum_bytes);
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    if (graph.buffers[i].kind != BufferKind::kIntermediate) {
      EXPECT_EQ(plan.offsets[i], -1);
      continue;
    }
    EXPECT_EQ(plan.offsets[i] % alignment, 0);
    EXPECT_GE(plan.offsets[i], 0);
  }
}

TEST(MemoryPlan, SharesAlongAChain) {
  // Task t reads y(t-1) and writes y(t): the first and the last of three buffers can share.
  const Graph graph = with_buffers(make_chain(4), {{128, {0, 1}}, {128, {1, 2}}, {128, {2, 3}}});
  const MemoryPlan plan = plan_memory(graph).value();
  EXPECT_EQ(plan.sum_bytes, 384);
  EXPECT_EQ(plan.peak_bytes, 256);
  EXPECT_EQ(plan.floor_bytes, 256);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 128, 0}));
  EXPECT_TRUE(plan.lifetime_edges.empty());
}

TEST(MemoryPlan, DoesNotShareBetweenParallelChains) {
  const Graph graph = with_buffers(make_two_chains(), {{100, {0, 1}}, {100, {2, 3}}});
  const MemoryPlan plan = plan_memory(graph).value();
  EXPECT_EQ(plan.peak_bytes, 256);  // rounded up to 64 bytes each
  EXPECT_EQ(plan.floor_bytes, 128);
}

TEST(MemoryPlan, SharesAfterADiamondNotWithinIt) {
  // 0 -> {1, 2} -> 3 -> 4: y1 and y2 are side by side, y3 comes after both.
  const Graph edges = make_graph_of_edges(5, {{0, 1, EdgeKind::kData},
                                              {0, 2, EdgeKind::kData},
                                              {1, 3, EdgeKind::kData},
                                              {2, 3, EdgeKind::kData},
                                              {3, 4, EdgeKind::kData}});
  const Graph graph = with_buffers(edges, {{64, {1}}, {64, {2}}, {128, {3, 4}}});
  const MemoryPlan plan = plan_memory(graph).value();
  EXPECT_EQ(plan.peak_bytes, 128);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 64, 0}));
  // What task 3 still reads of y1 keeps the two apart.
  const Graph longer = with_buffers(edges, {{64, {1, 3}}, {64, {2}}, {128, {3, 4}}});
  EXPECT_EQ(plan_memory(longer).value().peak_bytes, 192);
}

TEST(MemoryPlan, GivesNoSpaceToWhatIsNotUsed) {
  Graph graph = with_buffers(make_chain(2), {{1000, {}}, {0, {0}}, {64, {1}}, {64, {0}}});
  graph.buffers[3].kind = BufferKind::kExternal;
  const MemoryPlan plan = plan_memory(graph).value();
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 0, 0, -1}));
  EXPECT_EQ(plan.peak_bytes, 64);
  EXPECT_EQ(plan.sum_bytes, 64);
  EXPECT_EQ(plan_memory(make_chain(3)).value().peak_bytes, 0);
}

TEST(MemoryPlan, SaysWhatIsMissingWhenTheArenaIsTooSmall) {
  const Graph graph = with_buffers(make_two_chains(), {{100, {0, 1}}, {100, {2, 3}}});
  const Result<MemoryPlan> refused = plan_memory(graph, {.arena_bytes = 200});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(
      refused.error().message,
      "the intermediates need 256 bytes, but the arena has 200 bytes; task 0 (task) needs 128 "
      "of them at once");
  const Result<MemoryPlan> hopeless =
      plan_memory(graph, {.arena_bytes = 64, .may_add_edges = true});
  ASSERT_FALSE(hopeless.has_value());
  EXPECT_EQ(hopeless.error().message,
            "task 0 (task) needs 128 bytes of intermediates at once, but the arena has 64 bytes");
}

TEST(MemoryPlan, PaysForASmallArenaWithLifetimeEdges) {
  Graph graph = with_buffers(make_two_chains(), {{100, {0, 1}}, {100, {2, 3}}});
  const MemoryPlan plan = plan_memory(graph, {.arena_bytes = 200, .may_add_edges = true}).value();
  EXPECT_EQ(plan.peak_bytes, 128);
  ASSERT_EQ(plan.lifetime_edges.size(), 1u);
  EXPECT_EQ(plan.lifetime_edges[0].producer, 1u);
  EXPECT_EQ(plan.lifetime_edges[0].consumer, 2u);
  ASSERT_TRUE(add_lifetime_edges(graph, plan).has_value());
  ASSERT_EQ(graph.producers_of(2).size(), 1u);
  EXPECT_EQ(graph.producers_of(2)[0], (Edge{1, EdgeKind::kLifetime}));
  expect_no_clash(graph, plan);
}

TEST(MemoryPlan, AddsNoEdgeWhereTheOrderIsThereAlready) {
  // Three chains; y1 follows y0 by an edge of the graph, y2 is free of both.
  const Graph edges = make_graph_of_edges(6, {{0, 1, EdgeKind::kData},
                                              {1, 2, EdgeKind::kData},
                                              {2, 3, EdgeKind::kData},
                                              {4, 5, EdgeKind::kData}});
  const Graph graph = with_buffers(edges, {{64, {0, 1}}, {64, {2, 3}}, {64, {4, 5}}});
  const MemoryPlan plan = plan_memory(graph, {.arena_bytes = 64, .may_add_edges = true}).value();
  ASSERT_EQ(plan.lifetime_edges.size(), 1u);
  EXPECT_EQ(plan.lifetime_edges[0].producer, 3u);
  EXPECT_EQ(plan.lifetime_edges[0].consumer, 4u);
}

TEST(MemoryPlan, FindsAPlaceWhereTheAllocatorLeavesGaps) {
  // In the order of use y0 and y3 leave two gaps of 64 bytes around y1, and y2 needs 128. Placed by
  // size they fit.
  Graph graph = with_buffers(make_graph_of_edges(6, {}),
                             {{64, {0}}, {64, {0, 5}}, {128, {1, 2, 3, 4, 5}}, {64, {0}}});
  const MemoryPlan plan = plan_memory(graph, {.arena_bytes = 192, .may_add_edges = true}).value();
  EXPECT_EQ(plan.peak_bytes, 192);
  ASSERT_TRUE(add_lifetime_edges(graph, plan).has_value());
  expect_no_clash(graph, plan);
  EXPECT_EQ(plan_memory(graph, {.arena_bytes = 191, .may_add_edges = true}).error().message,
            "task 0 (task) needs 192 bytes of intermediates at once, but the arena has 191 bytes");
}

TEST(MemoryPlan, RefusesWhatItCannotCount) {
  const Graph graph = make_chain(2);
  EXPECT_EQ(plan_memory(graph, {.alignment = 48}).error().message,
            "an alignment of 48 bytes is not a power of two");
  EXPECT_EQ(plan_memory(graph, {.alignment = 0}).error().message,
            "an alignment of 0 bytes is not a power of two");
  EXPECT_EQ(plan_memory(graph, {.arena_bytes = -1}).error().message, "an arena of -1 bytes");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(plan_memory(with_buffers(make_chain(2), {{most, {0}}})).error().message,
            "buffer 'y0' of 9223372036854775807 bytes: the intermediates have more than 2^63 bytes "
            "together");
  EXPECT_FALSE(
      plan_memory(with_buffers(make_chain(2), {{most / 2, {0}}, {most / 2, {1}}, {most / 2, {1}}}))
          .has_value());
  const Graph cycle = make_graph_of_edges(2, {{0, 1, EdgeKind::kData}, {1, 0, EdgeKind::kData}});
  EXPECT_FALSE(plan_memory(cycle).has_value());
}

TEST(MemoryPlan, RefusesMoreBuffersThanItHasPairsFor) {
  std::vector<UsedBuffer> buffers(kMaxPlannedBuffers + 1, {8, {0}});
  Graph graph = make_chain(4);
  // A task has at most 65,535 arguments here, so that one is enough.
  EXPECT_EQ(plan_memory(with_buffers(graph, buffers)).error().message,
            "32769 intermediates are in use, more than the 32768 that can be planned");
}

// Goal: no two tasks that may run at the same time meet in memory, and nothing comes back after its
// bytes went to another. Method: random graphs against the closure.
TEST(MemoryPlan, KeepsUnorderedTasksApart) {
  int shared = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = make_random_problem(seed);
    const MemoryPlan plan = plan_memory(graph, {.alignment = 16}).value();
    expect_sane(graph, plan, 16);
    expect_no_clash(graph, plan);
    EXPECT_TRUE(plan.lifetime_edges.empty());
    shared += plan.peak_bytes < plan.sum_bytes ? 1 : 0;
  }
  EXPECT_GT(shared, 50);  // otherwise the test would say little
}

TEST(MemoryPlan, FitsTheArenaWithEdgesThatAreNeeded) {
  int with_edges = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Graph graph = make_random_problem(seed);
    const MemoryPlan loose = plan_memory(graph, {.alignment = 16}).value();
    const int64_t arena_bytes = (loose.floor_bytes + 2 * loose.peak_bytes) / 3;
    if (arena_bytes == 0) continue;
    const Result<MemoryPlan> plan =
        plan_memory(graph, {.alignment = 16, .arena_bytes = arena_bytes, .may_add_edges = true});
    if (!plan) continue;  // it may be too tight
    EXPECT_LE(plan->peak_bytes, arena_bytes);
    expect_sane(graph, *plan, 16);
    const Closure before(graph);
    for (const GraphEdge& edge : plan->lifetime_edges) {
      EXPECT_EQ(edge.kind, EdgeKind::kLifetime);
      EXPECT_FALSE(before.at(edge.producer, edge.consumer));
    }
    ASSERT_TRUE(add_lifetime_edges(graph, *plan).has_value());
    ASSERT_TRUE(topological_order(graph).has_value());
    expect_no_clash(graph, *plan);
    with_edges += plan->lifetime_edges.empty() ? 0 : 1;
  }
  EXPECT_GT(with_edges, 50);
}

// More than 512 tasks are last users, so that several chunks are needed for one pair.
TEST(MemoryPlan, KeepsBuffersApartWhoseUsersFillSeveralChunks) {
  const uint32_t readers = 1300;
  std::vector<GraphEdge> edges;
  UsedBuffer wide = {64, {0}};
  for (uint32_t i = 1; i <= readers; ++i) {
    edges.push_back({0, i, EdgeKind::kData});
    if (i != readers) edges.push_back({i, readers + 1, EdgeKind::kData});
    wide.users.push_back(i);
  }
  const UsedBuffer after = {64, {readers + 1}};
  Graph graph = make_graph_of_edges(readers + 2, edges);
  // The last reader is not ordered before the task after.
  EXPECT_EQ(plan_memory(with_buffers(graph, {wide, after})).value().peak_bytes, 128);
  edges.push_back({readers, readers + 1, EdgeKind::kData});
  graph = make_graph_of_edges(readers + 2, edges);
  EXPECT_EQ(plan_memory(with_buffers(graph, {wide, after})).value().peak_bytes, 64);
}

TEST(MemoryPlan, PlansRandomPrograms) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = make_random_graph(seed);
    const MemoryPlan plan = plan_memory(graph).value();
    expect_sane(graph, plan, 64);
    expect_no_clash(graph, plan);
  }
}

}  // namespace
}  // namespace gapless
