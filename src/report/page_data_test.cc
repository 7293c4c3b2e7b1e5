// SPDX-License-Identifier: Apache-2.0

#include "report/page_data.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analysis/made_execution.h"
#include "analysis/task_groups.h"
#include "analysis/whatif_test_support.h"
#include "report/page_levels.h"
#include "report/page_test_support.h"

namespace gapless {
namespace {

constexpr std::array<TaskTime, 5> kOtherTimes = {TaskTime::kSubmit, TaskTime::kReady,
                                                 TaskTime::kDispatch, TaskTime::kReceive,
                                                 TaskTime::kFinish};

MadeOptions varied_options(uint64_t seed) {
  MadeOptions options;
  options.seed = seed;
  options.core_counts = {0, 3, 5};
  options.kernels = {{.name = "cube", .core_class = CoreClass::kCube, .sigma = 0.7},
                     {.name = "vector", .core_class = CoreClass::kVector, .sigma = 0.7},
                     {.name = "gather", .core_class = CoreClass::kVector, .mean_ns = 300}};
  options.level_count = 20;
  options.long_edge_every = 5;
  options.edges_per_task = seed % 4;
  options.scheduler_count = static_cast<uint32_t>(seed % 3);
  options.overheads = {.completion = {0, 900},
                       .dispatch = {0, 400},
                       .propagation = {0, 500},
                       .setup = {0, 200},
                       .submit_interval_ns = static_cast<int64_t>(seed % 2) * 3'000};
  return options;
}

// The page's numbers of the tasks, by task.
std::vector<uint64_t> numbers_of(const StepTasks& tasks) {
  std::vector<uint64_t> numbers(tasks.task_count());
  uint64_t next = 0;
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    for (const uint32_t task : tasks.tasks_of_core(core)) numbers[task] = next++;
  }
  return numbers;
}

void expect_tasks(const Trace& trace, const StepTasks& tasks, const ReadStep& read) {
  ASSERT_EQ(read.tasks.size(), tasks.task_count());
  const int64_t begin_ns = tasks.window().begin_ns;
  const std::vector<uint64_t> numbers = numbers_of(tasks);
  const TaskGroups groups = group_tasks(tasks);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const ReadTask& found = read.tasks[numbers[task]];
    EXPECT_EQ(found.core, tasks.core(task));
    EXPECT_EQ(found.start_ns, tasks.start_ns(task) - begin_ns);
    EXPECT_EQ(found.end_ns, tasks.end_ns(task) - begin_ns);
    EXPECT_EQ(found.id, trace.tasks.id[tasks.row(task)]);
    EXPECT_EQ(found.layer, groups.task_layer[task]);
    const std::string kernel = read.json["kernels"][found.kernel];
    const uint32_t name = tasks.kernel(task);
    EXPECT_EQ(kernel, name == kNoIndex ? "(no name)" : trace.names[name]);
    for (size_t time = 0; time < kOtherTimes.size(); ++time) {
      const int64_t time_ns = tasks.time_ns(task, kOtherTimes[time]);
      std::optional<int64_t> expected;
      if (time_ns != kAbsent) expected = time_ns - begin_ns;
      EXPECT_EQ(found.other_ns[time], expected);
    }
    std::vector<uint64_t> producers;
    for (const uint32_t producer : tasks.producers(task)) producers.push_back(numbers[producer]);
    EXPECT_EQ(found.producer_count, producers.size());
    EXPECT_EQ(found.producers, producers);
  }
}

void expect_bubbles_and_path(const StepReport& report, const ReadStep& read) {
  const StepTasks& tasks = *report.tasks;
  const int64_t begin_ns = tasks.window().begin_ns;
  ASSERT_EQ(read.bubbles.size(), report.bubbles.bubbles.size());
  for (size_t i = 0; i < read.bubbles.size(); ++i) {
    const Bubble& bubble = report.bubbles.bubbles[i];
    EXPECT_EQ(read.bubbles[i].core, bubble.core);
    EXPECT_EQ(read.bubbles[i].begin_ns, bubble.begin_ns - begin_ns);
    EXPECT_EQ(read.bubbles[i].end_ns, bubble.end_ns - begin_ns);
    EXPECT_EQ(read.json["causes"][read.bubbles[i].cause], bubble_cause_name(bubble.cause));
  }
  const std::vector<uint64_t> numbers = numbers_of(tasks);
  ASSERT_EQ(read.path.size(), report.path.segments.size());
  for (size_t i = 0; i < read.path.size(); ++i) {
    const PathSegment& segment = report.path.segments[i];
    EXPECT_EQ(read.json["path_parts"][read.path[i].part], path_part_name(segment.part));
    EXPECT_EQ(read.path[i].begin_ns, segment.begin_ns - begin_ns);
    EXPECT_EQ(read.path[i].end_ns, segment.end_ns - begin_ns);
    EXPECT_EQ(read.path[i].task, segment.task == kNoIndex ? 0 : 1 + numbers[segment.task]);
  }
  EXPECT_EQ(read.path.back().end_ns, tasks.window_ns());
}

void expect_all(const Trace& trace, const StepReport& report, const ReadStep& read) {
  expect_tasks(trace, *report.tasks, read);
  expect_bubbles_and_path(report, read);
}

TEST(PageData, ReadsBackAsItWasPacked) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const MadeExecution made = make_execution(varied_options(seed));
    const StepReport report = make_step_report(made.trace, "made.gapless").value();
    const ReadStep read = packed_and_read(made.trace, report);
    expect_all(made.trace, report, read);
    EXPECT_EQ(read.json["edges_left_out"], 0);
    EXPECT_EQ(read.json["core_count"], 8);
    EXPECT_EQ(read.json["window_ns"], report.tasks->window_ns());
    EXPECT_EQ(read.json["title"], "made.gapless");
    EXPECT_EQ(read.json["report"]["verdict"], report.verdict);
    ASSERT_EQ(read.json["lanes"].size(), 1u);  // the orchestrator's step
    EXPECT_EQ(read.json["lanes"][0]["name"], "orchestrator");
    EXPECT_EQ(read.json["lanes"][0]["kind"], "orchestrator");
    ASSERT_EQ(read.spans.size(), 1u);
    EXPECT_EQ(read.spans[0].end_ns, report.tasks->window_ns());
    EXPECT_EQ(read.json["span_names"][read.spans[0].name], "step");
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// A window in the middle: tasks are cut, and were submitted, ready and dispatched before it.
TEST(PageData, ReadsBackAPartOfAStep) {
  MadeOptions options = varied_options(5);
  const MadeExecution made = make_execution(options);
  const int64_t third_ns = (made.window.end_ns - made.window.begin_ns) / 3;
  const TimeRange window = {.begin_ns = made.window.begin_ns + third_ns,
                            .end_ns = made.window.end_ns - third_ns};
  const StepReport report = drawn_report(made.trace, window);
  ASSERT_GT(report.tasks->cut_count(), 0u);
  const ReadStep read = packed_and_read(made.trace, report);
  expect_all(made.trace, report, read);
  const auto is_before = [](const ReadTask& task) { return task.other_ns[0].value_or(0) < 0; };
  EXPECT_TRUE(std::any_of(read.tasks.begin(), read.tasks.end(), is_before));
  EXPECT_EQ(read.spans[0].begin_ns, 0);
  EXPECT_EQ(read.spans[0].end_ns, report.tasks->window_ns());
}

TEST(PageData, SaysWhichTimesWereNotRecorded) {
  MadeExecution made = make_execution(varied_options(2));
  for (size_t row = 0; row < made.trace.tasks.size(); ++row) {
    const TaskTime time = kOtherTimes[row % kOtherTimes.size()];
    made.trace.tasks.time_ns[static_cast<size_t>(time)][row] = kAbsent;
  }
  const StepReport report = drawn_report(made.trace, made.window);
  expect_all(made.trace, report, packed_and_read(made.trace, report));
}

// Ids of other tools are hashes, and times need not be in order.
TEST(PageData, TakesAnyIdAndTimesInAnyOrder) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 10, .end_ns = 20, .submit_ns = 5'000},
                            {.core = 1, .start_ns = 12, .end_ns = 12, .finish_ns = -7},
                            {.core = 0, .start_ns = 20, .end_ns = 30, .dispatch_ns = 29}},
                           2);
  trace.tasks.id = {UINT64_MAX, 0, uint64_t{1} << 63};
  const StepReport report = drawn_report(trace, {.begin_ns = 0, .end_ns = 40});
  expect_all(trace, report, packed_and_read(trace, report));
}

TEST(PageData, HoldsTheLevelsOfDetail) {
  const MadeExecution made = make_execution(varied_options(3));
  const StepReport report = make_step_report(made.trace, "made.gapless").value();
  const ReadStep read = packed_and_read(made.trace, report);
  ASSERT_EQ(read.levels.size(), 1u);
  EXPECT_EQ(read.levels[0].bucket_count, 2048u);
  std::vector<uint32_t> task_kernels(report.tasks->task_count());
  const std::vector<uint64_t> numbers = numbers_of(*report.tasks);
  for (uint32_t task = 0; task < task_kernels.size(); ++task) {
    task_kernels[task] = static_cast<uint32_t>(read.tasks[numbers[task]].kernel);
  }
  const PageLevel level =
      make_level({.tasks = *report.tasks,
                  .bubbles = report.bubbles,
                  .task_kernels = task_kernels,
                  .kernel_count = static_cast<uint32_t>(read.json["kernels"].size())},
                 2048);
  EXPECT_TRUE(std::equal(level.busy.begin(), level.busy.end(), read.levels[0].busy.begin(),
                         read.levels[0].busy.end()));
  EXPECT_TRUE(std::equal(level.kernel.begin(), level.kernel.end(), read.levels[0].kernel.begin(),
                         read.levels[0].kernel.end()));
  EXPECT_TRUE(std::equal(level.cause.begin(), level.cause.end(), read.levels[0].cause.begin(),
                         read.levels[0].cause.end()));
}

TEST(PageData, LeavesOutAllEdgesAboveTheLimit) {
  const MadeExecution made = make_execution(varied_options(3));
  const StepReport report = make_step_report(made.trace, "made.gapless").value();
  const uint64_t edge_count = report.tasks->edge_count();
  ASSERT_GT(edge_count, 10u);
  const ReadStep without = packed_and_read(made.trace, report, {.max_edges = edge_count - 1});
  EXPECT_EQ(without.json["edge_count"], 0);
  EXPECT_EQ(without.json["edges_left_out"], edge_count);
  expect_bubbles_and_path(report, without);
  const ReadStep with = packed_and_read(made.trace, report, {.max_edges = edge_count});
  EXPECT_EQ(with.json["edge_count"], edge_count);
  EXPECT_EQ(with.json["edges_left_out"], 0);
  uint64_t producer_count = 0;
  for (const ReadTask& task : without.tasks) producer_count += task.producer_count;
  EXPECT_EQ(producer_count, edge_count);
}

TEST(PageData, LeavesOutTheShortestSpansAboveTheLimit) {
  const MadeExecution made = make_execution(varied_options(3));
  const StepReport report = make_step_report(made.trace, "made.gapless").value();
  const ReadStep read = packed_and_read(made.trace, report, {.max_spans = 0});
  EXPECT_EQ(read.json["span_count"], 0);
  EXPECT_EQ(read.json["spans_left_out"], 1);
  EXPECT_TRUE(read.json["lanes"].empty());
  expect_all(made.trace, report, read);
}

TEST(PageData, TakesOneTaskWithoutAName) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 5, .end_ns = 7}}, 1);
  trace.tasks.kernel[0] = kNoIndex;
  const StepReport report = drawn_report(trace, {.begin_ns = 5, .end_ns = 7});
  const ReadStep read = packed_and_read(trace, report);
  expect_all(trace, report, read);
  EXPECT_EQ(read.json["kernels"], nlohmann::json({"(no name)"}));
  EXPECT_EQ(read.json["kernel_run_ns"], nlohmann::json({2}));
  EXPECT_EQ(read.json["kernel_task_count"], nlohmann::json({1}));
  EXPECT_EQ(read.json["edge_count"], 0);
  EXPECT_EQ(read.json["bubble_count"], 0);
}

TEST(PageData, TakesAStepInWhichNothingRan) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 500, .end_ns = 700}}, 2);
  const StepReport report = drawn_report(trace, {.begin_ns = 0, .end_ns = 100});
  const ReadStep read = packed_and_read(trace, report);
  EXPECT_TRUE(read.tasks.empty());
  EXPECT_TRUE(read.json["kernels"].empty());
  expect_bubbles_and_path(report, read);
  const std::vector<uint64_t>& busy = read.levels[0].busy;
  EXPECT_EQ(std::count(busy.begin(), busy.end(), 0u), std::ptrdiff_t{2 * 2048});
}

TEST(PageData, OrdersKernelsByTheirRunTime) {
  std::vector<HandTask> list;
  int64_t now_ns = 0;
  for (int kernel = 0; kernel < 300; ++kernel) {
    const int64_t length_ns = 1 + kernel * 7 % 300;
    list.push_back({.core = 0, .start_ns = now_ns, .end_ns = now_ns + length_ns});
    list.back().kernel = "kernel " + std::to_string(kernel);
    now_ns += length_ns;
  }
  const Trace trace = hand_trace(list, 1);
  const StepReport report = drawn_report(trace, {.begin_ns = 0, .end_ns = now_ns});
  const ReadStep read = packed_and_read(trace, report);
  expect_all(trace, report, read);
  const std::vector<int64_t> run_ns = read.json["kernel_run_ns"];
  ASSERT_EQ(run_ns.size(), 300u);
  EXPECT_TRUE(std::is_sorted(run_ns.rbegin(), run_ns.rend()));
  std::vector<int64_t> sums(300, 0);
  std::vector<int64_t> counts(300, 0);
  for (const ReadTask& task : read.tasks) {
    sums[task.kernel] += task.end_ns - task.start_ns;
    ++counts[task.kernel];
  }
  EXPECT_EQ(run_ns, sums);
  EXPECT_EQ(read.json["kernel_task_count"], nlohmann::json(counts));
}

TEST(PageData, WritesOddNamesAsJson) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 9, .kernel = "a\"b\\c</script>"},
                            {.core = 1, .start_ns = 0, .end_ns = 8, .kernel = "\x01\n\x7f"},
                            {.core = 1, .start_ns = 8, .end_ns = 9, .kernel = "bad \xff utf-8"}},
                           3, {LaneKind::kSm, LaneKind::kWorker, LaneKind::kThread});
  trace.lanes[0].name = "<!-- \"lane\"\t\xc3";
  trace.lanes[1].name = "";
  trace.lanes[2].name = "</script>\xe2\x82\xac";
  trace.spans.begin_ns = {1};
  trace.spans.end_ns = {2};
  trace.spans.lane = {2};
  trace.spans.name = {trace.names.intern("span\r\xfe")};
  trace.spans.value = {kNoValue};
  const StepReport report = drawn_report(trace, {.begin_ns = 0, .end_ns = 9});
  const ReadStep read = packed_and_read(trace, report);
  EXPECT_EQ(read.json["kernels"],
            nlohmann::json({"a\"b\\c</script>", "\x01\n\x7f", "bad \xef\xbf\xbd utf-8"}));
  EXPECT_EQ(read.json["cores"][0]["name"], "<!-- \"lane\"\t\xef\xbf\xbd");
  EXPECT_EQ(read.json["cores"][1]["name"], "");
  EXPECT_EQ(read.json["lanes"][0]["name"], "</script>\xe2\x82\xac");
  EXPECT_EQ(read.json["span_names"], nlohmann::json({"span\r\xef\xbf\xbd"}));
}

TEST(PageData, NamesTheStepOfSeveral) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 9}}, 1);
  StepReport report = drawn_report(trace, {.begin_ns = 0, .end_ns = 9});
  report.step_count = 5;
  report.step = 3;
  EXPECT_EQ(packed_and_read(trace, report).json["title"], "hand.gapless, step 3");
}

}  // namespace
}  // namespace gapless
