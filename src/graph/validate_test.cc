// SPDX-License-Identifier: Apache-2.0

#include "graph/validate.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/random_graph.h"

namespace gapless {
namespace {

const DeviceLimits kCpu = {.name = "cpu", .any_cores = 8};
const DeviceLimits kAscend = {
    .name = "ascend", .any_cores = 0, .cube_cores = 24, .vector_cores = 48, .clusters = 24};

std::string refusal(const Graph& graph, const DeviceLimits& limits) {
  const Result<void> result = validate(graph, limits);
  return result.has_value() ? "accepted" : result.error().message;
}

// The last task uses these intermediates.
Graph make_graph_with_buffers(const std::vector<int64_t>& bytes) {
  Graph graph = make_graph_of_edges(2, {});
  graph.tasks[1].argument_count = static_cast<uint16_t>(2 * bytes.size());
  for (uint32_t i = 0; i < bytes.size(); ++i) {
    GraphBuffer buffer;
    buffer.name = "y" + std::to_string(i);
    buffer.bytes = bytes[i];
    graph.buffers.push_back(std::move(buffer));
    const View view = {.buffer = BufferId{i}};
    graph.arguments.push_back(in(view));
    graph.arguments.push_back(out(view));  // the same buffer counts once
  }
  return graph;
}

TEST(CoresFor, CountsWhatCanRunAKind) {
  EXPECT_EQ(cores_for(kCpu, CoreKind::kAny), 8);
  EXPECT_EQ(cores_for(kCpu, CoreKind::kCube), 8);
  EXPECT_EQ(cores_for(kCpu, CoreKind::kVector), 8);
  EXPECT_EQ(cores_for(kCpu, CoreKind::kMixed), 8);
  EXPECT_EQ(cores_for(kAscend, CoreKind::kAny), 72);
  EXPECT_EQ(cores_for(kAscend, CoreKind::kCube), 24);
  EXPECT_EQ(cores_for(kAscend, CoreKind::kVector), 48);
  EXPECT_EQ(cores_for(kAscend, CoreKind::kMixed), 24);
}

TEST(Validate, AcceptsAGraphThatFits) {
  EXPECT_EQ(refusal(make_graph_of_edges(3, {{0, 1, EdgeKind::kData}}), kCpu), "accepted");
  EXPECT_EQ(refusal(make_graph_of_edges(0, {}), kCpu), "accepted");
  EXPECT_EQ(refusal(make_random_graph(1), kCpu), "accepted");
}

TEST(Validate, RefusesACycle) {
  const Graph graph = make_graph_of_edges(2, {{0, 1, EdgeKind::kData}, {1, 0, EdgeKind::kData}});
  EXPECT_EQ(refusal(graph, kCpu),
            "2 tasks wait for each other: task 0 (task) -> task 1 (task) -> task 0 (task)");
}

TEST(Validate, RefusesATaskWithoutACore) {
  Graph graph = make_graph_of_edges(2, {});
  graph.tasks[1].core = CoreKind::kMixed;
  const DeviceLimits vector_only = {.name = "half", .vector_cores = 4};
  EXPECT_EQ(refusal(graph, vector_only), "task 1 (task): half has no core for kind mixed");
  graph.tasks[1].core = CoreKind::kCube;
  EXPECT_EQ(refusal(graph, vector_only), "task 1 (task): half has no core for kind cube");
  graph.tasks[1].core = CoreKind::kVector;
  EXPECT_EQ(refusal(graph, vector_only), "accepted");
}

TEST(Validate, RefusesAGangThatIsLargerThanTheDevice) {
  Graph graph = make_graph_of_edges(18, {});
  graph.tasks[17].gang = true;
  graph.tasks[17].block_count = 8;
  EXPECT_EQ(refusal(graph, kCpu), "accepted");
  graph.tasks[17].block_count = 9;
  EXPECT_EQ(refusal(graph, kCpu),
            "task 17 (task): a gang of 9 blocks, but cpu has 8 cores for kind any");
  graph.tasks[17].gang = false;  // blocks of others may follow one another
  EXPECT_EQ(refusal(graph, kCpu), "accepted");
  graph.tasks[17].gang = true;
  graph.tasks[17].core = CoreKind::kMixed;
  graph.tasks[17].block_count = 25;
  EXPECT_EQ(refusal(graph, kAscend),
            "task 17 (task): a gang of 25 blocks, but ascend has 24 cores for kind mixed");
  EXPECT_EQ(refusal(graph, {.name = "one", .any_cores = 1}),
            "task 17 (task): a gang of 25 blocks, but one has 1 core for kind mixed");
}

TEST(Validate, RefusesAScopeThatIsLargerThanTheWindow) {
  Graph graph = make_graph_of_edges(12, {});
  graph.scopes.push_back({.parent = 0, .depth = 1, .first_task = 2, .end_task = 12});
  graph.scopes.push_back({.parent = 1, .depth = 2, .first_task = 3, .end_task = 6});
  DeviceLimits limits = kCpu;
  limits.scope_tasks = 10;  // the whole graph has more, but is no scope that ends
  EXPECT_EQ(refusal(graph, limits), "accepted");
  limits.scope_tasks = 9;
  EXPECT_EQ(refusal(graph, limits),
            "scope 1, which begins with task 2 (task), holds 10 tasks until it ends, but cpu has "
            "room for 9");
  limits.scope_tasks = 0;
  EXPECT_EQ(refusal(graph, limits), "accepted");
}

TEST(Validate, RefusesABufferThatIsLargerThanTheArena) {
  DeviceLimits limits = kCpu;
  limits.arena_bytes = 1000;
  EXPECT_EQ(refusal(make_graph_with_buffers({1000}), limits), "accepted");
  Graph graph = make_graph_with_buffers({1001});
  EXPECT_EQ(refusal(graph, limits),
            "buffer 'y0' has 1001 bytes, but cpu has an arena of 1000 bytes");
  graph.buffers[0].kind = BufferKind::kExternal;
  EXPECT_EQ(refusal(graph, limits), "accepted");
}

TEST(Validate, RefusesATaskWhoseBuffersDoNotFitTogether) {
  DeviceLimits limits = kCpu;
  limits.arena_bytes = 1000;
  EXPECT_EQ(refusal(make_graph_with_buffers({600, 400}), limits), "accepted");
  EXPECT_EQ(refusal(make_graph_with_buffers({600, 401}), limits),
            "task 1 (task) needs 1001 bytes of intermediates at once with buffer 'y1', but cpu has "
            "an arena of 1000 bytes");
  const int64_t most = std::numeric_limits<int64_t>::max();
  limits.arena_bytes = most;
  EXPECT_EQ(refusal(make_graph_with_buffers({most, most}), limits),
            "task 1 (task) needs 18446744073709551614 bytes of intermediates at once with buffer "
            "'y1', but cpu has an arena of 9223372036854775807 bytes");
}

}  // namespace
}  // namespace gapless
