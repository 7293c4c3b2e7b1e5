// SPDX-License-Identifier: Apache-2.0
//
// Two critical paths, both of which tile the window exactly.
//
// Observed: from the end of the last task backwards. A task started late because of its producer
// that ended last, or because its core was busy until then: whichever came last is to blame for the
// time before it; the time between that end and the start is a gap with a cause. Static: the
// longest chain of producers by run time alone, and how much later each task could end without
// lengthening it (its slack); the window is that chain and what is more than it. Both cost a pass
// or two over the edges.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/step_tasks.h"

namespace gapless {

enum class PathPart : uint8_t {
  kRun,         // a task of the path runs
  kStartup,     // from the window's begin to the first task's start
  kCompletion,  // the blamed producer has ended, or the core's task has, and nobody has seen it
  kScheduler,   // seen and ready, not dispatched; all of a gap whose times were not recorded
  kHandoff,     // dispatched, not started
  kCoreBusy,    // the task was there before its core was free: the switch from one to the other
  kEnd,         // from the last task's end to the window's end
  kSubmit,      // the orchestrator had not submitted the task yet
};
inline constexpr int kPathPartCount = 8;
std::string_view path_part_name(PathPart part);

struct PathSegment {
  PathPart part = PathPart::kRun;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t task = kNoIndex;   // that runs, or that the gap is before; kEnd: none
  bool through_core = false;  // kRun: the next one waited for this core and not for its data
};

struct CriticalPath {
  // By time, without holes; they add up to the window. No gap is empty; a task may be.
  std::vector<PathSegment> segments;
  std::array<int64_t, kPathPartCount> part_ns = {};
  int64_t core_bound_ns = 0;  // run time of tasks that the next one waited for because of the core
};
CriticalPath observed_path(const StepTasks& tasks);

struct StaticPath {
  int64_t length_ns = 0;        // the longest chain; more than the window only where tasks overlap
                                // their producers
  std::vector<uint32_t> chain;  // its tasks in order
  std::vector<int64_t> slack_ns;  // by task: 0 on the chain
};
StaticPath static_path(const StepTasks& tasks);

}  // namespace gapless
