// SPDX-License-Identifier: Apache-2.0

#include "analysis/focus_times.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/check.h"

namespace gapless {
namespace {

// Tasks are in the order of their start already.
std::vector<uint32_t> by_end(const StepTasks& tasks) {
  std::vector<uint32_t> order(tasks.task_count());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tasks.end_ns(a) != tasks.end_ns(b) ? tasks.end_ns(a) < tasks.end_ns(b) : a < b;
  });
  return order;
}

// Between two times nothing starts or ends, so the counts of what runs say what that time is.
void sweep(const StepTasks& tasks, const std::vector<bool>& is_focus, FocusTimes& times) {
  const std::vector<uint32_t> ends = by_end(tasks);
  const uint32_t count = tasks.task_count();
  uint32_t started = 0;
  uint32_t focus_running = 0;
  uint32_t others_running = 0;
  int64_t last_ns = tasks.window().begin_ns;
  for (uint32_t ended = 0; ended < count;) {
    const int64_t end_ns = tasks.end_ns(ends[ended]);
    const bool starts = started < count && tasks.start_ns(started) <= end_ns;
    const int64_t now_ns = starts ? tasks.start_ns(started) : end_ns;
    if (focus_running > 0) {
      times.union_ns += now_ns - last_ns;
      (others_running == 0 ? times.exposed_ns : times.hidden_ns) += now_ns - last_ns;
    }
    last_ns = now_ns;
    const uint32_t task = starts ? started++ : ends[ended++];
    uint32_t& running = is_focus[task] ? focus_running : others_running;
    running = starts ? running + 1 : running - 1;
  }
}

// In order of time, none touches the next.
std::vector<TimeRange> find_episodes(const StepTasks& tasks, std::span<const uint32_t> task_layer,
                                     const std::vector<bool>& is_focus) {
  std::vector<TimeRange> by_layer;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    if (!is_focus[task]) continue;
    const size_t layer = task_layer[task];
    if (layer >= by_layer.size())
      by_layer.resize(layer + 1, {.begin_ns = INT64_MAX, .end_ns = INT64_MIN});
    TimeRange& episode = by_layer[layer];
    episode.begin_ns = std::min(episode.begin_ns, tasks.start_ns(task));
    episode.end_ns = std::max(episode.end_ns, tasks.end_ns(task));
  }
  std::erase_if(by_layer, [](const TimeRange& range) { return range.begin_ns > range.end_ns; });
  std::sort(by_layer.begin(), by_layer.end(),
            [](const TimeRange& a, const TimeRange& b) { return a.begin_ns < b.begin_ns; });
  std::vector<TimeRange> episodes;
  for (const TimeRange& range : by_layer) {
    if (episodes.empty() || episodes.back().end_ns < range.begin_ns) {
      episodes.push_back(range);
    } else {
      episodes.back().end_ns = std::max(episodes.back().end_ns, range.end_ns);
    }
  }
  return episodes;
}

// Core time of tasks that are not in the focus, inside the episodes.
int64_t other_run_ns(const StepTasks& tasks, const std::vector<bool>& is_focus,
                     std::span<const TimeRange> episodes) {
  int64_t sum_ns = 0;
  size_t first = 0;  // the first episode that ends after the task's start
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    if (is_focus[task]) continue;
    const int64_t start_ns = tasks.start_ns(task);
    const int64_t end_ns = tasks.end_ns(task);
    while (first < episodes.size() && episodes[first].end_ns <= start_ns) ++first;
    for (size_t i = first; i < episodes.size() && episodes[i].begin_ns < end_ns; ++i) {
      sum_ns += std::min(end_ns, episodes[i].end_ns) - std::max(start_ns, episodes[i].begin_ns);
    }
  }
  return sum_ns;
}

}  // namespace

FocusTimes measure_focus(const StepTasks& tasks, const CriticalPath& path,
                         std::span<const uint32_t> task_layer, const std::vector<bool>& is_focus) {
  GAPLESS_CHECK(task_layer.size() == tasks.task_count());
  GAPLESS_CHECK(is_focus.size() == tasks.task_count());
  FocusTimes times;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    if (!is_focus[task]) continue;
    ++times.task_count;
    times.run_ns += tasks.end_ns(task) - tasks.start_ns(task);
  }
  for (const PathSegment& segment : path.segments) {
    if (segment.part == PathPart::kRun && is_focus[segment.task])
      times.path_ns += segment.end_ns - segment.begin_ns;
  }
  sweep(tasks, is_focus, times);
  const std::vector<TimeRange> episodes = find_episodes(tasks, task_layer, is_focus);
  times.episode_count = static_cast<int64_t>(episodes.size());
  for (const TimeRange& episode : episodes) times.extent_ns += episode.end_ns - episode.begin_ns;
  times.other_run_ns = other_run_ns(tasks, is_focus, episodes);
  times.idle_ns = times.extent_ns * tasks.core_count() - times.run_ns - times.other_run_ns;
  return times;
}

}  // namespace gapless
