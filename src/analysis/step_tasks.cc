// SPDX-License-Identifier: Apache-2.0

#include "analysis/step_tasks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "analysis/kernel_times.h"
#include "base/check.h"

namespace gapless {
namespace {

struct Run {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t row = 0;
};

Result<void> check_window(const TimeRange& window, size_t lane_count) {
  if (window.end_ns <= window.begin_ns) {
    return fail(ErrorCode::kInvalidInput, "the window from {} to {} ns is empty", window.begin_ns,
                window.end_ns);
  }
  int64_t length_ns = 0;
  const int64_t count = static_cast<int64_t>(std::max<size_t>(lane_count, 1));
  const bool is_too_long = __builtin_sub_overflow(window.end_ns, window.begin_ns, &length_ns) ||
                           length_ns > std::numeric_limits<int64_t>::max() / count;
  if (is_too_long) {
    return fail(ErrorCode::kInvalidInput, "{} lanes x {} to {} ns are more than 292 years",
                lane_count, window.begin_ns, window.end_ns);
  }
  return {};
}

std::string_view name_of(const Trace& trace, uint32_t kernel) {
  return kernel == kNoIndex ? "(no name)" : trace.names[kernel];
}

// Lists of numbers, one after another.
struct Lists {
  std::vector<uint64_t> begins;  // [list + 1]
  std::vector<uint32_t> entries;
  std::span<const uint32_t> operator[](size_t list) const {
    return {entries.data() + begins[list], entries.data() + begins[list + 1]};
  }
};

// counts[i + 1] holds the length of list i: turned into where the lists begin.
void sum_up(std::vector<uint64_t>& counts) {
  for (size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
}

// After a fill that moved each begin to its list's end: back again.
void shift_back(std::vector<uint64_t>& begins) {
  for (size_t i = begins.size() - 1; i > 0; --i) begins[i] = begins[i - 1];
  begins[0] = 0;
}

void sort_unique(std::vector<uint32_t>& numbers) {
  const auto is_not_before = [](uint32_t a, uint32_t b) { return a >= b; };
  const auto disorder = std::adjacent_find(numbers.begin(), numbers.end(), is_not_before);
  if (disorder == numbers.end()) return;
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

// A node is a task (0 .. task_count - 1) or, after these, a row that did not run.
class StepTasksMaker {
 public:
  StepTasksMaker(const Trace& trace, StepTasks& tasks) : trace_(trace), tasks_(tasks) {}

  void gather(const std::vector<uint32_t>& places);
  Result<void> place(const std::vector<uint32_t>& places);
  void connect();

 private:
  void copy_times(const std::vector<Run>& runs);
  void number_nodes();
  void list_inputs();
  void resolve_joins();
  void resolve_join(uint32_t join);
  void finish_join(uint32_t join);
  uint32_t affordable_join_producers() const;
  void thin(std::vector<uint32_t>& producers, uint32_t limit) const;
  void list_producers();
  void list_consumers();

  enum class JoinState : uint8_t { kUnseen, kOpen, kDone };

  const Trace& trace_;
  StepTasks& tasks_;
  std::vector<Run> runs_;
  std::vector<uint32_t> nodes_;  // by row; kNoIndex: ran elsewhere or at another time
  uint32_t join_count_ = 0;
  Lists inputs_;                                       // by node: nodes that it waits for
  std::vector<uint32_t> outside_;                      // by node: edges from rows that are no node
  std::vector<std::vector<uint32_t>> join_producers_;  // by join: tasks, ascending
  std::vector<JoinState> join_states_;
};

// A run of no length is inside when its time is.
void StepTasksMaker::gather(const std::vector<uint32_t>& places) {
  const TimeRange window = tasks_.window_;
  const std::vector<int64_t>& starts = trace_.tasks.at(TaskTime::kStart);
  const std::vector<int64_t>& ends = trace_.tasks.at(TaskTime::kEnd);
  for (uint32_t row = 0; row < trace_.tasks.size(); ++row) {
    const uint32_t lane = trace_.tasks.lane[row];
    const int64_t start_ns = starts[row];
    if (start_ns == kAbsent || lane == kNoIndex || places[lane] == kNoIndex) continue;
    if (start_ns >= window.end_ns) continue;
    if (ends[row] == kAbsent) {
      ++tasks_.unfinished_count_;
      continue;
    }
    const int64_t end_ns = std::max(ends[row], start_ns);
    if (end_ns <= window.begin_ns && start_ns < window.begin_ns) continue;
    if (start_ns < window.begin_ns || end_ns > window.end_ns) ++tasks_.cut_count_;
    runs_.push_back({.start_ns = std::max(start_ns, window.begin_ns),
                     .end_ns = std::min(end_ns, window.end_ns),
                     .row = row});
  }
  // Of two that start together, one of no length comes first.
  const auto is_before = [](const Run& a, const Run& b) {
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    return a.end_ns != b.end_ns ? a.end_ns < b.end_ns : a.row < b.row;
  };
  if (!std::is_sorted(runs_.begin(), runs_.end(), is_before)) {
    std::sort(runs_.begin(), runs_.end(), is_before);
  }
}

void StepTasksMaker::copy_times(const std::vector<Run>& runs) {
  for (size_t time = 0; time < kTaskTimeCount; ++time) {
    const std::vector<int64_t>& from = trace_.tasks.time_ns[time];
    std::vector<int64_t>& to = tasks_.times_[time];
    to.resize(runs.size());
    uint32_t absent_count = 0;
    for (size_t task = 0; task < runs.size(); ++task) {
      to[task] = from[runs[task].row];
      if (to[task] == kAbsent) ++absent_count;
    }
    tasks_.absent_counts_[time] = absent_count;
  }
  std::vector<int64_t>& starts = tasks_.times_[static_cast<size_t>(TaskTime::kStart)];
  std::vector<int64_t>& ends = tasks_.times_[static_cast<size_t>(TaskTime::kEnd)];
  for (size_t task = 0; task < runs.size(); ++task) {
    starts[task] = runs[task].start_ns;
    ends[task] = runs[task].end_ns;
  }
}

// Where the tasks ran; those of one core must follow each other.
Result<void> StepTasksMaker::place(const std::vector<uint32_t>& places) {
  const size_t count = runs_.size();
  copy_times(runs_);
  tasks_.rows_.resize(count);
  tasks_.cores_.resize(count);
  tasks_.kernels_.resize(count);
  std::vector<uint32_t> last(tasks_.core_count(), kNoIndex);
  tasks_.core_begins_.assign(tasks_.core_count() + 1, 0);
  for (uint32_t task = 0; task < count; ++task) {
    const uint32_t row = runs_[task].row;
    const uint32_t core = places[trace_.tasks.lane[row]];
    tasks_.rows_[task] = row;
    tasks_.cores_[task] = core;
    tasks_.kernels_[task] = trace_.tasks.kernel[row];
    ++tasks_.core_begins_[core + 1];
    const uint32_t before = std::exchange(last[core], task);
    if (before == kNoIndex || runs_[before].end_ns <= runs_[task].start_ns) continue;
    return fail(ErrorCode::kInvalidInput,
                "tasks overlap on lane {} (\"{}\"): {} of {} to {} ns and {} of {} to {} ns",
                tasks_.lanes_[core], trace_.lanes[tasks_.lanes_[core]].name,
                name_of(trace_, tasks_.kernels_[before]), runs_[before].start_ns,
                runs_[before].end_ns, name_of(trace_, tasks_.kernels_[task]), runs_[task].start_ns,
                runs_[task].end_ns);
  }
  std::vector<uint32_t>& begins = tasks_.core_begins_;
  for (size_t core = 1; core < begins.size(); ++core) begins[core] += begins[core - 1];
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
  tasks_.core_tasks_.resize(count);
  for (uint32_t task = 0; task < count; ++task) {
    tasks_.core_tasks_[next[tasks_.cores_[task]]++] = task;
  }
  return {};
}

void StepTasksMaker::number_nodes() {
  nodes_.assign(trace_.tasks.size(), kNoIndex);
  for (uint32_t task = 0; task < runs_.size(); ++task) nodes_[runs_[task].row] = task;
  uint32_t next = tasks_.task_count();
  const std::vector<int64_t>& starts = trace_.tasks.at(TaskTime::kStart);
  for (size_t row = 0; row < nodes_.size(); ++row) {
    if (starts[row] == kAbsent) nodes_[row] = next++;
  }
  join_count_ = next - tasks_.task_count();
}

// First by producer and then by consumer: so the inputs of each node are in ascending order without
// a sort.
void StepTasksMaker::list_inputs() {
  const EdgeColumns& edges = trace_.edges;
  const size_t node_count = size_t{tasks_.task_count()} + join_count_;
  Lists outputs;
  outputs.begins.assign(node_count + 1, 0);
  inputs_.begins.assign(node_count + 1, 0);
  outside_.assign(node_count, 0);
  for (size_t edge = 0; edge < edges.size(); ++edge) {
    const uint32_t consumer = nodes_[edges.consumer[edge]];
    const uint32_t producer = nodes_[edges.producer[edge]];
    if (consumer == kNoIndex) continue;
    if (producer == kNoIndex) {
      ++outside_[consumer];
      continue;
    }
    ++inputs_.begins[consumer + 1];
    ++outputs.begins[producer + 1];
  }
  sum_up(inputs_.begins);
  sum_up(outputs.begins);
  outputs.entries.resize(outputs.begins.back());
  for (size_t edge = 0; edge < edges.size(); ++edge) {
    const uint32_t consumer = nodes_[edges.consumer[edge]];
    const uint32_t producer = nodes_[edges.producer[edge]];
    if (consumer == kNoIndex || producer == kNoIndex) continue;
    outputs.entries[outputs.begins[producer]++] = consumer;
  }
  shift_back(outputs.begins);
  inputs_.entries.resize(inputs_.begins.back());
  for (uint32_t producer = 0; producer < node_count; ++producer) {
    for (const uint32_t consumer : outputs[producer]) {
      inputs_.entries[inputs_.begins[consumer]++] = producer;
    }
  }
  shift_back(inputs_.begins);
}

// Depth first, with a stack of our own: joins may wait for skipped tasks, and these for joins. An
// edge that closes a circle is passed over.
void StepTasksMaker::resolve_join(uint32_t join) {
  const uint32_t task_count = tasks_.task_count();
  std::vector<std::pair<uint32_t, size_t>> open = {{join, 0}};
  join_states_[join] = JoinState::kOpen;
  while (!open.empty()) {
    const uint32_t top = open.back().first;
    const std::span<const uint32_t> inputs = inputs_[size_t{task_count} + top];
    size_t& position = open.back().second;
    while (position < inputs.size() &&
           (inputs[position] < task_count ||
            join_states_[inputs[position] - task_count] != JoinState::kUnseen)) {
      ++position;
    }
    if (position < inputs.size()) {
      const uint32_t below = inputs[position++] - task_count;
      join_states_[below] = JoinState::kOpen;
      open.push_back({below, 0});
      continue;
    }
    finish_join(top);
    open.pop_back();
  }
}

// All that it waits for is known.
void StepTasksMaker::finish_join(uint32_t join) {
  const uint32_t task_count = tasks_.task_count();
  std::vector<uint32_t>& producers = join_producers_[join];
  uint32_t& outside = outside_[size_t{task_count} + join];
  for (const uint32_t input : inputs_[size_t{task_count} + join]) {
    if (input < task_count) {
      producers.push_back(input);
      continue;
    }
    const uint32_t below = input - task_count;
    if (join_states_[below] != JoinState::kDone) continue;
    producers.insert(producers.end(), join_producers_[below].begin(), join_producers_[below].end());
    outside += outside_[input];
  }
  sort_unique(producers);
  if (producers.size() > StepTasks::kJoinProducers) {
    ++tasks_.thinned_join_count_;
    thin(producers, StepTasks::kJoinProducers);
  }
  join_states_[join] = JoinState::kDone;
}

// Keeps those that ended last.
void StepTasksMaker::thin(std::vector<uint32_t>& producers, uint32_t limit) const {
  const std::vector<int64_t>& ends = tasks_.times_[static_cast<size_t>(TaskTime::kEnd)];
  const auto ended_later = [&ends](uint32_t a, uint32_t b) {
    return ends[a] != ends[b] ? ends[a] > ends[b] : a < b;
  };
  std::nth_element(producers.begin(), producers.begin() + limit, producers.end(), ended_later);
  producers.resize(limit);
  std::sort(producers.begin(), producers.end());
}

// How many producers of a join there can be so that all edges stay within the limit.
uint32_t StepTasksMaker::affordable_join_producers() const {
  const uint32_t task_count = tasks_.task_count();
  uint32_t limit = StepTasks::kJoinProducers;
  for (; limit > 1; limit /= 2) {
    uint64_t edge_count = 0;
    for (uint64_t i = 0; i < inputs_.begins[task_count]; ++i) {
      const uint32_t input = inputs_.entries[i];
      if (input < task_count) continue;
      edge_count += std::min<uint64_t>(join_producers_[input - task_count].size(), limit);
    }
    if (edge_count <= StepTasks::kResolvedEdges) break;
  }
  return limit;
}

void StepTasksMaker::resolve_joins() {
  if (join_count_ == 0) return;
  join_producers_.resize(join_count_);
  join_states_.assign(join_count_, JoinState::kUnseen);
  for (uint32_t join = 0; join < join_count_; ++join) {
    if (join_states_[join] == JoinState::kUnseen) resolve_join(join);
  }
  const uint32_t limit = affordable_join_producers();
  if (limit == StepTasks::kJoinProducers) return;
  tasks_.thinned_join_count_ = 0;
  for (std::vector<uint32_t>& producers : join_producers_) {
    if (producers.size() <= limit) continue;
    ++tasks_.thinned_join_count_;
    thin(producers, limit);
  }
}

void StepTasksMaker::list_producers() {
  const uint32_t task_count = tasks_.task_count();
  tasks_.producer_begins_.assign(size_t{task_count} + 1, 0);
  tasks_.producers_.reserve(inputs_.begins[task_count]);
  std::vector<uint32_t> producers;
  for (uint32_t task = 0; task < task_count; ++task) {
    producers.clear();
    tasks_.outside_count_ += outside_[task];
    for (const uint32_t input : inputs_[task]) {
      if (input < task_count) {
        producers.push_back(input);
        continue;
      }
      const std::vector<uint32_t>& joined = join_producers_[input - task_count];
      producers.insert(producers.end(), joined.begin(), joined.end());
      tasks_.outside_count_ += outside_[input];
    }
    sort_unique(producers);
    const auto end = std::lower_bound(producers.begin(), producers.end(), task);
    tasks_.backward_count_ += static_cast<uint64_t>(producers.end() - end);
    tasks_.producers_.insert(tasks_.producers_.end(), producers.begin(), end);
    tasks_.producer_begins_[size_t{task} + 1] = tasks_.producers_.size();
  }
}

void StepTasksMaker::list_consumers() {
  std::vector<uint64_t>& begins = tasks_.consumer_begins_;
  begins.assign(size_t{tasks_.task_count()} + 1, 0);
  for (const uint32_t producer : tasks_.producers_) ++begins[size_t{producer} + 1];
  sum_up(begins);
  tasks_.consumers_.resize(tasks_.producers_.size());
  for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
    for (const uint32_t producer : tasks_.producers(task)) {
      tasks_.consumers_[begins[producer]++] = task;
    }
  }
  shift_back(begins);
}

void StepTasksMaker::connect() {
  number_nodes();
  list_inputs();
  resolve_joins();
  list_producers();
  list_consumers();
}

Result<StepTasks> StepTasks::create(const Trace& trace, TimeRange window,
                                    std::span<const uint32_t> lanes) {
  GAPLESS_CHECK(trace.tasks.size() < kNoIndex);
  StepTasks tasks;
  tasks.window_ = window;
  tasks.lanes_ =
      lanes.empty() ? core_lanes(trace) : std::vector<uint32_t>(lanes.begin(), lanes.end());
  GAPLESS_TRY(check_window(window, tasks.lanes_.size()));
  const std::vector<uint32_t> places = GAPLESS_TRY(places_of(trace, tasks.lanes_));
  for (const uint32_t lane : tasks.lanes_) {
    tasks.classes_.push_back(core_class_of(trace.lanes[lane].kind));
  }
  StepTasksMaker maker(trace, tasks);
  maker.gather(places);
  GAPLESS_TRY(maker.place(places));
  maker.connect();
  return tasks;
}

std::span<const uint32_t> StepTasks::tasks_of_core(uint32_t core) const {
  return {core_tasks_.data() + core_begins_[core],
          core_tasks_.data() + core_begins_[size_t{core} + 1]};
}

}  // namespace gapless
