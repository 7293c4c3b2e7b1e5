// SPDX-License-Identifier: Apache-2.0
//
// Hand-made traces in which each cause can be read off, made executions whose causes are known, and
// small ones that are judged again for every single nanosecond.

#include "analysis/bubbles.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "base/test_effort.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct TestTask {
  uint32_t lane = 0;
  int64_t submit = kAbsent;
  int64_t ready = kAbsent;
  int64_t dispatch = kAbsent;
  int64_t receive = kAbsent;
  int64_t start = kAbsent;
  int64_t end = kAbsent;
  int64_t finish = kAbsent;
};
using Edges = std::vector<std::pair<uint32_t, uint32_t>>;

constexpr LaneKind kCube = LaneKind::kCubeCore;
constexpr LaneKind kVector = LaneKind::kVectorCore;
constexpr LaneKind kWorker = LaneKind::kWorker;

// All that is known of a task that begins as soon as it can.
TestTask at_once(uint32_t lane, int64_t start, int64_t end) {
  return {lane, start, start, start, start, start, end, end};
}

Trace make_trace(const std::vector<LaneKind>& kinds, const std::vector<TestTask>& tasks,
                 const Edges& edges) {
  Trace trace = TraceBuilder("test").finish();
  trace.devices.push_back({.name = "device"});
  for (const LaneKind kind : kinds) trace.lanes.push_back({.name = "lane", .kind = kind});
  for (const TestTask& task : tasks) {
    trace.tasks.id.push_back(trace.tasks.size());
    trace.tasks.lane.push_back(task.lane);
    trace.tasks.kernel.push_back(kNoIndex);
    const int64_t times[kTaskTimeCount] = {task.submit, task.ready, task.dispatch, task.receive,
                                           task.start,  task.end,   task.finish};
    for (size_t time = 0; time < kTaskTimeCount; ++time) {
      trace.tasks.time_ns[time].push_back(times[time]);
    }
  }
  for (const auto& [producer, consumer] : edges) {
    trace.edges.producer.push_back(producer);
    trace.edges.consumer.push_back(consumer);
    trace.edges.kind.push_back(0);
  }
  return trace;
}

StepTasks tasks_of(const Trace& trace, TimeRange window) {
  Result<StepTasks> tasks = StepTasks::create(trace, window);
  EXPECT_TRUE(tasks) << tasks.error().message;
  return std::move(tasks).value();
}

int64_t cause_ns(const BubblePartition& partition, BubbleCause cause) {
  return partition.cause_ns[static_cast<size_t>(cause)];
}

// What must hold for any trace and window.
void expect_to_add_up(const StepTasks& tasks, const BubblePartition& partition) {
  ASSERT_EQ(partition.core_ns.size(), tasks.core_count());
  std::vector<std::array<int64_t, kBubbleCauseCount>> sums(tasks.core_count());
  std::vector<int64_t> reached(tasks.core_count(), tasks.window().begin_ns);
  uint32_t last_core = 0;
  for (const Bubble& bubble : partition.bubbles) {
    EXPECT_LT(bubble.begin_ns, bubble.end_ns);
    EXPECT_GE(bubble.core, last_core);
    EXPECT_GE(bubble.begin_ns, reached[bubble.core]);
    EXPECT_LE(bubble.end_ns, tasks.window().end_ns);
    if (bubble.next_task != kNoIndex) {
      EXPECT_EQ(tasks.core(bubble.next_task), bubble.core);
      EXPECT_LE(bubble.end_ns, tasks.start_ns(bubble.next_task));
    }
    last_core = bubble.core;
    reached[bubble.core] = bubble.end_ns;
    sums[bubble.core][static_cast<size_t>(bubble.cause)] += bubble.end_ns - bubble.begin_ns;
  }
  EXPECT_EQ(sums, partition.core_ns);
  std::array<int64_t, kBubbleCauseCount> all = {};
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    int64_t busy_ns = 0;
    for (const uint32_t task : tasks.tasks_of_core(core)) {
      busy_ns += tasks.end_ns(task) - tasks.start_ns(task);
    }
    EXPECT_EQ(partition.core_busy_ns[core], busy_ns);
    EXPECT_EQ(std::accumulate(sums[core].begin(), sums[core].end(), busy_ns), tasks.window_ns());
    for (size_t cause = 0; cause < kBubbleCauseCount; ++cause) all[cause] += sums[core][cause];
  }
  EXPECT_EQ(all, partition.cause_ns);
  EXPECT_EQ(std::accumulate(all.begin(), all.end(), int64_t{0}), partition.idle_ns);
  EXPECT_EQ(partition.busy_ns + partition.idle_ns, tasks.window_ns() * tasks.core_count());
}

// "startup 0-5, scheduler 5-9" for one core.
std::string bubbles_of(const BubblePartition& partition, uint32_t core) {
  std::string text;
  for (const Bubble& bubble : partition.bubbles) {
    if (bubble.core != core) continue;
    text += fmt::format("{}{} {}-{}", text.empty() ? "" : ", ", bubble_cause_name(bubble.cause),
                        bubble.begin_ns, bubble.end_ns);
  }
  return text;
}

BubblePartition partition_of(const std::vector<LaneKind>& kinds, const std::vector<TestTask>& rows,
                             const Edges& edges, TimeRange window) {
  const Trace trace = make_trace(kinds, rows, edges);
  const StepTasks tasks = tasks_of(trace, window);
  BubblePartition partition = partition_bubbles(tasks);
  expect_to_add_up(tasks, partition);
  return partition;
}

TEST(Bubbles, BeforeTheFirstDispatchAreStartup) {
  const BubblePartition partition = partition_of(
      {kCube, kVector}, {{0, 1, 2, 5, 6, 8, 20, 21}, at_once(1, 10, 20)}, {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 0), "startup 0-5, propagation 5-6, setup 6-8");
  EXPECT_EQ(partition.missing, std::vector<std::string>());
}

TEST(Bubbles, AfterAProducerAreCutByTheFiveTimes) {
  const BubblePartition partition =
      partition_of({kCube, kCube}, {{0, 0, 0, 0, 0, 0, 10, 12}, {1, 0, 10, 15, 18, 20, 30, 31}},
                   {{0, 1}}, {0, 30});
  EXPECT_EQ(bubbles_of(partition, 1),
            "dependency (same kind) 0-10, completion 10-12, scheduler 12-15, propagation 15-18, "
            "setup 18-20");
  EXPECT_DOUBLE_EQ(partition.average_busy_cores, 20.0 / 30.0);
  EXPECT_EQ(partition.bubbles.back().next_task, 1u);
}

TEST(Bubbles, ThatWaitForAnotherKindSaySo) {
  const BubblePartition partition =
      partition_of({kVector, kCube}, {at_once(0, 0, 10), at_once(1, 10, 20)}, {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1), "dependency (other kind) 0-10");
  EXPECT_EQ(bubbles_of(partition, 0), "drain 10-20");
}

TEST(Bubbles, ThatWaitForSubmissionSaySo) {
  const BubblePartition partition =
      partition_of({kCube, kCube}, {{0, 0, 0, 0, 0, 0, 10, 10}, {1, 14, 14, 16, 16, 16, 20, 20}},
                   {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1),
            "dependency (same kind) 0-10, dependency (submit) 10-14, scheduler 14-16");
  // A task without producers waits for nothing else.
  const BubblePartition root =
      partition_of({kCube, kCube, kCube},
                   {at_once(0, 0, 10), at_once(1, 14, 20), at_once(2, 10, 20)}, {{0, 2}}, {0, 20});
  EXPECT_EQ(bubbles_of(root, 1), "dependency (submit) 0-14");
}

TEST(Bubbles, WhileAReadyTaskWaitsForABusyCoreArePlacement) {
  // Row 1 is ready at 0 and waits for core 0, while core 1 has nothing to do until row 1 has ended.
  const BubblePartition partition = partition_of(
      {kCube, kCube}, {at_once(0, 0, 10), {0, 0, 0, 10, 10, 10, 20, 20}, at_once(1, 20, 30)},
      {{1, 2}}, {0, 30});
  EXPECT_EQ(bubbles_of(partition, 1), "placement 0-10, dependency (same kind) 10-20");
}

TEST(Bubbles, OfAsManyCoresAsTasksArePlacement) {
  // One task waits for core 0 until 10. Core 1 waits first, until 6; then core 2 could have run it.
  const BubblePartition partition = partition_of({kCube, kCube, kCube},
                                                 {at_once(0, 0, 10),
                                                  {0, 0, 0, 10, 10, 10, 20, 20},
                                                  at_once(1, 6, 20),
                                                  at_once(2, 0, 2),
                                                  at_once(2, 20, 22)},
                                                 {{3, 2}, {1, 4}}, {0, 22});
  // Row 2 is submitted at 6.
  EXPECT_EQ(bubbles_of(partition, 1).substr(0, 13), "placement 0-6");
  EXPECT_EQ(bubbles_of(partition, 2),
            "dependency (same kind) 2-6, placement 6-10, dependency (same kind) 10-20");
}

TEST(Bubbles, AreNotPlacementWhileTheTasksOwnCoreIsIdle) {
  // Row 1 is ready at 10 and handed to core 1 until 14: core 2 could not have been quicker.
  const BubblePartition partition =
      partition_of({kCube, kCube, kCube},
                   {at_once(0, 0, 10), {1, 0, 10, 10, 12, 14, 20, 20}, at_once(2, 20, 30)},
                   {{0, 1}, {1, 2}}, {0, 30});
  EXPECT_EQ(bubbles_of(partition, 1),
            "dependency (same kind) 0-10, propagation 10-12, setup 12-14, imbalance 20-30");
  EXPECT_EQ(bubbles_of(partition, 2), "dependency (same kind) 0-20");
}

TEST(Bubbles, AfterTheLastTaskAreImbalanceThenDrain) {
  const BubblePartition partition =
      partition_of({kCube, kCube, kVector, LaneKind::kSm},
                   {at_once(0, 0, 10), at_once(1, 0, 20), at_once(2, 0, 30)}, {{0, 1}}, {0, 30});
  EXPECT_EQ(bubbles_of(partition, 0), "imbalance 10-20, drain 20-30");
  EXPECT_EQ(bubbles_of(partition, 1), "drain 20-30");
  EXPECT_EQ(bubbles_of(partition, 2), "");
  EXPECT_EQ(bubbles_of(partition, 3), "drain 0-30");
  EXPECT_EQ(partition.bubbles.back().next_task, kNoIndex);
}

TEST(Bubbles, OfACoreThatIsNotNeededAreDependencyUntilTheLastStart) {
  // A chain keeps one core busy; the other gets nothing, because there is nothing to run beside it.
  const BubblePartition partition =
      partition_of({kCube, kCube}, {at_once(0, 0, 10), at_once(0, 10, 20), at_once(0, 20, 30)},
                   {{0, 1}, {1, 2}}, {0, 30});
  EXPECT_EQ(bubbles_of(partition, 1), "dependency (same kind) 0-20, imbalance 20-30");
}

TEST(Bubbles, WithoutAnyTaskAreStartup) {
  const BubblePartition partition = partition_of({kCube, kVector}, {}, {}, {5, 30});
  EXPECT_EQ(bubbles_of(partition, 0), "startup 5-30");
  EXPECT_EQ(cause_ns(partition, BubbleCause::kStartup), 50);
  EXPECT_EQ(partition.missing, std::vector<std::string>());
}

TEST(Bubbles, OfATaskDispatchedEarlyAreDependencyUntilItIsReady) {
  const BubblePartition partition = partition_of(
      {kCube, kCube}, {at_once(0, 0, 10), {1, 0, 10, 3, 11, 12, 20, 20}}, {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1),
            "dependency (same kind) 0-10, propagation 10-11, setup 11-12");
}

TEST(Bubbles, BehindABusyCoreBeginWithTheTasksOwnPart) {
  // Row 1 is received while row 0 still runs.
  const BubblePartition partition =
      partition_of({kCube}, {at_once(0, 0, 10), {0, 0, 0, 2, 4, 13, 20, 20}}, {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 0), "setup 10-13");
}

TEST(Bubbles, OfCpuWorkersHaveNoPropagation) {
  // Row 0 ends at 10; its end is counted at 12; worker 1 takes row 1 at 15 and calls it at 16.
  const BubblePartition partition =
      partition_of({kWorker, kWorker}, {{0, 0, 0, 1, 1, 2, 10, 11}, {1, 0, 12, 15, 15, 16, 20, 21}},
                   {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 0),
            "startup 0-1, setup 1-2, dependency (same kind) 10-16, imbalance 16-20");
  EXPECT_EQ(bubbles_of(partition, 1),
            "startup 0-1, dependency (same kind) 1-10, completion 10-12, scheduler 12-15, setup "
            "15-16");
}

TEST(Bubbles, OfTasksWithStartAndEndOnlyAreMerged) {
  const BubblePartition partition = partition_of(
      {kCube, kCube}, {{.lane = 0, .start = 0, .end = 10}, {.lane = 1, .start = 15, .end = 20}},
      {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1), "dependency (same kind) 0-10, scheduler 10-15");
  const std::vector<std::string> expected = {
      "no task has a submit time: waiting for the orchestrator is shown as completion or scheduler",
      "no task has a finish or a ready time: completion is shown as scheduler",
      "no task has a dispatch time: propagation and setup are shown as scheduler"};
  EXPECT_EQ(partition.missing, expected);
}

TEST(Bubbles, OfTasksWithDispatchAndFinishHaveAnUncutHandoff) {
  const BubblePartition partition =
      partition_of({kCube, kCube},
                   {{.lane = 0, .dispatch = 0, .start = 1, .end = 10, .finish = 12},
                    {.lane = 1, .dispatch = 14, .start = 17, .end = 20, .finish = 21}},
                   {{0, 1}}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1),
            "dependency (same kind) 0-10, completion 10-12, scheduler 12-14, propagation 14-17");
  const std::vector<std::string> expected = {
      "no task has a submit time: waiting for the orchestrator is shown as completion or scheduler",
      "no task has a receive time: setup is shown as propagation"};
  EXPECT_EQ(partition.missing, expected);
}

TEST(Bubbles, WithoutEdgesAndReadyTimesAreDependencyUntilDispatch) {
  const std::vector<TestTask> tasks = {{.lane = 0, .dispatch = 0, .start = 1, .end = 10},
                                       {.lane = 1, .dispatch = 14, .start = 17, .end = 20}};
  const BubblePartition partition = partition_of({kCube, kCube}, tasks, {}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1), "dependency (same kind) 0-14, propagation 14-17");
  ASSERT_EQ(partition.missing.size(), 3u);
  EXPECT_EQ(partition.missing[0],
            "no edges and no ready times: waiting for tasks of another kind, placement, completion "
            "and scheduler are shown as waiting for the same kind");
}

TEST(Bubbles, WithoutEdgesFollowTheReadyTime) {
  const BubblePartition partition = partition_of(
      {kCube, kCube}, {at_once(0, 0, 10), {1, 0, 11, 14, 15, 16, 20, 20}}, {}, {0, 20});
  EXPECT_EQ(bubbles_of(partition, 1),
            "dependency (same kind) 0-11, scheduler 11-14, propagation 14-15, setup 15-16");
  ASSERT_EQ(partition.missing.size(), 1u);
}

TEST(Bubbles, CountTasksThatLackATime) {
  const BubblePartition partition = partition_of(
      {kCube, kCube}, {at_once(0, 0, 10), {1, 0, 10, 10, kAbsent, 15, 20, 20}}, {{0, 1}}, {0, 20});
  const std::vector<std::string> expected = {
      "1 of 2 tasks do not have a receive time: setup is shown as propagation"};
  EXPECT_EQ(partition.missing, expected);
}

// --- made executions ---

MadeOptions random_options(std::mt19937& random, int64_t scale) {
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  const auto delay = [&]() {
    const int64_t low_ns = static_cast<int64_t>(below(4)) * scale;
    return MadeDelay{low_ns, low_ns + static_cast<int64_t>(below(4)) * scale};
  };
  MadeOptions options;
  options.seed = random();
  options.begin_ns = 100;
  options.core_counts = {0, 1 + below(3), 1 + below(4)};
  options.kernels = {
      {.name = "a", .core_class = CoreClass::kCube, .mean_ns = 10 * scale, .sigma = 0.5},
      {.name = "b", .core_class = CoreClass::kVector, .mean_ns = 5 * scale, .sigma = 0.3},
      {.name = "c", .core_class = CoreClass::kVector, .mean_ns = 2 * scale, .sigma = 0.0}};
  if (below(3) == 0) {
    options.core_counts = {1 + below(4), 0, 0};
    for (MadeKernel& kernel : options.kernels) kernel.core_class = CoreClass::kAny;
  }
  options.scheduler_count = below(3);
  options.has_fixed_cores = below(2) == 0;
  options.level_count = 1 + below(8);
  options.max_width = 1 + below(9);
  options.edges_per_task = below(4);
  options.long_edge_every = below(4);
  options.overheads = {delay(), delay(), delay(), delay(), static_cast<int64_t>(below(4)) * scale};
  return options;
}

// Everything said again for one nanosecond, from the definitions.
class Oracle {
 public:
  explicit Oracle(const StepTasks& tasks) : tasks_(tasks) {
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      first_dispatch_ns_ = std::min(first_dispatch_ns_, tasks.time_ns(task, TaskTime::kDispatch));
    }
  }

  // By core; -1: it runs a task.
  std::vector<int> causes_at(int64_t time_ns) const {
    std::vector<int> causes;
    for (uint32_t core = 0; core < tasks_.core_count(); ++core) {
      causes.push_back(cause_at(core, time_ns));
    }
    return causes;
  }

 private:
  int64_t producers_end(uint32_t task) const {
    int64_t last_ns = tasks_.window().begin_ns;
    for (const uint32_t producer : tasks_.producers(task)) {
      last_ns = std::max(last_ns, tasks_.end_ns(producer));
    }
    return last_ns;
  }
  int64_t ready_ns(uint32_t task) const {
    const bool is_root = tasks_.producers(task).empty();
    return std::max({producers_end(task), tasks_.time_ns(task, TaskTime::kSubmit),
                     is_root ? tasks_.time_ns(task, TaskTime::kReady) : kAbsent});
  }
  // The end of the task before on the core.
  int64_t idle_since(uint32_t core, int64_t time_ns) const {
    int64_t since_ns = tasks_.window().begin_ns;
    for (const uint32_t task : tasks_.tasks_of_core(core)) {
      if (tasks_.start_ns(task) < time_ns) since_ns = tasks_.end_ns(task);
    }
    return since_ns;
  }
  uint32_t next_task(uint32_t core, int64_t time_ns) const {
    for (const uint32_t task : tasks_.tasks_of_core(core)) {
      if (tasks_.start_ns(task) > time_ns) return task;
    }
    return kNoIndex;
  }
  bool is_busy(uint32_t core, int64_t time_ns) const {
    for (const uint32_t task : tasks_.tasks_of_core(core)) {
      if (tasks_.start_ns(task) <= time_ns && time_ns < tasks_.end_ns(task)) return true;
    }
    return false;
  }
  uint32_t last_of_class(CoreClass core_class) const {
    uint32_t last = kNoIndex;
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      if (tasks_.task_class(task) == core_class) last = task;
    }
    return last;
  }
  bool waits(uint32_t core, int64_t time_ns) const {
    if (is_busy(core, time_ns) || time_ns < first_dispatch_ns_) return false;
    const uint32_t next = next_task(core, time_ns);
    if (next != kNoIndex) return time_ns < ready_ns(next);
    const uint32_t last = last_of_class(tasks_.core_class(core));
    return last != kNoIndex && time_ns < tasks_.start_ns(last);
  }
  bool is_placement(uint32_t core, int64_t time_ns) const {
    const CoreClass core_class = tasks_.core_class(core);
    size_t queued_count = 0;
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      const bool is_queued = tasks_.task_class(task) == core_class && ready_ns(task) <= time_ns &&
                             time_ns < idle_since(tasks_.core(task), tasks_.start_ns(task));
      if (is_queued) ++queued_count;
    }
    std::vector<std::pair<int64_t, uint32_t>> waiting;
    for (uint32_t other = 0; other < tasks_.core_count(); ++other) {
      if (tasks_.core_class(other) != core_class || !waits(other, time_ns)) continue;
      waiting.push_back({std::max(idle_since(other, time_ns + 1), first_dispatch_ns_), other});
    }
    std::sort(waiting.begin(), waiting.end());
    waiting.resize(std::min(waiting.size(), queued_count));
    return std::any_of(waiting.begin(), waiting.end(),
                       [core](const auto& entry) { return entry.second == core; });
  }
  BubbleCause dependency(uint32_t core, uint32_t next, int64_t time_ns) const {
    const uint32_t task = next != kNoIndex ? next : last_of_class(tasks_.core_class(core));
    const bool is_after = time_ns >= ready_ns(task);
    if (tasks_.producers(task).empty()) {
      const bool is_submitted = time_ns >= tasks_.time_ns(task, TaskTime::kSubmit);
      return is_submitted && !is_after ? BubbleCause::kDependencySame
                                       : BubbleCause::kDependencySubmit;
    }
    if (time_ns >= producers_end(task) && !is_after) return BubbleCause::kDependencySubmit;
    for (const uint32_t producer : tasks_.producers(task)) {
      if (tasks_.end_ns(producer) != producers_end(task)) continue;
      return tasks_.task_class(producer) == tasks_.task_class(task) ? BubbleCause::kDependencySame
                                                                    : BubbleCause::kDependencyOther;
    }
    return BubbleCause::kDrain;
  }
  int cause_at(uint32_t core, int64_t time_ns) const {
    if (is_busy(core, time_ns)) return -1;
    if (time_ns < first_dispatch_ns_) return static_cast<int>(BubbleCause::kStartup);
    const uint32_t next = next_task(core, time_ns);
    if (waits(core, time_ns)) {
      return static_cast<int>(is_placement(core, time_ns) ? BubbleCause::kPlacement
                                                          : dependency(core, next, time_ns));
    }
    if (next == kNoIndex) {
      const CoreClass core_class = tasks_.core_class(core);
      for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
        if (tasks_.task_class(task) == core_class && tasks_.end_ns(task) > time_ns) {
          return static_cast<int>(BubbleCause::kImbalance);
        }
      }
      return static_cast<int>(BubbleCause::kDrain);
    }
    if (time_ns >= tasks_.time_ns(next, TaskTime::kReceive)) {
      return static_cast<int>(BubbleCause::kSetup);
    }
    if (time_ns >= tasks_.time_ns(next, TaskTime::kDispatch)) {
      return static_cast<int>(BubbleCause::kPropagation);
    }
    // The maker's ready time is when the scheduler knows.
    return static_cast<int>(time_ns >= tasks_.time_ns(next, TaskTime::kReady)
                                ? BubbleCause::kScheduler
                                : BubbleCause::kCompletion);
  }

  const StepTasks& tasks_;
  int64_t first_dispatch_ns_ = std::numeric_limits<int64_t>::max();
};

TEST(Bubbles, AreWhatEachNanosecondSays) {
  std::mt19937 random(5);
  std::array<int64_t, kBubbleCauseCount> all = {};
  for (uint32_t round = 0; round < test_effort(500); ++round) {
    const MadeExecution made = make_execution(random_options(random, 1));
    const StepTasks tasks = tasks_of(made.trace, {made.window.begin_ns, made.window.end_ns + 3});
    const BubblePartition partition = partition_bubbles(tasks);
    expect_to_add_up(tasks, partition);
    for (size_t cause = 0; cause < kBubbleCauseCount; ++cause) {
      all[cause] += partition.cause_ns[cause];
    }
    const Oracle oracle(tasks);
    std::vector<std::vector<int>> found(static_cast<size_t>(tasks.window_ns()),
                                        std::vector<int>(tasks.core_count(), -1));
    for (const Bubble& bubble : partition.bubbles) {
      for (int64_t time_ns = bubble.begin_ns; time_ns < bubble.end_ns; ++time_ns) {
        found[static_cast<size_t>(time_ns - tasks.window().begin_ns)][bubble.core] =
            static_cast<int>(bubble.cause);
      }
    }
    for (size_t i = 0; i < found.size(); ++i) {
      const int64_t time_ns = tasks.window().begin_ns + static_cast<int64_t>(i);
      ASSERT_EQ(found[i], oracle.causes_at(time_ns)) << "round " << round << " at " << time_ns;
    }
  }
  for (size_t cause = 0; cause < kBubbleCauseCount && !kSanitized; ++cause) {
    EXPECT_GT(all[cause], 0) << bubble_cause_name(static_cast<BubbleCause>(cause));
  }
}

TEST(Bubbles, AddUpInAnyWindowAndWithoutAnyTime) {
  std::mt19937 random(6);
  for (uint32_t round = 0; round < test_effort(300); ++round) {
    MadeExecution made = make_execution(random_options(random, 100));
    // Some columns go as a whole, some in places.
    for (size_t time = 0; time < kTaskTimeCount; ++time) {
      const bool is_needed = time == static_cast<size_t>(TaskTime::kStart) ||
                             time == static_cast<size_t>(TaskTime::kEnd);
      const uint64_t every = random() % 4;
      if (is_needed || every == 3) continue;
      for (int64_t& time_ns : made.trace.tasks.time_ns[time]) {
        if (every == 0 || random() % (every + 1) == 0) time_ns = kAbsent;
      }
    }
    if (random() % 4 == 0) made.trace.edges = {};
    const uint64_t length_ns = static_cast<uint64_t>(made.truth.makespan_ns) + 200;
    const int64_t begin_ns =
        made.window.begin_ns - 100 + static_cast<int64_t>(random() % length_ns);
    const int64_t end_ns = begin_ns + 1 + static_cast<int64_t>(random() % length_ns);
    const StepTasks tasks = tasks_of(made.trace, {begin_ns, end_ns});
    expect_to_add_up(tasks, partition_bubbles(tasks));
  }
}

TEST(Bubbles, HaveNoOverheadWhereThereIsNone) {
  std::mt19937 random(7);
  for (uint32_t round = 0; round < test_effort(100); ++round) {
    MadeOptions options = random_options(random, 100);
    options.overheads = {};
    options.has_fixed_cores = false;
    const MadeExecution made = make_execution(options);
    const BubblePartition partition = partition_bubbles(tasks_of(made.trace, made.window));
    EXPECT_EQ(made.truth.makespan_ns, made.truth.zero_all_ns);
    for (const BubbleCause cause :
         {BubbleCause::kStartup, BubbleCause::kDependencySubmit, BubbleCause::kPlacement,
          BubbleCause::kCompletion, BubbleCause::kScheduler, BubbleCause::kPropagation,
          BubbleCause::kSetup}) {
      EXPECT_EQ(cause_ns(partition, cause), 0) << bubble_cause_name(cause) << " " << round;
    }
  }
}

TEST(Bubbles, HaveAllOfTheHandoffThatThereIs) {
  std::mt19937 random(8);
  for (uint32_t round = 0; round < test_effort(100); ++round) {
    MadeOptions options = random_options(random, 100);
    options.scheduler_count = 1;
    options.overheads = {.propagation = {70, 70}, .setup = {20, 20}};
    const MadeExecution made = make_execution(options);
    const StepTasks tasks = tasks_of(made.trace, made.window);
    const BubblePartition partition = partition_bubbles(tasks);
    EXPECT_EQ(cause_ns(partition, BubbleCause::kPropagation), 70 * int64_t{tasks.task_count()});
    EXPECT_EQ(cause_ns(partition, BubbleCause::kSetup), 20 * int64_t{tasks.task_count()});
    EXPECT_EQ(cause_ns(partition, BubbleCause::kCompletion), 0);
    EXPECT_EQ(cause_ns(partition, BubbleCause::kScheduler), 0);
  }
}

TEST(Bubbles, ArePlacementWhereTasksWaitForTheWrongCore) {
  // All tasks of a level are ready together; with a core drawn for each, some cores get none.
  MadeOptions options;
  options.core_counts = {8, 0, 0};
  options.kernels = {{.name = "kernel", .mean_ns = 1000}};
  options.level_widths = std::vector<uint32_t>(20, 8);
  options.edges_per_task = 0;
  const auto placement_ns = [&options]() {
    const MadeExecution made = make_execution(options);
    return cause_ns(partition_bubbles(tasks_of(made.trace, made.window)), BubbleCause::kPlacement);
  };
  EXPECT_EQ(placement_ns(), 0);
  options.has_fixed_cores = true;
  // A task that waits for its core leaves a core of the level without one, at least as long.
  EXPECT_GT(placement_ns(), 20 * 1000);
}

TEST(Bubbles, OfANarrowStepAreDependency) {
  const MadeExecution made = make_execution(narrow_decode_options());
  const StepTasks tasks = tasks_of(made.trace, made.window);
  const BubblePartition partition = partition_bubbles(tasks);
  EXPECT_NEAR(partition.average_busy_cores, 4.9, 0.05);
  const double all_ns = static_cast<double>(partition.busy_ns + partition.idle_ns);
  const double dependency_ns =
      static_cast<double>(cause_ns(partition, BubbleCause::kDependencySame) +
                          cause_ns(partition, BubbleCause::kDependencyOther));
  EXPECT_GT(dependency_ns / all_ns, 0.9);
  EXPECT_LT(static_cast<double>(cause_ns(partition, BubbleCause::kPlacement)) / all_ns, 0.001);
}

}  // namespace
}  // namespace gapless
