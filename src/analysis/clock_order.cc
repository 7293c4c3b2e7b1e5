// SPDX-License-Identifier: Apache-2.0

#include "analysis/clock_order.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace gapless {
namespace {

using Times = std::array<int64_t, kTaskTimeCount>;

int64_t at(const Times& times, TaskTime time) { return times[static_cast<size_t>(time)]; }

// 0 when one of them is absent or they are in order.
uint64_t backwards_ns(const Times& times, TaskTime earlier, TaskTime later) {
  const int64_t earlier_ns = at(times, earlier);
  const int64_t later_ns = at(times, later);
  if (earlier_ns == kAbsent || later_ns == kAbsent || earlier_ns <= later_ns) return 0;
  return static_cast<uint64_t>(earlier_ns) - static_cast<uint64_t>(later_ns);
}

// Nearly all tasks are: absent times are passed over.
bool is_in_order(const Times& times) {
  int64_t latest_ns = kAbsent;
  bool is_in_order = true;
  for (const int64_t time_ns : times) {
    is_in_order &= time_ns == kAbsent || time_ns >= latest_ns;
    latest_ns = std::max(latest_ns, time_ns);
  }
  return is_in_order;
}

class DisorderCounts {
 public:
  // By how much time runs backwards at most.
  uint64_t add(const Times& times) {
    constexpr std::array<TaskTime, 6> kOrder = {TaskTime::kSubmit,  TaskTime::kDispatch,
                                                TaskTime::kReceive, TaskTime::kStart,
                                                TaskTime::kEnd,     TaskTime::kFinish};
    uint64_t worst_ns = 0;
    TaskTime latest = TaskTime::kSubmit;
    for (const TaskTime time : kOrder) {
      worst_ns = std::max(worst_ns, count(times, latest, time));
      const bool is_later = at(times, time) != kAbsent && at(times, time) >= at(times, latest);
      if (is_later) latest = time;
    }
    worst_ns = std::max(worst_ns, count(times, TaskTime::kSubmit, TaskTime::kReady));
    return std::max(worst_ns, count(times, TaskTime::kReady, TaskTime::kStart));
  }

  std::vector<ClockDisorder> list() const {
    std::vector<ClockDisorder> disorders;
    for (size_t pair = 0; pair < counts_.size(); ++pair) {
      if (counts_[pair] == 0) continue;
      disorders.push_back({.earlier = static_cast<TaskTime>(pair / kTaskTimeCount),
                           .later = static_cast<TaskTime>(pair % kTaskTimeCount),
                           .task_count = counts_[pair]});
    }
    std::stable_sort(
        disorders.begin(), disorders.end(),
        [](const ClockDisorder& a, const ClockDisorder& b) { return a.task_count > b.task_count; });
    return disorders;
  }

 private:
  uint64_t count(const Times& times, TaskTime earlier, TaskTime later) {
    const uint64_t back_ns = backwards_ns(times, earlier, later);
    const size_t pair = static_cast<size_t>(earlier) * kTaskTimeCount + static_cast<size_t>(later);
    if (back_ns > 0) ++counts_[pair];
    return back_ns;
  }

  std::array<uint32_t, kTaskTimeCount* kTaskTimeCount> counts_ = {};  // by earlier, later
};

}  // namespace

ClockOrder check_clock_order(const Trace& trace, const StepTasks& tasks) {
  ClockOrder order;
  DisorderCounts counts;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const uint32_t row = tasks.row(task);
    Times times;
    for (size_t time = 0; time < times.size(); ++time) times[time] = trace.tasks.time_ns[time][row];
    if (is_in_order(times)) continue;
    if (backwards_ns(times, TaskTime::kReady, TaskTime::kDispatch) > 0) ++order.early_count;
    const uint64_t worst_ns = counts.add(times);
    if (worst_ns > 0) ++order.wrong_count;
    if (worst_ns > order.worst_ns) {
      order.worst_ns = worst_ns;
      order.worst_row = row;
    }
  }
  order.disorders = counts.list();
  return order;
}

}  // namespace gapless
