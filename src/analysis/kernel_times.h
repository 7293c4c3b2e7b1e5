// SPDX-License-Identifier: Apache-2.0
//
// KernelTimes: which kernels the cores were busy with during a part of a trace.
//
// A task was running from its start to its end; rows without these (joins, skipped tasks) are
// nothing that ran. Everything is cut at the window, whole nanoseconds are counted, and the figures
// add up: the self times of all kernels are the busy time, and busy and idle time are lanes x
// window. Tasks of one lane may overlap in traces of others; a moment then belongs to the one that
// started last. Costs a sort of the tasks in the window.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

// One kernel in the window. Each block of a task is a run of its own.
struct KernelTime {
  uint32_t name = kNoIndex;  // of the trace's names; kNoIndex: the tasks have none
  int64_t run_count = 0;
  int64_t cut_count = 0;  // runs that reach beyond the window: only their part inside counts
  int64_t sum_ns = 0;     // from start to end, over all runs
  int64_t min_ns = 0;
  int64_t median_ns = 0;  // of an even number the smaller of the two
  int64_t max_ns = 0;
  int64_t self_ns = 0;  // sum_ns less what belongs to tasks that started later on the same lane
  int lane_count = 0;   // that ran it
};

struct LaneTime {
  uint32_t lane = kNoIndex;
  int64_t run_count = 0;
  int64_t busy_ns = 0;
  int64_t idle_ns = 0;
};

struct KernelTimes {
  TimeRange window;                 // begin_ns is inside, end_ns is not
  std::vector<KernelTime> kernels;  // the largest self time first, then by name
  std::vector<LaneTime> lanes;      // as they were asked for
  int64_t busy_ns = 0;              // of all lanes
  int64_t idle_ns = 0;
  int64_t unfinished_count = 0;  // tasks that started before the window's end and have no end

  int64_t window_ns() const { return window.end_ns - window.begin_ns; }
  // Between 0 and the number of lanes.
  double average_busy_lanes() const;
  // Of lanes x window, between 0 and 1: of one kernel's self time.
  double share(const KernelTime& kernel) const;
};

struct KernelTimesOptions {
  TimeRange window = {};
  std::vector<uint32_t> lanes = {};  // empty: core_lanes()
};

// Error when the window is empty, a lane is not the trace's or named twice, or times do not add up
// in 64 bits.
Result<KernelTimes> kernel_times(const Trace& trace, const KernelTimesOptions& options);

// The lanes that stand for cores: workers, Ascend cores and multiprocessors, busy or not, and any
// other on which a task started. Lanes of the kind kOther tell again what others tell; they count
// when there is nothing else.
std::vector<uint32_t> core_lanes(const Trace& trace);

// Where each lane of the trace stands in `lanes`; kNoIndex: nowhere. Error when a lane is not the
// trace's or named twice.
Result<std::vector<uint32_t>> places_of(const Trace& trace, const std::vector<uint32_t>& lanes);

// The text of a KernelTime's name.
std::string_view kernel_name(const Trace& trace, const KernelTime& kernel);

// A step of a replay, as its orchestrator recorded it.
struct StepWindow {
  uint32_t step = kNoValue;  // its number, counted since the replay was prepared
  uint32_t lane = kNoIndex;  // the orchestrator's
  TimeRange window;
};

// All steps of the trace in order of time; steps of several devices may overlap.
std::vector<StepWindow> step_windows(const Trace& trace);

}  // namespace gapless
