// SPDX-License-Identifier: Apache-2.0
//
// What some tasks of a step cost on the cores and on the clock, by themselves and among the others.
//
// Exact in whole nanoseconds: one sweep over all starts and ends, and one pass over the tasks for
// the episodes. Costs a sort of the ends.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/critical_path.h"
#include "analysis/step_tasks.h"

namespace gapless {

struct FocusTimes {
  int64_t task_count = 0;
  int64_t run_ns = 0;      // core time
  int64_t union_ns = 0;    // of the wall clock, in which at least one of them ran
  int64_t exposed_ns = 0;  // of that, in which nothing else ran
  int64_t hidden_ns = 0;   // of that, in which another kernel ran too
  int64_t path_ns = 0;     // on the observed path
  // Episodes: from the first start to the last end in each layer (see task_groups.h), joined where
  // they touch. cores x extent = run + other + idle.
  int64_t episode_count = 0;
  int64_t extent_ns = 0;
  int64_t other_run_ns = 0;  // core time of other kernels in the episodes
  int64_t idle_ns = 0;       // core time in which cores had nothing to do there
};

// `is_focus` and `task_layer` are by task.
FocusTimes measure_focus(const StepTasks& tasks, const CriticalPath& path,
                         std::span<const uint32_t> task_layer, const std::vector<bool>& is_focus);

}  // namespace gapless
