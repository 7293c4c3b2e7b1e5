// SPDX-License-Identifier: Apache-2.0
//
// Roofline: bytes and operations of each kernel against what the device can do.
//
// Cores share the memory, so bytes over a task's own time understates what it got: a kernel is
// charged the time in which its tasks ran, and where several kernels ran at once the moment is
// divided among them by their number of running tasks. These shares add up to the time in which
// anything ran. Costs a heap operation a start and an end: 1.7 ms for 38.5 k tasks.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/step_tasks.h"
#include "trace/trace.h"

namespace gapless {

// What the device can do, all cores together; 0: not known.
struct RoofLimits {
  double bytes_per_second = 0.0;
  double flops_per_second = 0.0;
  // Operations depend on their type (int8, bf16): kernels with a limit of their own.
  struct KernelFlops {
    uint32_t kernel = kNoIndex;  // of the trace's names
    double flops_per_second = 0.0;
  };
  std::vector<KernelFlops> kernels = {};

  double flops_per_second_of(uint32_t kernel) const;
};

struct KernelRoof {
  uint32_t kernel = kNoIndex;  // of the trace's names; kNoIndex: the tasks have none
  uint32_t task_count = 0;     // that ran
  uint32_t unknown_count = 0;  // of them, without bytes and flops: limits are too low by those
  int64_t bytes = 0;           // of tasks cut at the window, the part inside
  int64_t flops = 0;
  int64_t run_ns = 0;             // of all its tasks, one after another
  double wall_ns = 0.0;           // its share of the time, see above
  double mean_concurrency = 0.0;  // tasks of any kernel that ran while one of its did, by run time

  // Over wall_ns; 0 when unknown.
  double bytes_per_second() const;
  double flops_per_second() const;
  // The least time that the limits allow for its bytes and flops; 0 when neither is known.
  double limit_ns(const RoofLimits& limits) const;
  // How close it comes to the limit that it is closer to: limit_ns over wall_ns.
  double share_of_limit(const RoofLimits& limits) const;
  // Whether that limit is the memory's. False when no limit is known.
  bool is_memory_bound(const RoofLimits& limits) const;
};

struct Roofline {
  std::vector<KernelRoof> kernels;  // the largest wall_ns first, then by name
  int64_t bytes = 0;
  int64_t flops = 0;
  int64_t running_ns = 0;  // in which anything ran: the sum of all wall_ns
  // The sum over the kernels: what is left when each meets its limit and shares stay as they are.
  double limit_ns = 0.0;
};

// Nothing when no task of the step has bytes or flops. `trace` is the one that `tasks` was made of.
std::optional<Roofline> measure_roofline(const StepTasks& tasks, const Trace& trace,
                                         const RoofLimits& limits);

// From the properties "limit.bytes_per_second", "limit.flops_per_second" and, of one kernel,
// "limit.flops_per_second.<kernel>" of the trace. What is not a number above 0 is passed over. What
// is given holds instead of what is recorded, flops for all kernels that are not given too.
RoofLimits recorded_limits(const Trace& trace, const RoofLimits& given = {});

}  // namespace gapless
