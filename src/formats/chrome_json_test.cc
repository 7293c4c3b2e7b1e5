// SPDX-License-Identifier: Apache-2.0
//
// Reading Chrome JSON: every phase and every quirk from hand-made inputs. Writing, and reading back
// what was written, is in chrome_json_round_trip_test.cc.

#include "formats/chrome_json.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace gapless {
namespace {

Result<Trace> read_text(std::string_view text, const ReadOptions& options = {}) {
  return read_chrome_json(
      InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "t.json"),
      options);
}

// The trace of events that are written down one after the other.
Trace trace_of(std::string_view events) {
  const std::string text = fmt::format("{{\"traceEvents\":[{}]}}", events);
  Result<Trace> trace = read_text(text);
  EXPECT_TRUE(trace.has_value()) << trace.error().message;
  return trace ? std::move(*trace) : Trace{};
}

std::string error_of(std::string_view text) {
  const Result<Trace> trace = read_text(text);
  return trace ? "no error" : trace.error().message;
}

uint64_t finding_count(const Trace& trace, std::string_view code) {
  uint64_t count = 0;
  for (const Finding& finding : trace.findings) count += finding.code == code ? finding.count : 0;
  return count;
}

std::string codes(const Trace& trace) {
  std::string text;
  for (const Finding& finding : trace.findings) text += finding.code + " ";
  return text;
}

// "name[begin,end]@lane" of every span, in their order.
std::vector<std::string> spans_of(const Trace& trace) {
  std::vector<std::string> spans;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    spans.push_back(fmt::format("{}[{},{}]@{}", trace.names[trace.spans.name[i]],
                                trace.spans.begin_ns[i], trace.spans.end_ns[i],
                                trace.lanes[trace.spans.lane[i]].name));
  }
  return spans;
}

std::string property(const Trace& trace, std::string_view key) {
  for (const Property& p : trace.properties) {
    if (p.key == key) return p.value;
  }
  return "(none)";
}

using Spans = std::vector<std::string>;

TEST(ChromeJsonReader, ReadsCompleteEvents) {
  const Trace trace = trace_of(
      R"({"ph":"X","name":"b","cat":"c","pid":1,"tid":2,"ts":20,"dur":1.5,"args":{"x":[1, "2"]}},
         {"ph":"X","name":"a","pid":1,"tid":2,"ts":10.001,"dur":5})");
  EXPECT_EQ(spans_of(trace), (Spans{"a[10001,15001]@thread 2", "b[20000,21500]@thread 2"}));
  EXPECT_EQ(trace.format, "chrome-json");
  EXPECT_EQ(trace.devices.at(0).number, 1);
  EXPECT_EQ(trace.devices.at(0).name, "process 1");
  EXPECT_EQ(trace.lanes.at(0).number, 2);
  EXPECT_EQ(trace.spans.category.at(0), kNoIndex);
  EXPECT_EQ(trace.names[trace.spans.category.at(1)], "c");
  EXPECT_EQ(trace.names[trace.spans.args.at(1)], R"({"x":[1, "2"]})");
  EXPECT_EQ(codes(trace), "");
}

TEST(ChromeJsonReader, TimesAreExactToTheNanosecond) {
  const Trace trace = trace_of(
      R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1730000000000000.123,"dur":0.001},
         {"ph":"X","name":"b","pid":1,"tid":1,"ts":"1736408883688177.930","dur":"145.57"},
         {"ph":"X","name":"c","pid":1,"tid":1,"ts":"9007199254740993.001\t","dur":"1"},
         {"ph":"X","name":"d","pid":1,"tid":1,"ts":-1.5,"dur":1e3},
         {"ph":"X","name":"e","pid":1,"tid":1,"ts":12.3456789,"dur":2E0},
         {"ph":"X","name":"h","pid":1,"tid":1,"ts":" 5.001\t","dur":"0.0005"},
         {"ph":"X","name":"i","pid":1,"tid":1,"ts":"4611686018427387.904","dur":0},
         {"ph":"X","name":"j","pid":1,"tid":1,"ts":"4611686018427387.905","dur":0},
         {"ph":"X","name":"k","pid":1,"tid":1,"ts":"9999999999999999.9","dur":0},
         {"ph":"X","name":"l","pid":1,"tid":1,"ts":"0.","dur":"."},
         {"ph":"X","name":"f","pid":1,"tid":1,"ts":"999999999999999999","dur":0},
         {"ph":"X","name":"g","pid":1,"tid":1,"ts":123456789012345678,"dur":0})");
  EXPECT_EQ(spans_of(trace),
            (Spans{"d[-1500,998500]@thread 1", "h[5001,5002]@thread 1", "e[12346,14346]@thread 1",
                   "a[1730000000000000123,1730000000000000124]@thread 1",
                   "b[1736408883688177930,1736408883688323500]@thread 1",
                   "i[4611686018427387904,4611686018427387904]@thread 1"}))
      << codes(trace);
  // "." is no number; c, f, g, j and k are more than 146 years.
  EXPECT_EQ(finding_count(trace, "bad-number"), 6u);
}

TEST(ChromeJsonReader, PairsBeginsAndEndsWhateverTheirOrder) {
  const Trace trace = trace_of(
      R"({"ph":"E","pid":1,"tid":1,"ts":40},
         {"ph":"B","name":"inner","pid":1,"tid":1,"ts":20},
         {"ph":"B","name":"other","pid":1,"tid":2,"ts":5,"cat":"c"},
         {"ph":"B","name":"outer","pid":1,"tid":1,"ts":10,"args":{"a":1}},
         {"ph":"E","pid":1,"tid":1,"ts":30},
         {"ph":"E","pid":1,"tid":2,"ts":6,"args":{"b":2}})");
  EXPECT_EQ(spans_of(trace), (Spans{"other[5000,6000]@thread 2", "outer[10000,40000]@thread 1",
                                    "inner[20000,30000]@thread 1"}));
  EXPECT_EQ(trace.names[trace.spans.args.at(0)], R"({"b":2})");
  EXPECT_EQ(trace.names[trace.spans.args.at(1)], R"({"a":1})");
  EXPECT_EQ(codes(trace), "");
}

TEST(ChromeJsonReader, JoinsTheArgumentsOfBeginAndEnd) {
  const Trace trace = trace_of(
      R"({"ph":"B","name":"a","pid":1,"tid":1,"ts":1,"args":{"a":1}},
         {"ph":"E","name":"b","pid":1,"tid":1,"ts":2,"args":{"b":2}})");
  EXPECT_EQ(trace.names[trace.spans.args.at(0)], R"({"a":1,"b":2})");
  EXPECT_EQ(codes(trace), "end-of-other-name ");
}

TEST(ChromeJsonReader, CountsBeginsAndEndsWithoutPartner) {
  const Trace trace = trace_of(
      R"({"ph":"E","pid":1,"tid":1,"ts":1},
         {"ph":"B","name":"open","pid":1,"tid":1,"ts":2},
         {"ph":"X","name":"last","pid":1,"tid":2,"ts":5,"dur":4})");
  EXPECT_EQ(spans_of(trace), (Spans{"open[2000,9000]@thread 1", "last[5000,9000]@thread 2"}));
  EXPECT_EQ(finding_count(trace, "end-without-begin"), 1u);
  EXPECT_EQ(finding_count(trace, "open-spans"), 1u);
}

TEST(ChromeJsonReader, ReadsInstants) {
  const Trace trace = trace_of(
      R"({"ph":"i","name":"a","pid":1,"tid":1,"ts":2,"s":"t","args":{"value":7}},
         {"ph":"I","name":"b","pid":1,"tid":1,"ts":1},
         {"ph":"i","name":"c","pid":1,"ts":3,"s":"p","args":{"why":"x"}})");
  ASSERT_EQ(trace.instants.size(), 3u);
  EXPECT_EQ(trace.instants.time_ns, (std::vector<int64_t>{1000, 2000, 3000}));
  EXPECT_EQ(trace.instants.value, (std::vector<uint32_t>{kNoValue, 7, kNoValue}));
  EXPECT_EQ(trace.lanes[trace.instants.lane[2]].name, "process");
  EXPECT_EQ(finding_count(trace, "point-details"), 1u);
}

TEST(ChromeJsonReader, MakesOneCounterOfEachSeries) {
  const Trace trace = trace_of(
      R"({"ph":"C","name":"load","pid":1,"tid":1,"ts":1,"args":{"value":0.5}},
         {"ph":"C","name":"hbm","pid":1,"tid":1,"ts":2,"args":{"hbm":"12"}},
         {"ph":"C","name":"freq","pid":1,"tid":1,"ts":3,"args":{"MHz":1800}},
         {"ph":"C","name":"mem","pid":1,"tid":1,"ts":4,"args":{"used":1,"free":true}},
         {"ph":"C","name":"load","id":"x","pid":1,"tid":1,"ts":5,"args":{"value":2}},
         {"ph":"C","name":"bad","pid":1,"tid":1,"ts":6,"args":{"a":"text","b":{}}},
         {"ph":"C","name":"none","pid":1,"tid":1,"ts":7})");
  std::vector<std::string> counters;
  for (size_t i = 0; i < trace.counters.size(); ++i) {
    counters.push_back(
        fmt::format("{}={}", trace.names[trace.counters.name[i]], trace.counters.value[i]));
  }
  EXPECT_EQ(counters, (std::vector<std::string>{"load=0.5", "hbm=12", "freq.MHz=1800", "mem.used=1",
                                                "mem.free=1", "load[x]=2"}));
  EXPECT_EQ(finding_count(trace, "bad-series"), 3u);
}

TEST(ChromeJsonReader, NamesAndOrdersProcessesAndThreads) {
  const Trace trace = trace_of(
      R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1},
         {"ph":"X","name":"b","pid":2,"tid":1,"ts":2,"dur":1},
         {"ph":"X","name":"c","pid":2,"tid":5,"ts":3,"dur":1},
         {"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"host"}},
         {"ph":"M","name":"process_name","pid":2,"args":{"name":"GPU \"0\""}},
         {"ph":"M","name":"process_labels","pid":2,"args":{"labels":"H200"}},
         {"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":10}},
         {"ph":"M","name":"process_sort_index","pid":2,"args":{"sort_index":-1}},
         {"ph":"M","name":"thread_name","pid":2,"tid":1,"args":{"name":"main"}},
         {"ph":"M","name":"thread_sort_index","pid":2,"tid":1,"args":{"sort_index":"9"}},
         {"ph":"M","name":"num_cpus","pid":1,"args":{"number":4}})");
  ASSERT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.devices[0].name, "GPU \"0\"");
  EXPECT_EQ(trace.devices[1].name, "host");
  EXPECT_EQ(spans_of(trace),
            (Spans{"a[1000,2000]@thread 1", "b[2000,3000]@main", "c[3000,4000]@thread 5"}));
  ASSERT_EQ(trace.lanes.size(), 3u);
  EXPECT_EQ(trace.lanes[0].name, "thread 5");
  EXPECT_EQ(trace.lanes[1].name, "main");
  EXPECT_EQ(trace.lanes[2].device, 1u);
  EXPECT_EQ(property(trace, "process_labels.2"), "H200");
  EXPECT_EQ(finding_count(trace, "other-metadata"), 1u);
}

TEST(ChromeJsonReader, ProcessAndThreadMayBeTexts) {
  const Trace trace = trace_of(
      R"({"ph":"X","name":"a","pid":"Spans","tid":"PyTorch","ts":1,"dur":1},
         {"ph":"X","name":"b","pid":"Spans","tid":"12","ts":2,"dur":1},
         {"ph":"X","name":"c","pid":"Spans","tid":12,"ts":3,"dur":1},
         {"ph":"X","name":"d","ts":4,"dur":1})");
  EXPECT_EQ(spans_of(trace), (Spans{"a[1000,2000]@thread PyTorch", "b[2000,3000]@thread 12",
                                    "c[3000,4000]@thread 12", "d[4000,5000]@process"}));
  EXPECT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.lanes.size(), 3u);
  EXPECT_EQ(trace.devices[0].name, "process Spans");
}

TEST(ChromeJsonReader, KnowsTheStreamsOfKineto) {
  const Trace trace = trace_of(
      R"({"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1,"dur":1},
         {"ph":"X","cat":"gpu_memcpy","name":"copy","pid":0,"tid":8,"ts":1,"dur":1},
         {"ph":"X","cat":"cpu_op","name":"aten","pid":9,"tid":9,"ts":1,"dur":1},
         {"ph":"M","name":"thread_name","pid":0,"tid":10,"args":{"name":"stream 10 "}})");
  ASSERT_EQ(trace.lanes.size(), 4u);
  EXPECT_EQ(trace.lanes[0].kind, LaneKind::kStream);
  EXPECT_EQ(trace.lanes[1].kind, LaneKind::kStream);
  EXPECT_EQ(trace.lanes[2].kind, LaneKind::kThread);
  EXPECT_EQ(trace.lanes[3].kind, LaneKind::kStream);
}

TEST(ChromeJsonReader, TiesFlowsToSpans) {
  const Trace trace = trace_of(
      R"({"ph":"X","name":"launch","pid":1,"tid":1,"ts":10,"dur":5},
         {"ph":"X","name":"before","pid":1,"tid":2,"ts":0,"dur":100},
         {"ph":"X","name":"kernel","pid":1,"tid":2,"ts":20,"dur":5},
         {"ph":"s","id":3,"cat":"ac2g","name":"ac2g","pid":1,"tid":1,"ts":12},
         {"ph":"f","id":"3","cat":"ac2g","name":"ac2g","bp":"e","pid":1,"tid":2,"ts":20},
         {"ph":"s","id":3,"cat":"other","pid":1,"tid":1,"ts":13},
         {"ph":"t","id":3,"cat":"other","pid":1,"tid":1,"ts":14},
         {"ph":"f","id":3,"cat":"other","pid":1,"tid":2,"ts":16},
         {"ph":"s","cat":"other","pid":1,"tid":1,"ts":13})");
  ASSERT_EQ(trace.flows.size(), 5u);
  const auto span_name = [&](size_t i) {
    return trace.names[trace.spans.name[trace.flows.span[i]]];
  };
  EXPECT_EQ(span_name(0), "launch");
  EXPECT_EQ(span_name(3), "kernel");  // without "bp" an arrow ends at the next span
  EXPECT_EQ(span_name(4), "kernel");
  EXPECT_EQ(trace.flows.id[0], 3u);
  EXPECT_EQ(trace.flows.id[4], 3u);
  EXPECT_NE(trace.flows.id[1], 3u);  // ids are apart by category
  EXPECT_EQ(trace.flows.id[1], trace.flows.id[2]);
  EXPECT_EQ(trace.flows.id[1], trace.flows.id[3]);
  EXPECT_EQ(trace.flows.phase, (std::vector<uint8_t>{0, 0, 1, 2, 2}));
  EXPECT_EQ(finding_count(trace, "no-id"), 1u);
}

TEST(ChromeJsonReader, PutsAsyncSpansOnLanesOfTheirOwn) {
  const Trace trace = trace_of(
      R"({"ph":"b","name":"req","cat":"net","id":"0x1","pid":1,"tid":1,"ts":1},
         {"ph":"b","name":"req","cat":"net","id":2,"pid":1,"tid":1,"ts":2},
         {"ph":"e","name":"req","cat":"net","id":1,"pid":1,"tid":1,"ts":3},
         {"ph":"b","name":"sub","cat":"net","id":2,"pid":1,"tid":1,"ts":3},
         {"ph":"n","name":"mark","cat":"net","id":2,"pid":1,"tid":1,"ts":4},
         {"ph":"e","name":"req","cat":"net","id":2,"pid":1,"tid":1,"ts":5},
         {"ph":"e","cat":"net","id":2,"pid":1,"tid":1,"ts":6},
         {"ph":"e","cat":"net","id":9,"pid":1,"tid":1,"ts":7},
         {"ph":"b","name":"open","cat":"disk","id2":{"local":5},"scope":"s","pid":1,"ts":1},
         {"ph":"b","name":"none","cat":"disk","pid":1,"ts":1})");
  EXPECT_EQ(spans_of(trace), (Spans{"open[1000,6000]@async disk s", "req[1000,3000]@async net",
                                    "req[2000,5000]@async net", "sub[3000,6000]@async net"}));
  EXPECT_EQ(trace.instants.size(), 1u);
  EXPECT_EQ(finding_count(trace, "end-without-begin"), 1u);
  EXPECT_EQ(finding_count(trace, "open-spans"), 1u);
  EXPECT_EQ(finding_count(trace, "no-id"), 1u);
}

TEST(ChromeJsonReader, CountsWhatItDoesNotKeep) {
  const Trace trace = trace_of(
      R"({"name":"no phase","ts":1},
         {"ph":"X","name":"no time","dur":1},
         {"ph":"X","name":"null time","ts":null,"dur":1},
         {"ph":"X","name":"bad time","ts":"soon","dur":1},
         {"ph":"X","name":"bad duration","ts":1,"dur":[]},
         {"ph":"X","name":"huge","ts":1e400,"dur":1},
         {"ph":"X","name":"huge too","ts":123456789012345678901234567890,"dur":1},
         {"ph":"X","ts":1,"dur":1},
         {"ph":"X","name":"no duration","ts":1},
         {"ph":"X","name":"negative","ts":5,"dur":-1},
         {"ph":"P","name":"sample","ts":1},{"ph":"P","name":"sample","ts":1},
         {"ph":"N","name":"object","ts":1},
         {"ph":"X","name":"extra","ts":1,"dur":0,"tts":5,"cname":"good"},
         {"ph":"X","name":"text args","ts":1,"dur":0,"args":"text"},
         7, "text", {})");
  EXPECT_EQ(trace.spans.size(), 5u);
  const std::map<std::string, uint64_t> expected = {
      {"no-phase", 1},    {"no-time", 2},           {"bad-number", 4},    {"no-name", 1},
      {"no-duration", 1}, {"negative-duration", 1}, {"unknown-phase", 3}, {"other-fields", 1},
      {"bad-args", 1},    {"not-an-event", 2}};
  std::map<std::string, uint64_t> counted;
  for (const Finding& finding : trace.findings) counted[finding.code] += finding.count;
  EXPECT_EQ(counted, expected);
  EXPECT_NE(trace.names.find("(no name)"), kNoIndex);
}

TEST(ChromeJsonReader, OfAFieldThatComesTwiceTheLastCounts) {
  const Trace trace = trace_of(
      R"({"ph":"B","name":"a","ph":"X","ts":1,"ts":2,"dur":1,"name":"b","pid":1,"tid":1})");
  EXPECT_EQ(spans_of(trace), (Spans{"b[2000,3000]@thread 1"}));
}

TEST(ChromeJsonReader, UnescapesNames) {
  const Trace trace = trace_of(
      R"({"ph":"X","name":"\u00b5 \ud83d\ude80 \"q\" \\ \n","pid":1,"tid":1,"ts":1,"dur":1},
         {"ph":"X","name":"µ→🚀","pid":1,"tid":1,"ts":2,"dur":1},
         {"ph":"X","name":"\u006dain","pid":1,"tid":1,"ts":3,"dur":1},
         {"ph":"X","name":"main","pid":1,"tid":1,"ts":4,"dur":1})");
  EXPECT_EQ(trace.names[trace.spans.name[0]], "µ 🚀 \"q\" \\ \n");
  EXPECT_EQ(trace.names[trace.spans.name[1]], "µ→🚀");
  EXPECT_EQ(trace.names[trace.spans.name[2]], "main");
  EXPECT_EQ(trace.spans.name[2], trace.spans.name[3]);
}

TEST(ChromeJsonReader, DeepArgumentsAreLeftOutAndNotTheEvent) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const Trace trace = trace_of(
      fmt::format(R"({{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{{"x":{}}}}},
                     {{"ph":"X","name":"b","pid":1,"tid":1,"ts":2,"dur":1}})",
                  deep));
  EXPECT_EQ(trace.spans.size(), 2u);
  EXPECT_TRUE(trace.spans.args.empty());
  EXPECT_EQ(finding_count(trace, "args-too-deep"), 1u);
}

TEST(ChromeJsonReader, AnEventLargerThanItsLimitIsSkipped) {
  std::string text = R"([{"ph":"X","name":"a","ts":1,"dur":1},{"ph":"X","name":")";
  text.append(65 << 20, 'x');
  text += R"(","ts":2,"dur":1},{"ph":"X","name":"c","ts":3,"dur":1}])";
  const Result<Trace> trace = read_text(text);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.size(), 2u);
  EXPECT_EQ(finding_count(*trace, "event-too-large"), 1u);
}

TEST(ChromeJsonReader, KeepsWhatStandsBesideTheEvents) {
  const Result<Trace> trace = read_text(
      "\xef\xbb\xbf {\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0}], "
      "\"otherData\": {\"version\": \"x \\u00b5\", \"n\": 5},\n"
      "\"traceEvents\": [{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1},],"
      "\"baseTimeNanoseconds\": 1735689600000000000, \"displayTimeUnit\": \"ms\"}\n");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->spans.size(), 1u);
  EXPECT_EQ(property(*trace, "schemaVersion"), "1");
  EXPECT_EQ(property(*trace, "deviceProperties"), "[{\"id\": 0}]");
  EXPECT_EQ(property(*trace, "version"), "x µ");
  EXPECT_EQ(property(*trace, "n"), "5");
  EXPECT_EQ(property(*trace, "displayTimeUnit"), "ms");
  EXPECT_EQ(trace->clock.wall_minus_time_ns, 1735689600000000000);
  EXPECT_EQ(codes(*trace), "");
}

TEST(ChromeJsonReader, ABareListNeedsNoClosingBracket) {
  for (const std::string_view end : {"", ",", "\n", " , \n"}) {
    const Result<Trace> trace =
        read_text(fmt::format("[{{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1}}{}", end));
    ASSERT_TRUE(trace.has_value());
    EXPECT_EQ(trace->spans.size(), 1u);
    EXPECT_EQ(codes(*trace), "unclosed-list ");
  }
  EXPECT_EQ(codes(*read_text("[]")), "");
  EXPECT_EQ(codes(*read_text("[ ] \n")), "");
}

TEST(ChromeJsonReader, SaysWhyAFileIsNoTrace) {
  EXPECT_EQ(error_of(""), "t.json: is empty");
  EXPECT_EQ(error_of(" \n "), "t.json: is empty");
  EXPECT_EQ(error_of("hello"), "t.json: not JSON: it begins with byte 0x68");
  EXPECT_EQ(error_of(std::string_view("\0", 1)), "t.json: not JSON: it begins with byte 0x00");
  EXPECT_EQ(error_of("{}"), "t.json: is JSON but has no list of trace events (\"traceEvents\")");
  EXPECT_EQ(error_of("{\"traceEvents\":5}"),
            "t.json: is JSON but has no list of trace events (\"traceEvents\")");
  EXPECT_EQ(error_of("[1,2,3]"),
            "t.json: is JSON but has no list of trace events (\"traceEvents\")");
  EXPECT_EQ(error_of("{\"a\":"), "t.json: cut short at byte 5, before its first trace event");
  EXPECT_EQ(error_of("{\"a\":1;}"),
            "t.json: not JSON from byte 6 on, before its first trace event");
  EXPECT_EQ(error_of("[{]"), "t.json: not JSON from byte 2 on, before its first trace event");
}

TEST(ChromeJsonReader, GarbageInTheMiddleKeepsWhatIsBeforeIt) {
  const std::string_view text =
      R"({"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":1},{"ph":"X","na#me":"b)"
      "\x01\x02 }}}]]] {\"ph\":\"X\"}";
  const Result<Trace> trace = read_text(text);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.size(), 1u);
  const std::string_view bad = R"([{"ph":"X","name":"a","ts":1,"dur":1},%%%%])";
  const Result<Trace> damaged = read_text(bad);
  ASSERT_TRUE(damaged.has_value());
  EXPECT_EQ(damaged->spans.size(), 1u);
  ASSERT_EQ(codes(*damaged), "damaged ");
  EXPECT_EQ(damaged->findings[0].text,
            "the file is damaged at byte 38; the 1 events before that are here");
  const Result<Trace> trailing = read_text("[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1}] {");
  EXPECT_EQ(codes(*trailing), "trailing-bytes ");
}

TEST(ChromeJsonReader, ReportsProgressThroughALargeFile) {
  std::string text = "[";
  constexpr int kEvents = 60'000;  // several windows
  for (int i = 0; i < kEvents; ++i) {
    text +=
        fmt::format("{{\"ph\":\"X\",\"name\":\"n{}\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":1}},",
                    i % 7, i % 5, i);
  }
  text.back() = ']';
  int calls = 0;
  ReadOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    ++calls;
    EXPECT_LE(done, total);
    EXPECT_EQ(total, text.size());
  };
  const Result<Trace> trace = read_text(text, options);
  ASSERT_TRUE(trace.has_value());
  ASSERT_EQ(trace->spans.size(), size_t{kEvents});
  for (size_t i = 0; i < trace->spans.size(); ++i) {
    ASSERT_EQ(trace->spans.begin_ns[i], static_cast<int64_t>(i) * 1000);
    ASSERT_EQ(trace->names[trace->spans.name[i]], fmt::format("n{}", i % 7));
  }
  EXPECT_GE(calls, 3);
}

TEST(ChromeJsonDetection, LooksAtWhatTheFileBeginsWith) {
  EXPECT_TRUE(looks_like_chrome_json(" [{\"name\":\"a\",\"ph\":\"X\""));
  EXPECT_TRUE(looks_like_chrome_json("[]"));
  EXPECT_TRUE(looks_like_chrome_json("{\"traceEvents\": ["));
  EXPECT_TRUE(looks_like_chrome_json("\xef\xbb\xbf{ \"schemaVersion\": 1,"));
  EXPECT_TRUE(looks_like_chrome_json("{\"otherData\":{\"gapless_origin_ns\":\"0\"},"));
  EXPECT_FALSE(looks_like_chrome_json(""));
  EXPECT_FALSE(looks_like_chrome_json("   "));
  EXPECT_FALSE(looks_like_chrome_json("[1, 2]"));
  EXPECT_FALSE(looks_like_chrome_json("{}"));
  EXPECT_FALSE(looks_like_chrome_json("{\"chip_swimlane_level\": 2, \"metadata\": {}}"));
  EXPECT_FALSE(looks_like_chrome_json("GAPLESS\n"));
  EXPECT_FALSE(looks_like_chrome_json("[{\"" + std::string(100, 'x') + "\":1}]"));
}

}  // namespace
}  // namespace gapless
