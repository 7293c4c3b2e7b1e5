// SPDX-License-Identifier: Apache-2.0
//
// Both sides of a diff, for tests: what a DiffSide points at, kept alive.

#pragma once

#include <utility>
#include <vector>

#include "analysis/diff.h"
#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"

namespace gapless {

struct HeldSide {
  Trace trace;
  StepTasks tasks;
  BubblePartition bubbles;
  CriticalPath path;
  DiffSide side(std::vector<int64_t> step_lengths_ns = {}) const {
    return {.trace = &trace,
            .tasks = &tasks,
            .bubbles = &bubbles,
            .path = &path,
            .step_lengths_ns = std::move(step_lengths_ns)};
  }
};

inline HeldSide hold_side(Trace trace, TimeRange window) {
  StepTasks tasks = make_step_tasks(trace, window);
  BubblePartition bubbles = partition_bubbles(tasks);
  CriticalPath path = observed_path(tasks);
  return {.trace = std::move(trace),
          .tasks = std::move(tasks),
          .bubbles = std::move(bubbles),
          .path = std::move(path)};
}

inline HeldSide hold_side(MadeExecution execution) {
  return hold_side(std::move(execution.trace), execution.window);
}

inline StepDiff diff_of(const HeldSide& first, const HeldSide& second,
                        const DiffOptions& options = {}) {
  return expect_value(diff_steps(first.side(), second.side(), options));
}

}  // namespace gapless
