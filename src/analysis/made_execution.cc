// SPDX-License-Identifier: Apache-2.0

#include "analysis/made_execution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "trace/join_names.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

// SplitMix64: the distributions of <random> differ between libraries, this does not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t below(uint64_t bound) { return next() % bound; }
  int64_t in(const MadeDelay& delay) {
    return delay.low_ns +
           static_cast<int64_t>(below(static_cast<uint64_t>(delay.high_ns - delay.low_ns) + 1));
  }
  // The sum of twelve uniform numbers less six: close to normal, and the same everywhere.
  double normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
    return sum;
  }

 private:
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

struct Task {
  uint32_t kernel = 0;
  uint32_t level = 0;
  int64_t run_ns = 0;
  int64_t completion_ns = 0;
  int64_t dispatch_ns = 0;
  int64_t propagation_ns = 0;
  int64_t setup_ns = 0;
  uint32_t fixed_core = 0;  // within its class
};

// Level 0 first; a task waits for tasks of smaller numbers only.
struct Graph {
  std::vector<Task> tasks;
  std::vector<uint32_t> level_begins;            // [level + 1]
  std::vector<std::vector<uint32_t>> producers;  // without those of the whole level before
  bool waits_for_levels = false;                 // each task waits for all of the level before
  CoreClass core_class(const MadeOptions& options, uint32_t task) const {
    return options.kernels[tasks[task].kernel].core_class;
  }
};

struct Times {
  uint32_t core = 0;  // within its class
  std::array<int64_t, kTaskTimeCount> at = {};
};

struct Zeroed {
  bool completion = false;
  bool dispatch = false;
  bool handoff = false;
  bool submit = false;
};

// --- the tasks ---

int64_t draw_run_ns(const MadeKernel& kernel, Random& random) {
  if (kernel.sigma == 0.0) return kernel.mean_ns;
  const double factor =
      std::exp(kernel.sigma * random.normal() - 0.5 * kernel.sigma * kernel.sigma);
  return std::max<int64_t>(1, std::llround(static_cast<double>(kernel.mean_ns) * factor));
}

void scale_runs(std::vector<Task>& tasks, int64_t total_run_ns) {
  int64_t sum_ns = 0;
  for (const Task& task : tasks) sum_ns += task.run_ns;
  const double factor = static_cast<double>(total_run_ns) / static_cast<double>(sum_ns);
  int64_t left_ns = total_run_ns;
  for (Task& task : tasks) {
    task.run_ns = static_cast<int64_t>(static_cast<double>(task.run_ns) * factor);
    left_ns -= task.run_ns;
  }
  // Rounding left less than a nanosecond a task.
  for (size_t i = 0; left_ns > 0; i = (i + 1) % tasks.size(), --left_ns) ++tasks[i].run_ns;
}

void jitter_runs(std::vector<Task>& tasks, const MadeOptions& options) {
  constexpr uint64_t kSteps = 2000;
  Random random(options.jitter_seed);
  for (Task& task : tasks) {
    const double part = static_cast<double>(random.below(kSteps + 1)) / (kSteps / 2) - 1.0;
    const double change_ns = part * options.jitter * static_cast<double>(task.run_ns);
    task.run_ns = std::max<int64_t>(1, task.run_ns + std::llround(change_ns));
  }
}

void add_levels(const MadeOptions& options, Random& random, Graph& graph) {
  const size_t level_count =
      options.level_widths.empty() ? options.level_count : options.level_widths.size();
  graph.level_begins.push_back(0);
  for (uint32_t level = 0; level < level_count; ++level) {
    const uint32_t width =
        options.level_widths.empty()
            ? options.min_width +
                  static_cast<uint32_t>(random.below(options.max_width - options.min_width + 1))
            : options.level_widths[level];
    GAPLESS_CHECK(width > 0);
    for (uint32_t i = 0; i < width; ++i) {
      Task task;
      task.kernel = level % static_cast<uint32_t>(options.kernels.size());
      task.level = level;
      task.run_ns = draw_run_ns(options.kernels[task.kernel], random);
      task.completion_ns = random.in(options.overheads.completion);
      task.dispatch_ns = random.in(options.overheads.dispatch);
      task.propagation_ns = random.in(options.overheads.propagation);
      task.setup_ns = random.in(options.overheads.setup);
      const CoreClass core_class = options.kernels[task.kernel].core_class;
      const uint32_t core_count = options.core_counts[static_cast<size_t>(core_class)];
      GAPLESS_CHECK(core_count > 0);
      if (options.has_fixed_cores)
        task.fixed_core = static_cast<uint32_t>(random.below(core_count));
      graph.tasks.push_back(task);
    }
    graph.level_begins.push_back(static_cast<uint32_t>(graph.tasks.size()));
  }
  if (options.total_run_ns > 0) scale_runs(graph.tasks, options.total_run_ns);
  if (options.jitter > 0.0) jitter_runs(graph.tasks, options);
}

void add_unique(std::vector<uint32_t>& numbers, uint32_t number) {
  if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
    numbers.push_back(number);
  }
}

Graph make_graph(const MadeOptions& options) {
  Graph graph;
  Random random(options.seed);
  add_levels(options, random, graph);
  graph.waits_for_levels = options.edges_per_task == 0;
  graph.producers.resize(graph.tasks.size());
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    const uint32_t level = graph.tasks[task].level;
    if (level == 0) continue;
    const uint32_t begin = graph.level_begins[level - 1];
    const uint32_t end = graph.level_begins[level];
    std::vector<uint32_t>& producers = graph.producers[task];
    // The one at the same place, so that every task has a consumer, and its neighbours.
    const uint32_t edge_count = std::min(options.edges_per_task, end - begin);
    for (uint32_t i = 0; i < edge_count; ++i) {
      const uint32_t offset = task - end + (i == 0 ? 0 : static_cast<uint32_t>(random.below(64)));
      add_unique(producers, begin + offset % (end - begin));
    }
    if (options.long_edge_every > 0 && random.below(options.long_edge_every) == 0) {
      add_unique(producers, static_cast<uint32_t>(random.below(begin + 1)));
    }
  }
  return graph;
}

// --- running them ---

// What happens next; at one time the lower kind first, then the lower number.
enum class EventKind : uint8_t { kSubmitted, kFinished, kSchedulerFree };
struct Event {
  int64_t time_ns;
  EventKind kind;
  uint32_t number;  // of a task, or of a scheduler
  bool operator>(const Event& other) const {
    if (time_ns != other.time_ns) return time_ns > other.time_ns;
    return kind != other.kind ? kind > other.kind : number > other.number;
  }
};

// First come, first served: ready tasks in the order in which they were seen to be ready, and of
// those seen at one moment the lower number first; cores in the order in which they were seen to be
// free.
class ListScheduler {
 public:
  ListScheduler(const MadeOptions& options, const Graph& graph, const Zeroed& zeroed)
      : options_(options), graph_(graph), zeroed_(zeroed), times_(graph.tasks.size()) {}

  std::vector<Times> run() {
    set_up();
    while (!events_.empty()) {
      now_ns_ = events_.top().time_ns;
      while (!events_.empty() && events_.top().time_ns == now_ns_) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      queue_released();
      dispatch_all();
    }
    return std::move(times_);
  }

 private:
  void set_up() {
    const uint32_t task_count = static_cast<uint32_t>(graph_.tasks.size());
    waits_.assign(task_count, 1);  // for its submission
    consumers_.resize(task_count);
    level_left_.resize(graph_.level_begins.size() - 1);
    for (uint32_t level = 0; level + 1 < graph_.level_begins.size(); ++level) {
      level_left_[level] = graph_.level_begins[level + 1] - graph_.level_begins[level];
    }
    for (uint32_t task = 0; task < task_count; ++task) {
      for (const uint32_t producer : graph_.producers[task]) consumers_[producer].push_back(task);
      waits_[task] += static_cast<uint32_t>(graph_.producers[task].size());
      if (graph_.waits_for_levels && graph_.tasks[task].level > 0) ++waits_[task];
      const int64_t interval_ns = zeroed_.submit ? 0 : options_.overheads.submit_interval_ns;
      const int64_t submit_ns = options_.begin_ns + interval_ns * task;
      at(task, TaskTime::kSubmit) = submit_ns;
      events_.push({submit_ns, EventKind::kSubmitted, task});
    }
    set_up_queues();
    free_scheduler_count_ = options_.scheduler_count;
  }

  void set_up_queues() {
    for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
      first_queues_[kind] = static_cast<uint32_t>(queues_.size());
      if (!options_.has_fixed_cores) queues_.emplace_back();
      for (uint32_t core = 0; core < options_.core_counts[kind]; ++core) {
        if (options_.has_fixed_cores) queues_.emplace_back();
        queues_.back().free_cores.push(core);
      }
    }
  }

  int64_t& at(uint32_t task, TaskTime time) { return times_[task].at[static_cast<size_t>(time)]; }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kSubmitted:
        release(event.number);
        break;
      case EventKind::kFinished:
        finish(event.number);
        break;
      case EventKind::kSchedulerFree:
        ++free_scheduler_count_;
        break;
    }
  }

  void release(uint32_t task) {
    if (--waits_[task] > 0) return;
    at(task, TaskTime::kReady) = now_ns_;
    released_.push_back(task);
  }
  void queue_released() {
    std::sort(released_.begin(), released_.end());
    for (const uint32_t task : released_) queue_of(task).ready_tasks.push(task);
    released_.clear();
  }

  void finish(uint32_t task) {
    queue_of(task).free_cores.push(times_[task].core);
    for (const uint32_t consumer : consumers_[task]) release(consumer);
    const uint32_t level = graph_.tasks[task].level;
    if (--level_left_[level] > 0 || !graph_.waits_for_levels) return;
    if (level + 2 >= graph_.level_begins.size()) return;
    for (uint32_t next = graph_.level_begins[level + 1]; next < graph_.level_begins[level + 2];
         ++next) {
      release(next);
    }
  }

  // Ready tasks and the free cores that may run them: of a class, or of one core.
  struct Queue {
    std::queue<uint32_t> ready_tasks;
    std::queue<uint32_t> free_cores;
  };
  Queue& queue_of(uint32_t task) {
    const size_t kind = static_cast<size_t>(graph_.core_class(options_, task));
    return queues_[first_queues_[kind] + graph_.tasks[task].fixed_core];
  }

  // Of the queues that can go on, the one whose task has waited longest.
  void dispatch_all() {
    const bool has_schedulers = options_.scheduler_count > 0;
    while (!has_schedulers || free_scheduler_count_ > 0) {
      Queue* chosen = nullptr;
      for (Queue& queue : queues_) {
        if (queue.ready_tasks.empty() || queue.free_cores.empty()) continue;
        if (chosen == nullptr || is_ready_before(queue, *chosen)) chosen = &queue;
      }
      if (chosen == nullptr) return;
      dispatch(*chosen);
    }
  }
  bool is_ready_before(const Queue& a, const Queue& b) {
    const uint32_t task_a = a.ready_tasks.front();
    const uint32_t task_b = b.ready_tasks.front();
    const int64_t ready_a_ns = at(task_a, TaskTime::kReady);
    const int64_t ready_b_ns = at(task_b, TaskTime::kReady);
    return ready_a_ns != ready_b_ns ? ready_a_ns < ready_b_ns : task_a < task_b;
  }

  void dispatch(Queue& queue) {
    const uint32_t number = queue.ready_tasks.front();
    queue.ready_tasks.pop();
    const Task& task = graph_.tasks[number];
    times_[number].core = queue.free_cores.front();
    queue.free_cores.pop();
    const int64_t dispatch_ns = now_ns_ + (zeroed_.dispatch ? 0 : task.dispatch_ns);
    const bool is_handed_over = options_.scheduler_count > 0 && !zeroed_.handoff;
    const int64_t receive_ns = dispatch_ns + (is_handed_over ? task.propagation_ns : 0);
    const int64_t start_ns = receive_ns + (zeroed_.handoff ? 0 : task.setup_ns);
    const int64_t end_ns = start_ns + task.run_ns;
    const int64_t finish_ns = end_ns + (zeroed_.completion ? 0 : task.completion_ns);
    at(number, TaskTime::kDispatch) = dispatch_ns;
    at(number, TaskTime::kReceive) = receive_ns;
    at(number, TaskTime::kStart) = start_ns;
    at(number, TaskTime::kEnd) = end_ns;
    at(number, TaskTime::kFinish) = finish_ns;
    events_.push({finish_ns, EventKind::kFinished, number});
    if (options_.scheduler_count == 0) return;
    --free_scheduler_count_;
    events_.push({dispatch_ns, EventKind::kSchedulerFree, 0});
  }

  const MadeOptions& options_;
  const Graph& graph_;
  const Zeroed zeroed_;
  std::vector<Times> times_;
  std::vector<uint32_t> waits_;
  std::vector<std::vector<uint32_t>> consumers_;
  std::vector<uint32_t> level_left_;
  std::vector<uint32_t> released_;  // at this moment
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Queue> queues_;
  std::array<uint32_t, kCoreClassCount> first_queues_ = {};
  uint32_t free_scheduler_count_ = 0;
  int64_t now_ns_ = 0;
};

int64_t last_end_ns(const std::vector<Times>& times, int64_t begin_ns) {
  int64_t last_ns = begin_ns;
  for (const Times& task : times) {
    last_ns = std::max(last_ns, task.at[static_cast<size_t>(TaskTime::kEnd)]);
  }
  return last_ns;
}

int64_t makespan_without(const MadeOptions& options, const Graph& graph, const Zeroed& zeroed) {
  const std::vector<Times> times = ListScheduler(options, graph, zeroed).run();
  return last_end_ns(times, options.begin_ns) - options.begin_ns;
}

int64_t longest_chain_ns(const Graph& graph) {
  std::vector<int64_t> ends(graph.tasks.size(), 0);
  std::vector<int64_t> level_ends(graph.level_begins.size(), 0);
  int64_t longest_ns = 0;
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    const uint32_t level = graph.tasks[task].level;
    int64_t begin_ns = graph.waits_for_levels && level > 0 ? level_ends[level - 1] : 0;
    for (const uint32_t producer : graph.producers[task]) {
      begin_ns = std::max(begin_ns, ends[producer]);
    }
    ends[task] = begin_ns + graph.tasks[task].run_ns;
    level_ends[level] = std::max(level_ends[level], ends[task]);
    longest_ns = std::max(longest_ns, ends[task]);
  }
  return longest_ns;
}

// --- writing the trace ---

std::array<uint32_t, kCoreClassCount> add_lanes(const MadeOptions& options, Trace& trace) {
  constexpr std::array<LaneKind, kCoreClassCount> kKinds = {LaneKind::kWorker, LaneKind::kCubeCore,
                                                            LaneKind::kVectorCore};
  constexpr std::array<const char*, kCoreClassCount> kNames = {"worker", "cube", "vector"};
  std::array<uint32_t, kCoreClassCount> first_lanes = {};
  trace.devices.push_back({.name = "made"});
  trace.lanes.push_back({.name = "orchestrator", .kind = LaneKind::kOrchestrator});
  for (uint32_t i = 0; i < options.scheduler_count; ++i) {
    trace.lanes.push_back(
        {.name = fmt::format("scheduler {}", i), .kind = LaneKind::kScheduler, .number = i});
  }
  for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
    first_lanes[kind] = static_cast<uint32_t>(trace.lanes.size());
    for (uint32_t core = 0; core < options.core_counts[kind]; ++core) {
      trace.lanes.push_back(
          {.name = fmt::format("{} {}", kNames[kind], core), .kind = kKinds[kind], .number = core});
    }
  }
  return first_lanes;
}

uint32_t add_row(TaskColumns& tasks, uint32_t lane, uint32_t kernel) {
  const uint32_t row = static_cast<uint32_t>(tasks.size());
  tasks.id.push_back(row);
  tasks.lane.push_back(lane);
  tasks.kernel.push_back(kernel);
  for (std::vector<int64_t>& times : tasks.time_ns) times.push_back(kAbsent);
  return row;
}

void add_edge(EdgeColumns& edges, uint32_t producer, uint32_t consumer, EdgeKind kind) {
  edges.producer.push_back(producer);
  edges.consumer.push_back(consumer);
  edges.kind.push_back(static_cast<uint8_t>(kind));
}

// A level of several tasks is joined as the runtime does it: a row without a start.
void add_joined_edges(const Graph& graph, const std::vector<uint32_t>& kernel_names, Trace& trace) {
  for (uint32_t level = 0; level + 2 < graph.level_begins.size(); ++level) {
    const uint32_t begin = graph.level_begins[level];
    const uint32_t end = graph.level_begins[level + 1];
    uint32_t from = begin;
    if (end - begin > 1) {
      const uint32_t name = kernel_names[graph.tasks[begin].kernel];
      from = add_row(trace.tasks, kNoIndex,
                     trace.names.intern(fmt::format("{}{}", trace.names[name], kJoinSuffix)));
      for (uint32_t task = begin; task < end; ++task) {
        add_edge(trace.edges, task, from, EdgeKind::kOrder);
      }
    }
    for (uint32_t task = end; task < graph.level_begins[level + 2]; ++task) {
      add_edge(trace.edges, from, task, EdgeKind::kData);
    }
  }
}

Trace write_trace(const MadeOptions& options, const Graph& graph, const std::vector<Times>& times) {
  Trace trace = TraceBuilder("made").finish();
  const std::array<uint32_t, kCoreClassCount> first_lanes = add_lanes(options, trace);
  std::vector<uint32_t> kernel_names;
  for (const MadeKernel& kernel : options.kernels) {
    kernel_names.push_back(trace.names.intern(kernel.name));
  }
  for (uint32_t task = 0; task < graph.tasks.size(); ++task) {
    const size_t kind = static_cast<size_t>(graph.core_class(options, task));
    const uint32_t row = add_row(trace.tasks, first_lanes[kind] + times[task].core,
                                 kernel_names[graph.tasks[task].kernel]);
    for (size_t time = 0; time < kTaskTimeCount; ++time) {
      trace.tasks.time_ns[time][row] = times[task].at[time];
    }
    for (const uint32_t producer : graph.producers[task]) {
      add_edge(trace.edges, producer, task, EdgeKind::kData);
    }
  }
  if (graph.waits_for_levels) add_joined_edges(graph, kernel_names, trace);
  trace.spans.begin_ns.push_back(options.begin_ns);
  trace.spans.end_ns.push_back(last_end_ns(times, options.begin_ns));
  trace.spans.lane.push_back(0);
  trace.spans.name.push_back(trace.names.intern("step"));
  trace.spans.value.push_back(0);
  return trace;
}

}  // namespace

MadeExecution make_execution(const MadeOptions& options) {
  const Graph graph = make_graph(options);
  const std::vector<Times> times = ListScheduler(options, graph, {}).run();
  MadeExecution made;
  made.window = {options.begin_ns, last_end_ns(times, options.begin_ns)};
  made.trace = write_trace(options, graph, times);
  MadeTruth& truth = made.truth;
  truth.makespan_ns = made.window.end_ns - made.window.begin_ns;
  truth.zero_completion_ns = makespan_without(options, graph, {.completion = true});
  truth.zero_dispatch_ns = makespan_without(options, graph, {.dispatch = true});
  truth.zero_handoff_ns = makespan_without(options, graph, {.handoff = true});
  truth.zero_submit_ns = makespan_without(options, graph, {.submit = true});
  truth.zero_all_ns = makespan_without(
      options, graph, {.completion = true, .dispatch = true, .handoff = true, .submit = true});
  for (const Task& task : graph.tasks) truth.run_ns += task.run_ns;
  truth.longest_chain_ns = longest_chain_ns(graph);
  return made;
}

namespace {

// A layer of a decode step again and again, until there are `task_count` tasks.
std::vector<uint32_t> repeat_widths(const std::vector<uint32_t>& layer, uint32_t task_count) {
  std::vector<uint32_t> widths;
  for (uint32_t left = task_count; left > 0; left -= widths.back()) {
    widths.push_back(std::min(layer[widths.size() % layer.size()], left));
  }
  return widths;
}

MadeOptions decode_options() {
  const double sigma = 0.25;
  MadeOptions options;
  options.core_counts = {0, 24, 48};
  options.kernels = {
      {.name = "input_norm", .core_class = CoreClass::kVector, .mean_ns = 20'000, .sigma = sigma},
      {.name = "qkv_proj", .core_class = CoreClass::kCube, .mean_ns = 50'000, .sigma = sigma},
      {.name = "rope", .core_class = CoreClass::kVector, .mean_ns = 25'000, .sigma = sigma},
      {.name = "attention", .core_class = CoreClass::kCube, .mean_ns = 55'000, .sigma = sigma},
      {.name = "merge", .core_class = CoreClass::kVector, .mean_ns = 30'000, .sigma = sigma},
      {.name = "out_proj", .core_class = CoreClass::kCube, .mean_ns = 45'000, .sigma = sigma},
      {.name = "post_norm", .core_class = CoreClass::kVector, .mean_ns = 20'000, .sigma = sigma},
      {.name = "gate_up", .core_class = CoreClass::kCube, .mean_ns = 60'000, .sigma = sigma},
      {.name = "silu", .core_class = CoreClass::kVector, .mean_ns = 25'000, .sigma = sigma},
      {.name = "down_proj", .core_class = CoreClass::kCube, .mean_ns = 50'000, .sigma = sigma}};
  options.edges_per_task = 6;
  options.scheduler_count = 3;
  return options;
}

}  // namespace

MadeOptions narrow_decode_options() {
  constexpr uint32_t kTaskCount = 38'705;
  MadeOptions options = decode_options();
  options.level_widths = repeat_widths({1, 12, 4, 12, 2, 12, 1, 12, 5, 8}, kTaskCount);
  options.total_run_ns = int64_t{kTaskCount} * 45'000;
  // 16 us on average between dispatch and finish that are not the run.
  options.overheads.propagation = {3'000, 7'000};
  options.overheads.setup = {1'000, 3'000};
  options.overheads.completion = {6'000, 12'000};
  options.overheads.dispatch = {560, 560};
  return options;
}

MadeOptions wide_decode_options() {
  MadeOptions options = decode_options();
  options.level_widths = repeat_widths({48, 48, 96, 72, 48, 48, 48, 72, 96, 48}, 38'560);
  options.overheads.propagation = {300, 900};
  options.overheads.setup = {100, 300};
  options.overheads.completion = {100, 1'200};
  options.overheads.dispatch = {100, 200};
  return options;
}

}  // namespace gapless
