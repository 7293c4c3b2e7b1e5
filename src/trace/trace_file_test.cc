// SPDX-License-Identifier: Apache-2.0

#include "trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "trace/raw_file_builder.h"
#include "trace/synthetic.h"
#include "trace/trace_builder.h"
#include "trace/trace_difference.h"
#include "trace/trace_file_writer.h"

namespace gapless {
namespace {

// Everything a trace can hold.
Trace rich_trace() {
  Trace trace = make_synthetic_trace({.seed = 3,
                                      .device_count = 3,
                                      .lane_count = 6,
                                      .spans_per_lane = 300,
                                      .nesting_depth = 4,
                                      .ties = true,
                                      .unicode_names = true,
                                      .values = true,
                                      .categories = true,
                                      .args = true,
                                      .flow_count = 100,
                                      .counter_count = 50,
                                      .instant_count = 50,
                                      .task_lane_count = 3,
                                      .task_count = 80,
                                      .edges_per_task = 3});
  trace.lanes[1].meaning = SpanMeaning::kDispatchToFinish;
  trace.lanes[1].kind = LaneKind::kVectorCore;
  trace.lanes[2].dropped_count = uint64_t{1} << 40;
  trace.lanes[2].number = -1;
  trace.counters.value[0] = std::numeric_limits<double>::quiet_NaN();
  trace.counters.value[1] = -0.0;
  trace.counters.value[2] = std::numeric_limits<double>::infinity();
  trace.tasks.time_ns[2][5] = kAbsent;
  trace.tasks.kernel[6] = kNoIndex;
  trace.edges.kind[0] = static_cast<uint8_t>(EdgeKind::kLifetime);
  trace.clock = {ClockSource::kTsc, true, 2'999'999'999, -12345, {{5, 6}, {7, 8}}};
  trace.properties = {{"host", "a"}, {"empty", ""}, {"", "no key"}};
  trace.findings = {{Severity::kError, "odd", "one", 2, 17},
                    {Severity::kInfo, "", "", kNoIndex, 0}};
  return trace;
}

TEST(TraceFile, EverythingSurvivesARoundTrip) {
  const TemporaryDirectory directory;
  const Trace trace = rich_trace();
  for (const bool compress : {false, true}) {
    const std::string path = directory.path("out.trace");
    ASSERT_TRUE(write_trace_file(trace, path, {.compress = compress, .progress = {}}).has_value());
    const Result<Trace> read = read_trace_file(path);
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(first_difference(trace, *read), "");
    ASSERT_EQ(read->findings.size(), 2u) << read->findings.back().text;
    EXPECT_FALSE(has_more_findings(*read, trace));
    EXPECT_EQ(read->format, "gapless");
  }
}

TEST(TraceFile, CompressionMakesTheFileSmaller) {
  const TemporaryDirectory directory;
  const Trace trace = rich_trace();
  ASSERT_TRUE(write_trace_file(trace, directory.path("plain")).has_value());
  ASSERT_TRUE(write_trace_file(trace, directory.path("packed"), {.compress = true, .progress = {}})
                  .has_value());
  EXPECT_LT(read_text_file(directory.path("packed"))->size(),
            read_text_file(directory.path("plain"))->size() / 2);
}

TEST(TraceFile, WritingTwiceGivesTheSameBytes) {
  const TemporaryDirectory directory;
  const Trace trace = rich_trace();
  ASSERT_TRUE(write_trace_file(trace, directory.path("a")).has_value());
  ASSERT_TRUE(
      write_trace_file(*read_trace_file(directory.path("a")), directory.path("b")).has_value());
  EXPECT_TRUE(*read_text_file(directory.path("a")) == *read_text_file(directory.path("b")));
}

TEST(TraceFile, ATraceWithNothingInItIsATrace) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.trace");
  Trace trace;
  ASSERT_TRUE(write_trace_file(trace, path).has_value());
  Result<Trace> read = read_trace_file(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(first_difference(trace, *read), "");
  EXPECT_TRUE(read->findings.empty());

  trace.devices.push_back({"d", 1});
  trace.lanes.push_back({});
  ASSERT_TRUE(write_trace_file(trace, path).has_value());
  read = read_trace_file(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(first_difference(trace, *read), "") << "a lane without a span";
  EXPECT_TRUE(read->findings.empty());
}

// More rows than go into one chunk, so that blocks are joined again; and more names.
TEST(TraceFile, LargeTablesTakeSeveralChunks) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.trace");
  TraceBuilder builder("test");
  builder.add_device({});
  builder.add_lane({});
  constexpr int64_t kRows = (1 << 20) + 1000;
  for (int64_t i = 0; i < kRows; ++i) {
    builder.add_span(0, 10 * i, 10 * i + 5, builder.intern("n" + std::to_string(i % 100'000)));
  }
  const Trace trace = builder.finish();
  uint64_t done_last = 0;
  uint64_t total_last = 0;
  const Progress progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, done_last);
    done_last = done;
    total_last = total;
  };
  ASSERT_TRUE(write_trace_file(trace, path, {.compress = false, .progress = progress}).has_value());
  EXPECT_EQ(done_last, total_last);
  const Result<Trace> read = read_trace_file(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(first_difference(trace, *read), "");

  // A file cut near its end keeps the rows of the chunks before.
  const std::string bytes = *read_text_file(path);
  const Result<Trace> cut =
      read_trace_bytes(as_bytes(std::string_view(bytes).substr(0, bytes.size() - 5000)), "cut");
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->spans.size(), size_t{1} << 20);
  EXPECT_TRUE(has_more_findings(*cut, trace));
}

TEST(TraceFile, TheWarningAboutTheClockIsSaidOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.trace");
  Trace trace;
  trace.clock.invariant = false;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(write_trace_file(trace, path).has_value());
    trace = *read_trace_file(path);
    ASSERT_EQ(trace.findings.size(), 1u) << "round " << round;
    EXPECT_EQ(trace.findings[0].code, "clock-not-invariant");
  }
}

TEST(TraceFile, SaysWhyItCannotReadOrWrite) {
  const TemporaryDirectory directory;
  const Result<Trace> missing = read_trace_file(directory.path("missing"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message,
            directory.path("missing") + ": cannot open: No such file or directory");
  EXPECT_FALSE(write_trace_file(Trace(), directory.path("no/such/place")).has_value());
  const Result<void> full = write_trace_file(rich_trace(), "/dev/full");
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().message, "/dev/full: cannot write: No space left on device");
}

TEST(TraceFile, FindingsAboutLanesThatAreNotThereConcernTheWholeTrace) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.trace");
  Trace trace;
  trace.findings = {{Severity::kError, "odd", "one", 5, 17}};
  ASSERT_TRUE(write_trace_file(trace, path).has_value());
  EXPECT_EQ(read_trace_file(path)->findings[0].lane, kNoIndex);
}

}  // namespace
}  // namespace gapless
