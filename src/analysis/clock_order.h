// SPDX-License-Identifier: Apache-2.0
//
// Clock order: tasks whose recorded times contradict each other.
//
//   submit <= dispatch <= receive <= start <= end <= finish, and submit <= ready <= start
//
// Each time is held against the latest before it, so that one wrong time does not hide behind its
// neighbour. A dispatch before ready is counted apart: some schedulers hand a task over early. The
// times are the trace's, not those that StepTasks cut at the window. Costs one pass.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/step_tasks.h"
#include "trace/trace.h"

namespace gapless {

// A time that should have been earlier than another and is not.
struct ClockDisorder {
  TaskTime earlier = TaskTime::kSubmit;
  TaskTime later = TaskTime::kSubmit;
  uint32_t task_count = 0;
};

struct ClockOrder {
  uint32_t wrong_count = 0;              // tasks with any disorder
  uint32_t early_count = 0;              // tasks that were dispatched before they were ready
  std::vector<ClockDisorder> disorders;  // the most frequent first; a task may count in several
  uint64_t worst_ns = 0;                 // by how much time runs backwards, at most
  uint32_t worst_row = kNoIndex;         // of the trace's tasks: the first that has it
};

ClockOrder check_clock_order(const Trace& trace, const StepTasks& tasks);

}  // namespace gapless
