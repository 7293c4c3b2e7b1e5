// SPDX-License-Identifier: Apache-2.0
//
// Traces written down task by task, for tests of paths and replays.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

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

}  // namespace gapless
