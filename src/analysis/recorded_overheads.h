// SPDX-License-Identifier: Apache-2.0
//
// The tasks of a step as a VirtualGraph (sim/virtual_graph.h): what of the time before each start
// was waiting, what was overhead and of which kind, who dispatched the tasks and in which order.
//
// Costs two passes over the edges and a few sorts by time: about 4 ms for 38.5 k tasks.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/step_tasks.h"
#include "base/result.h"
#include "sim/virtual_graph.h"

namespace gapless {

// What tasks and cores waited for in the recording.
struct RecordedWaits {
  std::vector<int64_t> ready_ns;  // by task
  // Of the time that ready tasks waited for busy cores: another core of the class had nothing to
  // do.
  double idle_share = 0.0;
};

// Finds out whether few schedulers dispatch for all cores, takes the queue before them out of the
// tasks' scheduler_ns, and sets the order, the turns and the bound cores. Implemented in
// recorded_schedulers.cc.
void set_schedulers(const StepTasks& tasks, const RecordedWaits& recorded, VirtualGraph& graph);

// Error when the tasks have neither edges nor ready or submit times: any order would do.
Result<void> check_order_known(const StepTasks& tasks);

// Error when the order of the tasks cannot be known.
Result<VirtualGraph> make_virtual_graph(const StepTasks& tasks);

// Joins tasks as WhatIf::fused says. Error when two joined tasks have another between them.
Result<VirtualGraph> fuse_tasks(const StepTasks& tasks, const VirtualGraph& graph,
                                const WhatIf& change);

}  // namespace gapless
