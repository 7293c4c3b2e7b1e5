// SPDX-License-Identifier: Apache-2.0

#include "trace/trace.h"

#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "trace/synthetic.h"

namespace gapless {
namespace {

TEST(NameTable, EqualTextsGetTheSameNumber) {
  NameTable names;
  EXPECT_EQ(names.intern("a"), 0u);
  EXPECT_EQ(names.intern("b"), 1u);
  EXPECT_EQ(names.intern("a"), 0u);
  EXPECT_EQ(names.intern(""), 2u);
  EXPECT_EQ(names.intern(std::string_view("a\0", 2)), 3u) << "a zero byte is part of the text";
  EXPECT_EQ(names.size(), 4u);
  EXPECT_EQ(names[1], "b");
  EXPECT_EQ(names.find("b"), 1u);
  EXPECT_EQ(names.find("c"), kNoIndex);
  EXPECT_EQ(names.size(), 4u) << "looking does not add";
}

TEST(NameTable, CopiesAndMovesStandOnTheirOwn) {
  NameTable original;
  for (int i = 0; i < 1000; ++i) original.intern("name " + std::to_string(i));
  NameTable copy = original;
  NameTable assigned;
  assigned.intern("goes away");
  assigned = original;
  original = NameTable();
  for (NameTable* table : {&copy, &assigned}) {
    ASSERT_EQ(table->size(), 1000u);
    EXPECT_EQ((*table)[999], "name 999");
    EXPECT_EQ(table->find("name 500"), 500u);
    EXPECT_EQ(table->find("goes away"), kNoIndex);
    EXPECT_EQ(table->intern("more"), 1000u);
  }
  const NameTable moved = std::move(copy);
  EXPECT_EQ(moved[1000], "more");
  EXPECT_EQ(moved.find("name 0"), 0u);
}

TEST(TimeRange, CoversEveryTableAndSkipsAbsentTimes) {
  Trace trace;
  EXPECT_EQ(time_range(trace).begin_ns, 0);
  EXPECT_EQ(time_range(trace).end_ns, 0);
  trace.tasks.time_ns[0] = {kAbsent, 50};
  EXPECT_EQ(time_range(trace).begin_ns, 50);
  trace.spans.begin_ns = {20};
  trace.spans.end_ns = {70};
  EXPECT_EQ(time_range(trace).begin_ns, 20);
  EXPECT_EQ(time_range(trace).end_ns, 70);
  trace.counters.time_ns = {-5};
  trace.instants.time_ns = {80};
  trace.flows.time_ns = {90};
  trace.tasks.time_ns[6] = {100};
  EXPECT_EQ(time_range(trace).begin_ns, -5);
  EXPECT_EQ(time_range(trace).end_ns, 100);
}

TEST(ForEachColumn, NumbersAreUniqueAndEveryColumnOfATableIsVisited) {
  Trace trace;
  std::set<std::pair<int, int>> seen;
  std::set<const void*> addresses;
  for_each_column(trace, [&](int table, int column, auto& values) {
    EXPECT_TRUE(seen.emplace(table, column).second) << table << "." << column;
    addresses.insert(&values);
  });
  EXPECT_EQ(seen.size(), 35u) << "a column was added: docs/trace-format.md lists them";
  EXPECT_EQ(addresses.size(), seen.size());
  EXPECT_EQ(seen.count({2, 4 + static_cast<int>(TaskTime::kFinish)}), 1u);
}

TEST(MemoryBytes, TenMillionSpansFitIntoAGigabyte) {
  const Trace trace = make_synthetic_trace({.lane_count = 8, .spans_per_lane = 25'000});
  ASSERT_EQ(trace.spans.size(), 200'000u);
  const double bytes_per_span =
      static_cast<double>(memory_bytes(trace)) / static_cast<double>(trace.spans.size());
  EXPECT_GE(bytes_per_span, 28.0) << "two times and three numbers";
  EXPECT_LT(bytes_per_span * 1e7, 0.6 * 1024 * 1024 * 1024);
}

TEST(MemoryBytes, CountsNames) {
  Trace trace;
  const size_t before = memory_bytes(trace);
  trace.names.intern(std::string(10'000, 'n'));
  EXPECT_GE(memory_bytes(trace), before + 10'000);
}

TEST(Names, OfTimesAndSeverities) {
  EXPECT_EQ(task_time_name(TaskTime::kSubmit), "submit");
  EXPECT_EQ(task_time_name(TaskTime::kFinish), "finish");
  EXPECT_EQ(severity_name(Severity::kInfo), "info");
  EXPECT_EQ(severity_name(Severity::kError), "error");
}

}  // namespace
}  // namespace gapless
