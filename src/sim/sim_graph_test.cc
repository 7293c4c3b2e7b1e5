// SPDX-License-Identifier: Apache-2.0

#include "sim/sim_graph.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::string finish_error(SimGraphBuilder& builder) {
  const Result<SimGraph> graph = builder.finish();
  return graph ? "" : graph.error().message;
}

TEST(SimGraph, KeepsEachEdgeOnce) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("a");
  EXPECT_EQ(builder.add_kernel("a"), kernel);
  const uint32_t first = builder.add_task({.kernel = kernel});
  const std::vector<uint32_t> twice = {first, first};
  const uint32_t second = builder.add_task({.kernel = builder.add_kernel("b")}, twice);
  builder.add_edge(first, second);
  const Result<SimGraph> graph = builder.finish();
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(graph->task_count(), 2u);
  EXPECT_EQ(graph->edge_count(), 1u);
  EXPECT_EQ(graph->consumers(first)[0], second);
  EXPECT_EQ(graph->producers(second)[0], first);
  EXPECT_TRUE(graph->producers(first).empty());
  EXPECT_EQ(graph->kernel_name(second), "b");
}

TEST(SimGraph, NamesTheTasksOfACircle) {
  SimGraphBuilder builder;
  for (const char* name : {"a", "b", "c", "d"}) {
    builder.add_task({.kernel = builder.add_kernel(name)});
  }
  builder.add_edge(0, 1);
  builder.add_edge(1, 2);
  builder.add_edge(2, 3);
  builder.add_edge(3, 1);
  EXPECT_EQ(finish_error(builder),
            "tasks wait for each other: 1 (b) waits for 3 (d) waits for 2 (c) waits for 1");
}

TEST(SimGraph, KnowsHowLargeBlocksAre) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("a");
  const std::vector<uint32_t> scales = {500'000, 1'500'000};
  builder.add_task({.kernel = kernel});
  builder.add_task({.kernel = kernel, .block_count = 2}, {}, scales);
  builder.add_task({.kernel = kernel, .block_count = 7});
  const Result<SimGraph> graph = builder.finish();
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(graph->block_scale(0, 0), kWholeBlock);
  EXPECT_EQ(graph->block_scale(1, 0), 500'000u);
  EXPECT_EQ(graph->block_scale(1, 1), 1'500'000u);
  EXPECT_EQ(graph->block_scale(2, 6), kWholeBlock);
  SimGraphBuilder wrong;
  wrong.add_task({.kernel = wrong.add_kernel("a"), .block_count = 3}, {}, scales);
  EXPECT_EQ(finish_error(wrong), "task 0 (a): scales of 2 blocks; it has 3");
}

TEST(SimGraph, RefusesNumbersOutOfRange) {
  SimGraphBuilder no_kernel;
  no_kernel.add_task({.kernel = 3});
  EXPECT_EQ(finish_error(no_kernel), "task 0: kernel 3 of 0");
  SimGraphBuilder no_blocks;
  no_blocks.add_task({.kernel = no_blocks.add_kernel("a"), .block_count = 0});
  EXPECT_EQ(finish_error(no_blocks), "task 0 (a): 0 blocks; must be 1 to 1048576");
  SimGraphBuilder negative;
  negative.add_task({.kernel = negative.add_kernel("a"), .cube = {.bytes = -1}});
  EXPECT_EQ(finish_error(negative),
            "task 0 (a): a block of -1 bytes, 0 flops, -1 ns with sigma 0; bytes must be 0 to "
            "4294967296, the others not negative");
  SimGraphBuilder edge;
  edge.add_task({.kernel = edge.add_kernel("a")});
  edge.add_edge(0, 1);
  EXPECT_EQ(finish_error(edge), "an edge from task 0 to task 1; there are 1 tasks");
}

}  // namespace
}  // namespace gapless
