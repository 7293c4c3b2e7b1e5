// SPDX-License-Identifier: Apache-2.0
//
// Traces written down task by task, and machines for made ones: for tests of paths and replays.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "analysis/step_tasks.h"
#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

struct HandTask {
  uint32_t core = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<uint32_t> producers = {};  // by place in the list
  int64_t submit_ns = kAbsent;
  int64_t ready_ns = kAbsent;
  int64_t dispatch_ns = kAbsent;
  int64_t finish_ns = kAbsent;
  std::string kernel = "kernel";
};

// Lanes are workers unless `kinds` says otherwise.
inline Trace hand_trace(const std::vector<HandTask>& list, uint32_t core_count,
                        std::vector<LaneKind> kinds = {}) {
  Trace trace;
  trace.devices.push_back({.name = "hand"});
  kinds.resize(core_count, LaneKind::kWorker);
  for (uint32_t core = 0; core < core_count; ++core) {
    trace.lanes.push_back({.name = "core " + std::to_string(core), .kind = kinds[core]});
  }
  for (uint32_t row = 0; row < list.size(); ++row) {
    const HandTask& task = list[row];
    trace.tasks.id.push_back(row);
    trace.tasks.lane.push_back(task.core);
    trace.tasks.kernel.push_back(trace.names.intern(task.kernel));
    const std::array<int64_t, kTaskTimeCount> times = {
        task.submit_ns, task.ready_ns, task.dispatch_ns, kAbsent,
        task.start_ns,  task.end_ns,   task.finish_ns};
    for (size_t time = 0; time < times.size(); ++time) {
      trace.tasks.time_ns[time].push_back(times[time]);
    }
    for (const uint32_t producer : task.producers) {
      trace.edges.producer.push_back(producer);
      trace.edges.consumer.push_back(row);
      trace.edges.kind.push_back(static_cast<uint8_t>(EdgeKind::kData));
    }
  }
  return trace;
}

template <typename T>
T expect_value(Result<T> result) {
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return std::move(result).value();
}

inline StepTasks make_step_tasks(const Trace& trace, TimeRange window) {
  return expect_value(StepTasks::create(trace, window));
}

// Chip-like, with three schedulers: each of the machines below differs from it in few things.
inline MadeOptions made_chip(uint64_t seed) {
  MadeOptions chip;
  chip.seed = seed;
  chip.core_counts = {0, 8, 16};
  chip.scheduler_count = 3;
  chip.kernels = {{"a", CoreClass::kCube, 20'000, 0.5}, {"b", CoreClass::kVector, 15'000, 0.7}};
  chip.level_count = 200;
  chip.max_width = 40;
  chip.edges_per_task = 3;
  chip.long_edge_every = 10;
  chip.overheads = {.completion = {100, 1'200},
                    .dispatch = {100, 300},
                    .propagation = {300, 500},
                    .setup = {300, 400},
                    .submit_interval_ns = 600};
  return chip;
}

// Workers that take tasks themselves.
inline MadeOptions made_cpu(uint64_t seed, uint32_t core_count) {
  MadeOptions cpu;
  cpu.seed = seed;
  cpu.core_counts = {core_count, 0, 0};
  cpu.scheduler_count = 0;
  cpu.level_count = 400;
  cpu.kernels = {{"a", CoreClass::kAny, 20'000, 0.5}, {"b", CoreClass::kAny, 5'000, 1.0}};
  cpu.overheads.completion = {100, 900};
  cpu.overheads.dispatch = {200, 1'500};
  cpu.overheads.setup = {50, 300};
  return cpu;
}

// Machines that differ in who schedules, how much, and what the tasks look like.
inline constexpr size_t kMadeMachineCount = 15;
inline std::vector<MadeOptions> made_machines(uint64_t seed) {
  const MadeOptions cpu = made_cpu(seed, 2);
  const MadeOptions chip = made_chip(seed);
  MadeOptions heavy = chip;
  heavy.overheads = {.completion = {3'000, 9'000},
                     .dispatch = {100, 300},
                     .propagation = {2'000, 6'000},
                     .setup = {300, 400},
                     .submit_interval_ns = 0};
  MadeOptions joined = heavy;
  joined.edges_per_task = 0;
  MadeOptions submit_bound = chip;
  submit_bound.min_width = 20;
  submit_bound.overheads.submit_interval_ns = 2'500;
  MadeOptions dispatch_bound = chip;
  dispatch_bound.scheduler_count = 1;
  dispatch_bound.min_width = 20;
  dispatch_bound.overheads.dispatch = {1'500, 2'500};
  dispatch_bound.overheads.submit_interval_ns = 0;
  MadeOptions two_schedulers = dispatch_bound;
  two_schedulers.scheduler_count = 2;
  two_schedulers.overheads.dispatch = {2'500, 4'500};
  MadeOptions fixed = heavy;
  fixed.has_fixed_cores = true;
  MadeOptions fixed_cpu = made_cpu(seed, 4);
  fixed_cpu.has_fixed_cores = true;
  MadeOptions narrow = heavy;
  narrow.max_width = 6;
  MadeOptions wide = chip;
  wide.min_width = 48;
  wide.max_width = 96;
  wide.level_count = 80;
  wide.overheads.submit_interval_ns = 0;
  MadeOptions long_edges = heavy;
  long_edges.long_edge_every = 1;
  MadeOptions three_kinds = chip;
  three_kinds.core_counts = {6, 4, 12};
  three_kinds.kernels.push_back({"c", CoreClass::kAny, 12'000, 0.3});
  MadeOptions joined_wide = joined;
  joined_wide.min_width = 16;
  joined_wide.max_width = 96;
  joined_wide.level_count = 60;
  MadeOptions cpu_wide = made_cpu(seed, 8);
  cpu_wide.min_width = 8;
  cpu_wide.max_width = 30;
  cpu_wide.level_count = 150;
  return {cpu,       chip,   heavy, joined,     dispatch_bound, submit_bound, two_schedulers, fixed,
          fixed_cpu, narrow, wide,  long_edges, three_kinds,    joined_wide,  cpu_wide};
}

}  // namespace gapless
