// SPDX-License-Identifier: Apache-2.0
//
// StepAnalysis: all analyses of one step, those that do not need each other at the same time.
//
// What is found does not depend on the number of threads. Costs 45 ms for 38.5 k tasks and 220 k
// edges on two cores.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/bubbles.h"
#include "analysis/critical_path.h"
#include "analysis/kernel_times.h"
#include "analysis/roofline.h"
#include "analysis/step_tasks.h"
#include "analysis/task_groups.h"
#include "analysis/trace_quality.h"
#include "analysis/whatif.h"
#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

struct StepAnalysisOptions {
  std::vector<TimeRange> steps = {};  // all of the trace
  RoofLimits limits = {};
  uint32_t kernel_count = 5;  // whose halving is tried
  // Steps of so many tasks take too long to be replayed for each kernel and more cores;
  // standard_changes() does it for whoever asks.
  uint32_t large_step = 500'000;
};

struct StepAnalysis {
  KernelTimes kernels;
  BubblePartition bubbles;
  CriticalPath path;
  StaticPath longest;
  TaskGroups groups;
  std::optional<Roofline> roofline;
  TraceQuality quality;
  // Nothing, and the reason, when the tasks cannot be replayed.
  std::optional<StandardChanges> changes;
  std::string no_changes;
  std::optional<Efficiencies> efficiencies;
  bool has_overheads_only = false;  // kernels and cores stayed as they are: the step is large
};

// `trace` is the one that `tasks` was made of. Error as for kernel_times().
Result<StepAnalysis> analyse_step(const Trace& trace, const StepTasks& tasks,
                                  const StepAnalysisOptions& options = {});

}  // namespace gapless
