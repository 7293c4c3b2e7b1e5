// SPDX-License-Identifier: Apache-2.0
//
// Bubbles: why cores had nothing to do, to the nanosecond.
//
//   cores x window = busy + sum of all causes
//
// A core is idle in [a, s): from the end of a task (or the window's begin) to the start of its next
// task n (or the window's end). That interval is cut, in this order of time, by what kept n from
// starting: see BubbleCause. Where a trace lacks the times that a cut needs, the parts that cannot
// be told apart are one cause, and `missing` says so.
//
// Placement is counted, not guessed from a coincidence: as long as q ready tasks wait for cores
// that are busy, the q cores of the kind that have waited longest could have run them. A ready task
// whose own core is idle is that core's loss alone. Costs a sort of the tasks.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/step_tasks.h"

namespace gapless {

// design.md section 5. r: n was submitted and its last producer had ended; f: the scheduler knew
// (the producers' finish, n's ready); d: n was dispatched; v: the core received it; s: it started.
enum class BubbleCause : uint8_t {
  kStartup,         // nothing has been dispatched yet
  kDependencySame,  // until r, and no ready task waits for a core: n's last producer is of the kind
  kDependencyOther,   // ... is of another kind (cube <-> vector)
  kDependencySubmit,  // ... all its producers have ended: it was not submitted yet
  kPlacement,         // until r, and a ready task of the kind waits for a core that is busy
  kCompletion,        // [r, f)
  kScheduler,         // [f, d)
  kPropagation,       // [d, v)
  kSetup,             // [v, s)
  kImbalance,         // no task of the kind is left to start; others of the kind run
  kDrain,             // no task of the kind is left at all; other kinds run, or the window goes on
};
inline constexpr int kBubbleCauseCount = 11;
std::string_view bubble_cause_name(BubbleCause cause);

// A part of one idle interval.
struct Bubble {
  uint32_t core = 0;
  BubbleCause cause = BubbleCause::kStartup;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t next_task = kNoIndex;  // that the core ran afterwards; kNoIndex: none
};

struct BubblePartition {
  std::vector<std::array<int64_t, kBubbleCauseCount>> core_ns;  // by core and cause
  std::vector<int64_t> core_busy_ns;                            // by core
  std::array<int64_t, kBubbleCauseCount> cause_ns = {};         // of all cores
  int64_t busy_ns = 0;
  int64_t idle_ns = 0;
  std::vector<Bubble> bubbles;  // all of them, by core and time; none is empty
  // Causes that are not told apart because times are missing: one sentence each.
  std::vector<std::string> missing;
  double average_busy_cores = 0.0;
};

// A core that runs no more tasks while others of its kind have not started waits for the one that
// starts last.
BubblePartition partition_bubbles(const StepTasks& tasks);

}  // namespace gapless
