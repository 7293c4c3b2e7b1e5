// SPDX-License-Identifier: Apache-2.0

#include "sim/overhead_shares.h"

#include <vector>

#include <gtest/gtest.h>

#include "sim/machine.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

// Two cube tasks and a vector task that waits for the first, with times written by hand.
struct HandMade {
  SimGraph graph;
  SimResult result;
};

HandMade hand_made() {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("a");
  const std::vector<uint32_t> first = {builder.add_task(timed_task(kernel, SimShape::kCube, 1))};
  builder.add_task(timed_task(kernel, SimShape::kCube, 1), first);
  builder.add_task(timed_task(kernel, SimShape::kVector, 1), first);
  HandMade made{*builder.finish(), {}};
  made.result.record_begins = {0, 1, 2, 3};
  made.result.tasks.resize(3);
  made.result.records = {
      {.dispatch_ns = 0,
       .receive_ns = 5,
       .start_ns = 10,
       .end_ns = 50,
       .finish_ns = 55,
       .task = 0,
       .core = 0},
      {.dispatch_ns = 70,
       .receive_ns = 72,
       .start_ns = 75,
       .end_ns = 90,
       .finish_ns = 100,
       .task = 1,
       .core = 0},
      {.dispatch_ns = 60,
       .receive_ns = 62,
       .start_ns = 65,
       .end_ns = 80,
       .finish_ns = 85,
       .task = 2,
       .core = 1},
  };
  return made;
}

TEST(OverheadShares, CountsReadyWorkBesideAnIdleCore) {
  const HandMade made = hand_made();
  const DeviceProfile profile = ideal_profile({"cluster.count=1", "cluster.vector_cores=1"});
  const OverheadShares shares = measure_overhead(profile, made.graph, made.result);
  EXPECT_DOUBLE_EQ(shares.cube, 0.20) << "ready from 50, dispatched at 70, of 100";
  EXPECT_DOUBLE_EQ(shares.vector, 0.10);
  EXPECT_DOUBLE_EQ(shares.all, 0.10);
  EXPECT_DOUBLE_EQ(shares.has, 0.20);
}

TEST(OverheadShares, AKindWithoutAnIdleCoreIsNotInOverhead) {
  HandMade made = hand_made();
  made.result.records[0].end_ns = 50;
  made.result.records[2].core = 0;  // the vector task on the cube core, from 65 to 80
  const DeviceProfile profile = ideal_profile({"cluster.count=1", "cluster.vector_cores=1"});
  const OverheadShares shares = measure_overhead(profile, made.graph, made.result);
  EXPECT_DOUBLE_EQ(shares.cube, 0.15) << "from 65 on the core runs";
  EXPECT_DOUBLE_EQ(shares.vector, 0.0);
}

TEST(OverheadShares, AreNothingWithoutOverhead) {
  std::mt19937_64 random(9);
  const SimGraph graph = random_sim_graph(random, {.has_mix = false});
  const DeviceProfile profile = ideal_profile();
  const Result<SimResult> result = simulate(profile, graph);
  ASSERT_TRUE(result.has_value());
  const OverheadShares shares = measure_overhead(profile, graph, *result);
  EXPECT_DOUBLE_EQ(shares.has, 0.0);
  EXPECT_DOUBLE_EQ(measure_overhead(profile, graph, {}).cube, 0.0);
}

}  // namespace
}  // namespace gapless
