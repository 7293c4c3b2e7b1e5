// SPDX-License-Identifier: Apache-2.0
//
// set_schedulers: how many schedulers dispatched the tasks, as far as the times show it.
//
// If n of them work one task after another, a task that had to wait was dispatched a whole service
// after the n-th dispatch before its own, a service as long as those of tasks that did not wait. If
// every core has its own, that difference is an accident, and shorter. So the smallest n is taken
// for which both kinds of tasks seem to have the same service.

#include <algorithm>
#include <span>

#include "analysis/virtual_graph.h"

namespace gapless {
namespace {

constexpr uint32_t kMaxSchedulers = 16;
// Services of tasks that waited, as a share of those that did not: with n - 1 taken for n
// schedulers it is (n - 1) / n.
constexpr double kSameService = 0.8;
// Of all tasks, so many must have waited, and not.
constexpr size_t kOneIn = 50;

struct Dispatch {
  int64_t time_ns = 0;   // when it was done
  int64_t taken_ns = 0;  // when it could have begun
  uint32_t task = 0;
};

// In the order of time.
std::vector<Dispatch> list_dispatches(const StepTasks& tasks, const VirtualGraph& graph) {
  std::vector<Dispatch> dispatches(graph.tasks.size());
  for (uint32_t task = 0; task < dispatches.size(); ++task) {
    const VirtualTask& made = graph.tasks[task];
    const int64_t time_ns = tasks.start_ns(task) - made.handoff_ns;
    dispatches[task] = {time_ns, time_ns - made.scheduler_ns, task};
  }
  const auto is_before = [](const Dispatch& a, const Dispatch& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.task < b.task;
  };
  std::sort(dispatches.begin(), dispatches.end(), is_before);
  return dispatches;
}

bool fits(std::span<const Dispatch> dispatches, uint32_t scheduler_count) {
  double waited_ns = 0.0;
  double alone_ns = 0.0;
  size_t waited_count = 0;
  for (size_t i = scheduler_count; i < dispatches.size(); ++i) {
    const int64_t free_ns = dispatches[i - scheduler_count].time_ns;
    const bool has_waited = dispatches[i].taken_ns < free_ns;
    const int64_t from_ns = has_waited ? free_ns : dispatches[i].taken_ns;
    (has_waited ? waited_ns : alone_ns) += static_cast<double>(dispatches[i].time_ns - from_ns);
    waited_count += has_waited ? 1 : 0;
  }
  const size_t alone_count = dispatches.size() - scheduler_count - waited_count;
  const size_t needed_count = std::max<size_t>(dispatches.size() / kOneIn, 4);
  if (waited_count < needed_count || alone_count < needed_count || alone_ns <= 0.0) return false;
  const double waited_mean_ns = waited_ns / static_cast<double>(waited_count);
  return waited_mean_ns >= kSameService * alone_ns / static_cast<double>(alone_count);
}

// Where cores take tasks themselves, they receive them when they dispatch them.
bool cores_take_tasks(const StepTasks& tasks) {
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t receive_ns = tasks.time_ns(task, TaskTime::kReceive);
    if (receive_ns != kAbsent && receive_ns != tasks.time_ns(task, TaskTime::kDispatch)) {
      return false;
    }
  }
  return tasks.has_time(TaskTime::kReceive);
}

}  // namespace

void set_schedulers(const StepTasks& tasks, VirtualGraph& graph) {
  // Without these, the services are mixed with other delays.
  const bool has_times = tasks.has_time(TaskTime::kReady) && tasks.has_time(TaskTime::kDispatch) &&
                         tasks.has_time(TaskTime::kFinish);
  if (graph.has_staged || !has_times || cores_take_tasks(tasks)) return;
  const std::vector<Dispatch> dispatches = list_dispatches(tasks, graph);
  const uint32_t limit =
      std::min({kMaxSchedulers + 1, tasks.core_count(), static_cast<uint32_t>(dispatches.size())});
  uint32_t count = 1;
  while (count < limit && !fits(dispatches, count)) ++count;
  if (count >= limit) return;
  graph.scheduler_count = count;
  std::vector<int64_t> free_ns(count, tasks.window().begin_ns);
  for (const Dispatch& dispatch : dispatches) {
    int64_t& first_ns = *std::min_element(free_ns.begin(), free_ns.end());
    const int64_t from_ns = std::max(dispatch.taken_ns, first_ns);
    graph.tasks[dispatch.task].scheduler_ns = std::max<int64_t>(dispatch.time_ns - from_ns, 0);
    first_ns = dispatch.time_ns;
  }
}

}  // namespace gapless
