// SPDX-License-Identifier: Apache-2.0
//
// DeviceReplay: recorded tasks on a simulated device (sim/machine.h). Its orchestrator, schedulers,
// cores and latencies take the place of the recorded overheads, so that parameters of the device
// can be changed and not only its overheads: a cheaper poll, a fourth scheduler, no pending slots.
//
// How well a profile describes the device is part of every answer: the unchanged replay is held
// against the recording. `gapless calibrate` makes a profile of a trace.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/recorded_graph.h"
#include "analysis/step_tasks.h"
#include "analysis/whatif.h"
#include "base/result.h"
#include "sim/device_profile.h"
#include "trace/trace.h"

namespace gapless {

// The profile with as many cores as the step has, and without kernels' times: those are recorded.
// Error when the step's cores are not of clusters as the simulator has them.
Result<DeviceProfile> profile_for_step(const DeviceProfile& profile, const StepTasks& tasks);

// Sets the parameters to zero that make up an overhead, as `change` says: of completion those for
// polls and ends, of the scheduler those of a dispatch, of the hand-off those of a core, of submit
// those of the orchestrator. Core counts set the clusters; an error when the device has none of
// that class, or the vector cores are no multiple of the clusters.
Result<void> change_profile(const WhatIf& change, DeviceProfile& profile);

struct DeviceChange {
  std::string name;
  DeviceProfile profile;
  std::vector<double> kernel_scale = {};  // by the trace's names
};

// Each overhead zero, another scheduler thread, no pending slots where there are some; where times
// are modelled twice the memory's rate and twice the clusters too, of which recorded times know
// nothing.
std::vector<DeviceChange> standard_device_changes(const DeviceProfile& profile, bool is_modelled);

struct DeviceReplayArgs {
  const Trace& trace;
  const StepTasks& tasks;
  const DeviceProfile& profile;  // of profile_for_step
  // Run times follow from bytes and operations, and cores share the device's memory, instead of
  // what was recorded. Error when a task has neither.
  bool is_modelled = false;
  uint32_t step = 0;  // of a simulated trace: each step has a seed of its own
};

// The table of what-if, on the device. Error as of replay_tasks when the order of the tasks cannot
// be known. Times from the last recorded time of a task to the end of
// the step, and from its begin to the first, are as recorded.
Result<StandardChanges> replay_on_device(const DeviceReplayArgs& args,
                                         std::span<const DeviceChange> changes);

}  // namespace gapless
