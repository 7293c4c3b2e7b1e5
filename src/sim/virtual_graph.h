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
// each other, as many schedulers as that shows dispatch one task after another. Ready tasks are
// taken first come, first served where the recorded ones were, else in the recorded order; where
// that holds for each core alone, tasks are *bound*: each runs on the core that ran it.
// Recorded run times are those of tasks that shared the memory with as many others as there were
// cores. With more cores they share it with more: where it is known what tasks read and write and
// what the memory can give, they run longer when all at once would want more (memory_clock.h).
//
// What was recorded is turned into this by analysis/recorded_overheads.h.
//
// machine.h is the other way to run a graph in virtual time: there a device's protocol decides what
// waits for what, here each task brings its own overheads. Without any they agree.

#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "trace/core_class.h"
#include "trace/trace.h"

namespace gapless {

// Which of several ready tasks is taken.
enum class TakeOrder : uint8_t { kFirstReady, kRecorded };

// Times count from the window's begin. One cache line.
struct alignas(64) VirtualTask {
  int64_t arrival_ns = 0;  // submit; for a task without producers the first that is known of it
  int64_t run_ns = 0;
  int64_t completion_ns = 0;  // end -> seen
  int64_t resolve_ns = 0;     // producers seen -> ready
  int64_t scheduler_ns = 0;   // ready and core free -> dispatch; without the queue before it
  int64_t handoff_ns = 0;     // dispatch -> start
  uint32_t kernel = kNoIndex;
  uint32_t producer_count = 0;
  // The lower is taken first: of the tasks that became ready together, or of all ready ones.
  uint32_t turn = 0;
  CoreClass core_class = CoreClass::kAny;
  bool is_staged = false;
  bool is_root = false;     // no producers: what is before `ready` is not completion
  bool has_submit = false;  // arrival_ns is when it was submitted, or what followed from that
};
static_assert(sizeof(VirtualTask) == 64);

// Tasks are numbered in the order of their recorded starts, after a fusion of their first parts.
struct VirtualGraph {
  std::vector<VirtualTask> tasks;
  std::vector<uint64_t> consumer_begins;  // [task + 1]
  std::vector<uint32_t> consumer_tasks;   // of each task in the order of their turns
  std::array<uint32_t, kCoreClassCount> core_counts = {};
  // How long tasks waited while a core was away: after its task, and before its first one. Both are
  // empty when none was.
  std::vector<int64_t> away_ns;                                        // by task
  std::array<std::vector<int64_t>, kCoreClassCount> away_at_begin_ns;  // by core of the class
  // By task, the only core of its class that runs it; empty: any of them.
  std::vector<uint32_t> bound_cores;
  bool is_surely_bound = false;  // also when all tasks are submitted at once
  TakeOrder order = TakeOrder::kFirstReady;
  uint32_t scheduler_count = 0;  // 0: each core has its own
  // Bytes by task, and what all tasks together can get in a second; empty and 0: not known.
  std::vector<int64_t> bytes;
  int64_t memory_bytes_per_s = 0;
  // From the last end that was seen to the window's end; `ends_unseen`: from the last end, because
  // the window ends before that is seen.
  int64_t rest_ns = 0;
  bool ends_unseen = false;
  bool has_staged = false;

  std::span<const uint32_t> consumers(uint32_t task) const {
    return {consumer_tasks.data() + consumer_begins[task],
            consumer_tasks.data() + consumer_begins[size_t{task} + 1]};
  }
};

// One thing changed, or several. What counts as which overhead is above.
struct WhatIf {
  bool zero_completion = false;
  bool zero_scheduler = false;
  bool zero_handoff = false;
  bool zero_submit = false;     // all tasks are submitted when the window begins
  bool zero_placement = false;  // no free core leaves a ready task of its class to another
  // Cores of each class; 0: as recorded. More than recorded share the same memory.
  std::array<uint32_t, kCoreClassCount> core_counts = {};
  // Run time, and with it the bytes, by name of the trace; empty or missing: 1.
  std::vector<double> kernel_scale = {};
  // Groups of kernels (names of the trace) that become one task: a task is joined to the producer
  // that it follows (of several the one that ended last) where the producer's kernel is before its
  // own in the group. The joined task runs on the kind of core of its first part and has the
  // overheads of one task.
  std::vector<std::vector<uint32_t>> fused = {};
};

struct WhatIfResult {
  int64_t makespan_ns = 0;  // from the window's begin; with the time from the last task to its end
  int64_t busy_ns = 0;
  uint32_t task_count = 0;  // fewer than recorded after a fusion
};

// With the change's kernel_scale.
inline int64_t scaled_run_ns(const VirtualTask& task, const WhatIf& change) {
  if (task.kernel >= change.kernel_scale.size()) return task.run_ns;
  const double scaled = static_cast<double>(task.run_ns) * change.kernel_scale[task.kernel];
  return scaled < 9e18 ? std::llround(scaled) : std::numeric_limits<int64_t>::max();
}

// Runs all tasks; implemented in virtual_run.cc. The graph must have no circle, and each class that
// has tasks must have cores.
WhatIfResult run_graph(const VirtualGraph& graph, const WhatIf& change);

}  // namespace gapless
