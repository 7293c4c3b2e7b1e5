// SPDX-License-Identifier: Apache-2.0
//
// Between which times a recorded step and its replay on a simulated device are measured, so that
// both lengths mean the same: from the earliest time that all recorded tasks have to the latest,
// of those that lie within the step's window.

#pragma once

#include <cstdint>

#include "analysis/step_tasks.h"
#include "sim/sim_result.h"
#include "trace/trace.h"

namespace gapless {

struct ReplaySpan {
  TaskTime from = TaskTime::kStart;  // of the first task: submit, dispatch or start
  TaskTime to = TaskTime::kEnd;      // of the last: finish or end
};

ReplaySpan replay_span(const StepTasks& tasks);
int64_t recorded_length_ns(const StepTasks& tasks, const ReplaySpan& span);
int64_t simulated_length_ns(const SimResult& result, const ReplaySpan& span);

}  // namespace gapless
