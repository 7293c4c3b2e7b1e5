// SPDX-License-Identifier: Apache-2.0

#include "analysis/bubbles.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <span>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

// What kept a task from starting, in order of time; each cut is not before the one above it, and
// none is after the start.
struct Cuts {
  uint32_t task = 0;
  BubbleCause first = BubbleCause::kDependencySame;
  BubbleCause second = BubbleCause::kDependencySubmit;
  int64_t split_ns = 0;  // it waits for `first` until then, and for `second` from then to ready_ns
  int64_t ready_ns = 0;
  int64_t seen_ns = 0;
  int64_t dispatch_ns = 0;
  int64_t receive_ns = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// A part of the time that a core waited for a task that was not ready.
struct Wait {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t core = 0;
  bool is_placement = false;
};

struct TaskInputs {
  uint32_t latest = kNoIndex;   // the producer that ended last
  int64_t finish_ns = kAbsent;  // when the last of them was seen to have ended
};

TaskInputs inputs_of(const StepTasks& tasks, uint32_t task) {
  TaskInputs inputs;
  for (const uint32_t producer : tasks.producers(task)) {
    if (inputs.latest == kNoIndex || tasks.end_ns(producer) > tasks.end_ns(inputs.latest)) {
      inputs.latest = producer;
    }
    // kAbsent is smaller than any time.
    inputs.finish_ns = std::max(inputs.finish_ns, tasks.time_ns(producer, TaskTime::kFinish));
  }
  return inputs;
}

// The first of the times that was recorded.
int64_t first_known(std::initializer_list<int64_t> times) {
  for (const int64_t time_ns : times) {
    if (time_ns != kAbsent) return time_ns;
  }
  return kAbsent;
}

Cuts cuts_of(const StepTasks& tasks, uint32_t task) {
  const TaskInputs inputs = inputs_of(tasks, task);
  const int64_t begin_ns = tasks.window().begin_ns;
  const int64_t start_ns = tasks.start_ns(task);
  const int64_t submit_ns = std::max(tasks.time_ns(task, TaskTime::kSubmit), begin_ns);
  const int64_t recorded_ready_ns = tasks.time_ns(task, TaskTime::kReady);
  const int64_t dispatch_ns = tasks.time_ns(task, TaskTime::kDispatch);
  const int64_t receive_ns = tasks.time_ns(task, TaskTime::kReceive);
  Cuts cuts = {.task = task, .start_ns = start_ns, .end_ns = tasks.end_ns(task)};
  int64_t ready_ns = 0;
  if (inputs.latest != kNoIndex) {
    cuts.split_ns = tasks.end_ns(inputs.latest);
    ready_ns = std::max(cuts.split_ns, submit_ns);
    if (tasks.task_class(inputs.latest) != tasks.task_class(task)) {
      cuts.first = BubbleCause::kDependencyOther;
    }
  } else {
    // What it waits for after it was submitted is not in the trace. Without edges that may be
    // anything until it is dispatched.
    std::swap(cuts.first, cuts.second);
    cuts.split_ns = submit_ns;
    const int64_t last_ns =
        tasks.edge_count() > 0
            ? recorded_ready_ns
            : first_known({recorded_ready_ns, dispatch_ns, receive_ns, start_ns});
    ready_ns = std::max(last_ns, submit_ns);
  }
  cuts.ready_ns = std::min(ready_ns, start_ns);
  cuts.split_ns = std::min(cuts.split_ns, cuts.ready_ns);
  // A task that is dispatched before it is ready is handed over while it waits.
  const int64_t sent_ns = first_known({dispatch_ns, receive_ns, start_ns});
  const int64_t got_ns = first_known({receive_ns, start_ns});
  cuts.dispatch_ns = std::clamp(sent_ns, cuts.ready_ns, start_ns);
  cuts.receive_ns = std::clamp(got_ns, cuts.dispatch_ns, start_ns);
  const int64_t seen_ns = std::max(inputs.finish_ns, recorded_ready_ns);
  cuts.seen_ns = std::clamp(seen_ns, cuts.ready_ns, cuts.dispatch_ns);
  return cuts;
}

// The tasks of one class: when the last of them starts and when all have ended.
struct ClassEnd {
  bool is_empty = true;
  Cuts last_cuts;  // of the task that starts last
  int64_t last_start_ns = 0;
  int64_t last_end_ns = 0;
};

// Who waits while ready tasks wait for busy cores, from left to right. The cores of a class that
// wait are in a list, the longest waiting first; as many at its front as there are such tasks have
// placement for a cause.
class WaitSweep {
 public:
  explicit WaitSweep(const StepTasks& tasks) : tasks_(tasks), cores_(tasks.core_count()) {}

  void add_wait(uint32_t core, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns >= end_ns) return;
    events_.push_back({begin_ns, EventKind::kWaitBegins, core});
    events_.push_back({end_ns, EventKind::kWaitEnds, core});
  }
  void add_queued_task(CoreClass core_class, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns >= end_ns) return;
    events_.push_back({begin_ns, EventKind::kQueueGrows, static_cast<uint32_t>(core_class)});
    events_.push_back({end_ns, EventKind::kQueueShrinks, static_cast<uint32_t>(core_class)});
  }

  // By core, in order of time.
  std::vector<Wait> run() {
    sort_events();
    for (const Event& event : events_) handle(event);
    return std::move(waits_);
  }

 private:
  // In the order in which they are handled when they come together.
  enum class EventKind : uint8_t { kWaitEnds, kQueueShrinks, kQueueGrows, kWaitBegins };
  struct Event {
    int64_t time_ns = 0;
    EventKind kind = EventKind::kWaitEnds;
    uint32_t number = 0;  // of a core or of a class
  };
  struct WaitingCore {
    int64_t since_ns = 0;
    uint32_t before = kNoIndex;
    uint32_t after = kNoIndex;
    bool is_placement = false;
  };
  struct Queue {
    uint32_t task_count = 0;
    uint32_t core_count = 0;
    uint32_t placed_count = 0;
    uint32_t first = kNoIndex;
    uint32_t last = kNoIndex;
    uint32_t last_placed = kNoIndex;
  };

  // By time, then kind, then as they were added, a digit after another from the lowest: several
  // times as quick as comparing them.
  void sort_events() {
    constexpr int kDigitBits = 11;
    constexpr uint64_t kDigitMask = (uint64_t{1} << kDigitBits) - 1;
    const int64_t begin_ns = tasks_.window().begin_ns;
    sort_by([](const Event& event) { return static_cast<size_t>(event.kind); });
    const int bit_count =
        static_cast<int>(std::bit_width(static_cast<uint64_t>(tasks_.window_ns())));
    for (int shift = 0; shift < bit_count; shift += kDigitBits) {
      sort_by([begin_ns, shift](const Event& event) {
        return static_cast<size_t>((static_cast<uint64_t>(event.time_ns - begin_ns) >> shift) &
                                   kDigitMask);
      });
    }
  }

  // Stable; digits are below 2048.
  template <typename Digit>
  void sort_by(Digit digit) {
    std::array<size_t, 2049> begins = {};
    for (const Event& event : events_) ++begins[digit(event) + 1];
    for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
    sorted_.resize(events_.size());
    for (const Event& event : events_) sorted_[begins[digit(event)]++] = event;
    std::swap(events_, sorted_);
  }

  void handle(const Event& event) {
    const bool is_of_class =
        event.kind == EventKind::kQueueGrows || event.kind == EventKind::kQueueShrinks;
    Queue& queue =
        queues_[is_of_class ? event.number : static_cast<size_t>(tasks_.core_class(event.number))];
    switch (event.kind) {
      case EventKind::kWaitEnds:
        leave(queue, event.number, event.time_ns);
        break;
      case EventKind::kQueueShrinks:
        --queue.task_count;
        break;
      case EventKind::kQueueGrows:
        ++queue.task_count;
        break;
      case EventKind::kWaitBegins:
        enter(queue, event.number, event.time_ns);
        break;
    }
    move_border(queue, event.time_ns);
  }

  void enter(Queue& queue, uint32_t core, int64_t time_ns) {
    cores_[core] = {.since_ns = time_ns, .before = queue.last};
    (queue.last == kNoIndex ? queue.first : cores_[queue.last].after) = core;
    queue.last = core;
    ++queue.core_count;
  }

  void leave(Queue& queue, uint32_t core, int64_t time_ns) {
    close_part(core, time_ns);
    const WaitingCore& leaving = cores_[core];
    if (leaving.is_placement) --queue.placed_count;
    if (queue.last_placed == core) queue.last_placed = leaving.before;
    (leaving.before == kNoIndex ? queue.first : cores_[leaving.before].after) = leaving.after;
    (leaving.after == kNoIndex ? queue.last : cores_[leaving.after].before) = leaving.before;
    --queue.core_count;
  }

  void move_border(Queue& queue, int64_t time_ns) {
    const uint32_t placed_count = std::min(queue.task_count, queue.core_count);
    for (; queue.placed_count < placed_count; ++queue.placed_count) {
      queue.last_placed =
          queue.last_placed == kNoIndex ? queue.first : cores_[queue.last_placed].after;
      turn(queue.last_placed, time_ns);
    }
    for (; queue.placed_count > placed_count; --queue.placed_count) {
      turn(queue.last_placed, time_ns);
      queue.last_placed = cores_[queue.last_placed].before;
    }
  }

  void turn(uint32_t core, int64_t time_ns) {
    close_part(core, time_ns);
    cores_[core].is_placement = !cores_[core].is_placement;
  }

  void close_part(uint32_t core, int64_t time_ns) {
    WaitingCore& waiting = cores_[core];
    if (waiting.since_ns < time_ns) {
      waits_.push_back({waiting.since_ns, time_ns, core, waiting.is_placement});
    }
    waiting.since_ns = time_ns;
  }

  const StepTasks& tasks_;
  std::vector<Event> events_;
  std::vector<Event> sorted_;
  std::vector<WaitingCore> cores_;
  std::array<Queue, kCoreClassCount> queues_;
  std::vector<Wait> waits_;
};

// The parts of all waits, those of one core together; each core's are in order of time already.
std::vector<Wait> group_by_core(const std::vector<Wait>& waits, uint32_t core_count) {
  std::vector<size_t> next(size_t{core_count} + 1, 0);
  for (const Wait& wait : waits) ++next[size_t{wait.core} + 1];
  for (size_t core = 1; core < next.size(); ++core) next[core] += next[core - 1];
  std::vector<Wait> grouped(waits.size());
  for (const Wait& wait : waits) grouped[next[wait.core]++] = wait;
  return grouped;
}

class Partitioner {
 public:
  explicit Partitioner(const StepTasks& tasks) : tasks_(tasks), sweep_(tasks) {}

  BubblePartition run() {
    find_cuts();
    find_waits();
    partition_.core_ns.resize(tasks_.core_count());
    partition_.core_busy_ns.resize(tasks_.core_count());
    partition_.bubbles.reserve(waits_.size() + size_t{tasks_.task_count()} * 4);
    for (uint32_t core = 0; core < tasks_.core_count(); ++core) walk_core(core);
    sum_up();
    return std::move(partition_);
  }

 private:
  void find_cuts();
  void find_waits();
  void walk_core(uint32_t core);
  void walk_waits(const Cuts& cuts, int64_t until_ns);
  void sum_up();

  int64_t window_begin_ns() const { return tasks_.window().begin_ns; }
  int64_t window_end_ns() const { return tasks_.window().end_ns; }
  std::span<const Cuts> cuts_of_core(uint32_t core) const {
    return {cuts_.data() + cut_begins_[core], cuts_.data() + cut_begins_[size_t{core} + 1]};
  }
  const ClassEnd& class_end(uint32_t core) const {
    return class_ends_[static_cast<size_t>(tasks_.core_class(core))];
  }

  // From where the core's last part or task ended until end_ns; nothing when that is past.
  void add(BubbleCause cause, int64_t end_ns) {
    if (end_ns <= now_ns_) return;
    const int64_t begin_ns = std::exchange(now_ns_, end_ns);
    std::vector<Bubble>& bubbles = partition_.bubbles;
    partition_.core_ns[core_][static_cast<size_t>(cause)] += end_ns - begin_ns;
    if (!bubbles.empty()) {
      Bubble& last = bubbles.back();
      const bool goes_on = last.core == core_ && last.cause == cause &&
                           last.next_task == next_task_ && last.end_ns == begin_ns;
      if (goes_on) {
        last.end_ns = end_ns;
        return;
      }
    }
    bubbles.push_back({core_, cause, begin_ns, end_ns, next_task_});
  }

  const StepTasks& tasks_;
  WaitSweep sweep_;
  std::vector<Cuts> cuts_;          // of the tasks of the first core, of the second, ...
  std::vector<size_t> cut_begins_;  // [core + 1]
  std::array<ClassEnd, kCoreClassCount> class_ends_;
  int64_t first_dispatch_ns_ = 0;
  std::vector<Wait> waits_;
  BubblePartition partition_;
  // Where walk_core is.
  size_t next_wait_ = 0;
  uint32_t core_ = 0;
  uint32_t next_task_ = kNoIndex;
  int64_t now_ns_ = 0;
};

void Partitioner::find_cuts() {
  cuts_.resize(tasks_.task_count());
  cut_begins_.assign(1, 0);
  for (uint32_t core = 0; core < tasks_.core_count(); ++core) {
    cut_begins_.push_back(cut_begins_.back() + tasks_.tasks_of_core(core).size());
  }
  std::vector<size_t> next(cut_begins_.begin(), cut_begins_.end() - 1);
  first_dispatch_ns_ = window_end_ns();
  for (ClassEnd& end : class_ends_) end.last_start_ns = end.last_end_ns = window_begin_ns();
  for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
    const Cuts cuts = cuts_of(tasks_, task);
    cuts_[next[tasks_.core(task)]++] = cuts;
    const int64_t dispatch_ns =
        first_known({tasks_.time_ns(task, TaskTime::kDispatch),
                     tasks_.time_ns(task, TaskTime::kReceive), tasks_.start_ns(task)});
    first_dispatch_ns_ = std::min({first_dispatch_ns_, dispatch_ns, cuts.start_ns});
    ClassEnd& end = class_ends_[static_cast<size_t>(tasks_.task_class(task))];
    end.is_empty = false;
    end.last_cuts = cuts;
    end.last_start_ns = cuts.start_ns;
    end.last_end_ns = std::max(end.last_end_ns, cuts.end_ns);
  }
  first_dispatch_ns_ = std::max(first_dispatch_ns_, window_begin_ns());
}

// Either a core waits for a task that is not ready, or a ready task waits for a busy core.
void Partitioner::find_waits() {
  for (uint32_t core = 0; core < tasks_.core_count(); ++core) {
    int64_t idle_since_ns = window_begin_ns();
    for (const Cuts& cuts : cuts_of_core(core)) {
      sweep_.add_wait(core, std::max(idle_since_ns, first_dispatch_ns_), cuts.ready_ns);
      sweep_.add_queued_task(tasks_.core_class(core), cuts.ready_ns, idle_since_ns);
      idle_since_ns = cuts.end_ns;
    }
    sweep_.add_wait(core, std::max(idle_since_ns, first_dispatch_ns_),
                    class_end(core).last_start_ns);
  }
  waits_ = group_by_core(sweep_.run(), tasks_.core_count());
}

// A core without a next task waits beyond the ready time of the one whose cuts these are.
void Partitioner::walk_waits(const Cuts& cuts, int64_t until_ns) {
  for (; next_wait_ < waits_.size(); ++next_wait_) {
    const Wait& wait = waits_[next_wait_];
    if (wait.core != core_ || wait.begin_ns >= until_ns) return;
    if (wait.is_placement) {
      add(BubbleCause::kPlacement, wait.end_ns);
      continue;
    }
    add(cuts.first, std::min(wait.end_ns, cuts.split_ns));
    add(cuts.second, std::min(wait.end_ns, cuts.ready_ns));
    add(cuts.first, wait.end_ns);
  }
}

void Partitioner::walk_core(uint32_t core) {
  core_ = core;
  now_ns_ = window_begin_ns();
  for (const Cuts& cuts : cuts_of_core(core)) {
    next_task_ = cuts.task;
    add(BubbleCause::kStartup, std::min(first_dispatch_ns_, cuts.start_ns));
    walk_waits(cuts, cuts.start_ns);
    add(BubbleCause::kCompletion, cuts.seen_ns);
    add(BubbleCause::kScheduler, cuts.dispatch_ns);
    add(BubbleCause::kPropagation, cuts.receive_ns);
    add(BubbleCause::kSetup, cuts.start_ns);
    partition_.core_busy_ns[core] += cuts.end_ns - cuts.start_ns;
    now_ns_ = cuts.end_ns;
  }
  next_task_ = kNoIndex;
  add(BubbleCause::kStartup, first_dispatch_ns_);
  const ClassEnd& end = class_end(core);
  if (!end.is_empty) {
    walk_waits(end.last_cuts, window_end_ns());
    add(BubbleCause::kImbalance, end.last_end_ns);
  }
  add(BubbleCause::kDrain, window_end_ns());
}

void Partitioner::sum_up() {
  for (uint32_t core = 0; core < tasks_.core_count(); ++core) {
    partition_.busy_ns += partition_.core_busy_ns[core];
    for (size_t cause = 0; cause < kBubbleCauseCount; ++cause) {
      partition_.cause_ns[cause] += partition_.core_ns[core][cause];
      partition_.idle_ns += partition_.core_ns[core][cause];
    }
  }
  partition_.average_busy_cores =
      static_cast<double>(partition_.busy_ns) / static_cast<double>(tasks_.window_ns());
}

// "no task has", "12 of 300 tasks do not have".
std::string lacking(const StepTasks& tasks, uint32_t absent_count) {
  if (absent_count == tasks.task_count()) return "no task has";
  return fmt::format("{} of {} tasks do not have", absent_count, tasks.task_count());
}

// What is not told apart, and under which name it is shown.
std::vector<std::string> missing_sentences(const StepTasks& tasks) {
  std::vector<std::string> missing;
  const uint32_t task_count = tasks.task_count();
  const auto absent = [&tasks](TaskTime time) { return tasks.absent_count(time); };
  const bool has_edges = tasks.edge_count() > 0;
  const bool is_ready_known = absent(TaskTime::kReady) < task_count;
  const uint32_t sent = absent(TaskTime::kDispatch);
  if (!has_edges && task_count > 1) {
    const std::string_view shown =
        is_ready_known ? "waiting for tasks of another kind and completion are"
        : sent == task_count
            ? "all waiting is"
            : "waiting for tasks of another kind, placement, completion and scheduler are";
    missing.push_back(fmt::format("no edges{}: {} shown as waiting for the same kind",
                                  is_ready_known ? "" : " and no ready times", shown));
  }
  const bool is_told = has_edges || is_ready_known;
  if (const uint32_t count = absent(TaskTime::kSubmit); count > 0) {
    missing.push_back(fmt::format("{} a submit time: waiting for the orchestrator is shown as {}",
                                  lacking(tasks, count),
                                  is_told ? "completion or scheduler" : "waiting for tasks"));
  }
  if (absent(TaskTime::kFinish) > 0 && absent(TaskTime::kReady) > 0 && has_edges) {
    missing.push_back(
        fmt::format("{} a finish or a ready time: completion is shown as scheduler",
                    lacking(tasks, std::min(absent(TaskTime::kFinish), absent(TaskTime::kReady)))));
  }
  if (sent > 0 && is_told) {
    missing.push_back(fmt::format(
        "{} a dispatch time: {} shown as scheduler", lacking(tasks, sent),
        absent(TaskTime::kReceive) > 0 ? "propagation and setup are" : "propagation is"));
  }
  if (const uint32_t count = absent(TaskTime::kReceive); count > 0 && sent < task_count) {
    missing.push_back(
        fmt::format("{} a receive time: setup is shown as propagation", lacking(tasks, count)));
  }
  return missing;
}

}  // namespace

std::string_view bubble_cause_name(BubbleCause cause) {
  constexpr std::array<std::string_view, kBubbleCauseCount> kNames = {"startup",
                                                                      "dependency (same kind)",
                                                                      "dependency (other kind)",
                                                                      "dependency (submit)",
                                                                      "placement",
                                                                      "completion",
                                                                      "scheduler",
                                                                      "propagation",
                                                                      "setup",
                                                                      "imbalance",
                                                                      "drain"};
  return kNames[static_cast<size_t>(cause)];
}

BubblePartition partition_bubbles(const StepTasks& tasks) {
  BubblePartition partition = Partitioner(tasks).run();
  partition.missing = missing_sentences(tasks);
  return partition;
}

}  // namespace gapless
