// SPDX-License-Identifier: Apache-2.0
//
// What the memory gave the tasks of a step, and what it gives at most, for a replay.
//
// The device's limit is a property of the trace. Tasks were sometimes seen to get more, all
// together: bytes that came from a cache, or a limit that was measured too low. Then what they had
// for all but a hundredth of the time is the limit, so that the unchanged replay is not slowed down
// by a memory that was faster than it is said to be. Costs a sort and a heap operation a task.

#pragma once

#include <cstdint>

#include "analysis/roofline.h"
#include "analysis/step_tasks.h"
#include "sim/virtual_graph.h"
#include "trace/trace.h"

namespace gapless {

// Sets the graph's bytes and what the memory gives. Nothing is set when the limit is not known or
// tasks with more than a twentieth of the run time have no bytes. `graph` is one that
// make_virtual_graph made of `tasks`.
void set_memory(const StepTasks& tasks, const Trace& trace, const RoofLimits& limits,
                VirtualGraph& graph);

}  // namespace gapless
