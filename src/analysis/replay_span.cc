// SPDX-License-Identifier: Apache-2.0

#include "analysis/replay_span.h"

#include <algorithm>
#include <limits>

namespace gapless {
namespace {

struct Window {
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  int64_t last_ns = std::numeric_limits<int64_t>::min();
  void add(int64_t begin_ns, int64_t end_ns) {
    first_ns = std::min(first_ns, begin_ns);
    last_ns = std::max(last_ns, end_ns);
  }
  int64_t length_ns() const { return first_ns < last_ns ? last_ns - first_ns : 0; }
};

}  // namespace

// Starts and ends always do: they are cut where the window is.
ReplaySpan replay_span(const StepTasks& tasks) {
  const auto is_inside = [&tasks](TaskTime time) {
    if (!tasks.has_time(time)) return false;
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      const int64_t time_ns = tasks.time_ns(task, time);
      if (time_ns < tasks.window().begin_ns || time_ns > tasks.window().end_ns) return false;
    }
    return true;
  };
  ReplaySpan span;
  if (is_inside(TaskTime::kDispatch)) span.from = TaskTime::kDispatch;
  if (is_inside(TaskTime::kSubmit)) span.from = TaskTime::kSubmit;
  if (is_inside(TaskTime::kFinish)) span.to = TaskTime::kFinish;
  return span;
}

int64_t recorded_length_ns(const StepTasks& tasks, const ReplaySpan& span) {
  Window window;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    window.add(tasks.time_ns(task, span.from), tasks.time_ns(task, span.to));
  }
  return window.length_ns();
}

int64_t simulated_length_ns(const SimResult& result, const ReplaySpan& span) {
  Window window;
  for (const SimRecord& record : result.records) {
    const int64_t begin_ns = span.from == TaskTime::kSubmit ? result.tasks[record.task].submit_ns
                             : span.from == TaskTime::kDispatch ? record.dispatch_ns
                                                                : record.start_ns;
    window.add(begin_ns, span.to == TaskTime::kFinish ? record.finish_ns : record.end_ns);
  }
  return window.length_ns();
}

}  // namespace gapless
