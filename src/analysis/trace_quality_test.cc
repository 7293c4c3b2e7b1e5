// SPDX-License-Identifier: Apache-2.0

#include "analysis/trace_quality.h"

#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/bubbles.h"
#include "analysis/clock_order.h"
#include "analysis/made_execution.h"
#include "analysis/step_tasks.h"
#include "analysis/whatif_test_support.h"
#include "trace/trace.h"

namespace gapless {
namespace {

TraceQuality quality_of(const Trace& trace, TimeRange window, std::vector<TimeRange> steps = {}) {
  const StepTasks tasks = make_step_tasks(trace, window);
  const BubblePartition bubbles = partition_bubbles(tasks);
  if (steps.empty()) steps.push_back(window);
  return check_quality(
      {.trace = &trace, .tasks = &tasks, .bubbles = &bubbles, .steps = std::move(steps)});
}

std::vector<QualityFinding> findings_of(const TraceQuality& quality, QualityCheck check) {
  std::vector<QualityFinding> found;
  for (const QualityFinding& finding : quality.findings) {
    if (finding.check == check) found.push_back(finding);
  }
  return found;
}

// The one finding of a check.
QualityFinding only(const TraceQuality& quality, QualityCheck check) {
  const std::vector<QualityFinding> found = findings_of(quality, check);
  EXPECT_EQ(found.size(), 1u) << quality_check_name(check);
  return found.empty() ? QualityFinding{} : found.front();
}

// The texts of a check, a line each: "note: the sentence".
std::string lines(const TraceQuality& quality, QualityCheck check) {
  std::string text;
  for (const QualityFinding& finding : findings_of(quality, check)) {
    text += std::string(quality_level_name(finding.level)) + ": " + finding.text + "\n";
  }
  return text;
}

// A task with all seven times a nanosecond apart around its run.
void set_times(Trace& trace, size_t row, int64_t start_ns, int64_t end_ns) {
  const std::array<int64_t, kTaskTimeCount> times = {
      start_ns - 4, start_ns - 3, start_ns - 2, start_ns - 1, start_ns, end_ns, end_ns + 1};
  for (size_t time = 0; time < times.size(); ++time) {
    trace.tasks.time_ns[time][row] = times[time];
  }
}

// `count` tasks of 80 ns on one core, one every 100 ns, each waiting for the one before.
Trace clean_trace(uint32_t count) {
  std::vector<HandTask> list(count);
  for (uint32_t row = 1; row < count; ++row) list[row].producers = {row - 1};
  Trace trace = hand_trace(list, 1);
  for (uint32_t row = 0; row < count; ++row) {
    set_times(trace, row, row * int64_t{100} + 10, row * int64_t{100} + 90);
  }
  trace.properties.push_back({"recorder.ns_per_event", "0.01"});
  return trace;
}

TimeRange window_of(uint32_t count) { return {0, int64_t{count} * 100}; }

void move_time(Trace& trace, TaskTime time, size_t row, int64_t by_ns) {
  trace.tasks.time_ns[static_cast<size_t>(time)][row] += by_ns;
}

void set_time(Trace& trace, TaskTime time, size_t row, int64_t time_ns) {
  trace.tasks.time_ns[static_cast<size_t>(time)][row] = time_ns;
}

TEST(TraceQuality, ACleanTraceIsFineInEveryCheck) {
  const TraceQuality quality = quality_of(clean_trace(300), window_of(300));
  ASSERT_EQ(quality.findings.size(), static_cast<size_t>(kQualityCheckCount));
  for (size_t check = 0; check < quality.findings.size(); ++check) {
    EXPECT_EQ(quality.findings[check].check, static_cast<QualityCheck>(check));
    EXPECT_EQ(quality.findings[check].level, QualityLevel::kFine) << quality.findings[check].text;
    EXPECT_TRUE(std::islower(quality.findings[check].text.front()) != 0 ||
                std::isdigit(quality.findings[check].text.front()) != 0);
  }
  EXPECT_FALSE(quality.withholds_verdict);
  EXPECT_EQ(quality.dominant_gap_ns, 0);
  EXPECT_EQ(quality.reason(), "");
  EXPECT_EQ(only(quality, QualityCheck::kClock).text, "all times of 300 tasks are in order");
  EXPECT_EQ(only(quality, QualityCheck::kEdges).text, "299 edges join 300 tasks");
}

TEST(TraceQuality, AMadeExecutionIsFine) {
  MadeOptions options;
  options.level_count = 200;
  options.overheads.completion = {1'000, 2'000};
  options.overheads.dispatch = {500, 900};
  options.overheads.propagation = {200, 900};
  options.overheads.setup = {100, 300};
  const MadeExecution made = make_execution(options);
  const TraceQuality quality = quality_of(made.trace, made.window);
  EXPECT_FALSE(quality.withholds_verdict) << quality.reason();
  EXPECT_EQ(only(quality, QualityCheck::kClock).level, QualityLevel::kFine);
  EXPECT_EQ(only(quality, QualityCheck::kMissingTimes).level, QualityLevel::kFine);
}

TEST(TraceQuality, OneTimeBackwardsInManyTasksIsANote) {
  Trace trace = clean_trace(300);
  trace.tasks.id[7] = 4711;
  move_time(trace, TaskTime::kDispatch, 7, 5'000);
  const TraceQuality quality = quality_of(trace, window_of(300));
  EXPECT_EQ(lines(quality, QualityCheck::kClock),
            "note: 1 of 300 tasks (0.33 %) have times that run backwards (dispatch after receive "
            "in 1, dispatch after start in 1, dispatch after end in 1, dispatch after finish in "
            "1); the worst is task 4711, by 4.999 us\n");
  EXPECT_FALSE(quality.withholds_verdict);
}

TEST(TraceQuality, TimesBackwardsInMoreThanOnePercentWithholdTheVerdict) {
  Trace trace = clean_trace(300);
  for (size_t row = 10; row < 13; ++row) set_time(trace, TaskTime::kFinish, row, 0);
  EXPECT_FALSE(quality_of(trace, window_of(300)).withholds_verdict);
  set_time(trace, TaskTime::kFinish, 13, 0);
  const TraceQuality quality = quality_of(trace, window_of(300));
  EXPECT_TRUE(quality.withholds_verdict);
  EXPECT_EQ(quality.reason(),
            "4 of 300 tasks (1.3 %) have times that run backwards (end after finish in 4); the "
            "worst is task 13, by 1.390 us");
}

TEST(TraceQuality, TheMostFrequentDisorderComesFirst) {
  Trace trace = clean_trace(300);
  move_time(trace, TaskTime::kSubmit, 5, 2);  // after ready; before dispatch
  set_time(trace, TaskTime::kFinish, 6, 0);
  set_time(trace, TaskTime::kFinish, 7, 0);
  const StepTasks tasks = make_step_tasks(trace, window_of(300));
  const ClockOrder order = check_clock_order(trace, tasks);
  EXPECT_EQ(order.wrong_count, 3u);
  ASSERT_EQ(order.disorders.size(), 2u);
  EXPECT_EQ(order.disorders[0].later, TaskTime::kFinish);
  EXPECT_EQ(order.disorders[0].task_count, 2u);
  EXPECT_EQ(order.disorders[1].earlier, TaskTime::kSubmit);
  EXPECT_EQ(order.disorders[1].later, TaskTime::kReady);
  EXPECT_EQ(order.worst_row, 7u);
  EXPECT_EQ(order.worst_ns, 790u);
}

TEST(TraceQuality, AnEndBeforeTheStartIsSeenAlthoughTheStepMendsIt) {
  Trace trace = clean_trace(50);
  set_time(trace, TaskTime::kEnd, 20, 1'990);
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_TRUE(only(quality, QualityCheck::kClock).text.find("start after end in 1") !=
              std::string::npos);
  EXPECT_TRUE(quality.withholds_verdict);
}

TEST(TraceQuality, AbsentTimesAreNotOutOfOrder) {
  Trace trace = clean_trace(50);
  for (size_t row = 0; row < 50; ++row) {
    set_time(trace, TaskTime::kSubmit, row, kAbsent);
    set_time(trace, TaskTime::kReceive, row, kAbsent);
  }
  EXPECT_EQ(only(quality_of(trace, window_of(50)), QualityCheck::kClock).level,
            QualityLevel::kFine);
}

TEST(TraceQuality, DispatchBeforeReadyIsAHandoverAndNotAClock) {
  Trace trace = clean_trace(50);
  for (size_t row = 1; row < 50; ++row) move_time(trace, TaskTime::kReady, row, 2);
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(lines(quality, QualityCheck::kClock),
            "note: 49 of 50 tasks were dispatched before they were ready: handed over early, or "
            "the clocks differ\n");
  EXPECT_FALSE(quality.withholds_verdict);
  // Ready after the start is no handover.
  for (size_t row = 1; row < 50; ++row) move_time(trace, TaskTime::kReady, row, 10);
  EXPECT_TRUE(quality_of(trace, window_of(50)).withholds_verdict);
}

TEST(TraceQuality, ClockTroubleOfTheReaderIsANote) {
  Trace trace = clean_trace(50);
  trace.findings.push_back({Severity::kWarning, "clock-wrap", "the clock started again", 0, 1});
  EXPECT_EQ(lines(quality_of(trace, window_of(50)), QualityCheck::kClock),
            "note: reading the trace found trouble with its clock (clock-wrap)\n");
}

TEST(TraceQuality, SpansThatAreNotExecutionWithholdTheVerdict) {
  Trace trace = clean_trace(50);
  trace.lanes[0].meaning = SpanMeaning::kDispatchToFinish;
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(only(quality, QualityCheck::kOverlap).text,
            "a span on 1 of 1 core lanes is dispatch to observed completion, not execution: the "
            "4.000 us of their 50 tasks are no busy time");
  EXPECT_TRUE(quality.withholds_verdict);
  EXPECT_EQ(quality.reason(), only(quality, QualityCheck::kOverlap).text);
}

TEST(TraceQuality, OneDropOnACoreWithholdsTheVerdict) {
  Trace trace = clean_trace(300);
  trace.properties.push_back({"recorder.events", "999999"});
  trace.lanes[0].dropped_count = 1;
  const TraceQuality quality = quality_of(trace, window_of(300));
  EXPECT_EQ(lines(quality, QualityCheck::kDrops),
            "withholds: 1 of 1000000 events (<0.0001 %) were dropped, 1 of them on cores; core 0 "
            "lost most, 1\n");
  EXPECT_TRUE(quality.withholds_verdict);
}

TEST(TraceQuality, FewDropsElsewhereAreANoteAndManyWithhold) {
  Trace trace = clean_trace(300);
  trace.lanes.push_back({.name = "logger", .kind = LaneKind::kThread, .dropped_count = 2});
  // 300 tasks have seven times each, and there are 299 edges.
  EXPECT_EQ(lines(quality_of(trace, window_of(300)), QualityCheck::kDrops),
            "note: 2 of 2401 events (0.083 %) were dropped, 0 of them on cores; logger lost most, "
            "2\n");
  trace.lanes[1].dropped_count = 3;
  EXPECT_TRUE(quality_of(trace, window_of(300)).withholds_verdict);
}

TEST(TraceQuality, DropsOfUnknownLanesCountOnce) {
  Trace trace = clean_trace(300);
  trace.lanes.push_back({.name = "logger", .kind = LaneKind::kThread, .dropped_count = 1});
  trace.findings.push_back({Severity::kWarning, "dropped", "lane logger", kNoIndex, 1});
  trace.findings.push_back({Severity::kWarning, "dropped", "lane number 9", kNoIndex, 1});
  EXPECT_EQ(only(quality_of(trace, window_of(300)), QualityCheck::kDrops).text,
            "2 of 2401 events (0.083 %) were dropped, 0 of them on cores; logger lost most, 1");
}

TEST(TraceQuality, HolesInTheFileWithholdAndAMissingEndIsANote) {
  Trace trace = clean_trace(50);
  trace.findings.push_back({Severity::kWarning, "not-closed", "killed", kNoIndex, 1});
  TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(lines(quality, QualityCheck::kDrops),
            "note: the trace is not whole (not-closed): steps at its end may lack tasks\n");
  EXPECT_FALSE(quality.withholds_verdict);
  trace.findings.push_back({Severity::kError, "damaged-chunk", "at byte 7", kNoIndex, 1});
  quality = quality_of(trace, window_of(50));
  EXPECT_EQ(quality.reason(), "the file has holes (damaged-chunk): what ran in them looks idle");
}

TEST(TraceQuality, TasksWithoutAnEndAreCountedAndManyWithhold) {
  Trace trace = clean_trace(300);
  set_time(trace, TaskTime::kEnd, 299, kAbsent);
  TraceQuality quality = quality_of(trace, window_of(300));
  EXPECT_EQ(lines(quality, QualityCheck::kUnfinished),
            "note: 1 of 300 tasks have no end, and 0 an end but no start: where they ran, their "
            "cores look idle\n");
  EXPECT_FALSE(quality.withholds_verdict);
  for (size_t row = 0; row < 3; ++row) set_time(trace, TaskTime::kStart, row, kAbsent);
  quality = quality_of(trace, window_of(300));
  EXPECT_EQ(lines(quality, QualityCheck::kUnfinished),
            "withholds: 1 of 300 tasks have no end, and 3 an end but no start: where they ran, "
            "their cores look idle\n");
}

TEST(TraceQuality, JoinsAreNotUnfinished) {
  Trace trace = clean_trace(50);
  set_time(trace, TaskTime::kStart, 20, kAbsent);
  set_time(trace, TaskTime::kEnd, 20, kAbsent);
  EXPECT_EQ(only(quality_of(trace, window_of(50)), QualityCheck::kUnfinished).level,
            QualityLevel::kFine);
}

TEST(TraceQuality, MissingTimesSayWhatIsNotToldApart) {
  Trace trace = clean_trace(50);
  for (size_t row = 0; row < 50; ++row) set_time(trace, TaskTime::kReceive, row, kAbsent);
  set_time(trace, TaskTime::kSubmit, 3, kAbsent);
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(lines(quality, QualityCheck::kMissingTimes),
            "note: of the seven times of 50 tasks some are missing: submit in 1, receive in 50\n"
            "note: 1 of 50 tasks do not have a submit time: waiting for the orchestrator is shown "
            "as completion or scheduler\n"
            "note: no task has a receive time: setup is shown as propagation\n");
  EXPECT_FALSE(quality.withholds_verdict);
}

TEST(TraceQuality, AGapOfAllCoresThatDominatesWithholdsTheVerdict) {
  // Two cores, 100 ns steps; then nothing at all for 10 us.
  const std::vector<HandTask> list = {{.core = 0, .start_ns = 0, .end_ns = 900},
                                      {.core = 1, .start_ns = 0, .end_ns = 1'000},
                                      {.core = 0, .start_ns = 11'000, .end_ns = 12'000},
                                      {.core = 1, .start_ns = 11'100, .end_ns = 12'000}};
  const TraceQuality quality = quality_of(hand_trace(list, 2), {0, 12'000});
  EXPECT_EQ(quality.dominant_gap_ns, 10'000);
  EXPECT_EQ(lines(quality, QualityCheck::kDominantGap),
            "withholds: no core ran anything for 10.000 us, from 1.000 us after the step's begin: "
            "99.0 % of the idle time is this one gap, and cores idle 84.2 % of the time with it, "
            "5.0 % without it\n");
  EXPECT_TRUE(quality.withholds_verdict);
}

TEST(TraceQuality, AGapInAStepThatIsBusyIsANote) {
  const std::vector<HandTask> list = {{.core = 0, .start_ns = 0, .end_ns = 990},
                                      {.core = 0, .start_ns = 1'000, .end_ns = 2'000}};
  const TraceQuality quality = quality_of(hand_trace(list, 1), {0, 2'000});
  EXPECT_EQ(quality.dominant_gap_ns, 10);
  EXPECT_EQ(only(quality, QualityCheck::kDominantGap).level, QualityLevel::kNote);
  EXPECT_FALSE(quality.withholds_verdict);
}

TEST(TraceQuality, ACoreThatHasNothingToDoIsNoArtefact) {
  // Core 1 idles all the time, in bubbles of several causes that touch.
  const std::vector<HandTask> list = {
      {.core = 0, .start_ns = 0, .end_ns = 400},
      {.core = 0, .start_ns = 450, .end_ns = 1'000, .producers = {0}}};
  const TraceQuality quality = quality_of(hand_trace(list, 2), {0, 1'000});
  EXPECT_EQ(
      lines(quality, QualityCheck::kDominantGap),
      "note: core 1 idles for 1.000 us at a stretch, 95.2 % of the idle time of all 2 cores\n");
  EXPECT_EQ(quality.dominant_gap_ns, 0);
  EXPECT_FALSE(quality.withholds_verdict);
}

TEST(TraceQuality, ManyGapsDoNotDominate) {
  const TraceQuality quality = quality_of(clean_trace(50), window_of(50));
  EXPECT_EQ(only(quality, QualityCheck::kDominantGap).text,
            "no gap dominates: the longest of one core is 20 ns, 2.0 % of the idle time");
}

TEST(TraceQuality, NoIdleTimeHasNoGap) {
  const TraceQuality quality =
      quality_of(hand_trace({{.start_ns = 0, .end_ns = 100}}, 1), {0, 100});
  EXPECT_EQ(only(quality, QualityCheck::kDominantGap).text, "no core is idle");
}

TEST(TraceQuality, AStepWithOtherTasksThanTheOthersIsANote) {
  const Trace trace = clean_trace(50);
  // Ten tasks a step, then one of twelve; the rest belongs to none.
  const std::vector<TimeRange> steps = {{0, 1'000}, {1'000, 2'000}, {2'000, 3'000}, {3'000, 4'200}};
  EXPECT_EQ(lines(quality_of(trace, steps[0], steps), QualityCheck::kStepCounts),
            "note: 1 of 4 steps differ by more than 10 % from the median of 10 tasks; step 3 most, "
            "it has 12\n");
}

TEST(TraceQuality, StepsWithinTenPercentAreFine) {
  const Trace trace = clean_trace(50);
  const std::vector<TimeRange> steps = {{0, 1'000}, {1'000, 2'000}, {2'000, 3'100}};
  EXPECT_EQ(lines(quality_of(trace, steps[0], steps), QualityCheck::kStepCounts),
            "fine: each of 3 steps has about 10 tasks\n");
}

TEST(TraceQuality, StepsMayOverlap) {
  const Trace trace = clean_trace(50);
  const std::vector<TimeRange> steps = {{0, 2'000}, {1'000, 3'000}, {1'500, 2'000}};
  EXPECT_EQ(lines(quality_of(trace, steps[0], steps), QualityCheck::kStepCounts),
            "note: 1 of 3 steps differ by more than 10 % from the median of 20 tasks; step 2 most, "
            "it has 5\n");
}

TEST(TraceQuality, RecordingCostsWhatItsEventsCost) {
  Trace trace = clean_trace(50);
  trace.properties[0].value = "0.5";
  // Six events a task on a worker's lane: 150 ns beside 4,000 ns of run time.
  TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(lines(quality, QualityCheck::kObserver),
            "note: recording 300 events on the cores at 0.5 ns each took about 150 ns, 3.8 % of "
            "the busy time\n");
  ASSERT_TRUE(quality.observer_share.has_value());
  EXPECT_DOUBLE_EQ(*quality.observer_share, 0.0375);
  EXPECT_FALSE(quality.withholds_verdict);
  trace.properties[0].value = "5";
  quality = quality_of(trace, window_of(50));
  EXPECT_EQ(only(quality, QualityCheck::kObserver).level, QualityLevel::kWithholds);
}

TEST(TraceQuality, EventsOfTheCoreLanesInTheStepCount) {
  Trace trace = clean_trace(50);
  trace.lanes[0].kind = LaneKind::kCubeCore;  // records receive, start and end
  trace.lanes.push_back({.name = "host", .kind = LaneKind::kThread});
  trace.instants.time_ns = {-5, -5, 100, 100, 5'000, 5'000};
  trace.instants.lane = {0, 1, 0, 1, 0, 1};
  trace.spans.begin_ns = {100, 200};
  trace.spans.lane = {0, 1};
  trace.counters.time_ns = {300};
  trace.counters.lane = {0};
  EXPECT_EQ(
      only(quality_of(trace, window_of(50)), QualityCheck::kObserver).text,
      "recording 155 events on the cores at 0.01 ns each took about 1 ns, 0.039 % of the busy "
      "time");
}

TEST(TraceQuality, OfASimulatedTraceTheObserverTakesNothing) {
  Trace trace = clean_trace(50);
  trace.properties.push_back({"simulated", "yes"});
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(only(quality, QualityCheck::kObserver).level, QualityLevel::kFine);
}

TEST(TraceQuality, WithoutACostTheObserverIsNotKnown) {
  Trace trace = clean_trace(50);
  trace.properties[0].value = "much";
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(only(quality, QualityCheck::kObserver).level, QualityLevel::kNote);
  EXPECT_FALSE(quality.observer_share.has_value());
}

TEST(TraceQuality, NoEdgesCannotBeReplayed) {
  Trace trace = clean_trace(50);
  trace.edges = {};
  EXPECT_EQ(lines(quality_of(trace, window_of(50)), QualityCheck::kEdges),
            "note: the 50 tasks have no edges: who waited for whom is not known, and nothing can "
            "be replayed\n");
}

TEST(TraceQuality, ManyTasksWithoutAProducerAreANote) {
  Trace trace = clean_trace(51);
  const auto keep = [&trace](size_t count) {
    trace.edges.producer.resize(count);
    trace.edges.consumer.resize(count);
    trace.edges.kind.resize(count);
  };
  keep(45);  // 5 of 50 are without
  EXPECT_EQ(only(quality_of(trace, window_of(51)), QualityCheck::kEdges).level,
            QualityLevel::kFine);
  keep(44);
  EXPECT_EQ(lines(quality_of(trace, window_of(51)), QualityCheck::kEdges),
            "note: 6 of 50 tasks after the first (12.0 %) have no producer: edges may be missing, "
            "and a replay would start these too early\n");
}

TEST(TraceQuality, TasksThatStartBeforeAnyEndNeedNoProducer) {
  std::vector<HandTask> list;
  for (uint32_t core = 0; core < 8; ++core) {
    list.push_back({.core = core, .start_ns = core, .end_ns = 100});
  }
  list.push_back({.core = 0, .start_ns = 100, .end_ns = 200, .producers = {0}});
  EXPECT_EQ(only(quality_of(hand_trace(list, 8), {0, 200}), QualityCheck::kEdges).level,
            QualityLevel::kFine);
}

TEST(TraceQuality, EdgesThatWereLeftOutAreNotes) {
  Trace trace = clean_trace(50);
  trace.edges.producer.push_back(30);
  trace.edges.consumer.push_back(20);
  trace.edges.kind.push_back(0);
  trace.findings.push_back({Severity::kWarning, "edge-without-task", "", kNoIndex, 3});
  EXPECT_EQ(lines(quality_of(trace, {1'000, 5'000}), QualityCheck::kEdges),
            "note: left out: 1 edge whose producer starts after the consumer\n"
            "note: left out: 1 edge from tasks that ran outside the step\n"
            "note: left out: 3 edges that name a task without an event\n");
}

TEST(TraceQuality, AStepWithoutTasksHasFindingsToo) {
  const TraceQuality quality = quality_of(hand_trace({}, 2), {0, 100});
  EXPECT_GE(quality.findings.size(), static_cast<size_t>(kQualityCheckCount));
  EXPECT_EQ(quality.dominant_gap_ns, 100);
}

TEST(TraceQuality, ReasonsAreJoined) {
  Trace trace = clean_trace(50);
  trace.lanes[0].meaning = SpanMeaning::kDispatchToFinish;
  trace.findings.push_back({Severity::kError, "records-missing", "", kNoIndex, 1});
  const TraceQuality quality = quality_of(trace, window_of(50));
  EXPECT_EQ(quality.reason(), only(quality, QualityCheck::kOverlap).text + "; " +
                                  only(quality, QualityCheck::kDrops).text);
}

TEST(TraceQuality, ChecksHaveDifferentNames) {
  for (int a = 0; a < kQualityCheckCount; ++a) {
    for (int b = 0; b < a; ++b) {
      EXPECT_NE(quality_check_name(static_cast<QualityCheck>(a)),
                quality_check_name(static_cast<QualityCheck>(b)));
    }
  }
}

TEST(TraceQuality, ConsumersThatDidNotWaitWithholdTheVerdict) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10},
                                  {.core = 1, .start_ns = 6, .end_ns = 20, .producers = {0}},
                                  {.core = 0, .start_ns = 20, .end_ns = 30, .producers = {1}}},
                                 2);
  const StepTasks tasks = make_step_tasks(trace, {.begin_ns = 0, .end_ns = 30});
  const BubblePartition bubbles = partition_bubbles(tasks);
  const TraceQuality quality = check_quality(
      {.trace = &trace, .tasks = &tasks, .bubbles = &bubbles, .steps = {tasks.window()}});
  EXPECT_TRUE(quality.withholds_verdict);
  EXPECT_EQ(quality.reason(),
            "over 1 of 2 edges (50.0 %) the consumer starts before its producer ends: it did not "
            "wait, or the clocks of the lanes differ");
}

TEST(TraceQuality, MostTasksWithoutAProducerWithholdTheVerdict) {
  std::vector<HandTask> list;
  for (uint32_t i = 0; i < 20; ++i)
    list.push_back({.core = 0, .start_ns = 10 * int64_t{i}, .end_ns = 10 * int64_t{i} + 10});
  list[1].producers = {0};
  const Trace trace = hand_trace(list, 1);
  const StepTasks tasks = make_step_tasks(trace, {.begin_ns = 0, .end_ns = 200});
  const BubblePartition bubbles = partition_bubbles(tasks);
  const TraceQuality quality = check_quality(
      {.trace = &trace, .tasks = &tasks, .bubbles = &bubbles, .steps = {tasks.window()}});
  EXPECT_TRUE(quality.withholds_verdict);
  EXPECT_EQ(quality.reason(),
            "18 of 19 tasks after the first (94.7 %) have no producer: edges may be missing, and a "
            "replay would start these too early");
}

}  // namespace
}  // namespace gapless
