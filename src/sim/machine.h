// SPDX-License-Identifier: Apache-2.0
//
// The simulated device: an orchestrator, scheduler threads and cores, in virtual time.
//
// A discrete-event simulation in whole nanoseconds: the same profile, graph and seed give the same
// result on every machine. docs/simulator.md describes the protocol. Rounds of polling in which
// nothing happens cost no events: a thread that waits is moved on by whole rounds. About 0.4 us a
// task.

#pragma once

#include <cstdint>

#include "base/result.h"
#include "sim/device_profile.h"
#include "sim/sim_graph.h"
#include "sim/sim_result.h"

namespace gapless {

struct SimOptions {
  uint64_t seed = 1;
  bool has_phases = true;  // SimResult::phases are kept
};

// Error when a task does not fit on the device, or when nothing can go on: a consumer that is
// submitted before its producer can fill the window.
Result<SimResult> simulate(const DeviceProfile& profile, const SimGraph& graph,
                           const SimOptions& options = {});

}  // namespace gapless
