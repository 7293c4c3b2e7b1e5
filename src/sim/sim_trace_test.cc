// SPDX-License-Identifier: Apache-2.0

#include "sim/sim_trace.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_test_support.h"
#include "trace/trace_difference.h"

namespace gapless {
namespace {

TEST(SimTrace, HasTheLanesThatUsersKnow) {
  const Trace trace = traced_sim_layer().trace;
  ASSERT_EQ(trace.lanes.size(), 4u + 24u + 48u);
  EXPECT_EQ(trace.lanes[0].name, "AICPU_0");
  EXPECT_EQ(trace.lanes[0].kind, LaneKind::kScheduler);
  EXPECT_EQ(trace.lanes[3].name, "AICPU_3");
  EXPECT_EQ(trace.lanes[3].kind, LaneKind::kOrchestrator);
  EXPECT_EQ(trace.lanes[4].name, "AICube_0");
  EXPECT_EQ(trace.lanes[27].kind, LaneKind::kCubeCore);
  EXPECT_EQ(trace.lanes[28].name, "AIVector_0");
  EXPECT_EQ(trace.lanes[75].name, "AIVector_47");
  EXPECT_EQ(trace.lanes[75].kind, LaneKind::kVectorCore);
}

TEST(SimTrace, HasSevenTimesInOrder) {
  const TracedSim made = traced_sim_layer();
  const TaskColumns& tasks = made.trace.tasks;
  size_t row_count = 0;
  for (size_t row = 0; row < tasks.size(); ++row) {
    if (tasks.lane[row] == kNoIndex) continue;
    ++row_count;
    for (size_t time = 0; time < kTaskTimeCount; ++time) {
      ASSERT_NE(tasks.time_ns[time][row], kAbsent);
      ASSERT_EQ(tasks.time_ns[time][row] % 20, 0) << "the chip's clock ticks every 20 ns";
      if (time > 0) {
        ASSERT_LE(tasks.time_ns[time - 1][row], tasks.time_ns[time][row]);
      }
    }
  }
  EXPECT_EQ(row_count, 572u) << "records of one layer";
}

TEST(SimTrace, IsOneStep) {
  Result<SimGraph> graph = make_layer_graph({});
  ASSERT_TRUE(graph.has_value());
  const TracedSim made =
      traced_sim(changed_profile("ascend-910b", {}), *graph, {.step = 5, .begin_ns = 1'000'000});
  const SpanColumns& spans = made.trace.spans;
  const uint32_t name = made.trace.names.find("step");
  const auto found = std::find(spans.name.begin(), spans.name.end(), name);
  ASSERT_NE(found, spans.name.end());
  const size_t row = static_cast<size_t>(found - spans.name.begin());
  EXPECT_EQ(std::count(spans.name.begin(), spans.name.end(), name), 1);
  EXPECT_EQ(spans.value[row], 5u);
  EXPECT_EQ(made.trace.lanes[spans.lane[row]].kind, LaneKind::kOrchestrator);
  EXPECT_EQ(spans.begin_ns[row], 1'000'000);
  EXPECT_EQ(spans.end_ns[row], 1'000'000 + made.result.makespan_ns / 20 * 20);
}

// Spans of a scheduler thread cover the whole step, one after another.
TEST(SimTrace, SaysWhatASchedulerDoesAtAnyTime) {
  const TracedSim made = traced_sim_layer();
  for (uint32_t lane = 0; lane < 3; ++lane) {
    int64_t last_ns = 0;
    std::vector<std::string> names;
    for (size_t row = 0; row < made.trace.spans.size(); ++row) {
      if (made.trace.spans.lane[row] != lane) continue;
      ASSERT_EQ(made.trace.spans.begin_ns[row], last_ns);
      last_ns = made.trace.spans.end_ns[row];
      names.emplace_back(made.trace.names[made.trace.spans.name[row]]);
    }
    EXPECT_GE(last_ns, made.result.makespan_ns / 20 * 20);
    for (const char* name : {"poll", "complete", "dispatch"}) {
      EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
    }
  }
}

// The row of a task's record, or of its join.
std::vector<uint32_t> consumers_of(const Trace& trace, uint32_t row) {
  std::vector<uint32_t> rows;
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    if (trace.edges.producer[edge] == row) rows.push_back(trace.edges.consumer[edge]);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(SimTrace, JoinsTheBlocksOfATask) {
  SimGraphBuilder builder;
  const std::vector<uint32_t> first = {
      builder.add_task(timed_task(builder.add_kernel("wide"), SimShape::kVector, 100, 3))};
  builder.add_task(timed_task(builder.add_kernel("next"), SimShape::kCube, 100), first);
  const TracedSim made = traced_sim(ideal_profile(), *builder.finish(), {.has_ticks = false});
  ASSERT_EQ(made.trace.tasks.size(), 5u);
  EXPECT_EQ(made.trace.names[made.trace.tasks.kernel[4]], "wide (all blocks)");
  EXPECT_EQ(made.trace.tasks.id[4], 0u);
  EXPECT_EQ(made.trace.tasks.id[1], uint64_t{2} << 40);
  for (uint32_t row = 0; row < 3; ++row) {
    EXPECT_EQ(consumers_of(made.trace, row), std::vector<uint32_t>{4});
  }
  EXPECT_EQ(consumers_of(made.trace, 4), std::vector<uint32_t>{3});
}

TEST(SimTrace, PutsAGateBeforeManyEdges) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  std::vector<uint32_t> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(builder.add_task(timed_task(kernel, SimShape::kVector, 100)));
  }
  builder.add_task(timed_task(builder.add_kernel("wide"), SimShape::kVector, 100, 48), all);
  const TracedSim made = traced_sim(ideal_profile(), *builder.finish());
  EXPECT_EQ(made.trace.edges.size(), 100u + 48u + 48u) << "not 4,800";
  EXPECT_NE(made.trace.names.find("wide (before all blocks)"), kNoIndex);
}

TEST(SimTrace, IsTheSameForTheSameSeed) {
  EXPECT_EQ(first_difference(traced_sim_layer().trace, traced_sim_layer().trace), "");
}

TEST(SimTrace, HasWorkersForUnifiedCores) {
  std::mt19937_64 random(5);
  const SimGraph graph = random_sim_graph(random, {.has_memory = true});
  const TracedSim made = traced_sim(changed_profile("cpu-like", {}), graph);
  ASSERT_EQ(made.trace.lanes.size(), 18u);
  EXPECT_EQ(made.trace.lanes[2].kind, LaneKind::kWorker);
}

}  // namespace
}  // namespace gapless
