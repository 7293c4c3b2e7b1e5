// SPDX-License-Identifier: Apache-2.0

#include "analysis/calibrate_samples.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "analysis/calibrate.h"

namespace gapless {
namespace {

int64_t nth_of(std::vector<int64_t>& values, size_t index) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

// Whether the window has cut nothing off.
bool is_whole(const Trace& trace, const StepTasks& tasks, uint32_t task) {
  const uint32_t row = tasks.row(task);
  return trace.tasks.at(TaskTime::kStart)[row] == tasks.start_ns(task) &&
         trace.tasks.at(TaskTime::kEnd)[row] == tasks.end_ns(task);
}

// What the times of one task on its core tell. Of a task that the window cuts, nothing.
class CoreSampler {
 public:
  CoreSampler(const Trace& trace, const StepTasks& tasks, CalibrationSamples& samples)
      : trace_(trace), tasks_(tasks), samples_(samples) {}

  void add_core(std::span<const uint32_t> list) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_whole(trace_, tasks_, list[i])) continue;
      add_handoff(list[i], i == 0 ? kNoIndex : list[i - 1]);
      add_wait(list[i], i + 1 == list.size() ? kNoIndex : list[i + 1]);
    }
  }

 private:
  int64_t time(uint32_t task, TaskTime which) const { return tasks_.time_ns(task, which); }

  // When it could have been dispatched, as recorded or by its producers; kAbsent: not known.
  int64_t ready_ns(uint32_t task) const {
    const int64_t recorded_ns = time(task, TaskTime::kReady);
    if (recorded_ns != kAbsent) return recorded_ns;
    int64_t ready_ns = kAbsent;
    for (const uint32_t producer : tasks_.producers(task)) {
      const int64_t finish_ns = time(producer, TaskTime::kFinish);
      if (finish_ns == kAbsent) return kAbsent;
      ready_ns = std::max(ready_ns, finish_ns);
    }
    return ready_ns;
  }

  void add_handoff(uint32_t task, uint32_t previous) {
    const int64_t dispatch_ns = time(task, TaskTime::kDispatch);
    const int64_t receive_ns = time(task, TaskTime::kReceive);
    const int64_t ready_ns = time(task, TaskTime::kReady);
    const bool is_early = dispatch_ns != kAbsent && ready_ns != kAbsent && dispatch_ns < ready_ns;
    if (is_early) ++samples_.early_count;
    const int64_t free_ns = previous == kNoIndex ? kAbsent : tasks_.end_ns(previous);
    if (previous != kNoIndex && dispatch_ns != kAbsent) count_pending(task, previous);
    // Who was dispatched or, where that is not known, received no later than the end before waited
    // on the core for it.
    const int64_t arrival_ns = dispatch_ns != kAbsent ? dispatch_ns : receive_ns;
    if (arrival_ns == kAbsent || is_early) return;
    const bool has_waited = previous != kNoIndex &&
                            (dispatch_ns != kAbsent ? arrival_ns < free_ns : arrival_ns <= free_ns);
    if (has_waited) return add_switch(task, free_ns);
    if (dispatch_ns != kAbsent && receive_ns != kAbsent) {
      samples_.propagation.add(receive_ns - dispatch_ns);
    }
    if (receive_ns != kAbsent) {
      (previous == kNoIndex ? samples_.first_setup : samples_.setup)
          .add(tasks_.start_ns(task) - receive_ns);
    } else if (previous != kNoIndex) {
      samples_.handoff.add(tasks_.start_ns(task) - dispatch_ns);
    }
  }

  // It must have been there when the core became free: one that arrived later was set up.
  void add_switch(uint32_t task, int64_t free_ns) {
    const int64_t receive_ns = time(task, TaskTime::kReceive);
    const int64_t dispatch_ns = time(task, TaskTime::kDispatch);
    const bool was_there =
        receive_ns != kAbsent ? receive_ns <= free_ns : dispatch_ns + kArrivalNs <= free_ns;
    if (was_there) samples_.switches.add(tasks_.start_ns(task) - free_ns);
  }

  void count_pending(uint32_t task, uint32_t previous) {
    const int64_t dispatch_ns = time(task, TaskTime::kDispatch);
    ++samples_.dispatched_count;
    if (dispatch_ns < tasks_.end_ns(previous)) {
      ++samples_.pending_count;
      return;
    }
    const int64_t known_ns = ready_ns(task);
    const bool is_held_back = known_ns != kAbsent && known_ns <= tasks_.start_ns(previous);
    if (is_held_back) ++samples_.held_back_count;
  }

  // With a task in the pending slot, its start is what the scheduler sees of the end.
  void add_wait(uint32_t task, uint32_t next) {
    const int64_t finish_ns = time(task, TaskTime::kFinish);
    if (finish_ns == kAbsent) return;
    int64_t visible_ns = tasks_.end_ns(task);
    if (next != kNoIndex) {
      const int64_t dispatch_ns = time(next, TaskTime::kDispatch);
      const bool was_pending = dispatch_ns != kAbsent && dispatch_ns < finish_ns;
      if (was_pending && tasks_.start_ns(next) <= finish_ns) visible_ns = tasks_.start_ns(next);
    }
    if (finish_ns < visible_ns) {
      ++samples_.early_finish_count;
    } else {
      samples_.wait.add(finish_ns - visible_ns);
    }
  }

  static constexpr int64_t kArrivalNs = 5'000;  // by then a dispatch has long arrived

  const Trace& trace_;
  const StepTasks& tasks_;
  CalibrationSamples& samples_;
};

void add_ticks(const Trace& trace, const StepTasks& tasks, CalibrationSamples& samples) {
  int64_t first_ns = kAbsent;
  for (size_t which = 0; which < kTaskTimeCount; ++which) {
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      const int64_t time_ns = tasks.time_ns(task, static_cast<TaskTime>(which));
      if (time_ns == kAbsent || !is_whole(trace, tasks, task)) continue;
      if (first_ns == kAbsent) first_ns = time_ns;
      samples.tick_ns = std::gcd(samples.tick_ns, time_ns - first_ns);
    }
  }
}

}  // namespace

Spread Samples::spread() const {
  if (values_.empty()) return {};
  std::vector<int64_t> values = values_;
  const size_t last = values.size() - 1;
  return {.count = values.size(),
          .least = *std::min_element(values.begin(), values.end()),
          .lower = nth_of(values, last / 4),
          .median = nth_of(values, last / 2),
          .upper = nth_of(values, last - last / 4)};
}

int64_t Samples::middle(int64_t tick_ns) const {
  const int64_t median_ns = spread().median;
  if (tick_ns <= 1) return median_ns;
  int64_t sum_ns = 0;
  int64_t count = 0;
  for (const int64_t value : values_) {
    if (std::abs(value - median_ns) > tick_ns) continue;
    sum_ns += value - median_ns;
    ++count;
  }
  if (count == 0) return median_ns;
  const int64_t half = sum_ns < 0 ? -count / 2 : count / 2;
  return median_ns + (sum_ns + half) / count;
}

double Samples::mean() const {
  double sum = 0.0;
  for (const int64_t value : values_) sum += static_cast<double>(value);
  return values_.empty() ? 0.0 : sum / static_cast<double>(values_.size());
}

std::vector<uint32_t> scheduler_lanes(const Trace& trace) {
  std::vector<uint32_t> lanes;
  for (uint32_t lane = 0; lane < trace.lanes.size(); ++lane) {
    if (trace.lanes[lane].kind == LaneKind::kScheduler) lanes.push_back(lane);
  }
  return lanes;
}

std::vector<int64_t> finish_times(const RecordedStep& step) {
  const SimGraph& graph = step.recorded.graph;
  std::vector<int64_t> times(graph.task_count(), kAbsent);
  std::vector<bool> is_known(graph.task_count(), true);
  for (uint32_t task = 0; task < step.tasks->task_count(); ++task) {
    const uint32_t number = step.recorded.task_of[task];
    const int64_t finish_ns = step.tasks->time_ns(task, TaskTime::kFinish);
    times[number] = std::max(times[number], finish_ns);
    if (finish_ns == kAbsent) is_known[number] = false;
  }
  for (uint32_t task = 0; task < times.size(); ++task) {
    if (!is_known[task]) times[task] = kAbsent;
    if (!graph.task(task).is_dummy) continue;
    // Without a core it is over when it is submitted and its producers are.
    times[task] = step.recorded.submit_ns[task];
    for (const uint32_t producer : graph.producers(task)) {
      times[task] = std::max(times[task], times[producer]);
    }
  }
  return times;
}

void add_core_samples(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples) {
  const StepTasks& tasks = *step.tasks;
  CoreSampler sampler(trace, tasks, samples);
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    sampler.add_core(tasks.tasks_of_core(core));
  }
  add_ticks(trace, tasks, samples);
  samples.window_ns += tasks.window_ns();
  if (trace.tasks.bytes.empty()) return;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t bytes = trace.tasks.bytes[tasks.row(task)];
    if (bytes != kAbsent) samples.bytes += bytes;
  }
}

void add_submit_samples(const RecordedStep& step, CalibrationSamples& samples) {
  const RecordedGraph& recorded = step.recorded;
  if (!recorded.is_order_recorded) return;
  // Slots are given back in order: by task, when it and all before it are complete.
  std::vector<int64_t> retired = finish_times(step);
  bool is_known = true;
  for (size_t task = 0; task < retired.size(); ++task) {
    is_known = is_known && retired[task] != kAbsent;
    if (task > 0) retired[task] = std::max(retired[task], retired[task - 1]);
  }
  for (uint32_t task = 1; task < recorded.submit_ns.size(); ++task) {
    const int64_t before_ns = recorded.submit_ns[task - 1];
    const auto first_live = std::upper_bound(retired.begin(), retired.end(), before_ns);
    const int64_t live = static_cast<int64_t>(first_live - retired.begin());
    samples.submits.push_back(
        {.gap_ns = recorded.submit_ns[task] - before_ns,
         .producer_count = static_cast<int64_t>(recorded.graph.producers(task).size()),
         .depth = is_known ? std::max(int64_t{task} - live, int64_t{0}) : 0});
  }
}

// The cores of a mixed block have one run: from when the last of them started.
void add_kernel_samples(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples) {
  const StepTasks& tasks = *step.tasks;
  const RecordedGraph& recorded = step.recorded;
  struct Run {
    int64_t last_start_ns = kAbsent;
    int64_t last_end_ns = kAbsent;
    bool is_whole = true;
  };
  std::vector<uint64_t> begins(size_t{recorded.graph.task_count()} + 1, 0);
  for (uint32_t task = 0; task < recorded.graph.task_count(); ++task) {
    begins[size_t{task} + 1] = begins[task] + recorded.graph.task(task).block_count;
  }
  std::vector<Run> runs(begins.back());
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    Run& run = runs[begins[recorded.task_of[task]] + recorded.block_of[task]];
    run.last_start_ns = std::max(run.last_start_ns, tasks.start_ns(task));
    run.last_end_ns = std::max(run.last_end_ns, tasks.end_ns(task));
    run.is_whole = run.is_whole && is_whole(trace, tasks, task);
  }
  for (uint32_t task = 0; task < recorded.graph.task_count(); ++task) {
    if (recorded.graph.task(task).is_dummy) continue;
    Samples& kernel = samples.kernels[recorded.graph.kernel_name(task)];
    for (uint64_t block = begins[task]; block < begins[size_t{task} + 1]; ++block) {
      const Run& run = runs[block];
      // What the step's window cut off says nothing about the kernel.
      if (run.is_whole) kernel.add(std::max(run.last_end_ns - run.last_start_ns, int64_t{0}));
    }
  }
}

}  // namespace gapless
