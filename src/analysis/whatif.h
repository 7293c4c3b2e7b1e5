// SPDX-License-Identifier: Apache-2.0
//
// What-if: the recorded tasks run again in virtual time, with one thing changed.
//
// A list scheduler over the recorded graph: recorded run times, the order in which ready tasks were
// seen to be taken, and per-task overheads taken from the trace (completion seen, dispatch,
// hand-off). Which core runs a task is decided anew, so that on the unchanged trace it may miss the
// recorded makespan: its error is part of every answer. Costs some 50 ns a task and replay.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/critical_path.h"
#include "analysis/step_tasks.h"
#include "base/result.h"
#include "sim/virtual_graph.h"

namespace gapless {

// The most that a kernel's time can be multiplied with.
inline constexpr double kMaxScale = 1000.0;

// Error when the tasks have no edges and no order can be known, a scale or a class of cores makes
// no sense, or a fusion makes a circle.
Result<WhatIfResult> replay_tasks(const StepTasks& tasks, const WhatIf& change);
// The same with the graph that make_virtual_graph (recorded_overheads.h) made of the tasks, and
// with the memory that set_memory (recorded_memory.h) may have given it.
Result<WhatIfResult> replay_graph(const StepTasks& tasks, const VirtualGraph& graph,
                                  const WhatIf& change);

// One row of the standard table.
struct StandardChange {
  std::string name;  // "no hand-off", "gate_up in half the time", "twice the cube cores"
  WhatIf change = {};
  int64_t makespan_ns = 0;
  double gain = 0.0;  // of the unchanged replay's makespan; below 0: it became slower
};

struct StandardChanges {
  int64_t recorded_ns = 0;  // the window
  int64_t replayed_ns = 0;  // the unchanged replay's makespan
  // (replayed - recorded) / recorded: what the replay gets wrong before anything is changed.
  double error = 0.0;
  int64_t zero_overhead_ns = 0;  // the makespan without completion, scheduler and hand-off
  int64_t zero_submit_ns = 0;    // without these, and all tasks submitted at once
  // With these, and all tasks submitted at once; kAbsent: submits are not known, or it was not
  // tried.
  int64_t at_once_ns = kAbsent;
  int64_t memory_bytes_per_s = 0;       // that all tasks together can get; 0: not known
  std::vector<StandardChange> changes;  // the largest gain first
};

// Each overhead zero, all of them zero, with and without submits at once, each of the
// `kernel_count` kernels with most run time in half the time, and twice the cores of each class
// that ran something. `trace` is the one that `tasks` was made of. Costs a replay for each row, on
// as many threads as the machine has (not for small steps); what it finds does not depend on their
// number.
Result<StandardChanges> standard_changes(const StepTasks& tasks, const Trace& trace,
                                         uint32_t kernel_count = 5);
// The same with the graph that make_virtual_graph (recorded_overheads.h) made of the tasks, all
// rows or those without overheads alone.
struct StandardRows {
  uint32_t kernel_count = 5;
  bool has_more_cores = true;
};
Result<StandardChanges> standard_changes(const StepTasks& tasks, const Trace& trace,
                                         const VirtualGraph& graph, const StandardRows& rows);

// The kernels with most run time (names of the trace), the largest first; a tie goes to the lower
// name.
std::vector<uint32_t> longest_kernels(const StepTasks& tasks, const Trace& trace, uint32_t count);

// work / (n x W_lb) x W_lb / M_s x M_s / M_0 x M_0 / M: parallelism, schedule, submission and
// overhead; their product is the share of cores x makespan that is busy.
struct Efficiencies {
  double parallelism = 0.0;
  double schedule = 0.0;
  double submission = 1.0;  // 1 where submits are not known
  double overhead = 0.0;
  // W_lb: the larger of the longest chain and, of the class that has most to do, work / cores.
  int64_t lower_bound_ns = 0;
  // M_s: replayed without overhead, and with all tasks submitted at once. Overhead can hide behind
  // a slow orchestrator, and that behind overhead: only without both does it show what either
  // costs.
  int64_t zero_submit_ns = 0;
  int64_t at_once_ns = kAbsent;  // all tasks submitted at once, and overhead as it was
  int64_t zero_overhead_ns = 0;  // M_0: replayed without completion, scheduler and hand-off time
  int64_t makespan_ns = 0;       // M: the window
  double product() const { return parallelism * schedule * submission * overhead; }
};
// Error as for replay_tasks, and when nothing ran.
Result<Efficiencies> measure_efficiencies(const StepTasks& tasks);
// The same without a replay of its own, from what was found for the same tasks.
Result<Efficiencies> measure_efficiencies(const StepTasks& tasks, const StandardChanges& changes,
                                          const StaticPath& longest);

}  // namespace gapless
