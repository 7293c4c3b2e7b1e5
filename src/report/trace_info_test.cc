// SPDX-License-Identifier: Apache-2.0

#include "report/trace_info.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

// Two threads; on the first a span of 100 ns with 40 nested in it and an overlap behind it.
TraceBuilder two_threads() {
  TraceBuilder builder("chrome-json");
  const uint32_t device = builder.add_device({.name = "demo", .number = 42});
  const uint32_t a = builder.add_lane({.name = "main", .device = device});
  const uint32_t b = builder.add_lane({.name = "other", .device = device, .dropped_count = 3});
  builder.add_span(a, 1000, 1100, builder.intern("outer"));
  builder.add_span(a, 1010, 1050, builder.intern("inner"));
  builder.add_span(a, 1090, 1120, builder.intern("inner"));
  builder.add_span(b, 1000, 1200, builder.intern("outer"));
  return builder;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(TraceInfo, UnionCountsNestedAndOverlappingSpansOnce) {
  const TraceInfo info = describe(two_threads().finish());
  EXPECT_EQ(info.wall_ns, 200);
  ASSERT_EQ(info.lanes.size(), 2u);
  EXPECT_EQ(info.lanes[0].union_ns, 120);
  EXPECT_DOUBLE_EQ(info.lanes[0].share, 0.6);
  EXPECT_EQ(info.lanes[0].span_count, 3u);
  EXPECT_EQ(info.lanes[0].device, "demo");
  EXPECT_EQ(info.lanes[1].union_ns, 200);
  EXPECT_EQ(info.lanes[1].dropped_count, 3u);
  EXPECT_EQ(info.dropped_count, 3u);
}

TEST(TraceInfo, NamesAreSortedBySum) {
  const TraceInfo info = describe(two_threads().finish());
  ASSERT_EQ(info.names.size(), 2u);
  EXPECT_EQ(info.names[0].name, "outer");
  EXPECT_EQ(info.names[0].sum_ns, 300);
  EXPECT_EQ(info.names[0].min_ns, 100);
  EXPECT_EQ(info.names[0].max_ns, 200);
  EXPECT_EQ(info.names[1].name, "inner");
  EXPECT_EQ(info.names[1].count, 2u);
  EXPECT_EQ(info.names[1].sum_ns, 70);
}

TEST(TraceInfo, BusyIsStartToEndOfTasksAndNothingElse) {
  TraceBuilder builder("gapless");
  const uint32_t device = builder.add_device({.name = "cpu"});
  const uint32_t lane =
      builder.add_lane({.name = "worker", .kind = LaneKind::kWorker, .device = device});
  const uint32_t kernel = builder.intern("matmul");
  builder.add_span(lane, 0, 1000, builder.intern("loop"));
  builder.task_time(1, TaskTime::kSubmit, 10, kNoIndex, kernel);
  builder.task_time(1, TaskTime::kStart, 300, lane, kernel);
  builder.task_time(1, TaskTime::kEnd, 400, lane, kernel);
  builder.task_time(2, TaskTime::kStart, 100, lane, kernel);
  builder.task_time(2, TaskTime::kEnd, 150, lane, kernel);
  builder.task_time(3, TaskTime::kStart, 900, lane, kNoIndex);
  builder.task_time(3, TaskTime::kEnd, 910, lane, kNoIndex);
  const TraceInfo info = describe(builder.finish());
  EXPECT_EQ(info.lanes[0].occupancy, Occupancy::kBusy);
  EXPECT_EQ(info.lanes[0].union_ns, 160) << "the span around the tasks is not busy time";
  EXPECT_EQ(info.lanes[0].task_count, 3u);
  EXPECT_EQ(info.task_time_count[static_cast<size_t>(TaskTime::kSubmit)], 1u);
  EXPECT_EQ(info.task_time_count[static_cast<size_t>(TaskTime::kEnd)], 3u);
  const std::string text = info_text(info);
  EXPECT_TRUE(has_line(text, "task submit     1 (33.3 %)")) << text;
  EXPECT_TRUE(has_line(text, "task ready      0 (0.0 %)")) << text;
  EXPECT_NE(text.find("(unknown kernel)"), std::string::npos);
}

TEST(TraceInfo, DispatchToFinishIsNotCalledBusy) {
  TraceBuilder builder("tracr");
  const uint32_t device = builder.add_device({.name = "proc.1"});
  const uint32_t lane = builder.add_lane({.name = "AICube_0",
                                          .kind = LaneKind::kCubeCore,
                                          .device = device,
                                          .meaning = SpanMeaning::kDispatchToFinish});
  builder.add_span(lane, 0, 60, builder.intern("Running_Task_Single"));
  builder.instant(lane, 100, builder.intern("stop"));
  const TraceInfo info = describe(builder.finish());
  const std::string text = info_text(info);
  EXPECT_EQ(text.find("busy"), std::string::npos) << text;
  EXPECT_TRUE(has_line(text, "  AICube_0  cube      1      0  60 ns   60.0 %  dispatched        0"))
      << text;
  EXPECT_EQ(nlohmann::json::parse(info_json(info))["lanes"][0]["union_is"], "dispatched");
}

TEST(TraceInfo, ManyLanesAreSummarisedByKindUnlessAskedFor) {
  TraceBuilder builder("tracr");
  const uint32_t device = builder.add_device({.name = "proc.1"});
  for (uint32_t i = 0; i < 77; ++i) {
    const LaneKind kind = i < 4    ? LaneKind::kScheduler
                          : i < 28 ? LaneKind::kCubeCore
                                   : LaneKind::kVectorCore;
    const uint32_t lane = builder.add_lane(
        {.name = "lane_" + std::to_string(i), .kind = kind, .device = device, .number = i});
    builder.add_span(lane, 0, i < 4 ? 100 : 50, builder.intern("work"));
  }
  const TraceInfo info = describe(builder.finish());
  const std::string text = info_text(info);
  EXPECT_TRUE(has_line(text, "lanes           77"));
  EXPECT_EQ(text.find("lane_5"), std::string::npos) << text;
  EXPECT_TRUE(has_line(
      text, "  cube          24     24      0       1.200 us           50.0 %  in spans        0"))
      << text;
  const std::string all = info_text(info, {.all_lanes = true});
  EXPECT_NE(all.find("  lane_76  vector"), std::string::npos);
}

TEST(TraceInfo, OfAnEmptyTraceIsSensible) {
  const TraceInfo info = describe(TraceBuilder("gapless").finish());
  const std::string text = info_text(info);
  EXPECT_TRUE(has_line(text, "wall            0 ns (0 ns, first to last time)")) << text;
  EXPECT_TRUE(has_line(text, "lanes           0"));
  EXPECT_TRUE(has_line(text, "spans           0"));
  EXPECT_TRUE(has_line(text, "findings        0"));
  EXPECT_EQ(text.find("nan "), std::string::npos);
  EXPECT_EQ(text.find("start "), std::string::npos) << "no wall time is known";
}

TEST(TraceInfo, ClockDriftComesFromTheAnchors) {
  Trace trace = two_threads().finish();
  trace.clock = {.source = ClockSource::kTsc,
                 .ticks_per_second = 2'000'000'000,
                 .wall_minus_time_ns = 1'700'000'000'000'000'000,
                 .anchors = {{1000, 0}, {1000 + 2'000'002'000, 1'000'000'000}}};
  const TraceInfo info = describe(trace);
  ASSERT_TRUE(info.clock.drift_ppm.has_value());
  EXPECT_NEAR(*info.clock.drift_ppm, 1.0, 1e-6);
  const std::string text = info_text(info);
  EXPECT_TRUE(has_line(text, "clock drift     +1.000 ppm, anchors against the nominal rate"));
  EXPECT_TRUE(has_line(text, "start           2023-11-14 22:13:20.000001000 UTC")) << text;
  trace.clock.anchors.pop_back();
  EXPECT_FALSE(describe(trace).clock.drift_ppm.has_value())
      << "one anchor says nothing of the rate";
}

TEST(TraceInfo, FlowPairsNeedBothEnds) {
  TraceBuilder builder = two_threads();
  builder.flow(0, 1000, 7, FlowPhase::kOut);
  builder.flow(1, 1010, 7, FlowPhase::kIn);
  builder.flow(0, 1020, 8, FlowPhase::kOut);
  builder.flow(0, 1030, 9, FlowPhase::kIn);
  const TraceInfo info = describe(builder.finish());
  EXPECT_EQ(info.flow_point_count, 4u);
  EXPECT_EQ(info.flow_pair_count, 1u);
}

TEST(TraceInfo, StatesTheRecordersOwnCost) {
  Trace trace = two_threads().finish();
  trace.properties = {{"recorder.events", "4"},
                      {"recorder.ns_per_event", "10.5"},
                      {"recorder.writers", "2"},
                      {"program", "./demo"}};
  const TraceInfo info = describe(trace);
  ASSERT_TRUE(info.recorder_cost.has_value());
  EXPECT_DOUBLE_EQ(info.recorder_cost->cost_ns, 42);
  EXPECT_DOUBLE_EQ(info.recorder_cost->share, 42.0 / 400);
  const std::string text = info_text(info);
  EXPECT_TRUE(
      has_line(text, "recorder cost   4 events x 10.5 ns = 42 ns, 10.5 % of 2 writers x wall"))
      << text;
  EXPECT_TRUE(has_line(text, "program         ./demo"));
  trace.properties[1].value = "fast";
  EXPECT_FALSE(describe(trace).recorder_cost.has_value());
}

TEST(TraceInfo, FindingsComeBySeverityAndRepetitionIsCounted) {
  Trace trace = two_threads().finish();
  trace.findings = {{Severity::kInfo, "note", "a note", kNoIndex, 1},
                    {Severity::kError, "cut-short", "cut at byte 7", kNoIndex, 1}};
  for (int i = 0; i < 10; ++i) trace.findings.push_back({Severity::kWarning, "open", "x", 0, 1});
  const std::string text = info_text(describe(trace));
  const size_t error = text.find("finding         error cut-short: cut at byte 7\n");
  const size_t warning = text.find("finding         warning open: x\n");
  const size_t note = text.find("finding         info note: a note\n");
  EXPECT_LT(error, warning);
  EXPECT_LT(warning, note);
  EXPECT_TRUE(has_line(text, "finding         2 more of open (--json lists them)")) << text;
  EXPECT_EQ(nlohmann::json::parse(info_json(describe(trace)))["findings"].size(), 12u);
}

TEST(TraceInfo, JsonHoldsTheSameNumbers) {
  const nlohmann::json json =
      nlohmann::json::parse(info_json(describe(two_threads().finish()), {.top_names = 1}));
  EXPECT_EQ(json["wall_ns"], 200);
  EXPECT_EQ(json["lanes"][0]["union_ns"], 120);
  EXPECT_EQ(json["names"].size(), 1u);
  EXPECT_EQ(json["totals"]["span_count"], 4);
  EXPECT_TRUE(json["recorder_cost"].is_null());
  EXPECT_TRUE(json["start_since_1970_ns"].is_null());
}

TEST(TraceInfo, NamesOfAnyBytesKeepOneFactALine) {
  TraceBuilder builder("chrome-json");
  const uint32_t device = builder.add_device({.name = "a\nb"});
  const uint32_t lane = builder.add_lane({.name = "x\x1b[2J", .device = device});
  builder.add_span(lane, 0, 1, builder.intern("bad \xff utf-8"));
  const TraceInfo info = describe(builder.finish());
  const std::string text = info_text(info);
  EXPECT_TRUE(has_line(text, "device          a\\x0ab (number 0)")) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(info_json(info)).empty()) << "still valid JSON";
}

TEST(TraceInfo, TimesAtBothEndsOfTheRangeDoNotOverflow) {
  TraceBuilder builder("chrome-json");
  const uint32_t device = builder.add_device({.name = "d"});
  const uint32_t lane = builder.add_lane({.name = "l", .device = device});
  const int64_t lowest = std::numeric_limits<int64_t>::min() + 1;
  const int64_t highest = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 3; ++i) builder.add_span(lane, lowest, highest, builder.intern("all"));
  Trace trace = builder.finish();
  trace.clock.wall_minus_time_ns = lowest;
  const TraceInfo info = describe(trace);
  EXPECT_EQ(info.wall_ns, highest);
  EXPECT_EQ(info.lanes[0].union_ns, highest);
  EXPECT_EQ(info.names[0].sum_ns, highest);
  EXPECT_FALSE(info.start_since_1970_ns.has_value());
}

}  // namespace
}  // namespace gapless
