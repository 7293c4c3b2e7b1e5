// SPDX-License-Identifier: Apache-2.0
//
// Writing Chrome JSON and reading it back: nothing may change, however the file is cut or damaged
// nothing may crash, and every complete event before that place is there.

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/file.h"
#include "formats/chrome_json.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

class ChromeJsonFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fmt::format("{}/chrome_json_{}_{}.json", testing::TempDir(),
                        testing::UnitTest::GetInstance()->current_test_info()->name(), ::getpid());
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  void write(const Trace& trace, bool compress = false) {
    WriteOptions options;
    options.compress = compress;
    const Result<void> written = write_chrome_json(trace, path_, options);
    ASSERT_TRUE(written.has_value()) << written.error().message;
  }
  Trace read_back() {
    Result<InputStream> input = InputStream::open_file(path_);
    EXPECT_TRUE(input.has_value());
    Result<Trace> trace = read_chrome_json(std::move(*input), {});
    EXPECT_TRUE(trace.has_value()) << trace.error().message;
    return trace ? std::move(*trace) : Trace{};
  }
  std::string text() { return *read_text_file(path_); }

  std::string path_;
};

Result<Trace> read_text(std::string_view text) {
  return read_chrome_json(
      InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "t.json"), {});
}

std::string name_or_none(const Trace& trace, uint32_t name) {
  return name == kNoIndex ? "-" : std::string(trace.names[name]);
}

uint32_t optional_at(const std::vector<uint32_t>& column, size_t row) {
  return column.empty() ? kNoIndex : column[row];
}

std::string describe_points(const Trace& trace) {
  std::string text;
  for (size_t i = 0; i < trace.counters.size(); ++i) {
    text += fmt::format("counter {} {} {} {}\n", trace.names[trace.counters.name[i]],
                        trace.counters.time_ns[i], trace.counters.lane[i], trace.counters.value[i]);
  }
  for (size_t i = 0; i < trace.instants.size(); ++i) {
    text += fmt::format("instant {} {} {} {}\n", trace.names[trace.instants.name[i]],
                        trace.instants.time_ns[i], trace.instants.lane[i], trace.instants.value[i]);
  }
  for (size_t i = 0; i < trace.flows.size(); ++i) {
    text += fmt::format("flow {} {} {} {} {}\n", trace.flows.id[i], trace.flows.time_ns[i],
                        trace.flows.lane[i], trace.flows.phase[i], trace.flows.span[i]);
  }
  return text;
}

// Everything that a trace says, as text, so that a difference can be read.
std::string describe(const Trace& trace) {
  std::string text = fmt::format("wall {}\n", trace.clock.wall_minus_time_ns);
  for (const Property& p : trace.properties) text += fmt::format("{}={}\n", p.key, p.value);
  for (const Device& d : trace.devices) text += fmt::format("device {} {}\n", d.name, d.number);
  for (const Lane& lane : trace.lanes) {
    text +=
        fmt::format("lane {} {} {} {} {} {}\n", lane.name, static_cast<int>(lane.kind), lane.device,
                    lane.number, static_cast<int>(lane.meaning), lane.dropped_count);
  }
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    text +=
        fmt::format("span {} {} {} {} {} {} {}\n", trace.names[trace.spans.name[i]],
                    trace.spans.begin_ns[i], trace.spans.end_ns[i], trace.spans.lane[i],
                    trace.spans.value[i], name_or_none(trace, optional_at(trace.spans.category, i)),
                    name_or_none(trace, optional_at(trace.spans.args, i)));
  }
  for (size_t i = 0; i < trace.tasks.size(); ++i) {
    text += fmt::format("task {} {} {}", trace.tasks.id[i], trace.tasks.lane[i],
                        name_or_none(trace, trace.tasks.kernel[i]));
    for (const std::vector<int64_t>& times : trace.tasks.time_ns) {
      text += fmt::format(" {}", times[i]);
    }
    text += "\n";
  }
  for (size_t i = 0; i < trace.edges.size(); ++i) {
    text += fmt::format("edge {} {} {}\n", trace.edges.producer[i], trace.edges.consumer[i],
                        trace.edges.kind[i]);
  }
  return text + describe_points(trace);
}

void add_task(TraceBuilder& builder, uint64_t id, uint32_t lane, uint32_t kernel, int64_t base_ns) {
  for (int time = 0; time < kTaskTimeCount; ++time) {
    if ((id + static_cast<uint64_t>(time)) % 5 == 0 && time < 4) continue;
    builder.task_time(id, static_cast<TaskTime>(time), base_ns + 10 * time, lane, kernel);
  }
}

// One of everything, with times that a double of microseconds cannot hold.
Trace sample_trace() {
  constexpr int64_t kStart = 1'730'000'000'000'000'123;
  TraceBuilder builder("sample");
  builder.add_device({"host \"µ\"", 42});
  builder.add_device({"chip", 42});
  const auto lane = [&builder](std::string name, LaneKind kind, uint32_t device, int64_t number) {
    Lane made;
    made.name = std::move(name);
    made.kind = kind;
    made.device = device;
    made.number = number;
    return builder.add_lane(std::move(made));
  };
  const uint32_t core = lane("core 0", LaneKind::kCubeCore, 1, 0);
  const uint32_t thread = lane("main", LaneKind::kScheduler, 0, -7);
  const uint32_t queue = lane("queue", LaneKind::kStream, 1, 3);
  lane("empty", LaneKind::kOther, 0, 0);
  builder.trace().lanes[core].meaning = SpanMeaning::kDispatchToFinish;
  builder.trace().lanes[core].dropped_count = 12;
  builder.trace().clock.wall_minus_time_ns = -5;
  builder.trace().properties = {{"host", "a \"b\"\n"}, {"displayTimeUnit", "ms"}};

  const uint32_t outer = builder.intern("outer");
  const uint32_t odd = builder.intern("odd \\ \" \x01 \n 🚀");
  builder.add_span(thread, kStart, kStart + 1'000'000, outer);
  const uint32_t inner = builder.add_span(thread, kStart + 1, kStart + 999, odd, 0);
  builder.set_category(inner, builder.intern("a \"category\""));
  builder.set_args(inner, builder.intern("{\"x\": [1, {\"y\":\"\\u00b5\"}]}"));
  builder.add_span(thread, kStart + 5, kStart + 5, odd, 0xfffffffe);
  builder.set_args(builder.add_span(thread, kStart + 7, kStart + 8, odd),
                   builder.intern("{\"z\":1}"));
  // Overlaps that do not nest: three rows in a viewer, one lane here.
  for (int i = 0; i < 6; ++i) {
    builder.add_span(queue, kStart + 100 * i, kStart + 100 * i + 250, outer,
                     static_cast<uint32_t>(i));
  }
  builder.instant(thread, kStart + 2, outer, 3);
  builder.instant(core, kStart + 2, odd);
  const uint32_t load = builder.intern("load");
  builder.counter(thread, kStart + 3, load, 0.1);
  builder.counter(core, kStart + 4, load, -1e300);
  builder.counter(queue, kStart + 5, load, std::numeric_limits<double>::infinity());
  builder.counter(queue, kStart + 6, builder.intern("a.b"), 3);
  builder.flow(thread, kStart + 999, 7, FlowPhase::kOut);  // at the end of its span
  builder.flow(queue, kStart + 150, 7, FlowPhase::kStep);
  builder.flow(queue, kStart + 610, 7, FlowPhase::kIn);
  builder.flow(core, kStart + 20, 0xfedcba9876543210, FlowPhase::kOut);  // in no span
  add_task(builder, 1, core, builder.intern("matmul"), kStart + 10'000);
  add_task(builder, 0xffffffffffffffff, core, kNoIndex, kStart + 20'000);
  builder.edge(1, 0xffffffffffffffff, EdgeKind::kOrder);
  return builder.finish();
}

TEST_F(ChromeJsonFile, ReadsBackWhatWasWritten) {
  const Trace trace = sample_trace();
  for (const bool compress : {false, true}) {
    write(trace, compress);
    const Trace back = read_back();
    EXPECT_EQ(describe(back), describe(trace));
    EXPECT_TRUE(back.findings.empty()) << back.findings[0].text;
  }
}

TEST_F(ChromeJsonFile, IsJsonForOthers) {
  const Trace trace = sample_trace();
  write(trace);
  const nlohmann::json document = nlohmann::json::parse(text());
  EXPECT_EQ(document["displayTimeUnit"], "ns");
  EXPECT_EQ(document["otherData"]["gapless_origin_ns"], "1730000000000000123");
  size_t slices = 0;
  std::vector<std::string> names;
  for (const nlohmann::json& event : document["traceEvents"]) {
    if (event["ph"] == "X") ++slices;
    EXPECT_TRUE(event["ph"] == "M" || event["ts"].get<double>() >= 0) << event.dump();
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(slices, trace.spans.size() + trace.tasks.size());
  EXPECT_EQ(names, (std::vector<std::string>{"core 0", "main", "queue", "queue (2)", "queue (3)",
                                             "empty"}));
}

// Viewers tie a flow to the slice that is open on its row at its time.
TEST_F(ChromeJsonFile, FlowsLieInsideTheirSlices) {
  write(sample_trace());
  const nlohmann::json document = nlohmann::json::parse(text());
  int flow_count = 0;
  for (const nlohmann::json& flow : document["traceEvents"]) {
    const std::string phase = flow["ph"];
    if (phase != "s" && phase != "t" && phase != "f") continue;
    if (flow["id"] == "0xfedcba9876543210") continue;  // it has no slice
    ++flow_count;
    int around = 0;
    for (const nlohmann::json& slice : document["traceEvents"]) {
      if (slice["ph"] != "X" || slice["tid"] != flow["tid"]) continue;
      const double begin = slice["ts"].get<double>();
      const double end = begin + slice["dur"].get<double>();
      if (begin <= flow["ts"].get<double>() && flow["ts"].get<double>() < end) ++around;
    }
    EXPECT_GE(around, 1) << flow.dump();
  }
  EXPECT_EQ(flow_count, 5);
}

TEST_F(ChromeJsonFile, SaysWhichTasksAreNotInIt) {
  TraceBuilder builder("sample");
  builder.add_device({"chip", 0});
  builder.add_lane({});
  builder.task_time(1, TaskTime::kSubmit, 5, kNoIndex, kNoIndex);
  builder.task_time(2, TaskTime::kStart, 5, 0, kNoIndex);
  builder.task_time(2, TaskTime::kEnd, 9, 0, kNoIndex);
  builder.edge(1, 2);
  write(builder.finish());
  const Trace back = read_back();
  EXPECT_EQ(back.tasks.size(), 1u);
  ASSERT_EQ(back.properties.size(), 1u);
  EXPECT_EQ(back.properties[0].value, "1 tasks without a start, an end or a lane, 1 edges");
}

TEST_F(ChromeJsonFile, ArgumentsThatAreNoObjectStayValidJson) {
  TraceBuilder builder("sample");
  builder.add_device({"d", 1});
  builder.add_lane({});
  const std::vector<std::string> all_args = {"not json", "[1]", "{\"a\":NaN}", "{\"a\":\"\xff\"}",
                                             "{}",       "{ }", "{\"a\":1} x", ""};
  for (size_t i = 0; i < all_args.size(); ++i) {
    const uint32_t value = i % 2 == 0 ? kNoValue : 5;
    const int64_t begin_ns = static_cast<int64_t>(i);
    const uint32_t span = builder.add_span(0, begin_ns, begin_ns, builder.intern("n\xfe"), value);
    builder.set_args(span, builder.intern(all_args[i]));
  }
  write(builder.finish());
  const nlohmann::json document = nlohmann::json::parse(text());
  EXPECT_EQ(document["traceEvents"].size(), 4 + all_args.size());
  EXPECT_EQ(document["traceEvents"][4]["args"]["args"], "not json");
  EXPECT_EQ(document["traceEvents"][4]["name"], "n\xef\xbf\xbd");
  EXPECT_EQ(read_back().spans.size(), all_args.size());
}

TEST_F(ChromeJsonFile, EmptyTracesAndUnwritablePathsAreFine) {
  write(Trace{});
  EXPECT_EQ(describe(read_back()), describe(Trace{}));
  const Result<void> written = write_chrome_json(Trace{}, "/nonexistent/x.json", {});
  ASSERT_FALSE(written.has_value());
  EXPECT_NE(written.error().message.find("/nonexistent/x.json"), std::string::npos);
}

// Goal: an exact round trip of whatever spans there are. Method: random ones, nested or not.
TEST_F(ChromeJsonFile, RandomTracesReadBackExactly) {
  std::mt19937_64 random(7);
  const auto below = [&random](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
  for (int round = 0; round < 20; ++round) {
    TraceBuilder builder("sample");
    for (int device = 0; device < 3; ++device) builder.add_device({"d", below(3)});
    for (int lane = 0; lane < 7; ++lane) {
      Lane made;
      made.device = static_cast<uint32_t>(below(3));
      made.number = below(100) - 50;
      builder.add_lane(std::move(made));
    }
    const int64_t start_ns = below(uint64_t{1} << 60) - (int64_t{1} << 59);
    for (int i = 0; i < 300; ++i) {
      const int64_t begin_ns = start_ns + below(5000);
      const uint32_t lane = static_cast<uint32_t>(below(7));
      const uint32_t name = builder.intern(fmt::format("n{}", below(5)));
      const uint32_t value = below(2) == 0 ? kNoValue : static_cast<uint32_t>(below(1u << 31));
      builder.add_span(lane, begin_ns, begin_ns + below(500), name, value);
      builder.counter(lane, begin_ns, name, static_cast<double>(below(1000)) / 7);
      builder.instant(lane, begin_ns, name, value);
    }
    // Equal spans have no order of their own: the second reading is compared with the first.
    write(builder.finish());
    const Trace once = read_back();
    write(once);
    const Trace twice = read_back();
    ASSERT_EQ(once.spans.size(), 300u);
    ASSERT_EQ(describe(twice), describe(once));
  }
}

size_t row_count(const Trace& trace) {
  return trace.spans.size() + trace.tasks.size() + trace.counters.size() + trace.instants.size() +
         trace.flows.size() + trace.edges.size();
}

TEST_F(ChromeJsonFile, CutAtEveryByteKeepsTheCompleteEvents) {
  write(sample_trace());
  const std::string whole = text();
  const size_t list_begin = whole.find("\"traceEvents\":[") + 15;
  size_t rows_before = 0;
  for (size_t size = 0; size < whole.size() - 2; ++size) {
    const Result<Trace> trace = read_text(std::string_view(whole).substr(0, size));
    ASSERT_EQ(trace.has_value(), size >= list_begin) << size;
    if (!trace) {
      ASSERT_EQ(trace.error().message.substr(0, 8), "t.json: ");
      continue;
    }
    ASSERT_FALSE(trace->findings.empty());
    ASSERT_EQ(trace->findings[0].code, "cut-short") << size;
    ASSERT_NE(trace->findings[0].text.find(fmt::format("byte {}", size)), std::string::npos);
    ASSERT_GE(row_count(*trace), rows_before);
    rows_before = row_count(*trace);
  }
  EXPECT_EQ(rows_before, row_count(sample_trace()));
}

TEST(ChromeJsonDamage, ABareListOfAllPhasesCutAtEveryByteIsNeverSilent) {
  const std::string_view whole =
      R"([{"ph":"B","name":"a","pid":1,"tid":1,"ts":1},{"ph":"E","pid":1,"tid":1,"ts":2.5},
          {"ph":"b","name":"a\ud83d\ude80","cat":"c","id":"x","ts":"1"},{"ph":"C","name":"c",
          "ts":3,"args":{"a":1,"b":2}},{"ph":"M","name":"thread_name","tid":1,"pid":1,
          "args":{"name":"\u00b5"}},{"ph":"s","id":1,"ts":4},{"ph":"f","id":1,"ts":5}])";
  size_t rows_before = 0;
  for (size_t size = 1; size < whole.size(); ++size) {
    const Result<Trace> trace = read_text(whole.substr(0, size));
    ASSERT_TRUE(trace.has_value()) << size;
    const std::string& code = trace->findings.at(0).code;
    ASSERT_TRUE(code == "cut-short" || code == "unclosed-list") << size << code;
    ASSERT_GE(row_count(*trace), rows_before);
    rows_before = row_count(*trace);
  }
  EXPECT_EQ(rows_before, 6u);
}

TEST_F(ChromeJsonFile, FlippedBytesNeverCrash) {
  write(sample_trace());
  const std::string whole = text();
  size_t errors = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1 << (i % 8), 0xff}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      const Result<Trace> trace = read_text(damaged);
      if (trace) continue;
      ASSERT_FALSE(trace.error().message.empty());
      ++errors;
    }
  }
  EXPECT_GT(errors, 0u);
  EXPECT_LT(errors, whole.size());
}

TEST_F(ChromeJsonFile, GzipCutAnywhereKeepsWhatCouldBeUnpacked) {
  TraceBuilder builder("sample");
  builder.add_device({"d", 1});
  builder.add_lane({});
  std::mt19937_64 random(3);
  for (int i = 0; i < 3000; ++i) {
    builder.add_span(0, i * 1000, i * 1000 + 5, builder.intern("n"),
                     static_cast<uint32_t>(random() >> 40));
  }
  write(builder.finish(), true);
  const std::string whole = text();
  size_t rows_before = 0;
  for (size_t size = 2; size < whole.size(); size += 97) {
    const Result<Trace> trace = read_text(std::string_view(whole).substr(0, size));
    if (!trace) {
      ASSERT_NE(trace.error().message.find("gzip"), std::string::npos) << trace.error().message;
      continue;
    }
    ASSERT_EQ(trace->findings.at(0).code, "cut-short");
    ASSERT_NE(trace->findings[0].text.find("gzip"), std::string::npos);
    ASSERT_GE(row_count(*trace), rows_before);
    rows_before = row_count(*trace);
  }
  EXPECT_GT(rows_before, 1000u);
  // All of the text but not its checksum.
  const Result<Trace> trace = read_text(std::string_view(whole).substr(0, whole.size() - 4));
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.size(), 3000u);
  EXPECT_EQ(trace->findings.at(0).code, "damaged");
}

}  // namespace
}  // namespace gapless
