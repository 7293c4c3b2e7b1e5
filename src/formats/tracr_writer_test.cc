// SPDX-License-Identifier: Apache-2.0

#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/tracr.h"
#include "formats/tracr_metadata.h"
#include "formats/tracr_test_data.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

using Texts = std::vector<std::string>;

class TracrWriter : public TracrDirectory {
 protected:
  Trace write_and_read(const Trace& trace) {
    const std::string folder = path(fmt::format("out{}", count_++));
    const Result<void> written = write_tracr(trace, folder, {});
    EXPECT_TRUE(written) << written.error().message;
    Result<Trace> read = read_tracr(folder, {});
    EXPECT_TRUE(read) << read.error().message;
    return read ? std::move(read).value() : Trace{};
  }
  int count_ = 0;
};

TraceBuilder builder_with_lanes(int lane_count) {
  TraceBuilder builder("test");
  builder.add_device({"chip", 5});
  for (int i = 0; i < lane_count; ++i) {
    builder.add_lane({.name = fmt::format("lane{}", i), .number = 100 + i});
  }
  return builder;
}

// The time in which a lane has at least one span.
std::vector<int64_t> covered_ns(const Trace& trace) {
  std::vector<int64_t> covered(trace.lanes.size(), 0);
  std::vector<int64_t> reached(trace.lanes.size(), kAbsent);
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    const uint32_t lane = trace.spans.lane[i];
    const int64_t begin = std::max(reached[lane], trace.spans.begin_ns[i]);
    covered[lane] += std::max<int64_t>(0, trace.spans.end_ns[i] - begin);
    reached[lane] = std::max(reached[lane], trace.spans.end_ns[i]);
  }
  return covered;
}

// Goal: what TraCR can hold comes back exactly.
// Method: random spans that do not overlap on 5 lanes of 2 devices, some touching, some of no
// length, with values.
TEST_F(TracrWriter, RoundTripsFlatTracesExactly) {
  std::mt19937 random(11);
  TraceBuilder builder("test");
  builder.add_device({"chip", 5});
  builder.add_device({"other", 5});
  for (uint32_t i = 0; i < 5; ++i) {
    builder.add_lane({.name = fmt::format("AIC_{}", i),
                      .kind = i == 2 ? LaneKind::kVectorCore : LaneKind::kWorker,
                      .device = i / 3,
                      .number = 40 + i,
                      .dropped_count = i});
  }
  for (uint32_t lane = 0; lane < 5; ++lane) {
    int64_t time_ns = 1000 + lane;
    for (int i = 0; i < 400; ++i) {
      const int64_t end_ns = time_ns + static_cast<int64_t>(random() % 50);
      builder.add_span(lane, time_ns, end_ns,
                       builder.intern(fmt::format("kernel {}", random() % 30)),
                       random() % 3 == 0 ? kNoValue : static_cast<uint32_t>(random() % 1000));
      time_ns = std::max(end_ns + static_cast<int64_t>(random() % 20) - 10, end_ns);
    }
  }
  const Trace trace = builder.finish();
  const Trace back = write_and_read(trace);
  const auto sorted = [](Texts texts) {  // lanes that begin a span together have no order
    std::sort(texts.begin(), texts.end());
    return texts;
  };
  EXPECT_EQ(sorted(span_texts(back)), sorted(span_texts(trace)));
  ASSERT_EQ(back.lanes.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(back.lanes[i].name, trace.lanes[i].name);
    EXPECT_EQ(back.lanes[i].kind, trace.lanes[i].kind);
    EXPECT_EQ(back.lanes[i].meaning, SpanMeaning::kExecution) << "AIC by name only";
    EXPECT_EQ(back.lanes[i].number, trace.lanes[i].number);
    EXPECT_EQ(back.lanes[i].device, trace.lanes[i].device);
    EXPECT_EQ(back.lanes[i].dropped_count, trace.lanes[i].dropped_count);
  }
  EXPECT_EQ(back.devices[0].name, "chip");
  EXPECT_EQ(back.devices[0].number, 5);
  EXPECT_EQ(back.devices[1].name, "other");
  EXPECT_EQ(back.devices[1].number, 6) << "two folders cannot have one number";
  EXPECT_TRUE(back.findings.empty()) << back.findings[0].text;
}

TEST_F(TracrWriter, ResumesTheOuterSpanAfterTheInner) {
  TraceBuilder builder = builder_with_lanes(1);
  const uint32_t outer = builder.intern("outer");
  const uint32_t inner = builder.intern("inner");
  builder.add_span(0, 0, 100, outer, 1);
  builder.add_span(0, 20, 50, inner, 2);
  builder.add_span(0, 30, 40, builder.intern("deep"));
  builder.add_span(0, 50, 60, inner);
  builder.add_span(0, 70, 70, inner, 9);
  EXPECT_EQ(span_texts(write_and_read(builder.finish())),
            (Texts{"outer@lane0 0-20#1", "inner@lane0 20-30#2", "deep@lane0 30-40",
                   "inner@lane0 40-50#2", "inner@lane0 50-60", "outer@lane0 60-70#1",
                   "inner@lane0 70-70#9", "outer@lane0 70-100#1"}));
}

TEST_F(TracrWriter, KeepsAPlaceForSpansThatOthersHide) {
  TraceBuilder builder = builder_with_lanes(1);
  builder.add_span(0, 10, 30, builder.intern("outer"));
  builder.add_span(0, 10, 30, builder.intern("same"));
  builder.add_span(0, 40, 60, builder.intern("around"));
  builder.add_span(0, 40, 50, builder.intern("left"));
  builder.add_span(0, 50, 60, builder.intern("right"));
  EXPECT_EQ(span_texts(write_and_read(builder.finish())),
            (Texts{"outer@lane0 10-10", "same@lane0 10-30", "around@lane0 40-40",
                   "left@lane0 40-50", "right@lane0 50-60"}));
}

// Goal: nesting costs no time, unlike in TraCR, where the rest of the outer span is lost.
// Method: random nests on three lanes; each lane must come back covered for as long as it was, and
// its spans must follow each other.
TEST_F(TracrWriter, ConservesTheTimeOfNestedSpans) {
  std::mt19937 random(5);
  const auto below = [&random](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  for (int round = 0; round < 20; ++round) {
    TraceBuilder builder = builder_with_lanes(3);
    for (int nest = 0; nest < 200; ++nest) {
      const uint32_t lane = below(3);
      int64_t begin = nest * 100;
      int64_t end = begin + below(101);
      const uint32_t depth = 1 + below(4);
      for (uint32_t level = 0; level < depth && begin <= end; ++level) {
        builder.add_span(lane, begin, end, builder.intern(fmt::format("n{}", level)));
        begin += below(30);
        end -= below(30);
      }
    }
    const Trace trace = builder.finish();
    const Trace back = write_and_read(trace);
    const std::vector<int64_t> before = covered_ns(trace);
    EXPECT_EQ(covered_ns(back), before);
    EXPECT_TRUE(back.findings.empty());
    int64_t sum_ns = 0;
    for (size_t i = 0; i < back.spans.size(); ++i) {
      sum_ns += back.spans.end_ns[i] - back.spans.begin_ns[i];
    }
    EXPECT_EQ(sum_ns, before[0] + before[1] + before[2]);
  }
}

TEST_F(TracrWriter, GivesSpansThatOverlapAChannelOfTheirOwn) {
  TraceBuilder builder = builder_with_lanes(1);
  builder.add_span(0, 0, 10, builder.intern("a"));
  builder.add_span(0, 5, 15, builder.intern("b"));
  EXPECT_EQ(span_texts(write_and_read(builder.finish())),
            (Texts{"a@lane0 0-10", "b@lane0 (2) 5-15"}));
}

TEST_F(TracrWriter, WritesTasksAsSpansWithTheirIds) {
  TraceBuilder builder = builder_with_lanes(2);
  const uint32_t kernel = builder.intern("matmul");
  builder.task_time(77, TaskTime::kStart, 10, 1, kernel);
  builder.task_time(77, TaskTime::kEnd, 20, 1, kernel);
  builder.task_time(78, TaskTime::kStart, 30, 1, kNoIndex);
  builder.task_time(78, TaskTime::kEnd, 40, 1, kNoIndex);
  builder.task_time(79, TaskTime::kSubmit, 5, kNoIndex, kernel);
  builder.edge(77, 78);
  builder.instant(0, 15, kernel);
  const Trace back = write_and_read(builder.finish());
  EXPECT_EQ(span_texts(back), (Texts{"matmul@lane1 10-20#77", "task@lane1 30-40#78"}));
  const Finding* lost = finding(back, "not-written");
  ASSERT_NE(lost, nullptr);
  EXPECT_NE(lost->text.find("1 instants, 1 edges between tasks, 1 tasks without"),
            std::string::npos)
      << lost->text;
}

TEST_F(TracrWriter, TiesFlowsToTheSameSpans) {
  TraceBuilder builder = builder_with_lanes(2);
  const uint32_t name = builder.intern("x");
  const uint32_t first = builder.add_span(0, 10, 20, name, 1);
  const uint32_t second = builder.add_span(0, 20, 30, name, 2);
  const uint32_t third = builder.add_span(1, 20, 25, name, 3);
  builder.flow(0, 20, 4, FlowPhase::kOut, first);
  builder.flow(0, 20, 5, FlowPhase::kOut, second);
  builder.flow(1, 20, 4, FlowPhase::kIn, third);
  builder.flow(1, 25, 5, FlowPhase::kIn, third);
  const Trace back = write_and_read(builder.finish());
  ASSERT_EQ(back.flows.size(), 4u);
  std::multiset<std::string> ties;
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_NE(back.flows.span[i], kNoIndex);
    ties.insert(fmt::format("{} {} {}", back.flows.id[i], back.flows.phase[i],
                            back.spans.value[back.flows.span[i]]));
  }
  EXPECT_EQ(ties, (std::multiset<std::string>{"4 0 1", "5 0 2", "4 2 3", "5 2 3"}));
}

TEST_F(TracrWriter, RenumbersFlowsThatDoNotFit) {
  TraceBuilder builder = builder_with_lanes(1);
  builder.add_span(0, 10, 20, builder.intern("x"));
  builder.flow(0, 11, uint64_t{1} << 40, FlowPhase::kOut);
  builder.flow(0, 12, 3, FlowPhase::kOut);
  builder.flow(0, 13, uint64_t{1} << 40, FlowPhase::kIn);
  EXPECT_EQ(write_and_read(builder.finish()).flows.id, (std::vector<uint64_t>{0, 1, 0}));
}

TEST_F(TracrWriter, KeepsLabelsOfExtraIds) {
  TraceBuilder builder = builder_with_lanes(1);
  const uint32_t span = builder.add_span(0, 10, 20, builder.intern("x"), 8);
  builder.set_args(span, builder.intern(R"({"extra_label":"softmax"})"));
  const Trace back = write_and_read(builder.finish());
  ASSERT_EQ(back.spans.args.size(), 1u);
  EXPECT_EQ(back.names[back.spans.args[0]], R"({"extra_label":"softmax"})");
}

TEST_F(TracrWriter, MovesTimesBeforeZero) {
  TraceBuilder builder = builder_with_lanes(1);
  builder.add_span(0, -50, -10, builder.intern("x"));
  EXPECT_EQ(span_texts(write_and_read(builder.finish())), (Texts{"x@lane0 0-40"}));
}

// The old tool numbers markerTypes in the order of their keys as text: that order must be right.
TEST_F(TracrWriter, WritesMarkerTypesInAnOrderTheOldToolReadsRightly) {
  TraceBuilder builder = builder_with_lanes(1);
  for (int i = 0; i < 120; ++i) {
    builder.add_span(0, i * 10, i * 10 + 5, builder.intern(fmt::format("marker {}", i)));
  }
  ASSERT_TRUE(write_tracr(builder.finish(), path("out"), {}));
  std::string text = *read_text_file(path("out/proc.5/metadata.json"));
  const Result<TracrMetadata> metadata = parse_tracr_metadata(text, false);
  ASSERT_TRUE(metadata);
  EXPECT_EQ(metadata->dialect, TracrDialect::kNew);
  EXPECT_EQ(metadata->labels, metadata->markers);

  // Without markerLabels the keys alone say it too.
  text.replace(text.find("markerLabels"), 12, "markerOthers");
  const Result<TracrMetadata> old = parse_tracr_metadata(text, false);
  ASSERT_TRUE(old);
  EXPECT_EQ(old->label_source, LabelSource::kPaddedKeys);
  EXPECT_EQ(old->labels, metadata->labels);
}

TEST_F(TracrWriter, WritesNamesThatAreNotText) {
  TraceBuilder builder = builder_with_lanes(1);
  builder.add_span(0, 10, 20, builder.intern("bad \xff \"quoted\" \n"));
  EXPECT_EQ(span_texts(write_and_read(builder.finish())),
            (Texts{"bad \xef\xbf\xbd \"quoted\" \n@lane0 10-20"}));
}

TEST_F(TracrWriter, RefusesToWriteOverSomething) {
  TraceBuilder builder = builder_with_lanes(1);
  builder.add_span(0, 10, 20, builder.intern("x"));
  const Trace trace = builder.finish();
  put("full/kept.txt", "kept");
  const Result<void> over_directory = write_tracr(trace, path("full/"), {});
  ASSERT_FALSE(over_directory);
  EXPECT_NE(over_directory.error().message.find("is there already with 1 entries"),
            std::string::npos);
  EXPECT_EQ(*read_text_file(path("full/kept.txt")), "kept");
  EXPECT_FALSE(write_tracr(trace, path("full/kept.txt"), {}));

  std::filesystem::create_directories(root_ / "empty");
  EXPECT_TRUE(write_tracr(trace, path("empty"), {}));
  EXPECT_FALSE(write_tracr(trace, path("empty"), {})) << "the second time it is not empty";
  EXPECT_EQ(*list_directory(path(".")), (Texts{"empty", "full"})) << "nothing temporary is left";
}

TEST_F(TracrWriter, SaysWhichLimitIsHit) {
  TraceBuilder names = builder_with_lanes(1);
  for (int i = 0; i < 65534; ++i) names.add_span(0, i, i + 1, names.intern(fmt::format("n{}", i)));
  Result<void> written = write_tracr(names.finish(), path("names"), {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("65534 different names; TraCR has 65533 events"),
            std::string::npos);

  TraceBuilder lanes = builder_with_lanes(65536);
  lanes.add_span(0, 0, 1, lanes.intern("x"));
  written = write_tracr(lanes.finish(), path("lanes"), {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("needs 65536 channels; TraCR has 65535"),
            std::string::npos);

  TraceBuilder times = builder_with_lanes(1);
  times.add_span(0, 0, int64_t{1} << 62, times.intern("x"));
  EXPECT_FALSE(write_tracr(times.finish(), path("times"), {}));
  written = write_tracr(builder_with_lanes(1).finish(), path("nothing"), {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("nothing to write"), std::string::npos);
  EXPECT_TRUE(list_directory(path("."))->empty()) << "failures leave nothing behind";
}

TEST_F(TracrWriter, WritesAsManyNamesAndLanesAsThereCanBe) {
  TraceBuilder builder = builder_with_lanes(65535);
  for (uint32_t i = 0; i < 65533; ++i) {
    builder.add_span(i, i, i + 1, builder.intern(fmt::format("n{}", i)));
  }
  const Trace trace = builder.finish();
  EXPECT_EQ(span_texts(write_and_read(trace)), span_texts(trace));
}

}  // namespace
}  // namespace gapless
