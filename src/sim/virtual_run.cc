// SPDX-License-Identifier: Apache-2.0
//
// run_graph: the event loop of a replay.
//
// A task ends, its end is seen, a task becomes ready. After all that happens at one moment, ready
// tasks are given to the free cores that may run them. Most tasks become ready when the last of
// their producers is seen and need no event of their own, so that the heap of events is as large as
// the number of cores; ready tasks mostly wait in plain queues. About 50 ns a task with six edges.

#include <algorithm>
#include <array>

#include "base/check.h"
#include "sim/event_heap.h"
#include "sim/memory_clock.h"
#include "sim/virtual_graph.h"

namespace gapless {
namespace {

struct AwayCore {
  int64_t until_ns;  // ready tasks have waited for cores for so long in all
  uint32_t core;
  bool operator<(const AwayCore& other) const { return until_ns < other.until_ns; }
};

// Something about a task.
struct TaskEvent {
  int64_t time_ns;
  uint32_t task;
  uint32_t core;
  bool operator<(const TaskEvent& other) const { return time_ns < other.time_ns; }
};

// The lowest is taken first.
struct ReadyTask {
  int64_t since_ns;  // 0 for all where the recorded order alone decides
  uint32_t turn;
  uint32_t task;
  bool operator<(const ReadyTask& other) const {
    return since_ns != other.since_ns ? since_ns < other.since_ns : turn < other.turn;
  }
};

// First come, first served: those of one moment are put in order when it is over. Else a heap.
class ReadyQueue {
 public:
  explicit ReadyQueue(TakeOrder order) : is_heap_(order == TakeOrder::kRecorded) {}

  bool empty() const { return is_heap_ ? heap_.empty() : head_ == tasks_.size(); }
  const ReadyTask& front() const { return is_heap_ ? heap_.top() : tasks_[head_]; }
  void push(const ReadyTask& task) {
    if (is_heap_) return heap_.push(task);
    is_unsettled_ = is_unsettled_ || (!empty() && task < tasks_.back());
    tasks_.push_back(task);
  }
  // After all that became ready at one moment, before the first of them is taken.
  void settle() {
    if (!is_unsettled_) return;
    const auto is_earlier = [](const ReadyTask& a, int64_t since_ns) {
      return a.since_ns < since_ns;
    };
    const auto begin = tasks_.begin() + static_cast<std::ptrdiff_t>(head_);
    std::sort(std::lower_bound(begin, tasks_.end(), tasks_.back().since_ns, is_earlier),
              tasks_.end());
    is_unsettled_ = false;
  }
  uint32_t pop() {
    if (is_heap_) return heap_.pop().task;
    const uint32_t task = tasks_[head_++].task;
    if (head_ >= kKept && 2 * head_ >= tasks_.size()) drop_taken();
    return task;
  }

 private:
  static constexpr size_t kKept = 1024;

  void drop_taken() {
    tasks_.erase(tasks_.begin(), tasks_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }

  bool is_heap_;
  EventHeap<ReadyTask> heap_;
  std::vector<ReadyTask> tasks_;
  size_t head_ = 0;
  bool is_unsettled_ = false;
};

struct Core {
  uint32_t pool = 0;
  uint32_t task = kNoIndex;  // the last that it took
};

// Cores and the ready tasks that they may run: of a class, or of one core.
struct Pool {
  explicit Pool(TakeOrder order) : ready(order), staged(order) {}

  std::vector<uint32_t> free;    // cores that are seen to be free
  std::vector<uint32_t> unseen;  // cores whose task has ended, the earliest first: for staged tasks
  ReadyQueue ready;
  ReadyQueue staged;
  EventHeap<AwayCore> away;
  int64_t waited_ns = 0;

  bool has_ready() const { return !ready.empty() || !staged.empty(); }
  bool is_short_of_cores() const { return free.empty() && has_ready(); }
};

bool has_more_cores(const VirtualGraph& graph, const WhatIf& change) {
  for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
    if (change.core_counts[kind] > graph.core_counts[kind]) return true;
  }
  return false;
}

class VirtualRun {
 public:
  VirtualRun(const VirtualGraph& graph, const WhatIf& change)
      : graph_(graph),
        change_(change),
        has_away_(!graph.away_ns.empty() && !change.zero_placement),
        scheduler_free_ns_(change.zero_scheduler ? 0 : graph.scheduler_count, 0),
        has_memory_(graph.memory_bytes_per_s > 0 &&
                    (change.zero_submit || has_more_cores(graph, change))),
        memory_(graph.memory_bytes_per_s) {}

  WhatIfResult run() {
    add_cores();
    add_roots();
    while (true) {
      match_all();
      const int64_t next_ns = next_time_ns();
      if (next_ns == kNever) break;
      if (has_away_) bring_back_cores(next_ns - now_ns_);
      now_ns_ = next_ns;
      if (has_memory_) run_memory();
      while (is_due(end_events_)) see_core(end_events_.pop());
      while (is_due(seen_events_)) see_end(seen_events_.pop());
      while (is_due(ready_events_)) make_ready(ready_events_.pop().task);
    }
    GAPLESS_CHECK(result_.task_count == graph_.tasks.size());
    result_.makespan_ns = last_ns_ + graph_.rest_ns;
    return result_;
  }

 private:
  void add_cores() {
    for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
      const uint32_t changed = change_.core_counts[kind];
      const uint32_t count = changed > 0 ? changed : graph_.core_counts[kind];
      const bool stays_bound = !change_.zero_submit || graph_.is_surely_bound;
      is_bound_[kind] = !graph_.bound_cores.empty() && !change_.zero_placement && stays_bound &&
                        count == graph_.core_counts[kind];
      first_pools_[kind] = static_cast<uint32_t>(pools_.size());
      if (!is_bound_[kind]) pools_.emplace_back(graph_.order);
      for (uint32_t i = 0; i < count; ++i) {
        if (is_bound_[kind]) pools_.emplace_back(graph_.order);
        cores_.push_back({.pool = static_cast<uint32_t>(pools_.size()) - 1});
        const bool was_there = i < graph_.away_at_begin_ns[kind].size();
        free_core(static_cast<uint32_t>(cores_.size()) - 1,
                  has_away_ && was_there ? graph_.away_at_begin_ns[kind][i] : 0);
      }
    }
  }

  void add_roots() {
    waits_.resize(graph_.tasks.size());
    for (uint32_t task = 0; task < graph_.tasks.size(); ++task) {
      waits_[task] = graph_.tasks[task].producer_count;
      if (waits_[task] == 0) release(task);
    }
  }

  uint32_t pool_of(uint32_t task) const {
    const size_t kind = static_cast<size_t>(graph_.tasks[task].core_class);
    return first_pools_[kind] + (is_bound_[kind] ? graph_.bound_cores[task] : 0);
  }

  bool is_due(const EventHeap<TaskEvent>& events) const {
    return !events.empty() && events.top().time_ns == now_ns_;
  }

  int64_t next_time_ns() const {
    int64_t next_ns = seen_events_.empty() ? kNever : seen_events_.top().time_ns;
    if (!ready_events_.empty()) next_ns = std::min(next_ns, ready_events_.top().time_ns);
    if (!end_events_.empty()) next_ns = std::min(next_ns, end_events_.top().time_ns);
    next_ns = std::min(next_ns, scheduler_due_ns_);
    if (has_memory_) {
      next_ns = std::min(next_ns, memory_.next_end_ns());
      if (!start_events_.empty()) next_ns = std::min(next_ns, start_events_.top().time_ns);
    }
    if (!has_away_) return next_ns;
    for (const Pool& pool : pools_) {
      if (pool.away.empty() || !pool.is_short_of_cores()) continue;
      next_ns = std::min(next_ns, now_ns_ + pool.away.top().until_ns - pool.waited_ns);
    }
    return next_ns;
  }

  // After `passed_ns` in which nothing was taken.
  void bring_back_cores(int64_t passed_ns) {
    for (Pool& pool : pools_) {
      if (pool.is_short_of_cores()) pool.waited_ns += passed_ns;
      while (!pool.away.empty() && pool.away.top().until_ns <= pool.waited_ns) {
        touch(cores_[pool.away.top().core].pool);
        pool.free.push_back(pool.away.pop().core);
      }
    }
  }

  // Something came to this pool: it may have a task and a core for each other now.
  void touch(uint32_t pool) {
    if (touched_.empty() || touched_.back() != pool) touched_.push_back(pool);
  }

  void free_core(uint32_t core, int64_t away_ns) {
    Pool& pool = pools_[cores_[core].pool];
    if (away_ns == 0) {
      pool.free.push_back(core);
      touch(cores_[core].pool);
    } else {
      pool.away.push({.until_ns = pool.waited_ns + away_ns, .core = core});
    }
  }

  // All producers of the task have been seen.
  void release(uint32_t task) {
    const VirtualTask& costs = graph_.tasks[task];
    const bool is_submitted = change_.zero_submit && costs.has_submit;
    const bool is_resolved = change_.zero_completion && !costs.is_root;
    const int64_t waited_ns = std::max(now_ns_, is_submitted ? 0 : costs.arrival_ns);
    const int64_t ready_ns = waited_ns + (is_resolved ? 0 : costs.resolve_ns);
    if (ready_ns == now_ns_) {
      make_ready(task);
    } else {
      ready_events_.push({.time_ns = ready_ns, .task = task, .core = kNoIndex});
    }
  }

  void make_ready(uint32_t task) {
    const VirtualTask& costs = graph_.tasks[task];
    const uint32_t index = pool_of(task);
    Pool& pool = pools_[index];
    const int64_t since_ns = graph_.order == TakeOrder::kFirstReady ? now_ns_ : 0;
    (costs.is_staged ? pool.staged : pool.ready).push({since_ns, costs.turn, task});
    touch(index);
  }

  // From here on a staged task can take the core.
  void see_core(const TaskEvent& event) {
    pools_[cores_[event.core].pool].unseen.push_back(event.core);
    touch(cores_[event.core].pool);
  }

  void see_end(const TaskEvent& event) {
    const Core& core = cores_[event.core];
    if (core.task == event.task) {  // otherwise a staged task took it before
      if (graph_.has_staged) std::erase(pools_[core.pool].unseen, event.core);
      free_core(event.core, has_away_ ? graph_.away_ns[event.task] : 0);
    }
    for (const uint32_t consumer : graph_.consumers(event.task)) {
      if (--waits_[consumer] == 0) release(consumer);
    }
  }

  void match(Pool& pool) {
    while (!pool.free.empty() && pool.has_ready()) {
      const bool is_staged =
          pool.ready.empty() || (!pool.staged.empty() && pool.staged.front() < pool.ready.front());
      const uint32_t core = pool.free.back();
      pool.free.pop_back();
      take((is_staged ? pool.staged : pool.ready).pop(), core);
    }
    while (!pool.unseen.empty() && !pool.staged.empty()) {
      const uint32_t core = pool.unseen.front();
      pool.unseen.erase(pool.unseen.begin());
      take(pool.staged.pop(), core);
    }
  }

  // A task and a core wait for each other until a scheduler is free for them. There are no staged
  // tasks where schedulers are known.
  void match_in_turn() {
    while (true) {
      Pool* chosen = nullptr;
      for (Pool& pool : pools_) {
        if (pool.free.empty() || pool.ready.empty()) continue;
        if (chosen == nullptr || pool.ready.front() < chosen->ready.front()) chosen = &pool;
      }
      int64_t& free_ns = *std::min_element(scheduler_free_ns_.begin(), scheduler_free_ns_.end());
      scheduler_due_ns_ = chosen == nullptr ? kNever : free_ns;
      if (chosen == nullptr || free_ns > now_ns_) return;
      const uint32_t task = chosen->ready.pop();
      const uint32_t core = chosen->free.back();
      chosen->free.pop_back();
      free_ns = now_ns_ + graph_.tasks[task].scheduler_ns;
      take(task, core);
    }
  }

  void match_all() {
    for (const uint32_t pool : touched_) {
      pools_[pool].ready.settle();
      pools_[pool].staged.settle();
      if (scheduler_free_ns_.empty()) match(pools_[pool]);
    }
    touched_.clear();
    if (!scheduler_free_ns_.empty()) match_in_turn();
  }

  void take(uint32_t task, uint32_t core) {
    const VirtualTask& costs = graph_.tasks[task];
    const int64_t start_ns = now_ns_ + (change_.zero_scheduler ? 0 : costs.scheduler_ns) +
                             (change_.zero_handoff ? 0 : costs.handoff_ns);
    cores_[core].task = task;
    ++result_.task_count;
    if (has_memory_ && graph_.bytes[task] > 0) {
      start_events_.push({.time_ns = start_ns, .task = task, .core = core});
    } else {
      set_end(task, core, start_ns, start_ns + scaled_run_ns(costs, change_));
    }
  }

  // The end may be in the future.
  void set_end(uint32_t task, uint32_t core, int64_t start_ns, int64_t end_ns) {
    const int64_t completion_ns = graph_.tasks[task].completion_ns;
    const int64_t seen_ns = end_ns + (change_.zero_completion ? 0 : completion_ns);
    if (graph_.has_staged && end_ns < seen_ns) {
      end_events_.push({.time_ns = end_ns, .task = task, .core = core});
    }
    seen_events_.push({.time_ns = seen_ns, .task = task, .core = core});
    last_ns_ = std::max(last_ns_, graph_.ends_unseen ? end_ns : seen_ns);
    result_.busy_ns += end_ns - start_ns;
  }

  // Ends come first: what they leave is there for those that start.
  void run_memory() {
    while (memory_.next_end_ns() == now_ns_) {
      const MemoryClock::Ended ended = memory_.take_next();
      set_end(ended.task, ended.core, ended.began_ns, now_ns_);
    }
    while (is_due(start_events_)) {
      const TaskEvent event = start_events_.pop();
      const VirtualTask& costs = graph_.tasks[event.task];
      // Bytes are scaled as the run time is, so that the rate is the recorded one.
      const int64_t rate = rate_of(graph_.bytes[event.task], costs.run_ns);
      memory_.start(now_ns_, scaled_run_ns(costs, change_), rate, event.task, event.core);
    }
  }

  const VirtualGraph& graph_;
  const WhatIf& change_;
  const bool has_away_;
  std::vector<int64_t> scheduler_free_ns_;  // empty: each core has its own
  std::vector<Core> cores_;
  std::vector<Pool> pools_;  // one of each class, or of each core of a class whose tasks are bound
  std::array<uint32_t, kCoreClassCount> first_pools_ = {};
  std::array<bool, kCoreClassCount> is_bound_ = {};
  std::vector<uint32_t> touched_;    // pools, since tasks were last given to cores
  std::vector<uint32_t> waits_;      // by task: producers whose end has not been seen
  EventHeap<TaskEvent> end_events_;  // only where there are staged tasks
  EventHeap<TaskEvent> seen_events_;
  EventHeap<TaskEvent> ready_events_;
  const bool has_memory_;
  MemoryClock memory_;
  EventHeap<TaskEvent> start_events_;  // of tasks that move bytes
  int64_t scheduler_due_ns_ = kNever;  // one is free then, and has something to do
  int64_t now_ns_ = 0;
  int64_t last_ns_ = 0;
  WhatIfResult result_;
};

}  // namespace

WhatIfResult run_graph(const VirtualGraph& graph, const WhatIf& change) {
  return VirtualRun(graph, change).run();
}

}  // namespace gapless
