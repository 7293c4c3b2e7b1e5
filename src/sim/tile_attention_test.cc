// SPDX-License-Identifier: Apache-2.0

#include "sim/tile_attention.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "sim/machine.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

TEST(TileAttention, HasFourTasksAPage) {
  const Result<SimGraph> graph = make_tile_attention_graph({.rows = 2, .pages = 3});
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(graph->task_count(), 24u);
  EXPECT_EQ(graph->producers(3).size(), 1u) << "the first update of a row";
  EXPECT_EQ(graph->producers(7).size(), 2u) << "its values, and the update before";
  EXPECT_EQ(graph->producers(15).size(), 1u) << "the next row begins anew";
}

// Published: 65,536 tasks in 19.55 ms, a cube core running for 2.8 ms of it.
TEST(TileAttention, IsBoundByTheSchedulersAsPublished) {
  const Result<SimGraph> graph = make_tile_attention_graph();
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(graph->task_count(), 65'536u);
  const Result<SimResult> result = simulate(changed_profile("ascend-910b", {}), *graph);
  ASSERT_TRUE(result.has_value());
  EXPECT_GT(result->makespan_ns, 19'550'000 * 95 / 100);
  EXPECT_LT(result->makespan_ns, 19'550'000 * 105 / 100);
  int64_t cube_ns = 0;
  for (const SimRecord& record : result->records) {
    if (record.core < 24) cube_ns += record.end_ns - record.start_ns;
  }
  EXPECT_NEAR(static_cast<double>(cube_ns) / 24.0, 2.8e6, 0.05e6);
}

TEST(TileAttention, RefusesSizesThatCannotBe) {
  const Result<SimGraph> graph = make_tile_attention_graph({.rows = 0});
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().message, "0 rows of 64 pages; there must be 1 to 4194304 in all");
}

}  // namespace
}  // namespace gapless
