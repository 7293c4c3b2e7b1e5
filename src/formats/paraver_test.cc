// SPDX-License-Identifier: Apache-2.0

#include "formats/paraver.h"

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "trace/synthetic.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct Written {
  std::string records;
  std::string names;
  std::string rows;
};

Written write_and_read(const Trace& trace) {
  const std::string stem = testing::TempDir() + "gapless_paraver_" + std::to_string(::getpid());
  EXPECT_TRUE(write_paraver(trace, stem + ".prv", {}).has_value());
  const auto take = [](const std::string& path) {
    const Result<std::string> text = read_text_file(path);
    EXPECT_TRUE(text.has_value()) << path;
    std::remove(path.c_str());
    return text.has_value() ? *text : "";
  };
  return {take(stem + ".prv"), take(stem + ".pcf"), take(stem + ".row")};
}

Trace make_trace() {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_device({"without lanes", 2});
  builder.add_device({"gpu", 3});
  builder.add_lane({.name = "stream", .device = 2});
  builder.add_lane({.name = "main"});
  const uint32_t outer = builder.intern("outer");
  const uint32_t inner = builder.intern("two\nlines");
  const uint32_t out = builder.add_span(1, 1000, 1100, outer, 7);
  builder.add_span(1, 1010, 1020, inner);
  const uint32_t in = builder.add_span(0, 1050, 1060, inner);
  builder.add_span(0, 1055, 1070, outer);
  builder.flow(1, 1015, 5, FlowPhase::kOut, out);
  builder.flow(0, 1055, 5, FlowPhase::kIn, in);
  builder.task_time(99, TaskTime::kStart, 1200, 1, kNoIndex);
  builder.task_time(99, TaskTime::kEnd, 1210, 1, kNoIndex);
  builder.instant(1, 1030, builder.intern("mark"), 4);
  builder.counter(0, 1040, builder.intern("depth"), -2.6);
  builder.trace().clock.wall_minus_time_ns = 1'700'000'000'000'000'000;
  return builder.finish();
}

TEST(Paraver, WritesRecordsInOrderOfTime) {
  EXPECT_EQ(write_and_read(make_trace()).records,
            "#Paraver (14/11/2023 at 22:13):210_ns:1(3):1:2(1:1,2:1)\n"
            "1:1:1:1:1:0:100:1\n"
            "2:1:1:1:1:0:90:1:91:7\n"
            "2:1:1:1:1:10:90:2\n"
            "2:1:1:1:1:20:90:1\n"
            "2:1:1:1:1:30:93:3:91:4\n"
            "2:2:1:2:1:40:1001:-3\n"
            "3:1:1:1:1:50:50:2:1:2:1:50:50:0:1\n"
            "1:2:1:2:1:50:60:1\n"
            "2:2:1:2:1:50:90:2\n"
            "1:3:1:2:2:55:70:1\n"
            "2:3:1:2:2:55:90:1\n"
            "2:2:1:2:1:60:90:0\n"
            "2:3:1:2:2:70:90:0\n"
            "2:1:1:1:1:100:90:0\n"
            "1:1:1:1:1:200:210:1\n"
            "2:1:1:1:1:200:90:5:92:99\n"
            "2:1:1:1:1:210:90:0\n");
}

TEST(Paraver, NamesRowsAndValues) {
  const Written written = write_and_read(make_trace());
  EXPECT_EQ(written.rows,
            "LEVEL CPU SIZE 3\nmain\nstream\nstream (2)\n\n"
            "LEVEL NODE SIZE 1\nnode\n\n"
            "LEVEL APPL SIZE 1\ntrace\n\n"
            "LEVEL TASK SIZE 2\nhost\ngpu\n\n"
            "LEVEL THREAD SIZE 3\nmain\nstream\nstream (2)\n");
  EXPECT_NE(written.names.find("Time 0 is 1000 ns"), std::string::npos);
  EXPECT_NE(written.names.find("STATES\n0    Idle\n1    Running\n"), std::string::npos);
  EXPECT_NE(written.names.find("EVENT_TYPE\n0    90    Innermost slice\nVALUES\n0    End\n"
                               "1    outer\n2    two lines\n5    (unknown kernel)\n"),
            std::string::npos)
      << written.names;
  EXPECT_NE(written.names.find("EVENT_TYPE\n0    93    Instant\nVALUES\n0    End\n3    mark\n"),
            std::string::npos);
  EXPECT_NE(written.names.find("EVENT_TYPE\n0    1001    depth\n"), std::string::npos);
}

// Goal: whatever the trace holds, times never go back and every slice is there.
TEST(Paraver, RecordsOfALargeTraceAreInOrder) {
  const Trace trace = make_synthetic_trace({.device_count = 2,
                                            .lane_count = 10,
                                            .spans_per_lane = 500,
                                            .nesting_depth = 4,
                                            .ties = true,
                                            .values = true,
                                            .flow_count = 300,
                                            .counter_count = 300,
                                            .instant_count = 300,
                                            .task_lane_count = 5,
                                            .task_count = 500,
                                            .edges_per_task = 2});
  std::istringstream records(write_and_read(trace).records);
  std::string line;
  std::getline(records, line);
  size_t counts[4] = {};
  uint64_t latest = 0;
  while (std::getline(records, line)) {
    const int kind = line[0] - '0';
    ASSERT_TRUE(kind >= 1 && kind <= 3) << line;
    ++counts[kind];
    size_t at = 0;
    for (int colon = 0; colon < 5; ++colon) at = line.find(':', at) + 1;
    const uint64_t time = std::stoull(line.substr(at));
    ASSERT_GE(time, latest) << line;
    latest = time;
  }
  const size_t slice_count = trace.spans.size() + trace.tasks.size();
  EXPECT_EQ(counts[2], 2 * slice_count + trace.counters.size() + trace.instants.size());
  EXPECT_EQ(counts[3], 300u + 300 / 4 + trace.edges.size()) << "every fourth flow has two hops";
}

TEST(Paraver, AnEmptyTraceHasOneEmptyThread) {
  const Written written = write_and_read({});
  EXPECT_EQ(written.records, "#Paraver (01/01/1970 at 00:00):0_ns:1(1):1:1(1:1)\n");
  EXPECT_NE(written.rows.find("LEVEL THREAD SIZE 1\nempty\n"), std::string::npos);
}

TEST(Paraver, APathThatCannotBeWrittenLeavesNothingBehind) {
  const std::string folder =
      testing::TempDir() + "gapless_paraver_folder_" + std::to_string(::getpid());
  ASSERT_TRUE(make_directories(folder + "/x.row").has_value());
  const Result<void> written = write_paraver(make_trace(), folder + "/x.prv", {});
  EXPECT_FALSE(written.has_value());
  const Result<std::vector<std::string>> left = list_directory(folder);
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(*left, std::vector<std::string>{"x.row"});
  std::remove((folder + "/x.row").c_str());
  std::remove(folder.c_str());
}

}  // namespace
}  // namespace gapless
