// SPDX-License-Identifier: Apache-2.0

#include "analysis/critical_path.h"

#include <algorithm>
#include <utility>

namespace gapless {
namespace {

// Who a task waited for last.
struct Blame {
  uint32_t task = kNoIndex;      // kNoIndex: nobody, it is the first of the path
  uint32_t previous = kNoIndex;  // on its core; kNoIndex: none
  bool through_core = false;
};

// By task, the one before it on its core.
std::vector<uint32_t> previous_on_core(const StepTasks& tasks) {
  std::vector<uint32_t> previous(tasks.task_count(), kNoIndex);
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    uint32_t last = kNoIndex;
    for (const uint32_t task : tasks.tasks_of_core(core)) {
      previous[task] = last;
      last = task;
    }
  }
  return previous;
}

// A producer that was still running when the task started is not what it waited for.
Blame find_blame(const StepTasks& tasks, uint32_t task, uint32_t previous) {
  Blame blame = {.task = kNoIndex, .previous = previous};
  for (const uint32_t producer : tasks.producers(task)) {
    if (tasks.end_ns(producer) > tasks.start_ns(task)) continue;
    if (blame.task == kNoIndex || tasks.end_ns(producer) > tasks.end_ns(blame.task)) {
      blame.task = producer;
    }
  }
  if (previous == kNoIndex) return blame;
  if (blame.task == kNoIndex || tasks.end_ns(previous) > tasks.end_ns(blame.task)) {
    blame.task = previous;
    blame.through_core = true;
  }
  return blame;
}

// The path is walked backwards: segments are added last first.
class PathWalk {
 public:
  explicit PathWalk(const StepTasks& tasks) : tasks_(tasks), begin_ns_(tasks.window().end_ns) {}

  // [from_ns, where the last one began), or nothing when that is empty.
  void add_gap(PathPart part, int64_t from_ns, uint32_t task) {
    if (from_ns < begin_ns_) add(part, from_ns, task, false);
  }
  void add_run(uint32_t task, bool through_core) {
    add(PathPart::kRun, tasks_.start_ns(task), task, through_core);
    if (through_core) path_.core_bound_ns += tasks_.end_ns(task) - tasks_.start_ns(task);
  }
  // From the blamed task's end to the start: submit, completion, scheduler, hand-off.
  void add_wait(uint32_t task, const Blame& blame);

  CriticalPath finish() {
    std::reverse(path_.segments.begin(), path_.segments.end());
    return std::move(path_);
  }

 private:
  void add(PathPart part, int64_t from_ns, uint32_t task, bool through_core) {
    path_.segments.push_back({.part = part,
                              .begin_ns = from_ns,
                              .end_ns = begin_ns_,
                              .task = task,
                              .through_core = through_core});
    path_.part_ns[static_cast<size_t>(part)] += begin_ns_ - from_ns;
    begin_ns_ = from_ns;
  }

  const StepTasks& tasks_;
  int64_t begin_ns_;
  CriticalPath path_;
};

void PathWalk::add_wait(uint32_t task, const Blame& blame) {
  const int64_t from_ns = tasks_.end_ns(blame.task);
  const int64_t start_ns = tasks_.start_ns(task);
  const int64_t dispatch_ns = tasks_.time_ns(task, TaskTime::kDispatch);
  if (blame.through_core && (dispatch_ns == kAbsent || dispatch_ns <= from_ns)) {
    add_gap(PathPart::kCoreBusy, from_ns, task);
    return;
  }
  // Ready when the scheduler has seen the producer and, for a core that ran before, that core.
  int64_t seen_ns = tasks_.time_ns(task, TaskTime::kReady);
  if (seen_ns == kAbsent) seen_ns = tasks_.time_ns(blame.task, TaskTime::kFinish);
  if (blame.previous != kNoIndex) {
    seen_ns = std::max(seen_ns, tasks_.time_ns(blame.previous, TaskTime::kFinish));
  }
  const int64_t submit_ns = std::clamp(tasks_.time_ns(task, TaskTime::kSubmit), from_ns, start_ns);
  seen_ns = std::clamp(seen_ns, submit_ns, start_ns);
  if (dispatch_ns != kAbsent) {
    // A dispatch before anybody can have known of the end means that the end was known.
    seen_ns = std::clamp(dispatch_ns, submit_ns, seen_ns);
    add_gap(PathPart::kHandoff, std::clamp(dispatch_ns, seen_ns, start_ns), task);
  }
  add_gap(PathPart::kScheduler, seen_ns, task);
  add_gap(PathPart::kCompletion, submit_ns, task);
  add_gap(PathPart::kSubmit, from_ns, task);
}

uint32_t last_task(const StepTasks& tasks) {
  uint32_t last = 0;
  for (uint32_t task = 1; task < tasks.task_count(); ++task) {
    if (tasks.end_ns(task) > tasks.end_ns(last)) last = task;
  }
  return last;
}

}  // namespace

std::string_view path_part_name(PathPart part) {
  static constexpr std::array<std::string_view, kPathPartCount> kNames = {
      "run", "startup", "completion", "scheduler", "handoff", "core busy", "end", "submit"};
  return kNames[static_cast<size_t>(part)];
}

CriticalPath observed_path(const StepTasks& tasks) {
  PathWalk walk(tasks);
  if (tasks.task_count() == 0) {
    walk.add_gap(PathPart::kStartup, tasks.window().begin_ns, kNoIndex);
    return walk.finish();
  }
  const std::vector<uint32_t> previous = previous_on_core(tasks);
  uint32_t task = last_task(tasks);
  walk.add_gap(PathPart::kEnd, tasks.end_ns(task), kNoIndex);
  walk.add_run(task, false);
  while (true) {
    const Blame blame = find_blame(tasks, task, previous[task]);
    if (blame.task == kNoIndex) break;
    walk.add_wait(task, blame);
    walk.add_run(blame.task, blame.through_core);
    task = blame.task;
  }
  walk.add_gap(PathPart::kStartup, tasks.window().begin_ns, task);
  return walk.finish();
}

StaticPath static_path(const StepTasks& tasks) {
  const uint32_t count = tasks.task_count();
  StaticPath path;
  // The length of the longest chain that ends with a task, and of the longest that follows it.
  std::vector<int64_t> until_ns(count, 0);
  std::vector<int64_t> after_ns(count, 0);
  std::vector<uint32_t> before(count, kNoIndex);
  uint32_t last = kNoIndex;
  for (uint32_t task = 0; task < count; ++task) {
    int64_t longest_ns = 0;
    for (const uint32_t producer : tasks.producers(task)) {
      if (before[task] != kNoIndex && until_ns[producer] <= longest_ns) continue;
      longest_ns = until_ns[producer];
      before[task] = producer;
    }
    until_ns[task] = longest_ns + tasks.end_ns(task) - tasks.start_ns(task);
    if (last == kNoIndex || until_ns[task] > until_ns[last]) last = task;
  }
  if (last == kNoIndex) return path;
  path.length_ns = until_ns[last];
  for (uint32_t task = last; task != kNoIndex; task = before[task]) path.chain.push_back(task);
  std::reverse(path.chain.begin(), path.chain.end());
  path.slack_ns.resize(count);
  for (uint32_t task = count; task-- > 0;) {
    for (const uint32_t consumer : tasks.consumers(task)) {
      const int64_t run_ns = tasks.end_ns(consumer) - tasks.start_ns(consumer);
      after_ns[task] = std::max(after_ns[task], after_ns[consumer] + run_ns);
    }
    path.slack_ns[task] = path.length_ns - after_ns[task] - until_ns[task];
  }
  return path;
}

}  // namespace gapless
