// SPDX-License-Identifier: Apache-2.0
//
// A simulated run as a trace, like those that users record: lanes AICPU_0.. for the schedulers and,
// last, the orchestrator, AICube_0.. and AIVector_0.. for the cores.
//
// A row a record with all seven times, edges, bytes and flops. A task with several records has one
// more row, which is complete when all are: its consumers wait for that (the id of record k, from
// 1, is the task's + k x 2^40). The run is one step. Costs about 0.3 us a record.

#pragma once

#include <cstdint>
#include <vector>

#include "sim/device_profile.h"
#include "sim/sim_graph.h"
#include "sim/sim_result.h"
#include "trace/trace.h"

namespace gapless {

struct SimTraceOptions {
  bool has_ticks = true;  // times are rounded down to the profile's tick
  uint32_t step = 0;      // its number
  int64_t begin_ns = 0;   // when the step begins on the trace's clock
  uint64_t seed = 1;      // for the trace's properties
};

Trace make_sim_trace(const DeviceProfile& profile, const SimGraph& graph, const SimResult& result,
                     const SimTraceOptions& options = {});

}  // namespace gapless
