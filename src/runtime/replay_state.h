// SPDX-License-Identifier: Apache-2.0
//
// What the workers of one replay share. runtime/replay.cc fills it, runtime/replay_walk.cc walks
// it.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/memory_plan.h"
#include "runtime/boundary.h"
#include "runtime/cohort.h"
#include "runtime/cpu_device.h"
#include "runtime/replay_plan.h"
#include "runtime/scheduler.h"
#include "runtime/shadow.h"
#include "runtime/stop.h"

namespace gapless {

// The first task of a step that failed.
struct FirstFailure {
  uint32_t task = kNoTask;
  int32_t block = 0;
  std::string message;
};

struct ReplayState {
  ReplayState(CpuDevice& on_device, Graph&& of_graph, std::vector<Worker*> workers)
      : device(on_device),
        graph(std::move(of_graph)),
        boundary(graph),
        scheduler(on_device),
        board(std::move(workers)) {}

  CpuDevice& device;
  Graph graph;
  MemoryPlan memory;
  Boundary boundary;
  Scheduler scheduler;
  CohortBoard board;
  ReplayPlan plan;
  std::vector<ShadowChecker> checkers;  // one a worker in shadow mode, else none

  // Of the present step; written while no worker is inside.
  uint32_t step = 0;
  bool is_recorded = false;  // decided once a step: all its tasks have numbers, or none
  uint32_t trace_base = 0;
  uint64_t begin_ticks = 0;

  alignas(128) std::atomic<uint32_t> stop = 0;  // kStopFailure, kStopCancel
  std::atomic<uint32_t> done_step = 0;
  alignas(128) std::atomic<int32_t> ends_left = 0;

  std::mutex failure_mutex;
  FirstFailure failure;
};

// The work of one worker in one step. Returns when all tasks have ended.
void walk_step(ReplayState& state, Worker& worker);
// Tasks without producers: called once before the workers come, on behalf of worker 0.
void release_roots(ReplayState& state, Worker& worker);

}  // namespace gapless
