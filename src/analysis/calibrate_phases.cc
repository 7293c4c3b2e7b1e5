// SPDX-License-Identifier: Apache-2.0
//
// What the phases of scheduler threads tell: the finishes and dispatches that lie in them are the
// points at which a thread was done with one thing and began the next.
//
// Traces of the simulated device have spans for the polls between phases, so a complete phase
// begins with the poll that saw an end. In recorded ones it is a round over all running cores.

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/calibrate.h"
#include "analysis/calibrate_samples.h"

namespace gapless {
namespace {

struct Phase {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t value = kNoValue;  // ends seen, or records dispatched
  bool is_complete = false;   // else dispatch
};

// A time of a task, by time.
struct Moment {
  int64_t time_ns = 0;
  uint32_t task = 0;
};

struct Thread {
  std::vector<Phase> phases;  // in order of time
  std::vector<Moment> finishes;
  std::vector<Moment> dispatches;
  // Cores that run something from a time on; until add() is done, changes of that.
  std::vector<std::pair<int64_t, int64_t>> running;
};

bool is_within(const std::vector<Phase>& phases, int64_t time_ns, bool is_complete) {
  auto phase =
      std::lower_bound(phases.begin(), phases.end(), time_ns,
                       [](const Phase& one, int64_t wanted_ns) { return one.end_ns < wanted_ns; });
  for (; phase != phases.end() && phase->begin_ns <= time_ns; ++phase) {
    if (phase->is_complete == is_complete) return true;
  }
  return false;
}

class PhaseSampler {
 public:
  PhaseSampler(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples)
      : trace_(trace), tasks_(*step.tasks), recorded_(step.recorded), samples_(samples) {
    finish_ns_ = finish_times(step);
  }

  void add() {
    threads_.resize(scheduler_lanes(trace_).size());
    list_phases();
    const bool has_phases = std::any_of(threads_.begin(), threads_.end(),
                                        [](const Thread& one) { return !one.phases.empty(); });
    if (!has_phases) return;
    const std::vector<uint32_t> clusters = recorded_clusters(tasks_);
    for (uint32_t core = 0; core < clusters.size(); ++core) assign_core(core, clusters[core]);
    for (Thread& thread : threads_) {
      const auto is_before = [](const Moment& a, const Moment& b) {
        return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.task < b.task;
      };
      std::sort(thread.finishes.begin(), thread.finishes.end(), is_before);
      std::sort(thread.dispatches.begin(), thread.dispatches.end(), is_before);
      std::sort(thread.running.begin(), thread.running.end());
      int64_t count = 0;
      for (auto& [time_ns, running] : thread.running) running = count += running;
      add_thread(thread);
    }
  }

 private:
  void list_phases() {
    const std::vector<uint32_t> lanes = scheduler_lanes(trace_);
    std::vector<uint32_t> thread_of(trace_.lanes.size(), kNoIndex);
    for (uint32_t i = 0; i < lanes.size(); ++i) thread_of[lanes[i]] = i;
    const uint32_t complete = trace_.names.find("complete");
    const uint32_t dispatch = trace_.names.find("dispatch");
    const uint32_t poll = trace_.names.find("poll");
    const SpanColumns& spans = trace_.spans;
    for (size_t row = 0; row < spans.size(); ++row) {
      const uint32_t thread = thread_of[spans.lane[row]];
      const bool is_outside = spans.begin_ns[row] < tasks_.window().begin_ns ||
                              spans.begin_ns[row] > tasks_.window().end_ns;
      if (thread == kNoIndex || is_outside) continue;
      if (poll != kNoIndex && spans.name[row] == poll) samples_.has_poll_spans = true;
      const bool is_complete = complete != kNoIndex && spans.name[row] == complete;
      const bool is_dispatch = dispatch != kNoIndex && spans.name[row] == dispatch;
      if (!is_complete && !is_dispatch) continue;
      ++samples_.phase_count;
      threads_[thread].phases.push_back(
          {spans.begin_ns[row], spans.end_ns[row], spans.value[row], is_complete});
    }
  }

  // How many finishes and dispatches of a core lie in phases of a thread.
  uint64_t vote_count(uint32_t core, const Thread& thread) const {
    uint64_t votes = 0;
    for (const uint32_t task : tasks_.tasks_of_core(core)) {
      const int64_t finish_ns = tasks_.time_ns(task, TaskTime::kFinish);
      const int64_t dispatch_ns = tasks_.time_ns(task, TaskTime::kDispatch);
      votes += finish_ns != kAbsent && is_within(thread.phases, finish_ns, true) ? 1 : 0;
      votes += dispatch_ns != kAbsent && is_within(thread.phases, dispatch_ns, false) ? 1 : 0;
    }
    return votes;
  }

  // A core belongs to the thread that its cluster gives unless its times speak against that: phases
  // of another thread can lie around them by chance.
  void assign_core(uint32_t core, uint32_t cluster) {
    size_t best = cluster % threads_.size();
    uint64_t best_votes = vote_count(core, threads_[best]);
    for (size_t i = 0; i < threads_.size(); ++i) {
      const uint64_t votes = vote_count(core, threads_[i]);
      if (votes * 9 <= best_votes * 10) continue;
      best_votes = votes;
      best = i;
    }
    add_moments(core, threads_[best]);
  }

  void add_moments(uint32_t core, Thread& thread) const {
    int64_t busy_until_ns = kAbsent;
    for (const uint32_t task : tasks_.tasks_of_core(core)) {
      const int64_t finish_ns = tasks_.time_ns(task, TaskTime::kFinish);
      const int64_t dispatch_ns = tasks_.time_ns(task, TaskTime::kDispatch);
      if (finish_ns != kAbsent) thread.finishes.push_back({finish_ns, task});
      if (dispatch_ns != kAbsent) thread.dispatches.push_back({dispatch_ns, task});
      if (finish_ns == kAbsent || dispatch_ns == kAbsent || finish_ns <= busy_until_ns) continue;
      thread.running.emplace_back(std::max(dispatch_ns, busy_until_ns), 1);
      thread.running.emplace_back(finish_ns, -1);
      busy_until_ns = finish_ns;
    }
  }

  void add_thread(const Thread& thread) {
    size_t finish = 0;
    size_t dispatch = 0;
    for (size_t i = 0; i < thread.phases.size(); ++i) {
      const Phase& phase = thread.phases[i];
      const std::span<const Moment> moments = phase.is_complete
                                                  ? take(thread.finishes, phase, finish)
                                                  : take(thread.dispatches, phase, dispatch);
      const bool is_odd = moments.empty() || moments.size() != phase.value;
      if (is_odd) ++samples_.odd_phase_count;
      if (!is_odd)
        phase.is_complete ? add_complete(thread, phase, moments) : add_dispatch(phase, moments);
      const bool is_pair = i > 0 && phase.is_complete && !thread.phases[i - 1].is_complete;
      if (is_pair) samples_.loop.add(phase.begin_ns - thread.phases[i - 1].end_ns);
    }
  }

  // The moments in the phase; what lies before it is passed over.
  static std::span<const Moment> take(const std::vector<Moment>& moments, const Phase& phase,
                                      size_t& next) {
    while (next < moments.size() && moments[next].time_ns < phase.begin_ns) ++next;
    const size_t first = next;
    while (next < moments.size() && moments[next].time_ns <= phase.end_ns) ++next;
    return {moments.data() + first, next - first};
  }

  // Consumers that were submitted when this was the last record of its task.
  int64_t edge_count(uint32_t number, int64_t finish_ns) const {
    if (finish_ns_[number] != finish_ns) return 0;
    int64_t count = 0;
    for (const uint32_t consumer : recorded_.graph.consumers(number)) {
      const int64_t submit_ns = recorded_.submit_ns[consumer];
      if (submit_ns == kAbsent || submit_ns <= finish_ns) ++count;
    }
    return count;
  }

  // One for each time at which ends were seen.
  std::vector<HitSample> hits_of(const Phase& phase, std::span<const Moment> moments) const {
    std::vector<HitSample> hits;
    std::vector<uint32_t> tasks;  // of this hit
    for (size_t i = 0; i < moments.size(); ++i) {
      const int64_t time_ns = moments[i].time_ns;
      if (i == 0 || time_ns != moments[i - 1].time_ns) {
        if (i > 0) hits.back().cost_ns = time_ns - moments[i - 1].time_ns;
        if (i > 0) hits.back().is_followed = true;
        hits.emplace_back();
        tasks.clear();
      }
      ++hits.back().end_count;
      const uint32_t number = recorded_.task_of[moments[i].task];
      if (std::find(tasks.begin(), tasks.end(), number) != tasks.end()) continue;
      hits.back().edge_count += edge_count(number, time_ns);
      tasks.push_back(number);
    }
    hits.back().cost_ns = phase.end_ns - moments.back().time_ns;
    return hits;
  }

  void add_complete(const Thread& thread, const Phase& phase, std::span<const Moment> moments) {
    const std::vector<HitSample> hits = hits_of(phase, moments);
    if (samples_.has_poll_spans) {
      samples_.poll.add(moments.front().time_ns - phase.begin_ns);
      samples_.hits.insert(samples_.hits.end(), hits.begin(), hits.end());
      return;
    }
    SweepSample sweep = {.span_ns = phase.end_ns - phase.begin_ns,
                         .poll_count = running_count(thread, phase.begin_ns)};
    for (const HitSample& hit : hits) {
      sweep.end_count += hit.end_count;
      sweep.edge_count += hit.edge_count;
    }
    samples_.sweeps.push_back(sweep);
  }

  static int64_t running_count(const Thread& thread, int64_t time_ns) {
    const auto after =
        std::upper_bound(thread.running.begin(), thread.running.end(), time_ns,
                         [](int64_t wanted_ns, const auto& one) { return wanted_ns < one.first; });
    return after == thread.running.begin() ? 0 : std::prev(after)->second;
  }

  // Taken from a queue together: records of one task that follow each other.
  void add_dispatch(const Phase& phase, std::span<const Moment> moments) {
    samples_.first_dispatch.add(moments.front().time_ns - phase.begin_ns);
    for (size_t i = 1; i < moments.size(); ++i) {
      const bool is_same =
          recorded_.task_of[moments[i].task] == recorded_.task_of[moments[i - 1].task];
      (is_same ? samples_.next_dispatch : samples_.first_dispatch)
          .add(moments[i].time_ns - moments[i - 1].time_ns);
    }
  }

  const Trace& trace_;
  const StepTasks& tasks_;
  const RecordedGraph& recorded_;
  CalibrationSamples& samples_;
  std::vector<int64_t> finish_ns_;  // by task of the graph
  std::vector<Thread> threads_;
};

}  // namespace

void add_phase_samples(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples) {
  PhaseSampler(trace, step, samples).add();
}

}  // namespace gapless
