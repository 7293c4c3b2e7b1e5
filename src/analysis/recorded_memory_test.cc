// SPDX-License-Identifier: Apache-2.0

#include "analysis/recorded_memory.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/recorded_overheads.h"
#include "analysis/whatif.h"
#include "analysis/whatif_test_support.h"

namespace gapless {
namespace {

constexpr TimeRange kWindow = {0, 400};

// Two cores, four tasks of 100 ns on each, none waits for another. Each moves `bytes`.
Trace eight_tasks(int64_t bytes, const std::string& limit) {
  std::vector<HandTask> list;
  for (uint32_t i = 0; i < 8; ++i) {
    const int64_t start_ns = i / 2 * 100;
    list.push_back({.core = i % 2,
                    .start_ns = start_ns,
                    .end_ns = start_ns + 100,
                    .submit_ns = 0,
                    .ready_ns = 0,
                    .dispatch_ns = start_ns,
                    .finish_ns = start_ns + 100,
                    .kernel = "read"});
  }
  Trace trace = hand_trace(list, 2);
  trace.tasks.bytes.assign(8, bytes);
  trace.tasks.flops.assign(8, kAbsent);
  if (!limit.empty()) trace.properties.push_back({"limit.bytes_per_second", limit});
  return trace;
}

int64_t with_four_cores_ns(const Trace& trace) {
  const StepTasks tasks = make_step_tasks(trace, kWindow);
  VirtualGraph graph = expect_value(make_virtual_graph(tasks));
  set_memory(tasks, trace, recorded_limits(trace), graph);
  EXPECT_EQ(expect_value(replay_graph(tasks, graph, {})).makespan_ns, 400) << "unchanged";
  WhatIf change;
  change.core_counts[static_cast<size_t>(CoreClass::kAny)] = 4;
  return expect_value(replay_graph(tasks, graph, change)).makespan_ns;
}

// Two tasks of 1000 bytes in 100 ns want 20 GB/s together.
TEST(RecordedMemory, MoreCoresAreNoUseWhenTwoHaveAllOfIt) {
  EXPECT_EQ(with_four_cores_ns(eight_tasks(1000, "20e9")), 400);
}

TEST(RecordedMemory, MoreCoresHelpAsFarAsItReaches) {
  EXPECT_EQ(with_four_cores_ns(eight_tasks(1000, "30e9")), 268) << "8000 bytes at 30 GB/s";
  EXPECT_EQ(with_four_cores_ns(eight_tasks(1000, "40e9")), 200);
  EXPECT_EQ(with_four_cores_ns(eight_tasks(1000, "80e9")), 200);
}

TEST(RecordedMemory, ALimitBelowWhatWasSeenIsNotBelieved) {
  EXPECT_EQ(with_four_cores_ns(eight_tasks(1000, "5e9")), 400) << "20 GB/s were seen";
}

TEST(RecordedMemory, IsNotKnownWithoutALimitOrBytes) {
  EXPECT_EQ(with_four_cores_ns(eight_tasks(1000, "")), 200);
  EXPECT_EQ(with_four_cores_ns(eight_tasks(kAbsent, "20e9")), 200);
  EXPECT_EQ(with_four_cores_ns(eight_tasks(0, "20e9")), 200);
}

TEST(RecordedMemory, StandardChangesCountWithIt) {
  const Trace trace = eight_tasks(1000, "20e9");
  const StepTasks tasks = make_step_tasks(trace, kWindow);
  const StandardChanges table = expect_value(standard_changes(tasks, trace));
  EXPECT_EQ(table.memory_bytes_per_s, 20'000'000'000);
  bool has_row = false;
  for (const StandardChange& row : table.changes) {
    if (row.name == "twice the cores") {
      has_row = true;
      EXPECT_EQ(row.makespan_ns, 400);
    }
    if (row.name == "read in half the time") {
      EXPECT_EQ(row.makespan_ns, 200);
    }
  }
  EXPECT_TRUE(has_row);
}

// Half the time is half the bytes: a kernel that is changed on more cores keeps its rate.
TEST(RecordedMemory, ScaledAndFusedTasksKeepTheirRates) {
  const Trace trace = eight_tasks(1000, "20e9");
  const StepTasks tasks = make_step_tasks(trace, kWindow);
  VirtualGraph graph = expect_value(make_virtual_graph(tasks));
  set_memory(tasks, trace, recorded_limits(trace), graph);
  WhatIf change;
  change.core_counts[static_cast<size_t>(CoreClass::kAny)] = 4;
  change.kernel_scale.assign(trace.names.size(), 0.5);
  EXPECT_EQ(expect_value(replay_graph(tasks, graph, change)).makespan_ns, 200);
}

}  // namespace
}  // namespace gapless
