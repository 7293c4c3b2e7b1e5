// SPDX-License-Identifier: Apache-2.0

#include "trace/trace_builder.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// A builder with one device and two lanes, "a" (0) and "b" (1).
struct TwoLanes {
  TraceBuilder builder{"test"};
  uint32_t x = builder.intern("x");
  uint32_t y = builder.intern("y");
  uint32_t z = builder.intern("z");
  uint32_t a = 0;
  uint32_t b = 1;

  TwoLanes() {
    builder.add_device({.name = "device"});
    builder.add_lane({.name = "a"});
    builder.add_lane({.name = "b"});
  }
};

const Finding* find_code(const Trace& trace, std::string_view code, uint32_t lane = kNoIndex) {
  const auto found = std::find_if(
      trace.findings.begin(), trace.findings.end(),
      [&](const Finding& finding) { return finding.code == code && finding.lane == lane; });
  return found == trace.findings.end() ? nullptr : &*found;
}

struct Row {
  int64_t begin_ns;
  int64_t end_ns;
  uint32_t lane;
  uint32_t name;
  bool operator==(const Row&) const = default;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << "[" << row.begin_ns << ", " << row.end_ns << ") lane " << row.lane << " name "
       << row.name;
}

std::vector<Row> rows(const Trace& trace) {
  std::vector<Row> all;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    all.push_back(
        {trace.spans.begin_ns[i], trace.spans.end_ns[i], trace.spans.lane[i], trace.spans.name[i]});
  }
  return all;
}

TEST(TraceBuilder, PairsEndsWithTheInnermostBeginOfTheirLane) {
  TwoLanes t;
  t.builder.begin(t.a, 10, t.x, 7);
  t.builder.begin(t.b, 12, t.z);
  t.builder.begin(t.a, 20, t.y);
  EXPECT_TRUE(t.builder.is_open(t.a));
  EXPECT_EQ(t.builder.open_span(t.a), 2u);
  t.builder.end(t.a, 30);
  t.builder.begin(t.a, 30, t.z);
  t.builder.end(t.a, 35);
  t.builder.end(t.b, 36);
  t.builder.end(t.a, 40);
  EXPECT_FALSE(t.builder.is_open(t.a));
  EXPECT_EQ(t.builder.open_span(t.a), kNoIndex);
  EXPECT_EQ(t.builder.open_span(99), kNoIndex) << "a lane that has no event";
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace),
            (std::vector<Row>{
                {10, 40, t.a, t.x}, {12, 36, t.b, t.z}, {20, 30, t.a, t.y}, {30, 35, t.a, t.z}}));
  EXPECT_EQ(trace.spans.value, (std::vector<uint32_t>{7, kNoValue, kNoValue, kNoValue}));
  EXPECT_TRUE(trace.findings.empty());
  EXPECT_TRUE(trace.spans.category.empty());
  EXPECT_TRUE(trace.spans.args.empty());
}

TEST(TraceBuilder, SwitchesEndTheSwitchSpanBefore) {
  TwoLanes t;
  t.builder.switch_off(t.a, 5);  // nothing to end is fine
  t.builder.switch_to(t.a, 10, t.x, 1);
  t.builder.switch_to(t.a, 20, t.y, 2);
  t.builder.switch_off(t.a, 30);
  t.builder.switch_to(t.a, 40, t.z, 3);
  t.builder.switch_off(t.a, 50);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace),
            (std::vector<Row>{{10, 20, t.a, t.x}, {20, 30, t.a, t.y}, {40, 50, t.a, t.z}}));
  EXPECT_EQ(trace.spans.value, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(trace.findings.empty());
}

TEST(TraceBuilder, ASwitchInsideASpanLeavesTheSpanOpen) {
  TwoLanes t;
  t.builder.begin(t.a, 0, t.x);
  t.builder.switch_to(t.a, 10, t.y);
  t.builder.switch_to(t.a, 20, t.z);
  t.builder.switch_off(t.a, 30);
  t.builder.end(t.a, 40);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace),
            (std::vector<Row>{{0, 40, t.a, t.x}, {10, 20, t.a, t.y}, {20, 30, t.a, t.z}}));
  EXPECT_TRUE(trace.findings.empty());
}

TEST(TraceBuilder, ASwitchCutsSpansNestedInTheOneBefore) {
  TwoLanes t;
  t.builder.switch_to(t.a, 10, t.x);
  t.builder.begin(t.a, 12, t.y);
  t.builder.begin(t.a, 14, t.y);
  t.builder.switch_to(t.a, 20, t.z);
  t.builder.end(t.a, 25);  // of a span that was cut
  t.builder.switch_off(t.a, 30);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace),
            (std::vector<Row>{
                {10, 20, t.a, t.x}, {12, 20, t.a, t.y}, {14, 20, t.a, t.y}, {20, 30, t.a, t.z}}));
  ASSERT_NE(find_code(trace, "switch-cuts-span", t.a), nullptr);
  EXPECT_EQ(find_code(trace, "switch-cuts-span", t.a)->count, 2u);
  ASSERT_NE(find_code(trace, "end-without-begin", t.a), nullptr)
      << "an end must not close the switch span";
}

TEST(TraceBuilder, EndsWithoutABeginAreCountedByLane) {
  TwoLanes t;
  t.builder.end(t.a, 10);
  t.builder.end(t.a, 11);
  t.builder.end(t.b, 12);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.spans.size(), 0u);
  ASSERT_EQ(trace.findings.size(), 2u);
  EXPECT_EQ(trace.findings[0].count, 2u);
  EXPECT_EQ(trace.findings[0].lane, t.a);
  EXPECT_EQ(
      trace.findings[0].text,
      "lane a: 2 span ends have no begin (it was dropped, or the spans do not nest); ignored");
  EXPECT_EQ(trace.findings[1].count, 1u);
  EXPECT_EQ(trace.findings[1].lane, t.b);
}

TEST(TraceBuilder, SpansThatBeginTogetherStayAsRecorded) {
  TwoLanes t;
  t.builder.switch_to(t.a, 10, t.x);
  t.builder.switch_to(t.a, 10, t.y);
  t.builder.switch_off(t.a, 20);
  EXPECT_EQ(rows(t.builder.finish()), (std::vector<Row>{{10, 10, t.a, t.x}, {10, 20, t.a, t.y}}));
}

TEST(TraceBuilder, OfSpansInAnyOrderTheLongerComesFirst) {
  TwoLanes t;
  t.builder.add_span(t.a, 10, 15, t.x);
  t.builder.add_span(t.a, 10, 20, t.y);
  EXPECT_EQ(rows(t.builder.finish()), (std::vector<Row>{{10, 20, t.a, t.y}, {10, 15, t.a, t.x}}));
}

TEST(TraceBuilder, TimeThatGoesBackIsMovedAndCounted) {
  TwoLanes t;
  t.builder.begin(t.a, 100, t.x);
  t.builder.begin(t.a, 90, t.y);
  t.builder.end(t.a, 95);
  t.builder.end(t.a, 120);
  t.builder.switch_to(t.b, 50, t.x);
  t.builder.switch_to(t.b, 40, t.y);
  t.builder.switch_off(t.b, 60);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(
      rows(trace),
      (std::vector<Row>{
          {50, 50, t.b, t.x}, {50, 60, t.b, t.y}, {100, 120, t.a, t.x}, {100, 100, t.a, t.y}}));
  ASSERT_NE(find_code(trace, "time-goes-back", t.a), nullptr);
  EXPECT_EQ(find_code(trace, "time-goes-back", t.a)->count, 2u);
  EXPECT_EQ(find_code(trace, "time-goes-back", t.b)->count, 1u);
}

TEST(TraceBuilder, OpenSpansEndWithTheTrace) {
  TwoLanes t;
  t.builder.begin(t.a, 10, t.x);
  t.builder.begin(t.a, 20, t.y);
  t.builder.switch_to(t.b, 30, t.z);
  t.builder.instant(t.b, 500, t.x);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace),
            (std::vector<Row>{{10, 500, t.a, t.x}, {20, 500, t.a, t.y}, {30, 500, t.b, t.z}}));
  ASSERT_NE(find_code(trace, "open-spans", t.a), nullptr);
  EXPECT_EQ(find_code(trace, "open-spans", t.a)->count, 2u);
  EXPECT_EQ(find_code(trace, "open-spans", t.b)->count, 1u);
}

TEST(TraceBuilder, OpenSpansReachTheLastTaskTimeToo) {
  TwoLanes t;
  t.builder.begin(t.a, 10, t.x);
  t.builder.task_time(1, TaskTime::kFinish, 900, kNoIndex, kNoIndex);
  EXPECT_EQ(rows(t.builder.finish()), (std::vector<Row>{{10, 900, t.a, t.x}}));
}

TEST(TraceBuilder, SpansInAnyOrderAreSortedLongerFirst) {
  TwoLanes t;
  t.builder.add_span(t.a, 50, 60, t.x);
  t.builder.add_span(t.a, 10, 20, t.y);
  t.builder.add_span(t.b, 10, 40, t.z);
  t.builder.add_span(t.a, 10, 20, t.z);  // equal to the second: stays behind it
  t.builder.add_span(t.a, 10, 10, t.x);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace), (std::vector<Row>{{10, 40, t.b, t.z},
                                           {10, 20, t.a, t.y},
                                           {10, 20, t.a, t.z},
                                           {10, 10, t.a, t.x},
                                           {50, 60, t.a, t.x}}));
}

TEST(TraceBuilder, RecordedSpansThatBeginTogetherKeepTheirOrder) {
  TwoLanes t;
  t.builder.begin(t.a, 10, t.x);
  t.builder.end(t.a, 10);  // the clock did not tick
  t.builder.begin(t.a, 10, t.y);
  t.builder.begin(t.b, 10, t.z);
  t.builder.end(t.a, 20);
  t.builder.end(t.b, 90);
  EXPECT_EQ(rows(t.builder.finish()),
            (std::vector<Row>{{10, 10, t.a, t.x}, {10, 20, t.a, t.y}, {10, 90, t.b, t.z}}));
}

TEST(TraceBuilder, SortingMovesEveryColumnOfTheRow) {
  TwoLanes t;
  const uint32_t late = t.builder.add_span(t.a, 50, 60, t.x, 5);
  const uint32_t early = t.builder.add_span(t.b, 10, 20, t.y, 1);
  t.builder.set_category(late, t.z);
  t.builder.set_args(early, t.x);
  t.builder.flow(t.a, 55, 1, FlowPhase::kOut, late);
  t.builder.counter(t.a, 9, t.x, 2.5);
  t.builder.counter(t.b, 3, t.y, 1.5);
  t.builder.instant(t.a, 8, t.x, 4);
  t.builder.instant(t.b, 7, t.y, 6);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.spans.value, (std::vector<uint32_t>{1, 5}));
  EXPECT_EQ(trace.spans.category, (std::vector<uint32_t>{kNoIndex, t.z}));
  EXPECT_EQ(trace.spans.args, (std::vector<uint32_t>{t.x, kNoIndex}));
  EXPECT_EQ(trace.flows.span, (std::vector<uint32_t>{1})) << "the row moved, the flow follows";
  EXPECT_EQ(trace.counters.value, (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(trace.counters.lane, (std::vector<uint32_t>{t.b, t.a}));
  EXPECT_EQ(trace.instants.value, (std::vector<uint32_t>{6, 4}));
  EXPECT_EQ(trace.instants.name, (std::vector<uint32_t>{t.y, t.x}));
}

TEST(TraceBuilder, SpansThatEndBeforeTheyBeginHaveNoLength) {
  TwoLanes t;
  t.builder.add_span(t.b, 50, 40, t.x);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(rows(trace), (std::vector<Row>{{50, 50, t.b, t.x}}));
  ASSERT_NE(find_code(trace, "negative-duration", t.b), nullptr);
}

TEST(TraceBuilder, FlowsAreTiedToTheInnermostSpanAroundThem) {
  TwoLanes t;
  t.builder.add_span(t.a, 0, 100, t.x);
  t.builder.add_span(t.a, 10, 30, t.y);
  t.builder.add_span(t.a, 50, 60, t.z);
  t.builder.add_span(t.b, 0, 100, t.x);
  const std::pair<int64_t, uint32_t> expected[] = {
      {5, t.x}, {10, t.y}, {30, t.y}, {31, t.x}, {55, t.z}, {60, t.z}, {99, t.x}, {100, t.x},
  };
  for (const auto& [time_ns, name] : expected) t.builder.flow(t.a, time_ns, 1, FlowPhase::kStep);
  t.builder.flow(t.a, 101, 1, FlowPhase::kIn);
  t.builder.flow(t.a, -1, 1, FlowPhase::kOut);
  const Trace trace = t.builder.finish();
  ASSERT_EQ(trace.flows.size(), 10u);
  EXPECT_EQ(trace.flows.span.front(), kNoIndex) << "before all spans";
  EXPECT_EQ(trace.flows.span.back(), kNoIndex) << "after all spans";
  for (size_t i = 0; i < std::size(expected); ++i) {
    const uint32_t span = trace.flows.span[i + 1];
    ASSERT_NE(span, kNoIndex) << "at " << expected[i].first;
    EXPECT_EQ(trace.spans.name[span], expected[i].second) << "at " << expected[i].first;
    EXPECT_EQ(trace.spans.lane[span], t.a);
  }
}

// Goal: tying flows stays linear. Method: spans that all overlap and never nest leave a long stack
// behind; walking it once a flow would take 10^10 steps.
TEST(TraceBuilder, FlowsBehindManyOverlappingSpansAreTiedInNoTime) {
  TwoLanes t;
  constexpr int64_t kCount = 100'000;
  for (int64_t i = 0; i < kCount; ++i) t.builder.add_span(t.a, i, i + 2, t.x);
  for (int64_t i = 0; i < kCount; ++i) t.builder.flow(t.a, kCount + 10 + i, 1, FlowPhase::kStep);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.flows.span.back(), kNoIndex);
}

TEST(TraceBuilder, JoinsTheTimesOfATaskInAnyOrder) {
  TwoLanes t;
  const std::pair<TaskTime, int64_t> events[] = {
      {TaskTime::kFinish, 70},   {TaskTime::kSubmit, 10}, {TaskTime::kEnd, 60},
      {TaskTime::kReady, 20},    {TaskTime::kStart, 50},  {TaskTime::kReceive, 40},
      {TaskTime::kDispatch, 30},
  };
  for (const auto& [time, time_ns] : events) {
    // The orchestrator's events know the kernel, the scheduler's know the core.
    const bool by_orchestrator = time <= TaskTime::kReady;
    t.builder.task_time(42, time, time_ns, by_orchestrator ? t.a : t.b,
                        by_orchestrator ? t.x : kNoIndex);
  }
  const Trace trace = t.builder.finish();
  ASSERT_EQ(trace.tasks.size(), 1u);
  EXPECT_EQ(trace.tasks.id[0], 42u);
  EXPECT_EQ(trace.tasks.lane[0], t.b) << "where it ran, not where it was submitted";
  EXPECT_EQ(trace.tasks.kernel[0], t.x);
  for (const auto& [time, time_ns] : events) EXPECT_EQ(trace.tasks.at(time)[0], time_ns);
}

TEST(TraceBuilder, AStartEndsTheTaskThatRunsOnTheLane) {
  TwoLanes t;
  t.builder.task_time(1, TaskTime::kStart, 10, t.a, t.x);
  t.builder.task_time(2, TaskTime::kStart, 20, t.b, t.x);
  t.builder.task_time(3, TaskTime::kStart, 30, t.a, t.x);
  t.builder.task_time(3, TaskTime::kEnd, 40, t.a, t.x);
  t.builder.task_time(4, TaskTime::kStart, 50, t.a, t.x);
  const Trace trace = t.builder.finish();
  ASSERT_EQ(trace.tasks.size(), 4u);
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd), (std::vector<int64_t>{30, kAbsent, 40, kAbsent}));
}

TEST(TraceBuilder, AStartDoesNotChangeAnEndThatWasRecorded) {
  TwoLanes t;
  t.builder.task_time(1, TaskTime::kStart, 10, t.a, t.x);
  t.builder.task_time(1, TaskTime::kEnd, 15, kNoIndex, t.x);  // by one who does not know the core
  t.builder.task_time(2, TaskTime::kStart, 30, t.a, t.x);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd)[0], 15);
}

TEST(TraceBuilder, ATaskThatRunsAgainGetsItsOwnRow) {
  TwoLanes t;
  for (int64_t step = 0; step < 3; ++step) {
    t.builder.task_time(9, TaskTime::kStart, 100 * step, t.a, t.x);
    t.builder.task_time(9, TaskTime::kEnd, 100 * step + 50, t.a, t.x);
  }
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.tasks.id, (std::vector<uint64_t>{9, 9, 9}));
  EXPECT_EQ(trace.tasks.at(TaskTime::kStart), (std::vector<int64_t>{0, 100, 200}));
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd), (std::vector<int64_t>{50, 150, 250}));
}

TEST(TraceBuilder, EdgesBecomeRowsOfTasks) {
  TwoLanes t;
  t.builder.edge(7, 5, EdgeKind::kOrder);  // before its tasks are known
  t.builder.task_time(5, TaskTime::kStart, 10, t.a, t.x);
  t.builder.task_time(7, TaskTime::kStart, 0, t.b, t.x);
  t.builder.edge(5, 6);
  t.builder.edge(6, 7);
  const Trace trace = t.builder.finish();
  ASSERT_EQ(trace.edges.size(), 1u);
  EXPECT_EQ(trace.tasks.id[trace.edges.producer[0]], 7u);
  EXPECT_EQ(trace.tasks.id[trace.edges.consumer[0]], 5u);
  EXPECT_EQ(trace.edges.kind[0], static_cast<uint8_t>(EdgeKind::kOrder));
  ASSERT_NE(find_code(trace, "edge-without-task"), nullptr);
  EXPECT_EQ(find_code(trace, "edge-without-task")->count, 2u);
  EXPECT_EQ(find_code(trace, "edge-without-task")->text,
            "2 edges name a task that has no event; left out");
}

TEST(TraceBuilder, CostsAreOptionalColumnsOfTasks) {
  TwoLanes without;
  without.builder.task_time(1, TaskTime::kStart, 10, without.a, without.x);
  const Trace plain = without.builder.finish();
  EXPECT_TRUE(plain.tasks.bytes.empty());
  EXPECT_TRUE(plain.tasks.flops.empty());

  TwoLanes t;
  t.builder.task_cost(2, 300, 400);  // before its task is known
  t.builder.task_time(1, TaskTime::kStart, 10, t.a, t.x);
  t.builder.task_time(2, TaskTime::kStart, 20, t.a, t.x);
  t.builder.task_time(3, TaskTime::kStart, 30, t.a, t.x);
  t.builder.task_cost(3, 500, kAbsent);
  t.builder.task_time(4, TaskTime::kStart, 40, t.a, t.x);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{kAbsent, 300, 500, kAbsent}));
  EXPECT_EQ(trace.tasks.flops, (std::vector<int64_t>{kAbsent, 400, kAbsent, kAbsent}));
  EXPECT_TRUE(trace.findings.empty());
}

TEST(TraceBuilder, OfTwoCostsOfATaskTheLaterHolds) {
  TwoLanes t;
  t.builder.task_cost(1, 1, 1);
  t.builder.task_cost(1, 10, 11);  // differs
  t.builder.task_time(1, TaskTime::kStart, 10, t.a, t.x);
  t.builder.task_cost(1, 10, 11);
  t.builder.task_cost(1, 10, 12);  // differs
  t.builder.task_time(2, TaskTime::kStart, 20, t.a, t.x);
  t.builder.task_cost(2, 5, 6);
  t.builder.task_cost(2, 5, 6);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{10, 5}));
  EXPECT_EQ(trace.tasks.flops, (std::vector<int64_t>{12, 6}));
  ASSERT_NE(find_code(trace, "cost-given-twice"), nullptr);
  EXPECT_EQ(find_code(trace, "cost-given-twice")->text,
            "2 costs of a task differ from what was given before; the later one is kept");
}

TEST(TraceBuilder, ATaskThatRunsAgainHasACostForEachRow) {
  TwoLanes t;
  for (int64_t step = 0; step < 3; ++step) {
    t.builder.task_time(9, TaskTime::kStart, 100 * step, t.a, t.x);
    t.builder.task_cost(9, 7 + step, 8);
  }
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{7, 8, 9}));
  EXPECT_TRUE(trace.findings.empty());
}

TEST(TraceBuilder, CostsOfTasksThatNeverComeAreCounted) {
  TwoLanes t;
  t.builder.task_time(1, TaskTime::kStart, 10, t.a, t.x);
  t.builder.task_cost(7, 1, 2);
  t.builder.task_cost(8, 3, 4);
  const Trace trace = t.builder.finish();
  EXPECT_EQ(trace.tasks.size(), 1u);
  EXPECT_TRUE(trace.tasks.bytes.empty());
  ASSERT_NE(find_code(trace, "cost-without-task"), nullptr);
  EXPECT_EQ(find_code(trace, "cost-without-task")->text,
            "2 costs name a task that has no event; left out");
}

TEST(TraceBuilder, CountsFindingsByCodeAndLane) {
  TwoLanes t;
  t.builder.count_finding(Severity::kInfo, "odd", "events are odd");
  t.builder.count_finding(Severity::kError, "even", "events are even", t.b, 10);
  t.builder.count_finding(Severity::kInfo, "odd", "events are odd", kNoIndex, 4);
  t.builder.count_finding(Severity::kInfo, "odd", "events are odd", t.b);
  t.builder.add_finding({Severity::kWarning, "single", "just so", kNoIndex, 1});
  const Trace trace = t.builder.finish();
  ASSERT_EQ(trace.findings.size(), 4u);
  EXPECT_EQ(trace.findings[0].code, "single");
  EXPECT_EQ(trace.findings[1].text, "5 events are odd");
  EXPECT_EQ(trace.findings[1].count, 5u);
  EXPECT_EQ(trace.findings[2].text, "lane b: 10 events are even");
  EXPECT_EQ(trace.findings[2].severity, Severity::kError);
  EXPECT_EQ(trace.findings[3].text, "lane b: 1 events are odd");
}

// Goal: counting stays linear when every lane has findings. A search through all of them for each
// event would take 4 * 10^9 steps here.
TEST(TraceBuilder, CountsFindingsOfManyLanesInNoTime) {
  TraceBuilder builder("test");
  builder.add_device({});
  constexpr uint32_t kLanes = 20'000;
  for (uint32_t lane = 0; lane < kLanes; ++lane) builder.add_lane({});
  for (int round = 0; round < 20; ++round) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) builder.end(lane, round);
  }
  const Trace trace = builder.finish();
  ASSERT_EQ(trace.findings.size(), kLanes);
  EXPECT_EQ(trace.findings.back().count, 20u);
}

TEST(TraceBuilder, AnEmptyTraceIsATrace) {
  const Trace trace = TraceBuilder("nothing").finish();
  EXPECT_EQ(trace.format, "nothing");
  EXPECT_EQ(trace.spans.size(), 0u);
  EXPECT_TRUE(trace.findings.empty());
}

}  // namespace
}  // namespace gapless
