// SPDX-License-Identifier: Apache-2.0

#include "analysis/recorded_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/event_heap.h"
#include "sim/memory_clock.h"

namespace gapless {
namespace {

constexpr double kUnknownShare = 0.05;  // of the run time, without bytes
constexpr double kRareShare = 0.01;     // of the time in which anything ran

// The memory's clock has finer units; a step that long has no memory to wait for.
constexpr int64_t kLongestStepNs = int64_t{1} << 42;

struct RunningTask {
  int64_t end_ns;
  int64_t rate;
  bool operator<(const RunningTask& other) const { return end_ns < other.end_ns; }
};

// How long all tasks together had which rate.
struct RateTime {
  int64_t rate;
  int64_t time_ns;
  bool operator<(const RateTime& other) const { return rate < other.rate; }
};

// By the recorded times; tasks are in the order of their starts.
std::vector<RateTime> rates_over_time(const StepTasks& tasks, const std::vector<int64_t>& bytes) {
  std::vector<RateTime> found;
  EventHeap<RunningTask> running;
  int64_t now_ns = 0;
  int64_t rate = 0;
  const auto go_to = [&](int64_t time_ns) {
    if (rate > 0 && time_ns > now_ns) found.push_back({rate, time_ns - now_ns});
    now_ns = time_ns;
  };
  const auto end_until = [&](int64_t time_ns) {
    while (!running.empty() && running.top().end_ns <= time_ns) {
      go_to(running.top().end_ns);
      rate -= running.pop().rate;
    }
  };
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    end_until(tasks.start_ns(task));
    go_to(tasks.start_ns(task));
    const int64_t own = rate_of(bytes[task], tasks.end_ns(task) - tasks.start_ns(task));
    rate += own;
    running.push({tasks.end_ns(task), own});
  }
  end_until(kNever);
  return found;
}

// What they had at most, but for kRareShare of the time.
int64_t usual_peak(std::vector<RateTime> rates) {
  std::sort(rates.begin(), rates.end());
  int64_t total_ns = 0;
  for (const RateTime& one : rates) total_ns += one.time_ns;
  const double rare_ns = kRareShare * static_cast<double>(total_ns);
  int64_t above_ns = 0;
  while (!rates.empty()) {
    above_ns += rates.back().time_ns;
    if (static_cast<double>(above_ns) > rare_ns) return rates.back().rate;
    rates.pop_back();
  }
  return 0;
}

}  // namespace

void set_memory(const StepTasks& tasks, const Trace& trace, const RoofLimits& limits,
                VirtualGraph& graph) {
  if (limits.bytes_per_second < 1.0 || limits.bytes_per_second > 9e18) return;
  if (trace.tasks.bytes.empty() || tasks.window_ns() > kLongestStepNs) return;
  std::vector<int64_t> bytes(tasks.task_count(), 0);
  int64_t run_ns = 0;
  int64_t unknown_ns = 0;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t known = trace.tasks.bytes[tasks.row(task)];
    const int64_t own_ns = tasks.end_ns(task) - tasks.start_ns(task);
    run_ns += own_ns;
    if (known == kAbsent) unknown_ns += own_ns;
    bytes[task] = known == kAbsent ? 0 : known;
  }
  if (static_cast<double>(unknown_ns) > kUnknownShare * static_cast<double>(run_ns)) return;
  const int64_t seen = usual_peak(rates_over_time(tasks, bytes));
  if (seen == 0) return;
  graph.memory_bytes_per_s = std::max(static_cast<int64_t>(limits.bytes_per_second), seen);
  graph.bytes = std::move(bytes);
}

}  // namespace gapless
