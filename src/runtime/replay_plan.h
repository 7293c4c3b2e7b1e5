// SPDX-License-Identifier: Apache-2.0
//
// ReplayPlan: a graph in the form in which workers walk it.
//
// A task is one cache line with all that running it and counting for it needs. Tasks with the same
// successors share one list, which is what lets a worker that runs many of them in a row count
// their ends together. Lists are sorted by priority, the best first.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gapless/trace.h"
#include "graph/graph.h"
#include "runtime/ready_queue.h"
#include "runtime/scheduler.h"

namespace gapless {

enum RunTaskFlags : uint8_t {
  kFlagPredicate = 1,
  kFlagCohort = 2,  // a gang, or a mixed task on a device with clusters
};

struct alignas(64) RunTask {
  KernelFunction run = nullptr;
  const Argument* arguments = nullptr;
  const Scalar* scalars = nullptr;
  uint32_t list = 0;
  std::atomic<int32_t> waiting_for = 0;  // producers that have not ended
  int32_t producer_count = 0;
  std::atomic<int32_t> parts_left = 0;  // blocks, or blocks x roles, that have not ended
  int32_t part_count = 1;
  std::atomic<uint32_t> finished_step = 0;
  std::atomic<uint32_t> poisoned_step = 0;
  uint32_t trace_first = 0;  // of its parts and their join, from the step's first number
  uint16_t argument_count = 0;
  uint8_t scalar_count = 0;
  uint8_t flags = 0;
  KernelId kernel;
};
static_assert(sizeof(RunTask) == 64);

// List 0 is empty: the ends of the graph.
struct SuccessorList {
  uint32_t begin = 0;
  uint32_t count = 0;
  uint32_t user_count = 0;  // tasks that have this list
  bool plain = true;        // every task on it has one producer and nothing special
};

struct ReplayPlan {
  std::unique_ptr<RunTask[]> tasks;
  std::vector<QueueLink> links;
  std::vector<SuccessorList> lists;
  std::vector<uint32_t> successors;
  std::vector<EdgeKind> kinds;  // of the edges to them
  std::vector<uint32_t> roots;  // tasks without producers, the best first
  // Of tasks, for the recorder; empty when no task has one.
  std::vector<CostHint> costs;
  std::vector<const std::vector<CostHint>*> block_costs;  // nullptr: `costs` has it
  std::vector<NameId> names;                              // of kernels, for the recorder
  std::vector<NameId> join_names;  // of their joins: see runtime/task_times.h
  uint32_t end_count = 0;          // tasks without successors
  uint32_t trace_id_count = 0;     // parts and joins of all tasks
  uint32_t longest_list = 0;       // of successors, or of roots
};

// An error when the blocks of all tasks are more than the recorder can number.
Result<ReplayPlan> make_replay_plan(const Graph& graph, const Scheduler& scheduler);

}  // namespace gapless
