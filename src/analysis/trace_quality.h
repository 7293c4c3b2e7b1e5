// SPDX-License-Identifier: Apache-2.0
//
// Trace quality: what stands between a trace and a verdict.
//
// Every check is a sentence with its numbers, and says what may not be concluded. A verdict that
// the data cannot carry is withheld: a wrong one costs its reader days. The thresholds are the
// constants below. Costs a few passes over the tasks: about 1 ms for 38.5 k tasks.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/bubbles.h"
#include "analysis/step_tasks.h"
#include "trace/trace.h"

namespace gapless {

enum class QualityCheck : uint8_t {
  kClock,         // times of a task that run backwards: dispatch after start, end before start
  kOverlap,       // lanes whose spans are not execution; StepTasks refuses tasks that overlap
  kDrops,         // events that the recorder had to give up, parts of the file that are lost
  kUnfinished,    // tasks of cores that have a start and no end, or an end and no start
  kMissingTimes,  // of the seven, and which causes are therefore not told apart
  kDominantGap,   // one gap is more than half of the idle time of all cores
  kStepCounts,    // steps whose number of tasks differs much from the others'
  kObserver,      // what recording costs: so much of the busy time, or not known
  kEdges,         // none, or many tasks without one; edges that point backwards in time
};
inline constexpr int kQualityCheckCount = 9;
// "clock", "missing times".
std::string_view quality_check_name(QualityCheck check);

// Of the step's tasks: more with times that run backwards, or without an end, withhold the verdict.
// Tasks that are dispatched before they are ready are not among them: some schedulers hand a task
// over early.
inline constexpr double kMaxWrongTaskShare = 0.01;
// Of the events: more that were dropped withhold it. On the step's cores one is enough.
inline constexpr double kMaxDroppedShare = 0.001;
// A time in which no core ran anything withholds it when it is more than so much of the idle time
// and of the step: the typical flush of a profiler or a process that was stopped.
inline constexpr double kDominantGapShare = 0.5;
inline constexpr double kMinGapShareOfStep = 0.05;
// Steps are alike when their numbers of tasks are so close to the median.
inline constexpr double kStepCountTolerance = 0.1;
// Of the busy time: recording that costs more is worth a note, or withholds the verdict.
inline constexpr double kNotableObserverShare = 0.01;
inline constexpr double kMaxObserverShare = 0.2;
// Of the tasks that could have waited for another: more without a producer are worth a note, or
// withhold the verdict.
inline constexpr double kMaxLooseShare = 0.1;
inline constexpr double kFarTooLooseShare = 0.5;
// Of the edges: more whose consumer starts before the producer ends withhold it.
inline constexpr double kMaxEarlyShare = 0.01;

enum class QualityLevel : uint8_t {
  kFine,
  kNote,       // worth knowing
  kWithholds,  // the verdict
};
std::string_view quality_level_name(QualityLevel level);  // "fine", "note", "withholds"

struct QualityFinding {
  QualityCheck check = QualityCheck::kClock;
  QualityLevel level = QualityLevel::kFine;
  std::string text;  // one sentence with the numbers, without the check's name
};

struct TraceQuality {
  std::vector<QualityFinding> findings;  // one or more a check, in their order; the fine ones too
  // No sentence about what keeps cores idle can be trusted; the partition is still exact.
  bool withholds_verdict = false;
  // The longest time in which no core ran anything where it dominates the idle time, else 0: idle
  // time is then printed with and without it.
  int64_t dominant_gap_ns = 0;
  // Of the busy time, estimated from events and their recorded cost; nothing: not known.
  std::optional<double> observer_share;

  // The texts of the findings that withhold the verdict, joined by "; ".
  std::string reason() const;
};

// All three are of the same trace and must be there.
struct QualityInput {
  const Trace* trace = nullptr;
  const StepTasks* tasks = nullptr;  // of the step that is explained
  const BubblePartition* bubbles = nullptr;
  std::vector<TimeRange> steps;  // all of the trace; they may overlap
};
TraceQuality check_quality(const QualityInput& input);

}  // namespace gapless
