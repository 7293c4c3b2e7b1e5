// SPDX-License-Identifier: Apache-2.0
//
// Goal: whatever the order, the number of workers and the placement of memory, a program leaves the
// same bits in the caller's buffers.
//
// Method: random programs whose results are a fingerprint of the order in which conflicting tasks
// ran. The oracle runs them one task after the other in the order of submission, in memory where
// nothing is shared. External buffers keep their contents, so steps build upon each other.

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "graph/random_graph.h"
#include "graph/task_context.h"
#include "graph/validate.h"
#include "runtime/cpu_device.h"
#include "runtime/replay.h"
#include "runtime/serial_run.h"

namespace gapless {
namespace {

constexpr int kSteps = 4;

std::vector<Binding> bindings_to(const Graph& graph, GraphMemory& memory) {
  std::vector<Binding> bindings;
  for (uint32_t i = 0; i < graph.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (buffer.kind == BufferKind::kIntermediate) continue;
    bindings.push_back({BufferId{i}, memory.data(BufferId{i}), buffer.bytes});
  }
  return bindings;
}

// Steps of the oracle. Gangs are run as other tasks: the blocks of a random program do not wait.
GraphMemory run_oracle(Graph graph, uint64_t seed) {
  for (GraphTask& task : graph.tasks) task.gang = false;
  GraphMemory memory(graph, seed);
  for (int step = 0; step < kSteps; ++step) {
    const Result<SerialSummary> done = run_serially(graph, memory);
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }
  return memory;
}

// How often a step calls kernels, and how many tasks it skips.
StepSummary expected_summary(const CpuDevice& device, const Graph& graph) {
  StepSummary summary;
  for (const GraphTask& task : graph.tasks) {
    const bool in_parts = task.core == CoreKind::kMixed && device.limits().clusters > 0;
    const uint64_t call_count = static_cast<uint64_t>(task.block_count) * (in_parts ? 3 : 1);
    (task.predicate.holds() ? summary.run_count : summary.skipped_count) +=
        task.predicate.holds() ? call_count : 1;
  }
  return summary;
}

std::unique_ptr<CpuDevice> make_device(const CpuDeviceOptions& options) {
  Result<std::unique_ptr<CpuDevice>> device = CpuDevice::create(options);
  EXPECT_TRUE(device.has_value()) << device.error().message;
  return std::move(*device);
}

// Runs kSteps steps and compares with the oracle.
void expect_replay_agrees(CpuDevice& device, const Graph& graph, uint64_t seed,
                          const ReplayOptions& options = {}) {
  const StepSummary expected = expected_summary(device, graph);
  Result<Replay> replay = Replay::prepare(device, graph, options);
  ASSERT_TRUE(replay.has_value()) << replay.error().message;
  GraphMemory memory(graph, seed);
  const std::vector<Binding> bindings = bindings_to(graph, memory);
  for (int step = 0; step < kSteps; ++step) {
    const Result<StepSummary> done = replay->run(bindings);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->run_count, expected.run_count);
    EXPECT_EQ(done->skipped_count, expected.skipped_count);
  }
  EXPECT_EQ(GraphMemory::first_difference(graph, run_oracle(graph, seed), memory), "");
}

// Programs of many shapes: narrow and wide, few and many blocks, with and without predicates.
RandomGraphOptions shape_of(uint64_t seed) {
  RandomGraphOptions options;
  options.task_count = 20 + static_cast<int>(seed * 37 % 180);
  options.buffer_count = 2 + static_cast<int>(seed % 11);
  options.elements = 16 << (seed % 4);
  options.spmd_share = seed % 3 == 0 ? 0.0 : 0.3;
  options.predicate_share = seed % 5 == 0 ? 0.5 : 0.1;
  options.scope_share = seed % 2 == 0 ? 0.05 : 0.2;
  options.reduce_edges = seed % 4 != 0;
  return options;
}

// The kernels of random programs, for run_in_parts.
std::array<KernelFunction, 3> g_whole_kernels;

// A mixed task: each part of a cluster takes a third of the block's rows.
template <size_t kKernel>
void run_in_parts(TaskContext& context) {
  if (context.role() != MixedRole::kWhole) {
    TaskContext::Fields& fields = context.fields();
    const int part = static_cast<int>(context.role()) - static_cast<int>(MixedRole::kCube);
    fields.block_index = fields.block_index * 3 + part;
    fields.block_count *= 3;
  }
  g_whole_kernels[kKernel](context);
}

// Core kinds and gangs that the program itself does not have. Results must not depend on them.
void give_core_kinds(Graph& graph, uint64_t seed, const DeviceLimits& limits) {
  const std::array<KernelFunction, 3> in_parts = {run_in_parts<0>, run_in_parts<1>,
                                                  run_in_parts<2>};
  std::array<KernelId, 3> mixed;
  for (uint16_t i = 0; i < 3; ++i) {
    const Kernel& whole = graph.kernels[KernelId{i}];
    g_whole_kernels[i] = whole.run;
    mixed[i] = graph.kernels.add(whole.name + "_in_parts", in_parts[i]).value();
  }
  std::mt19937_64 random(seed);
  for (GraphTask& task : graph.tasks) {
    task.core = static_cast<CoreKind>(random() % kCoreKindCount);
    if (task.core == CoreKind::kMixed) task.kernel = mixed[task.kernel.id];
    task.gang = random() % 2 == 0 && task.block_count <= cores_for(limits, task.core);
  }
}

// More edges, so that buffers of scopes that lie apart are never alive at the same time: from a
// task a path leads to every one that comes 42 tasks later or more, and seven run at once.
void add_edges_between_distant_tasks(Graph& graph) {
  std::vector<GraphEdge> edges = edges_of(graph);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const uint32_t distance : {7u, 8u}) {
      if (task >= distance) edges.push_back({task - distance, task, EdgeKind::kOrder});
    }
  }
  ASSERT_TRUE(set_edges(graph, std::move(edges)).has_value());
}

TEST(RandomProgram, GivesTheSameBitsInManyOrders) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph = make_random_graph(seed, shape_of(seed));
    const Result<void> same = run_in_many_orders(graph, 10, seed);
    EXPECT_TRUE(same.has_value()) << "seed " << seed << ": " << same.error().message;
  }
}

TEST(RandomProgram, ShowsWhenEdgesAreMissing) {
  int found_count = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Graph graph = make_random_graph(seed, shape_of(seed));
    std::vector<GraphEdge> edges = edges_of(graph);
    std::erase_if(edges, [](const GraphEdge& edge) { return edge.consumer % 4 == 1; });
    ASSERT_TRUE(set_edges(graph, edges).has_value());
    if (!run_in_many_orders(graph, 10, seed)) ++found_count;
  }
  EXPECT_GE(found_count, 19);
}

TEST(RandomProgram, TouchesOnlyWhatItDeclares) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Graph graph = make_random_graph(seed, shape_of(seed));
    for (const uint64_t order_seed : {uint64_t{0}, seed + 1}) {
      GraphMemory memory(graph, seed);
      const Result<SerialSummary> done =
          run_serially(graph, memory, {.order_seed = order_seed, .shadow = true});
      EXPECT_TRUE(done.has_value()) << "seed " << seed << ": " << done.error().message;
    }
  }
}

TEST(RandomProgram, ReplaysToTheSameBitsOnAnyNumberOfWorkers) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device({.worker_count = worker_count});
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(seed);
      expect_replay_agrees(*device, make_random_graph(seed, shape_of(seed)), seed);
      if (HasFailure()) return;
    }
  }
}

TEST(RandomProgram, ReplaysToTheSameBitsOnClusters) {
  for (const int cluster_count : {1, 2}) {
    SCOPED_TRACE(cluster_count);
    const std::unique_ptr<CpuDevice> device = make_device({.cluster_count = cluster_count});
    for (uint64_t seed = 100; seed < 110; ++seed) {
      SCOPED_TRACE(seed);
      Graph graph = make_random_graph(seed, shape_of(seed));
      give_core_kinds(graph, seed, device->limits());
      expect_replay_agrees(*device, graph, seed);
      if (HasFailure()) return;
    }
  }
}

TEST(RandomProgram, ReplaysGangsToTheSameBitsWithoutClusters) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device({.worker_count = worker_count});
    for (uint64_t seed = 150; seed < 170; ++seed) {
      SCOPED_TRACE(seed);
      Graph graph = make_random_graph(seed, shape_of(seed));
      give_core_kinds(graph, seed, device->limits());
      expect_replay_agrees(*device, graph, seed);
      if (HasFailure()) return;
    }
  }
}

TEST(RandomProgram, ReplaysInShadowModeWithoutAFault) {
  for (const int worker_count : {1, 2}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device({.worker_count = worker_count});
    for (uint64_t seed = 200; seed < 220; ++seed) {
      SCOPED_TRACE(seed);
      expect_replay_agrees(*device, make_random_graph(seed, shape_of(seed)), seed,
                           {.memory = {}, .shadow = true});
      if (HasFailure()) return;
    }
  }
}

void read_past_the_input(TaskContext& context) {
  context.tensor<int64_t>(0).load(context.argument(0).view.shape[0], 0);
}

// One bad kernel among good ones.
TEST(RandomProgram, ReplaysInShadowModeToTheFault) {
  for (const int worker_count : {1, 2}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device({.worker_count = worker_count});
    Graph graph = make_random_graph(7, {.task_count = 50, .predicate_share = 0.0});
    const KernelId bad = graph.kernels.add("bad", read_past_the_input).value();
    uint32_t number = 20;
    while (graph.arguments_of(number)[0].view.rank != 2) ++number;
    graph.tasks[number].kernel = bad;
    graph.tasks[number].block_count = 1;
    Result<Replay> replay = Replay::prepare(*device, graph, {.memory = {}, .shadow = true});
    ASSERT_TRUE(replay.has_value()) << replay.error().message;
    GraphMemory memory(graph, 7);
    const Result<StepSummary> done = replay->run(bindings_to(graph, memory));
    ASSERT_FALSE(done.has_value());
    const std::string begin = fmt::format("task {} (bad): argument 0 (", number);
    EXPECT_EQ(done.error().message.substr(0, begin.size()), begin);
    EXPECT_NE(done.error().message.find("is outside the view"), std::string::npos);
  }
}

TEST(RandomProgram, ReplaysToTheSameBitsWhereIntermediatesShareMemory) {
  const std::unique_ptr<CpuDevice> device = make_device({.worker_count = 2});
  int sharing_count = 0;
  for (uint64_t seed = 300; seed < 330; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraphOptions shape = shape_of(seed);
    shape.task_count = 200;
    shape.scope_share = 0.2;
    Graph graph = make_random_graph(seed, shape);
    add_edges_between_distant_tasks(graph);
    const Result<MemoryPlan> plan = plan_memory(graph);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    if (plan->peak_bytes < plan->sum_bytes) ++sharing_count;
    expect_replay_agrees(*device, graph, seed);
    if (HasFailure()) return;
  }
  EXPECT_GE(sharing_count, 25);
}

// The arena is too small for the plan; lifetime edges make up for it.
TEST(RandomProgram, ReplaysToTheSameBitsInScarceMemory) {
  const std::unique_ptr<CpuDevice> device = make_device({.worker_count = 2});
  int scarce_count = 0;
  for (uint64_t seed = 350; seed < 380; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraphOptions shape = shape_of(seed);
    shape.scope_share = 0.2;
    const Graph graph = make_random_graph(seed, shape);
    const Result<MemoryPlan> plan = plan_memory(graph);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    const MemoryPlanOptions scarce = {
        .arena_bytes = (plan->floor_bytes + plan->peak_bytes) / 2 / 64 * 64, .may_add_edges = true};
    if (scarce.arena_bytes == 0) continue;
    const Result<MemoryPlan> smaller = plan_memory(graph, scarce);
    if (!smaller || smaller->lifetime_edges.empty()) continue;
    ++scarce_count;
    expect_replay_agrees(*device, graph, seed, {.memory = scarce});
    if (HasFailure()) return;
  }
  EXPECT_GE(scarce_count, 15);
}

// New addresses at every step; what was there is carried along.
TEST(RandomProgram, ReplaysToTheSameBitsAtChangingAddresses) {
  const std::unique_ptr<CpuDevice> device = make_device({.worker_count = 2});
  for (uint64_t seed = 400; seed < 410; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = make_random_graph(seed, shape_of(seed));
    Result<Replay> replay = Replay::prepare(*device, graph);
    ASSERT_TRUE(replay.has_value()) << replay.error().message;
    GraphMemory memory(graph, seed);
    for (int step = 0; step < kSteps; ++step) {
      GraphMemory moved(graph, 999);
      for (const Binding& binding : bindings_to(graph, memory)) {
        std::memcpy(moved.data(binding.buffer), binding.data, static_cast<size_t>(binding.bytes));
      }
      const Result<StepSummary> done = replay->run(bindings_to(graph, moved));
      ASSERT_TRUE(done.has_value()) << done.error().message;
      memory = std::move(moved);
    }
    EXPECT_EQ(GraphMemory::first_difference(graph, run_oracle(graph, seed), memory), "");
  }
}

}  // namespace
}  // namespace gapless
