// SPDX-License-Identifier: Apache-2.0

#include "analysis/recorded_overheads.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

namespace gapless {
namespace {

// A set of moments: intervals are added in any order, mostly by time.
class Intervals {
 public:
  // Joined with the last one where they touch: where cores are busy nearly all of them do.
  void add(const TimeRange& range) {
    if (!ranges_.empty() && range.begin_ns <= ranges_.back().end_ns &&
        range.end_ns >= ranges_.back().begin_ns) {
      ranges_.back().begin_ns = std::min(ranges_.back().begin_ns, range.begin_ns);
      ranges_.back().end_ns = std::max(ranges_.back().end_ns, range.end_ns);
    } else {
      ranges_.push_back(range);
    }
  }
  // After the last one: sorted, and none touches another.
  void finish();
  int64_t length() const {
    int64_t length_ns = 0;
    for (const TimeRange& range : ranges_) length_ns += range.end_ns - range.begin_ns;
    return length_ns;
  }
  // How much of `other` is in the set; both are finished.
  int64_t length_within(const Intervals& other) const {
    int64_t length_ns = 0;
    for (const TimeRange& range : other.ranges_) length_ns += length_within(range);
    return length_ns;
  }
  // How much of `range` is in the set.
  int64_t length_within(const TimeRange& range) const {
    return range.begin_ns < range.end_ns ? length_until(range.end_ns) - length_until(range.begin_ns)
                                         : 0;
  }

 private:
  int64_t length_until(int64_t time_ns) const;

  std::vector<TimeRange> ranges_;
  std::vector<int64_t> lengths_ns_;  // of all before each of them
};

void Intervals::finish() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const TimeRange& a, const TimeRange& b) { return a.begin_ns < b.begin_ns; });
  const std::vector<TimeRange> sorted = std::exchange(ranges_, {});
  for (const TimeRange& range : sorted) add(range);
  int64_t length_ns = 0;
  for (const TimeRange& range : ranges_) {
    lengths_ns_.push_back(length_ns);
    length_ns += range.end_ns - range.begin_ns;
  }
}

int64_t Intervals::length_until(int64_t time_ns) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), time_ns,
                       [](int64_t time, const TimeRange& range) { return time < range.begin_ns; });
  if (after == ranges_.begin()) return 0;
  const size_t last = static_cast<size_t>(after - ranges_.begin()) - 1;
  return lengths_ns_[last] + std::min(time_ns, ranges_[last].end_ns) - ranges_[last].begin_ns;
}

// A recorded time, or `otherwise`.
int64_t time_or(const StepTasks& tasks, uint32_t task, TaskTime time, int64_t otherwise) {
  const int64_t time_ns = tasks.time_ns(task, time);
  return time_ns == kAbsent ? otherwise : time_ns;
}

// When the task was certainly known to be ready.
int64_t known_ready_ns(const StepTasks& tasks, uint32_t task) {
  const int64_t start_ns = tasks.start_ns(task);
  const int64_t dispatch_ns = time_or(tasks, task, TaskTime::kDispatch, start_ns);
  const int64_t ready_ns = time_or(tasks, task, TaskTime::kReady, start_ns);
  return std::min({start_ns, dispatch_ns, ready_ns});
}

// By task, when its end was seen: its finish, or earlier where a consumer is proof of it.
std::vector<int64_t> seen_times(const StepTasks& tasks) {
  std::vector<int64_t> seen_ns(tasks.task_count());
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t finish_ns = time_or(tasks, task, TaskTime::kFinish, tasks.end_ns(task));
    seen_ns[task] = std::min(finish_ns, tasks.window().end_ns);
  }
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t known_ns = known_ready_ns(tasks, task);
    for (const uint32_t producer : tasks.producers(task)) {
      seen_ns[producer] = std::min(seen_ns[producer], known_ns);
    }
  }
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    seen_ns[task] = std::max(seen_ns[task], tasks.end_ns(task));
  }
  return seen_ns;
}

// Submit; a task without producers that has none came with the first that is known of it.
void set_arrival(const StepTasks& tasks, uint32_t task, VirtualTask& made) {
  const int64_t begin_ns = tasks.window().begin_ns;
  const int64_t submit_ns = tasks.time_ns(task, TaskTime::kSubmit);
  made.has_submit = submit_ns != kAbsent;
  if (made.has_submit) {
    made.arrival_ns = std::clamp(submit_ns, begin_ns, tasks.start_ns(task)) - begin_ns;
  } else if (made.is_root) {
    made.arrival_ns = std::max(known_ready_ns(tasks, task), begin_ns) - begin_ns;
  }
}

// The overheads between what the task waited for and its start. `waited_ns`: when its producers
// were seen or it arrived; `core_end_ns`, `core_seen_ns`: its core was free, and known to be.
void set_overheads(const StepTasks& tasks, uint32_t task, int64_t waited_ns, int64_t core_end_ns,
                   int64_t core_seen_ns, VirtualTask& made) {
  const int64_t start_ns = tasks.start_ns(task);
  const int64_t dispatch_ns = tasks.time_ns(task, TaskTime::kDispatch);
  const bool has_dispatch = dispatch_ns != kAbsent;
  const int64_t ready_ns = tasks.time_ns(task, TaskTime::kReady) == kAbsent
                               ? waited_ns
                               : std::max(waited_ns, known_ready_ns(tasks, task));
  made.resolve_ns = ready_ns - waited_ns;
  made.is_staged = core_end_ns < core_seen_ns &&
                   (has_dispatch ? std::min(dispatch_ns, start_ns) : start_ns) < core_seen_ns;
  const int64_t free_ns = made.is_staged ? core_end_ns : core_seen_ns;
  const int64_t taken_ns = std::min(std::max(free_ns, ready_ns), start_ns);
  const int64_t left_ns = has_dispatch ? std::clamp(dispatch_ns, taken_ns, start_ns) : start_ns;
  made.scheduler_ns = left_ns - taken_ns;
  made.handoff_ns = start_ns - left_ns;
}

// What a core did before a task: nothing, from when it was seen to be free.
struct Idle {
  uint32_t core = 0;
  uint32_t after = kNoIndex;  // the task before; kNoIndex: none
  TimeRange range;
};

struct Gaps {
  std::array<Intervals, kCoreClassCount> waits;  // tasks that were ready waited for a busy core
  std::vector<Idle> idle;                        // by core, those without a task of its own
  std::vector<int64_t> ready_ns;                 // by task
};

// All costs, and what is needed to find cores that were away.
Gaps set_costs(const StepTasks& tasks, VirtualGraph& graph) {
  const int64_t begin_ns = tasks.window().begin_ns;
  const std::vector<int64_t> seen_ns = seen_times(tasks);
  std::vector<uint32_t> last_on_core(tasks.core_count(), kNoIndex);
  int64_t last_seen_ns = begin_ns;
  int64_t last_end_ns = begin_ns;
  Gaps gaps;
  gaps.ready_ns.resize(tasks.task_count());
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    VirtualTask& made = graph.tasks[task];
    made.run_ns = tasks.end_ns(task) - tasks.start_ns(task);
    made.completion_ns = seen_ns[task] - tasks.end_ns(task);
    made.kernel = tasks.kernel(task);
    made.producer_count = static_cast<uint32_t>(tasks.producers(task).size());
    made.core_class = tasks.task_class(task);
    made.is_root = made.producer_count == 0;
    set_arrival(tasks, task, made);
    int64_t waited_ns = begin_ns + made.arrival_ns;
    for (const uint32_t producer : tasks.producers(task)) {
      waited_ns = std::max(waited_ns, seen_ns[producer]);
    }
    const uint32_t core = tasks.core(task);
    const uint32_t previous = std::exchange(last_on_core[core], task);
    const int64_t core_end_ns = previous == kNoIndex ? begin_ns : tasks.end_ns(previous);
    const int64_t core_seen_ns = previous == kNoIndex ? begin_ns : seen_ns[previous];
    set_overheads(tasks, task, waited_ns, core_end_ns, core_seen_ns, made);
    graph.has_staged = graph.has_staged || made.is_staged;
    last_seen_ns = std::max(last_seen_ns, seen_ns[task]);
    last_end_ns = std::max(last_end_ns, tasks.end_ns(task));
    graph.ends_unseen =
        graph.ends_unseen || tasks.time_ns(task, TaskTime::kFinish) > tasks.window().end_ns;
    const int64_t ready_ns = waited_ns + made.resolve_ns;
    gaps.ready_ns[task] = ready_ns;
    const int64_t free_ns = made.is_staged ? core_end_ns : core_seen_ns;
    if (ready_ns < free_ns) {
      gaps.waits[static_cast<size_t>(made.core_class)].add({ready_ns, free_ns});
    } else if (ready_ns > core_seen_ns) {
      gaps.idle.push_back({core, previous, {core_seen_ns, ready_ns}});
    }
  }
  graph.rest_ns = tasks.window().end_ns - (graph.ends_unseen ? last_end_ns : last_seen_ns);
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    const uint32_t last = last_on_core[core];
    const int64_t from_ns = last == kNoIndex ? begin_ns : seen_ns[last];
    gaps.idle.push_back({core, last, {from_ns, tasks.window().end_ns}});
  }
  return gaps;
}

// RecordedWaits::idle_share.
double idle_share_of(const StepTasks& tasks, const Gaps& gaps) {
  std::array<Intervals, kCoreClassCount> idle;
  for (const Idle& gap : gaps.idle) {
    idle[static_cast<size_t>(tasks.core_class(gap.core))].add(gap.range);
  }
  double share = 0.0;
  for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
    const int64_t wait_ns = gaps.waits[kind].length();
    if (wait_ns == 0) continue;
    idle[kind].finish();
    const int64_t both_ns = gaps.waits[kind].length_within(idle[kind]);
    share = std::max(share, static_cast<double>(both_ns) / static_cast<double>(wait_ns));
  }
  return share;
}

// Which cores were away while tasks of their class waited for busy ones.
void set_away(const StepTasks& tasks, Gaps& gaps, VirtualGraph& graph) {
  for (Intervals& waits : gaps.waits) waits.finish();
  std::vector<int64_t> at_begin_ns(tasks.core_count(), 0);
  for (const Idle& idle : gaps.idle) {
    const size_t kind = static_cast<size_t>(tasks.core_class(idle.core));
    const int64_t away_ns = gaps.waits[kind].length_within(idle.range);
    if (away_ns == 0) continue;
    if (graph.away_ns.empty()) graph.away_ns.assign(tasks.task_count(), 0);
    (idle.after == kNoIndex ? at_begin_ns[idle.core] : graph.away_ns[idle.after]) = away_ns;
  }
  if (graph.away_ns.empty()) return;
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    graph.away_at_begin_ns[static_cast<size_t>(tasks.core_class(core))].push_back(
        at_begin_ns[core]);
  }
}

// So that tasks that become ready together need no sorting in each replay.
void set_consumers(const StepTasks& tasks, VirtualGraph& graph) {
  const uint32_t count = tasks.task_count();
  uint32_t last_turn = 0;
  for (const VirtualTask& task : graph.tasks) last_turn = std::max(last_turn, task.turn);
  std::vector<uint32_t> by_turn(size_t{last_turn} + 1, kNoIndex);
  std::vector<uint64_t> next(count);
  graph.consumer_begins.resize(size_t{count} + 1);
  for (uint32_t task = 0; task < count; ++task) {
    by_turn[graph.tasks[task].turn] = task;
    next[task] = graph.consumer_begins[task];
    graph.consumer_begins[size_t{task} + 1] = next[task] + tasks.consumers(task).size();
  }
  graph.consumer_tasks.resize(tasks.edge_count());
  for (const uint32_t task : by_turn) {
    if (task == kNoIndex) continue;
    for (const uint32_t producer : tasks.producers(task)) {
      graph.consumer_tasks[next[producer]++] = task;
    }
  }
}

// Where each kernel stands in the first group that names it.
struct GroupPlace {
  size_t group = 0;
  size_t place = 0;
  bool is_named = false;
};

std::vector<GroupPlace> group_places(const WhatIf& change) {
  std::vector<GroupPlace> places;
  for (size_t group = 0; group < change.fused.size(); ++group) {
    for (size_t place = 0; place < change.fused[group].size(); ++place) {
      const uint32_t kernel = change.fused[group][place];
      if (kernel >= places.size()) places.resize(size_t{kernel} + 1);
      if (!places[kernel].is_named) places[kernel] = {group, place, true};
    }
  }
  return places;
}

// By task, the first of those that it is joined with; itself when it is joined to nobody.
std::vector<uint32_t> find_heads(const StepTasks& tasks, const WhatIf& change) {
  const std::vector<GroupPlace> places = group_places(change);
  std::vector<uint32_t> heads(tasks.task_count());
  std::iota(heads.begin(), heads.end(), 0U);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const uint32_t kernel = tasks.kernel(task);
    if (kernel >= places.size() || !places[kernel].is_named) continue;
    uint32_t joined = kNoIndex;
    for (const uint32_t producer : tasks.producers(task)) {
      const uint32_t other = tasks.kernel(producer);
      if (other >= places.size() || !places[other].is_named) continue;
      if (places[other].group != places[kernel].group) continue;
      if (places[other].place >= places[kernel].place) continue;
      if (joined == kNoIndex || tasks.end_ns(producer) > tasks.end_ns(joined)) joined = producer;
    }
    if (joined != kNoIndex) heads[task] = heads[joined];
  }
  return heads;
}

int64_t scaled_bytes(const VirtualGraph& graph, size_t task, const WhatIf& change) {
  const uint32_t kernel = graph.tasks[task].kernel;
  if (kernel >= change.kernel_scale.size()) return graph.bytes[task];
  const double scaled = static_cast<double>(graph.bytes[task]) * change.kernel_scale[kernel];
  return std::llround(scaled);
}

// The joined tasks: costs of the first, run time of all, completion of the last.
VirtualGraph join_tasks(const VirtualGraph& graph, std::span<const uint32_t> heads,
                        std::span<const uint32_t> numbers, const WhatIf& change) {
  VirtualGraph joined;
  joined.core_counts = graph.core_counts;
  joined.away_at_begin_ns = graph.away_at_begin_ns;
  joined.order = graph.order;
  joined.is_surely_bound = graph.is_surely_bound;
  joined.scheduler_count = graph.scheduler_count;
  joined.rest_ns = graph.rest_ns;
  joined.ends_unseen = graph.ends_unseen;
  joined.memory_bytes_per_s = graph.memory_bytes_per_s;
  const bool has_away = !graph.away_ns.empty();
  const bool has_memory = !graph.bytes.empty();
  for (size_t task = 0; task < graph.tasks.size(); ++task) {
    VirtualTask part = graph.tasks[task];
    part.run_ns = scaled_run_ns(part, change);
    part.kernel = kNoIndex;
    part.producer_count = 0;
    if (heads[task] == task) {
      joined.tasks.push_back(part);
      if (has_away) joined.away_ns.push_back(graph.away_ns[task]);
      if (has_memory) joined.bytes.push_back(scaled_bytes(graph, task, change));
      if (!graph.bound_cores.empty()) joined.bound_cores.push_back(graph.bound_cores[task]);
      joined.has_staged = joined.has_staged || part.is_staged;
      continue;
    }
    VirtualTask& whole = joined.tasks[numbers[heads[task]]];
    whole.run_ns += part.run_ns;
    if (has_memory) joined.bytes[numbers[heads[task]]] += scaled_bytes(graph, task, change);
    if (has_away) joined.away_ns[numbers[heads[task]]] += graph.away_ns[task];
    whole.completion_ns = part.completion_ns;
    whole.arrival_ns = std::max(whole.arrival_ns, part.has_submit ? part.arrival_ns : 0);
  }
  return joined;
}

void join_edges(const VirtualGraph& graph, std::span<const uint32_t> heads,
                std::span<const uint32_t> numbers, VirtualGraph& joined) {
  const auto for_each_edge = [&](auto visit) {
    for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
      for (const uint32_t consumer : graph.consumers(task)) {
        const uint32_t from = numbers[heads[task]];
        const uint32_t to = numbers[heads[consumer]];
        if (from != to) visit(from, to);
      }
    }
  };
  std::vector<uint64_t>& begins = joined.consumer_begins;
  begins.assign(joined.tasks.size() + 1, 0);
  for_each_edge([&](uint32_t from, uint32_t /*to*/) { ++begins[size_t{from} + 1]; });
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  joined.consumer_tasks.resize(begins.back());
  std::vector<uint64_t> next(begins.begin(), begins.end() - 1);
  for_each_edge([&](uint32_t from, uint32_t to) {
    joined.consumer_tasks[next[from]++] = to;
    ++joined.tasks[to].producer_count;
  });
}

// A task that waits for itself through others; kNoIndex: there is none.
uint32_t find_circle(const VirtualGraph& graph) {
  std::vector<uint32_t> pending(graph.tasks.size());
  std::vector<uint32_t> done;
  done.reserve(graph.tasks.size());
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    pending[task] = graph.tasks[task].producer_count;
    if (pending[task] == 0) done.push_back(task);
  }
  for (size_t i = 0; i < done.size(); ++i) {
    for (const uint32_t consumer : graph.consumers(done[i])) {
      if (--pending[consumer] == 0) done.push_back(consumer);
    }
  }
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    if (pending[task] != 0) return task;
  }
  return kNoIndex;
}

}  // namespace

Result<void> check_order_known(const StepTasks& tasks) {
  const bool has_order = tasks.edge_count() > 0 || tasks.has_time(TaskTime::kReady) ||
                         tasks.has_time(TaskTime::kSubmit);
  if (tasks.task_count() > 1 && !has_order) {
    return fail(ErrorCode::kInvalidInput,
                "{} tasks have no edges and no ready or submit times: who waited for whom cannot "
                "be known",
                tasks.task_count());
  }
  return {};
}

Result<VirtualGraph> make_virtual_graph(const StepTasks& tasks) {
  GAPLESS_TRY(check_order_known(tasks));
  VirtualGraph graph;
  graph.tasks.resize(tasks.task_count());
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    ++graph.core_counts[static_cast<size_t>(tasks.core_class(core))];
  }
  Gaps gaps = set_costs(tasks, graph);
  set_away(tasks, gaps, graph);
  RecordedWaits recorded = {.ready_ns = std::move(gaps.ready_ns)};
  if (!graph.away_ns.empty()) recorded.idle_share = idle_share_of(tasks, gaps);
  set_schedulers(tasks, recorded, graph);
  set_consumers(tasks, graph);
  return graph;
}

Result<VirtualGraph> fuse_tasks(const StepTasks& tasks, const VirtualGraph& graph,
                                const WhatIf& change) {
  const std::vector<uint32_t> heads = find_heads(tasks, change);
  std::vector<uint32_t> numbers(heads.size(), kNoIndex);
  std::vector<uint32_t> recorded;  // by number, the first of its tasks
  for (uint32_t task = 0; task < heads.size(); ++task) {
    if (heads[task] != task) continue;
    numbers[task] = static_cast<uint32_t>(recorded.size());
    recorded.push_back(task);
  }
  VirtualGraph joined = join_tasks(graph, heads, numbers, change);
  join_edges(graph, heads, numbers, joined);
  for (VirtualTask& task : joined.tasks) task.is_root = task.producer_count == 0;
  const uint32_t waiting = find_circle(joined);
  if (waiting != kNoIndex) {
    return fail(ErrorCode::kInvalidInput,
                "the fused kernels have other tasks between them: task row {} would wait for ever",
                tasks.row(recorded[waiting]));
  }
  return joined;
}

}  // namespace gapless
