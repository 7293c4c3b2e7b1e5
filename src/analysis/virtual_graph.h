// SPDX-License-Identifier: Apache-2.0
//
// VirtualGraph: recorded tasks with what each of them costs, ready to run again in virtual time.
//
// The time before a task's start is either waiting, which a replay finds again by itself, or one of
// its overheads, which the replay repeats:
//
//   seen   = end + completion      the scheduler knows of an end: consumers and the core are free
//   ready  = last of the producers' seen and its own submit, + resolve
//   taken  = when it is ready and its core is seen to be free
//   start  = taken + scheduler + hand-off
//
// Waiting for a producer, for a busy core or for the orchestrator is thus no overhead. A task that
// was dispatched before its core was seen to be free (into a pending slot) is *staged*: its core is
// free for it at the end itself. A core that had nothing to do while tasks of its class waited for
// busy ones was *away* (its thread did not run, or the tasks were not for it): the replay lets as
// much waiting go by before that core takes a task. Where dispatches are seen to queue up behind
// each other, as many schedulers as that shows dispatch one task after another. Costs two passes
// over the edges and a sort of the dispatch times.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/step_tasks.h"
#include "analysis/whatif.h"
#include "base/result.h"

namespace gapless {

// Times count from the window's begin. One cache line.
struct VirtualTask {
  int64_t arrival_ns = 0;  // submit; for a task without producers the first that is known of it
  int64_t run_ns = 0;
  int64_t completion_ns = 0;  // end -> seen
  int64_t resolve_ns = 0;     // producers seen -> ready
  int64_t scheduler_ns = 0;   // ready and core free -> dispatch; without the queue before it
  int64_t handoff_ns = 0;     // dispatch -> start
  uint32_t kernel = kNoIndex;
  uint32_t producer_count = 0;
  CoreClass core_class = CoreClass::kAny;
  bool is_staged = false;
  bool is_root = false;     // no producers: what is before `ready` is not completion
  bool has_submit = false;  // arrival_ns is when it was submitted, or what followed from that
};
static_assert(sizeof(VirtualTask) == 64);

// Tasks are numbered in the order in which ready ones are taken. Edges go from smaller to larger
// numbers, except after a fusion.
struct VirtualGraph {
  std::vector<VirtualTask> tasks;
  const StepTasks* recorded = nullptr;    // whose edges these are; null: they are here
  std::vector<uint32_t> consumer_begins;  // [task + 1]
  std::vector<uint32_t> consumer_tasks;
  std::array<uint32_t, kCoreClassCount> core_counts = {};
  // How long tasks waited while a core was away: after its task, and before its first one. Both are
  // empty when none was.
  std::vector<int64_t> away_ns;                                        // by task
  std::array<std::vector<int64_t>, kCoreClassCount> away_at_begin_ns;  // by core of the class
  uint32_t scheduler_count = 0;                                        // 0: each core has its own
  int64_t rest_ns = 0;  // from the last end that was seen to the window's end
  bool has_staged = false;

  std::span<const uint32_t> consumers(uint32_t task) const {
    if (recorded != nullptr) return recorded->consumers(task);
    return {consumer_tasks.data() + consumer_begins[task],
            consumer_tasks.data() + consumer_begins[size_t{task} + 1]};
  }
};

// Finds out whether few schedulers dispatch for all cores, and takes the queue before them out of
// the tasks' scheduler_ns. Implemented in virtual_schedulers.cc.
void set_schedulers(const StepTasks& tasks, VirtualGraph& graph);

// Error when the order of the tasks cannot be known. `tasks` must live as long as the graph.
Result<VirtualGraph> make_virtual_graph(const StepTasks& tasks);

// Joins tasks as WhatIf::fused says. Error when two joined tasks have another between them.
Result<VirtualGraph> fuse_tasks(const StepTasks& tasks, const VirtualGraph& graph,
                                const WhatIf& change);

// With the change's kernel_scale.
inline int64_t scaled_run_ns(const VirtualTask& task, const WhatIf& change) {
  if (task.kernel >= change.kernel_scale.size()) return task.run_ns;
  const double scaled = static_cast<double>(task.run_ns) * change.kernel_scale[task.kernel];
  return static_cast<int64_t>(scaled + 0.5);
}

// Runs all tasks; implemented in virtual_run.cc. The graph must have no circle, and each class that
// has tasks must have cores.
WhatIfResult run_graph(const VirtualGraph& graph, const WhatIf& change);

}  // namespace gapless
