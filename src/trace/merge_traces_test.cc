// SPDX-License-Identifier: Apache-2.0
//
// merge_traces() and sort_trace() of trace/trace_builder.h.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trace/synthetic.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

TEST(MergeTraces, OfNoneIsEmptyAndOfOneIsItself) {
  EXPECT_EQ(merge_traces({}).spans.size(), 0u);
  const Trace original = make_synthetic_trace({.flow_count = 5});
  const Trace merged = merge_traces({original});
  EXPECT_EQ(merged.spans.begin_ns, original.spans.begin_ns);
  EXPECT_EQ(merged.spans.name, original.spans.name);
  EXPECT_EQ(merged.flows.span, original.flows.span);
}

// A trace whose numbers all differ from those of the other: names, lanes, tasks.
Trace small_trace(const std::string& who, int64_t first_ns) {
  TraceBuilder builder(who);
  if (who == "second") builder.intern("only in second");
  const uint32_t device = builder.add_device({.name = who, .number = 7});
  const uint32_t lane = builder.add_lane({.name = who + " lane", .device = device, .number = 3});
  const uint32_t shared = builder.intern("shared");
  const uint32_t own = builder.intern(who + " kernel");
  const uint32_t span = builder.add_span(lane, first_ns, first_ns + 10, own, 1);
  builder.add_span(lane, first_ns + 2, first_ns + 4, shared, 2);
  if (who == "second") builder.set_category(span, shared);
  builder.flow(lane, first_ns + 3, 77, FlowPhase::kOut);
  builder.counter(lane, first_ns + 1, shared, 0.5);
  builder.instant(lane, first_ns + 1, own, 3);
  builder.task_time(100, TaskTime::kStart, first_ns, lane, own);
  builder.task_time(101, TaskTime::kStart, first_ns + 5, kNoIndex, kNoIndex);
  builder.edge(100, 101);
  builder.count_finding(Severity::kWarning, "odd", "events are odd", lane);
  builder.trace().properties.push_back({"host", who});
  builder.trace().properties.push_back({who, "yes"});
  return builder.finish();
}

TEST(MergeTraces, KeepsWhatEveryRowMeans) {
  // The second is earlier, so that rows of both mix.
  const Trace merged = merge_traces({small_trace("first", 1001), small_trace("second", 1000)});
  ASSERT_EQ(merged.devices.size(), 2u);
  ASSERT_EQ(merged.lanes.size(), 2u);
  EXPECT_EQ(merged.lanes[0].device, 0u);
  EXPECT_EQ(merged.lanes[1].device, 1u);
  EXPECT_EQ(merged.lanes[1].name, "second lane");

  ASSERT_EQ(merged.spans.size(), 4u);
  EXPECT_EQ(merged.spans.begin_ns, (std::vector<int64_t>{1000, 1001, 1002, 1003}));
  EXPECT_EQ(merged.spans.lane, (std::vector<uint32_t>{1, 0, 1, 0}));
  const auto name = [&merged](uint32_t id) { return std::string(merged.names[id]); };
  EXPECT_EQ(name(merged.spans.name[0]), "second kernel");
  EXPECT_EQ(name(merged.spans.name[1]), "first kernel");
  EXPECT_EQ(merged.spans.name[2], merged.spans.name[3]) << "equal texts have one number";
  EXPECT_EQ(name(merged.spans.name[2]), "shared");

  ASSERT_EQ(merged.spans.category.size(), 4u) << "one of them had the column";
  EXPECT_EQ(name(merged.spans.category[0]), "shared");
  EXPECT_EQ(merged.spans.category[1], kNoIndex);
  EXPECT_TRUE(merged.spans.args.empty()) << "none had this one";

  ASSERT_EQ(merged.flows.size(), 2u);
  EXPECT_EQ(merged.flows.span, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(merged.counters.lane, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(name(merged.instants.name[0]), "second kernel");
}

TEST(MergeTraces, TasksWithoutCostsStayWithoutThem) {
  const auto costs_of = [](const std::vector<const char*>& who) {
    std::vector<Trace> traces;
    for (const char* name : who) {
      traces.push_back(small_trace(name, 1000));
      if (name[0] == 's') traces.back().tasks.bytes = {5, kAbsent};
    }
    Trace merged = merge_traces(std::move(traces));
    EXPECT_TRUE(merged.tasks.flops.empty()) << "none had this one";
    return merged.tasks.bytes;
  };
  EXPECT_EQ(costs_of({"first", "first"}), std::vector<int64_t>{});
  EXPECT_EQ(costs_of({"first", "second"}), (std::vector<int64_t>{kAbsent, kAbsent, 5, kAbsent}));
  EXPECT_EQ(costs_of({"second", "first"}), (std::vector<int64_t>{5, kAbsent, kAbsent, kAbsent}));
  EXPECT_EQ(costs_of({"second", "second"}), (std::vector<int64_t>{5, kAbsent, 5, kAbsent}));
}

TEST(MergeTraces, ShiftsTasksEdgesAndFindings) {
  const Trace merged = merge_traces({small_trace("first", 1001), small_trace("second", 1000)});
  ASSERT_EQ(merged.tasks.size(), 4u);
  EXPECT_EQ(merged.tasks.id, (std::vector<uint64_t>{100, 101, 100, 101}));
  EXPECT_EQ(merged.tasks.lane, (std::vector<uint32_t>{0, kNoIndex, 1, kNoIndex}));
  EXPECT_EQ(merged.names[merged.tasks.kernel[2]], "second kernel");
  EXPECT_EQ(merged.tasks.kernel[3], kNoIndex);
  EXPECT_EQ(merged.edges.producer, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(merged.edges.consumer, (std::vector<uint32_t>{1, 3}));

  ASSERT_EQ(merged.findings.size(), 2u);
  EXPECT_EQ(merged.findings[0].lane, 0u);
  EXPECT_EQ(merged.findings[1].lane, 1u);
  ASSERT_EQ(merged.properties.size(), 3u) << "keys are unique; the first trace's value stays";
  EXPECT_EQ(merged.properties[0].value, "first");
}

TEST(MergeTraces, AnOptionalColumnOfTheFirstIsFilledUpForTheSecond) {
  const Trace merged = merge_traces({small_trace("second", 1000), small_trace("first", 2000)});
  ASSERT_EQ(merged.spans.category.size(), merged.spans.size());
  EXPECT_EQ(merged.names[merged.spans.category[0]], "shared");
  EXPECT_EQ(merged.spans.category[3], kNoIndex);
}

TEST(MergeTraces, CountsAddUpForLargeTraces) {
  std::vector<Trace> traces;
  size_t span_count = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    traces.push_back(make_synthetic_trace({.seed = seed,
                                           .device_count = 2,
                                           .lane_count = 5,
                                           .spans_per_lane = 200,
                                           .nesting_depth = 3,
                                           .ties = true,
                                           .categories = seed % 2 == 0,
                                           .flow_count = 50,
                                           .counter_count = 20,
                                           .task_lane_count = 2,
                                           .task_count = 30,
                                           .edges_per_task = 2}));
    span_count += traces.back().spans.size();
  }
  const Trace merged = merge_traces(std::move(traces));
  EXPECT_EQ(merged.spans.size(), span_count);
  EXPECT_EQ(merged.lanes.size(), 28u);
  EXPECT_EQ(merged.tasks.size(), 120u);
  EXPECT_TRUE(std::is_sorted(merged.spans.begin_ns.begin(), merged.spans.begin_ns.end()));
  EXPECT_TRUE(std::is_sorted(merged.flows.time_ns.begin(), merged.flows.time_ns.end()));
  for (size_t i = 0; i < merged.flows.size(); ++i) {
    const uint32_t span = merged.flows.span[i];
    ASSERT_LT(span, merged.spans.size());
    EXPECT_EQ(merged.spans.lane[span], merged.flows.lane[i]) << "still tied to the right row";
    EXPECT_LE(merged.spans.begin_ns[span], merged.flows.time_ns[i]);
    EXPECT_GE(merged.spans.end_ns[span], merged.flows.time_ns[i]);
  }
}

TEST(SortTrace, ChangesNothingThatIsSorted) {
  Trace trace = make_synthetic_trace({.nesting_depth = 4, .ties = true, .flow_count = 40});
  const Trace before = trace;
  sort_trace(trace);
  for_each_column(trace, [&before](int table, int column, const auto& values) {
    for_each_column(before, [&](int other_table, int other_column, const auto& other_values) {
      if (table != other_table || column != other_column) return;
      if constexpr (std::is_same_v<decltype(values), decltype(other_values)>) {
        EXPECT_EQ(values, other_values) << table << "." << column;
      }
    });
  });
}

}  // namespace
}  // namespace gapless
