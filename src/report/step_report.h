// SPDX-License-Identifier: Apache-2.0
//
// StepReport: where the core time of a step went, why, and what would change it. What `gapless
// report` prints.
//
// Of several steps the one whose length is the median is explained; the others are its spread. A
// trace without steps is one, from its first dispatch or start to its last end.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/bubbles.h"
#include "analysis/critical_path.h"
#include "analysis/device_time.h"
#include "analysis/kernel_times.h"
#include "analysis/roofline.h"
#include "analysis/step_tasks.h"
#include "analysis/task_groups.h"
#include "analysis/trace_quality.h"
#include "analysis/whatif.h"
#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

struct ReportOptions {
  // Which step, counted from 0; nothing: the one of median length.
  std::optional<size_t> step;
  // Kernels whose halving is tried, and rows of each table.
  size_t top = 8;
  // A replay that is further off says nothing.
  double max_replay_error = 0.03;
  // What the device can do; where it is 0, what the trace says.
  RoofLimits limits = {};
};

// From dispatch to finish against start to end: what a task costs beside its run.
struct TaskOverhead {
  int64_t task_count = 0;  // that have all four times
  int64_t run_ns = 0;
  int64_t dispatch_to_finish_ns = 0;
  int64_t head_ns = 0;  // dispatch to start
  int64_t tail_ns = 0;  // end to finish
  double share() const {
    return dispatch_to_finish_ns == 0
               ? 0.0
               : 1.0 - static_cast<double>(run_ns) / static_cast<double>(dispatch_to_finish_ns);
  }
};

struct StepReport {
  std::string source;  // the trace's path
  size_t step_count = 0;
  size_t step = 0;                    // the one that is explained
  bool is_step_chosen = false;        // somebody asked for it; else it is the median
  std::vector<int64_t> step_lengths;  // sorted
  KernelTimes kernels;
  std::vector<std::string> kernel_names;  // of kernels.kernels
  BubblePartition bubbles;
  std::vector<std::string> core_names;
  // Of devices whose cores are streams: queues, of which most wait by their nature.
  std::vector<DeviceTime> devices;
  std::vector<std::string> device_names;
  std::optional<StepTasks> tasks;  // always there in a report that was made
  TaskOverhead overhead;
  CriticalPath path;
  std::vector<KernelTime> path_kernels;  // run time on the path by kernel, the largest first
  StaticPath longest;
  TaskGroups groups;
  RoofLimits limits;                 // 0: not known
  std::optional<Roofline> roofline;  // nothing when no task has bytes or flops
  TraceQuality quality;
  // Nothing when the tasks have no edges.
  std::optional<Efficiencies> efficiencies;
  std::optional<StandardChanges> changes;
  std::vector<std::string> warnings;  // why figures are missing or should not be believed
  std::string verdict;                // one sentence with its evidence, or why there is none

  double average_busy_cores() const { return bubbles.average_busy_cores; }
  // "core", or "stream" when all cores are streams.
  std::string_view core_word() const { return is_of_streams() ? "stream" : "core"; }
  bool is_of_streams() const { return !devices.empty(); }
};

// The step that a report is about, and the lanes of its cores: what `gapless whatif` replays.
struct ExplainedStep {
  size_t step = 0;
  std::vector<TimeRange> windows;  // of all steps
  std::vector<uint32_t> lanes;
};
Result<ExplainedStep> find_step(const Trace& trace, const std::string& source,
                                const std::optional<size_t>& step);

Result<StepReport> make_step_report(const Trace& trace, const std::string& source,
                                    const ReportOptions& options = {});

std::string report_text(const Trace& trace, const StepReport& report, const ReportOptions& options);
// The verdict and the partition alone.
std::string report_summary(const StepReport& report);
std::string report_json(const Trace& trace, const StepReport& report);

}  // namespace gapless
