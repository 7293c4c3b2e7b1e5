// SPDX-License-Identifier: Apache-2.0

#include "analysis/focus_times.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/task_groups.h"
#include "analysis/whatif_test_support.h"
#include "base/mix_bits.h"

namespace gapless {
namespace {

FocusTimes times_of(const Trace& trace, TimeRange window, const std::vector<bool>& is_focus,
                    std::vector<uint32_t> layers = {}) {
  const StepTasks tasks = make_step_tasks(trace, window);
  if (layers.empty()) layers = group_tasks(tasks).task_layer;
  return measure_focus(tasks, observed_path(tasks), layers, is_focus);
}

TEST(FocusTimes, WithoutTasksAllIsZero) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10}}, 1);
  const FocusTimes times = times_of(trace, {0, 20}, {false});
  EXPECT_EQ(times.task_count, 0);
  EXPECT_EQ(times.union_ns, 0);
  EXPECT_EQ(times.episode_count, 0);
  EXPECT_EQ(times.idle_ns, 0);
}

TEST(FocusTimes, EachLayerIsAnEpisodeUnlessTheyTouch) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10},
                                  {.core = 0, .start_ns = 20, .end_ns = 30},
                                  {.core = 0, .start_ns = 30, .end_ns = 40},
                                  {.core = 0, .start_ns = 50, .end_ns = 60}},
                                 1);
  const std::vector<bool> all(4, true);
  const FocusTimes one = times_of(trace, {0, 100}, all, {0, 0, 0, 0});
  EXPECT_EQ(one.episode_count, 1);
  EXPECT_EQ(one.extent_ns, 60);
  EXPECT_EQ(one.idle_ns, 20);
  const FocusTimes four = times_of(trace, {0, 100}, all, {0, 1, 2, 3});
  EXPECT_EQ(four.episode_count, 3) << "those of layers 1 and 2 touch";
  EXPECT_EQ(four.extent_ns, 40);
  EXPECT_EQ(four.idle_ns, 0);
}

TEST(FocusTimes, OthersCountOnlyInsideTheEpisodes) {
  const Trace trace = hand_trace({{.core = 1, .start_ns = 0, .end_ns = 100},
                                  {.core = 0, .start_ns = 10, .end_ns = 20},
                                  {.core = 0, .start_ns = 50, .end_ns = 70}},
                                 2);
  const FocusTimes times = times_of(trace, {0, 100}, {false, true, true}, {0, 0, 1});
  EXPECT_EQ(times.extent_ns, 30);
  EXPECT_EQ(times.other_run_ns, 30);
  EXPECT_EQ(times.idle_ns, 0);
  EXPECT_EQ(times.hidden_ns, 30);
  EXPECT_EQ(times.exposed_ns, 0);
}

// Tasks one after another on each core, with holes and some of no length; a third is in the focus.
std::vector<HandTask> random_tasks(uint64_t seed, uint32_t core_count) {
  std::vector<HandTask> list;
  for (uint32_t core = 0; core < core_count; ++core) {
    int64_t time_ns = 0;
    for (uint64_t i = 0; i < 12; ++i) {
      const uint64_t bits = mix_bits(seed * 1000 + core * 100 + i);
      const int64_t start_ns = time_ns + static_cast<int64_t>(bits % 9);
      time_ns = start_ns + static_cast<int64_t>(bits / 16 % 12);
      list.push_back({.core = core,
                      .start_ns = start_ns,
                      .end_ns = time_ns,
                      .kernel = bits / 256 % 3 == 0 ? "focus" : "other"});
    }
  }
  return list;
}

struct Counted {
  int64_t union_ns = 0;
  int64_t hidden_ns = 0;
  int64_t extent_ns = 0;
  int64_t run_ns = 0;
  int64_t other_run_ns = 0;
};

// The same nanosecond by nanosecond.
Counted count_nanoseconds(const StepTasks& tasks, const std::vector<uint32_t>& layers,
                          const std::vector<bool>& is_focus) {
  const uint32_t layer_count = 1 + *std::max_element(layers.begin(), layers.end());
  std::vector<TimeRange> spans(layer_count, {.begin_ns = INT64_MAX, .end_ns = INT64_MIN});
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    if (!is_focus[task]) continue;
    TimeRange& span = spans[layers[task]];
    span.begin_ns = std::min(span.begin_ns, tasks.start_ns(task));
    span.end_ns = std::max(span.end_ns, tasks.end_ns(task));
  }
  Counted counted;
  for (int64_t ns = tasks.window().begin_ns; ns < tasks.window().end_ns; ++ns) {
    int64_t focus = 0;
    int64_t others = 0;
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      if (tasks.start_ns(task) > ns || tasks.end_ns(task) <= ns) continue;
      ++(is_focus[task] ? focus : others);
    }
    const bool in_episode = std::any_of(spans.begin(), spans.end(), [ns](const TimeRange& span) {
      return span.begin_ns <= ns && ns < span.end_ns;
    });
    counted.union_ns += focus > 0 ? 1 : 0;
    counted.hidden_ns += focus > 0 && others > 0 ? 1 : 0;
    counted.run_ns += focus;
    counted.extent_ns += in_episode ? 1 : 0;
    counted.other_run_ns += in_episode ? others : 0;
  }
  return counted;
}

TEST(FocusTimes, AreWhatCountingNanosecondsGives) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const uint32_t core_count = static_cast<uint32_t>(1 + seed % 4);
    const Trace trace = hand_trace(random_tasks(seed, core_count), core_count);
    const StepTasks tasks = make_step_tasks(trace, {0, 300});
    std::vector<bool> is_focus(tasks.task_count());
    std::vector<uint32_t> layers(tasks.task_count());
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      is_focus[task] = trace.names[tasks.kernel(task)] == "focus";
      layers[task] = task * 5 / tasks.task_count();
    }
    const CriticalPath path = observed_path(tasks);
    const FocusTimes times = measure_focus(tasks, path, layers, is_focus);
    const Counted counted = count_nanoseconds(tasks, layers, is_focus);
    EXPECT_EQ(times.run_ns, counted.run_ns) << "seed " << seed;
    EXPECT_EQ(times.union_ns, counted.union_ns) << "seed " << seed;
    EXPECT_EQ(times.hidden_ns, counted.hidden_ns) << "seed " << seed;
    EXPECT_EQ(times.exposed_ns + times.hidden_ns, times.union_ns);
    EXPECT_EQ(times.extent_ns, counted.extent_ns) << "seed " << seed;
    EXPECT_EQ(times.other_run_ns, counted.other_run_ns) << "seed " << seed;
    EXPECT_EQ(times.run_ns + times.other_run_ns + times.idle_ns, times.extent_ns * core_count);
    EXPECT_GE(times.idle_ns, 0);
  }
}

}  // namespace
}  // namespace gapless
