// SPDX-License-Identifier: Apache-2.0
//
// set_schedulers: who dispatched the tasks, and in which order, as far as the times show it.
//
// If n schedulers work one task after another, a task that had to wait was dispatched a whole
// service after the n-th dispatch before its own, a service as long as those of tasks that did not
// wait. If every core has its own, that difference is an accident, and shorter. So the smallest n
// is taken for which both kinds of tasks seem to have the same service. The order is first come,
// first served, if hardly a task was taken while another of its class had been ready for longer; if
// that is true of the tasks of each core alone, the tasks are bound to their cores.

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "analysis/recorded_overheads.h"
#include "analysis/time_sort.h"

namespace gapless {
namespace {

constexpr uint32_t kMaxSchedulers = 16;
// Services of tasks that waited, as a share of those that did not: with n - 1 taken for n
// schedulers it is (n - 1) / n.
constexpr double kSameService = 0.8;
// Of all tasks, so many must have waited, and not.
constexpr size_t kOneIn = 50;

// Of the tasks that were taken while others waited, so many may have overtaken one of them: what an
// order by chance does to half of them.
constexpr double kOvertaken = 0.1;
// Of tasks that were ready together, so many may be taken against the order of their rows.
constexpr double kInverted = 0.01;
// Of the time that ready tasks waited for busy cores, so much while another core of the class had
// nothing to do, where tasks are bound to cores.
constexpr double kBoundIdle = 0.05;
// ... and this much leaves no doubt, though no task was seen to overtake another.
constexpr double kSurelyBoundIdle = 0.25;
// Of all tasks, so many must have been taken while another waited: one or two prove nothing.
constexpr double kBoundChoices = 0.02;
// Behind a slow orchestrator few cores are used, because few are needed, and that looks like tasks
// that are bound: where so many of them waited for their submit, so many must have been taken while
// another waited.
constexpr double kLateSubmits = 0.5;
constexpr double kSurelyBoundChoices = 0.1;

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
  sort_by_time(dispatches, [](const Dispatch& dispatch) { return dispatch.time_ns; });
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

// How many there are; 0: each core has its own, or it cannot be known.
uint32_t count_schedulers(const StepTasks& tasks, const VirtualGraph& graph,
                          std::span<const Dispatch> dispatches) {
  // Without these, the services are mixed with other delays.
  const bool has_times = tasks.has_time(TaskTime::kReady) && tasks.has_time(TaskTime::kDispatch) &&
                         tasks.has_time(TaskTime::kFinish);
  if (graph.has_staged || !has_times || cores_take_tasks(tasks)) return 0;
  const uint32_t limit =
      std::min({kMaxSchedulers + 1, tasks.core_count(), static_cast<uint32_t>(dispatches.size())});
  uint32_t count = 1;
  while (count < limit && !fits(dispatches, count)) ++count;
  return count < limit ? count : 0;
}

// By task, when a scheduler or a core turned to it, if that is done in the order of `dispatches`.
std::vector<int64_t> begins_by_dispatch(std::span<const Dispatch> dispatches,
                                        uint32_t scheduler_count) {
  std::vector<int64_t> begins_ns(dispatches.size());
  std::vector<int64_t> free_ns(std::max(scheduler_count, 1U), kAbsent);
  for (const Dispatch& dispatch : dispatches) {
    int64_t& first_ns = *std::min_element(free_ns.begin(), free_ns.end());
    begins_ns[dispatch.task] = std::max(dispatch.taken_ns, first_ns);
    if (scheduler_count > 0) first_ns = dispatch.time_ns;
  }
  return begins_ns;
}

// By task, its place in the order of `begins_ns`; of equal ones the earlier dispatch is first.
std::vector<uint32_t> recorded_turns(std::span<const Dispatch> dispatches,
                                     std::span<const int64_t> begins_ns) {
  std::vector<uint32_t> order(dispatches.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = dispatches[i].task;
  sort_by_time(order, [begins_ns](uint32_t task) { return begins_ns[task]; });
  std::vector<uint32_t> turns(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) turns[order[i]] = i;
  return turns;
}

// A task that could be dispatched; the one that has been ready for longest comes first.
struct Waiting {
  int64_t ready_ns = 0;
  uint32_t turn = 0;
  uint32_t dispatch = 0;
  bool operator>(const Waiting& other) const {
    return std::tie(ready_ns, turn) > std::tie(other.ready_ns, other.turn);
  }
};

struct ByReady {
  std::vector<int64_t> begins_ns;
  size_t late_count = 0;  // tasks that were dispatched before they could have had their turn
};

// The same if a scheduler that is free turns to the task that has been ready for longest. Of two
// tasks that are worked on at once, the one begun later may be done earlier. `dispatches` are in
// the order of taken_ns.
ByReady begins_by_ready(std::span<const Dispatch> dispatches, uint32_t scheduler_count,
                        std::span<const int64_t> ready_ns, std::span<const uint32_t> turns) {
  ByReady found = {.begins_ns = std::vector<int64_t>(dispatches.size())};
  std::vector<int64_t> free_ns(scheduler_count, kAbsent);
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
  int64_t now_ns = kAbsent;
  for (uint32_t next = 0; next < dispatches.size() || !waiting.empty();) {
    int64_t& first_ns = *std::min_element(free_ns.begin(), free_ns.end());
    now_ns = std::max(now_ns, first_ns);
    if (waiting.empty()) now_ns = std::max(now_ns, dispatches[next].taken_ns);
    for (; next < dispatches.size() && dispatches[next].taken_ns <= now_ns; ++next) {
      const uint32_t task = dispatches[next].task;
      waiting.push({ready_ns[task], turns[task], next});
    }
    const Dispatch& dispatch = dispatches[waiting.top().dispatch];
    waiting.pop();
    if (dispatch.time_ns < now_ns) ++found.late_count;
    found.begins_ns[dispatch.task] = std::min(now_ns, dispatch.time_ns);
    first_ns = std::max(now_ns, dispatch.time_ns);
  }
  return found;
}

// What the order of the tasks of each queue shows.
struct QueueOrder {
  size_t choice_count = 0;     // a task was taken while the one after it was ready too
  size_t overtaken_count = 0;  // ... which had been ready for longer
  size_t tie_count = 0;        // ... for as long
  size_t inverted_count = 0;   // ... and has a lower row

  bool is_first_ready() const {
    return static_cast<double>(overtaken_count) <= kOvertaken * static_cast<double>(choice_count);
  }
  bool is_by_row() const {
    return static_cast<double>(inverted_count) <= kInverted * static_cast<double>(tie_count);
  }
  // Of the choices, those that neither the ready times nor the rows explain.
  double odd_share() const {
    return static_cast<double>(overtaken_count + inverted_count) /
           static_cast<double>(std::max<size_t>(choice_count, 1));
  }
};

// `turns` are those of begins_ns. `queue_of(task)` is below `queue_count`.
template <typename QueueOf>
QueueOrder find_order(const StepTasks& tasks, std::span<const int64_t> ready_ns,
                      std::span<const int64_t> begins_ns, std::span<const uint32_t> turns,
                      size_t queue_count, QueueOf queue_of) {
  std::vector<uint32_t> order(turns.size());
  for (uint32_t task = 0; task < turns.size(); ++task) order[turns[task]] = task;
  std::vector<uint32_t> last(queue_count, kNoIndex);
  QueueOrder found;
  for (const uint32_t task : order) {
    const uint32_t before = std::exchange(last[queue_of(task)], task);
    // Two that were begun at the same moment do not show whose turn it was.
    if (before == kNoIndex || begins_ns[task] == begins_ns[before]) continue;
    if (ready_ns[task] > begins_ns[before]) continue;
    ++found.choice_count;
    if (ready_ns[task] < ready_ns[before]) {
      ++found.overtaken_count;
    } else if (ready_ns[task] == ready_ns[before]) {
      ++found.tie_count;
      if (tasks.row(task) < tasks.row(before)) ++found.inverted_count;
    }
  }
  return found;
}

std::vector<uint32_t> rows_of(const StepTasks& tasks) {
  std::vector<uint32_t> rows(tasks.task_count());
  for (uint32_t task = 0; task < rows.size(); ++task) rows[task] = tasks.row(task);
  return rows;
}

// Each task stays on the core that ran it.
void bind_tasks(const StepTasks& tasks, VirtualGraph& graph) {
  std::vector<uint32_t> places(tasks.core_count());  // within the class
  std::array<uint32_t, kCoreClassCount> counts = {};
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    places[core] = counts[static_cast<size_t>(tasks.core_class(core))]++;
  }
  graph.bound_cores.resize(tasks.task_count());
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    graph.bound_cores[task] = places[tasks.core(task)];
  }
  graph.away_ns.clear();
  graph.away_at_begin_ns = {};
}

// When each task was begun, who has the lower turn, and whether that alone decides.
struct Turns {
  std::vector<int64_t> begins_ns = {};
  std::vector<uint32_t> turns = {};
  TakeOrder order = TakeOrder::kRecorded;
};

// Several schedulers: the order of their dispatches is not that in which they took the tasks. Of
// tasks that are ready together the one of the lower row comes first, or the recorded one where
// that explains more.
Turns turns_of_schedulers(const StepTasks& tasks, const std::vector<Dispatch>& dispatches,
                          uint32_t count, std::span<const int64_t> ready_ns) {
  const double task_count = static_cast<double>(dispatches.size());
  std::vector<Dispatch> by_taken = dispatches;
  sort_by_time(by_taken, [](const Dispatch& dispatch) { return dispatch.taken_ns; });
  Turns found = {.turns = rows_of(tasks), .order = TakeOrder::kFirstReady};
  ByReady by_ready = begins_by_ready(by_taken, count, ready_ns, found.turns);
  if (static_cast<double>(by_ready.late_count) > kInverted * task_count) {
    const std::vector<int64_t> begins_ns = begins_by_dispatch(dispatches, count);
    found.turns = recorded_turns(dispatches, begins_ns);
    by_ready = begins_by_ready(by_taken, count, ready_ns, found.turns);
    if (static_cast<double>(by_ready.late_count) > kOvertaken * task_count) {
      return {.begins_ns = begins_ns};
    }
  }
  found.begins_ns = std::move(by_ready.begins_ns);
  return found;
}

// Of all tasks, those that were submitted after the last of their producers had ended.
double late_submit_share(const StepTasks& tasks) {
  size_t late_count = 0;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t submit_ns = tasks.time_ns(task, TaskTime::kSubmit);
    if (submit_ns == kAbsent) continue;
    int64_t ended_ns = tasks.window().begin_ns;
    for (const uint32_t producer : tasks.producers(task)) {
      ended_ns = std::max(ended_ns, tasks.end_ns(producer));
    }
    if (submit_ns > ended_ns) ++late_count;
  }
  return static_cast<double>(late_count) / static_cast<double>(tasks.task_count());
}

// First come, first served, by class or by core; else nothing is known but the recorded order.
void set_order(const StepTasks& tasks, const RecordedWaits& recorded, VirtualGraph& graph,
               std::span<const Dispatch> dispatches, Turns& found) {
  const std::vector<uint32_t> turns = recorded_turns(dispatches, found.begins_ns);
  const auto class_of = [&graph](uint32_t task) {
    return static_cast<size_t>(graph.tasks[task].core_class);
  };
  const auto core_of = [&tasks](uint32_t task) { return size_t{tasks.core(task)}; };
  QueueOrder order =
      find_order(tasks, recorded.ready_ns, found.begins_ns, turns, kCoreClassCount, class_of);
  const double needed_idle = order.odd_share() > kInverted ? kBoundIdle : kSurelyBoundIdle;
  const double choice_share =
      static_cast<double>(order.choice_count) / static_cast<double>(tasks.task_count());
  if (recorded.idle_share >= needed_idle && choice_share >= kBoundChoices) {
    const QueueOrder by_core =
        find_order(tasks, recorded.ready_ns, found.begins_ns, turns, tasks.core_count(), core_of);
    if (by_core.odd_share() <= kInverted) {
      order = by_core;
      bind_tasks(tasks, graph);
      graph.is_surely_bound =
          choice_share >= kSurelyBoundChoices || late_submit_share(tasks) < kLateSubmits;
    }
  }
  if (!order.is_first_ready()) {
    found.order = TakeOrder::kRecorded;
    found.turns = turns;
  } else if (found.order == TakeOrder::kRecorded) {
    found.order = TakeOrder::kFirstReady;
    found.turns = order.is_by_row() ? rows_of(tasks) : turns;
  }
}

}  // namespace

void set_schedulers(const StepTasks& tasks, const RecordedWaits& recorded, VirtualGraph& graph) {
  const std::vector<Dispatch> dispatches = list_dispatches(tasks, graph);
  const uint32_t count = count_schedulers(tasks, graph, dispatches);
  Turns found;
  if (count > 1) {
    found = turns_of_schedulers(tasks, dispatches, count, recorded.ready_ns);
  } else {
    found.begins_ns = begins_by_dispatch(dispatches, count);
  }
  set_order(tasks, recorded, graph, dispatches, found);
  graph.scheduler_count = count;
  graph.order = found.order;
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    VirtualTask& made = graph.tasks[task];
    made.turn = found.turns[task];
    const int64_t dispatch_ns = tasks.start_ns(task) - made.handoff_ns;
    if (count > 0) made.scheduler_ns = std::max<int64_t>(dispatch_ns - found.begins_ns[task], 0);
  }
}

}  // namespace gapless
