// SPDX-License-Identifier: Apache-2.0
//
// DeviceTime: what a device with streams did, as one: computing, communicating, copying, nothing.
//
//   window = compute + communication alone + copies alone + idle
//
// Streams are queues and no cores: one that waits for another costs nothing as long as the other
// runs. What costs is the time in which the device computes nothing, and that is shared out here to
// the nanosecond. Idle time is cut by the launch of the kernel that ends it: until the host called,
// it is the host's; from then on it is the device's or the driver's. Costs a sort of the tasks.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/step_tasks.h"
#include "trace/trace.h"

namespace gapless {

// An interval in which nothing runs.
struct DeviceGap {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t launch_ns = kAbsent;      // of the kernel that ends it; kAbsent: nobody says
  uint32_t task_before = kNoIndex;  // of the StepTasks; kNoIndex: the window begins
  uint32_t task_after = kNoIndex;   // kNoIndex: the window ends
};

struct DeviceTime {
  uint32_t device = 0;  // of the trace's devices
  int64_t window_ns = 0;
  int64_t compute_ns = 0;              // at least one kernel computes
  int64_t overlapped_ns = 0;           // of that: collectives run as well
  int64_t communication_alone_ns = 0;  // collectives run and nothing computes
  int64_t copy_alone_ns = 0;           // only copies and fills run
  int64_t idle_ns = 0;                 // nothing runs

  // Idle time, by what it waited for.
  int64_t idle_for_launch_ns = 0;  // the host had not launched the next kernel yet
  int64_t idle_launched_ns = 0;    // it was launched and did not start
  int64_t idle_unknown_ns = 0;     // nobody says when it was launched, or none came
  std::vector<DeviceGap> gaps;     // all of it, in the order of time
};

// One for each device of which all cores in `tasks` are streams, in the order of the devices.
// Collectives and copies are those of KernelKinds.
std::vector<DeviceTime> device_times(const Trace& trace, const StepTasks& tasks);

}  // namespace gapless
