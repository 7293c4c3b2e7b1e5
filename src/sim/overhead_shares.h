// SPDX-License-Identifier: Apache-2.0
//
// OverheadShares: how much of a run had ready work beside an idle core, counted as upstream's
// sched_overhead_analysis counts, so that its published figures can be compared.
//
// A task is ready when its last producer has ended (not: when that was seen), until it is
// dispatched; one without producers never waits. A kind of core is in overhead while a task of that
// kind is ready and a core of it runs nothing; a mixed task counts for both kinds. The window is
// from the first dispatch to the last finish. Costs a sort of the records' times.

#pragma once

#include "sim/device_profile.h"
#include "sim/sim_graph.h"
#include "sim/sim_result.h"

namespace gapless {

// Shares of the window, 0 to 1.
struct OverheadShares {
  double cube = 0.0;
  double vector = 0.0;
  double all = 0.0;  // both kinds at once
  double has = 0.0;  // every kind that has ready work, and one has
};

OverheadShares measure_overhead(const DeviceProfile& profile, const SimGraph& graph,
                                const SimResult& result);

}  // namespace gapless
