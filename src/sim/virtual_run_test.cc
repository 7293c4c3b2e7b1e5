// SPDX-License-Identifier: Apache-2.0
//
// The two ways to run a graph in virtual time against each other. What the overheads of a
// VirtualGraph do is tested where they are found: analysis/whatif_test.cc.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "sim/machine.h"
#include "sim/sim_test_support.h"
#include "sim/virtual_graph.h"

namespace gapless {
namespace {

constexpr size_t kCube = static_cast<size_t>(CoreClass::kCube);
constexpr size_t kVector = static_cast<size_t>(CoreClass::kVector);

// Times are long and odd, so that hardly two tasks end at one moment.
SimGraph random_single_tasks(std::mt19937_64& random) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("task");
  for (uint32_t task = 0; task < 300; ++task) {
    std::vector<uint32_t> producers;
    for (uint64_t i = task == 0 ? 0 : random() % 4; i > 0; --i) {
      producers.push_back(task - 1 - static_cast<uint32_t>(random() % std::min(task, 40u)));
    }
    const SimShape shape = random() % 2 == 0 ? SimShape::kCube : SimShape::kVector;
    const int64_t run_ns = 1 + static_cast<int64_t>(random() % 1'000'000'000);
    builder.add_task(timed_task(kernel, shape, run_ns), producers);
  }
  Result<SimGraph> graph = builder.finish();
  EXPECT_TRUE(graph.has_value());
  return *graph;
}

VirtualGraph without_overheads(const SimGraph& graph, const DeviceProfile& profile) {
  VirtualGraph made;
  made.core_counts[kCube] = static_cast<uint32_t>(profile.cluster_count);
  made.core_counts[kVector] = static_cast<uint32_t>(profile.vector_core_count());
  made.consumer_begins.push_back(0);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const SimTask& facts = graph.task(task);
    made.tasks.push_back(
        {.run_ns = facts.cube.run_ns,
         .producer_count = static_cast<uint32_t>(graph.producers(task).size()),
         .turn = task,
         .core_class = facts.shape == SimShape::kCube ? CoreClass::kCube : CoreClass::kVector,
         .is_root = graph.producers(task).empty()});
    for (const uint32_t consumer : graph.consumers(task)) made.consumer_tasks.push_back(consumer);
    made.consumer_begins.push_back(made.consumer_tasks.size());
  }
  return made;
}

TEST(VirtualRun, IsWhatTheMachineDoesWithoutOverheads) {
  std::mt19937_64 random(11);
  const DeviceProfile large = ideal_profile();
  const DeviceProfile small = ideal_profile({"cluster.count=2"});
  for (int round = 0; round < 60; ++round) {
    const SimGraph graph = random_single_tasks(random);
    for (const DeviceProfile* profile : {&large, &small}) {
      const Result<SimResult> machine = simulate(*profile, graph);
      ASSERT_TRUE(machine.has_value()) << machine.error().message;
      const WhatIfResult run = run_graph(without_overheads(graph, *profile), {});
      ASSERT_EQ(run.makespan_ns, machine->makespan_ns)
          << "round " << round << ", " << profile->cluster_count << " clusters";
      ASSERT_EQ(run.task_count, graph.task_count());
    }
  }
}

TEST(VirtualRun, WithMoreCoresIsWhatALargerMachineDoes) {
  std::mt19937_64 random(12);
  const DeviceProfile small = ideal_profile({"cluster.count=2"});
  const DeviceProfile doubled = ideal_profile({"cluster.count=4"});
  for (int round = 0; round < 20; ++round) {
    const SimGraph graph = random_single_tasks(random);
    WhatIf change;
    change.core_counts[kCube] = 4;
    change.core_counts[kVector] = 8;
    const Result<SimResult> machine = simulate(doubled, graph);
    ASSERT_TRUE(machine.has_value());
    ASSERT_EQ(run_graph(without_overheads(graph, small), change).makespan_ns, machine->makespan_ns);
  }
}

}  // namespace
}  // namespace gapless
