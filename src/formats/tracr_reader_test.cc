// SPDX-License-Identifier: Apache-2.0
//
// The defects of TraCR (reference: docs/from-tracr.md) each have a test here that shows what a
// Gapless reader makes of them.

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "formats/tracr.h"
#include "formats/tracr_test_data.h"

namespace gapless {
namespace {

using testing::Test;
using Texts = std::vector<std::string>;

constexpr const char* kNewMetadata = R"({
    "pid": 7, "start_time": 50, "end_time": 1000,
    "markerTypes": {"12": "teal", "3": "red"},
    "markerLabels": ["red", "teal"],
    "markerColorIds": [3, 12],
    "channel_names": ["first", "second"], "num_channels": 2})";

constexpr const char* kOldMetadata = R"({
    "pid": 3, "start_time": 50, "num_channels": 2,
    "markerTypes": {"12": "teal", "3": "red"}})";

TestProc new_proc(std::vector<TracrRecord> records) {
  return {.metadata = kNewMetadata, .threads = {std::move(records)}};
}

TEST(TracrReader, ReadsTheNewDialect) {
  const Trace trace = must_read(new_proc({set(0, 0, 100, 5), set(1, 1, 110), set(0, 1, 120),
                                          reset(0, 150), reset(0, 160), reset(1, 170)}));
  EXPECT_EQ(span_texts(trace),
            (Texts{"red@first 100-120#5", "teal@second 110-170", "teal@first 120-150"}));
  EXPECT_EQ(trace.format, "tracr");
  ASSERT_EQ(trace.devices.size(), 1u);
  EXPECT_EQ(trace.devices[0].name, "proc.7");
  EXPECT_EQ(trace.devices[0].number, 7);
  EXPECT_TRUE(trace.findings.empty()) << trace.findings[0].text;
  ASSERT_EQ(trace.properties.size(), 1u);
  EXPECT_EQ(trace.properties[0].value, "new");
}

TEST(TracrReader, ReadsFlowsOfTheNewDialect) {
  const Trace trace = must_read(new_proc({set(0, 0, 100),
                                          {0, kTracrFlowStart, 9, 105},
                                          set(1, 1, 110),
                                          {1, kTracrFlowEnd, 9, 110},
                                          reset(0, 120),
                                          reset(1, 130)}));
  ASSERT_EQ(trace.flows.size(), 2u);
  EXPECT_EQ(trace.flows.id, (std::vector<uint64_t>{9, 9}));
  EXPECT_EQ(trace.flows.phase[0], static_cast<uint8_t>(FlowPhase::kOut));
  EXPECT_EQ(trace.flows.phase[1], static_cast<uint8_t>(FlowPhase::kIn));
  EXPECT_EQ(trace.flows.span, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(trace.spans.size(), 2u) << "flows change nothing on their channel";
}

TEST(TracrReader, KeepsLabelsOfExtraIds) {
  TestProc proc = new_proc({set(0, 0, 100, 5), set(0, 0, 110, 6), reset(0, 120)});
  proc.metadata = R"({"markerLabels": ["red"], "num_channels": 1,
                      "extraIdLabels": {"5": "matmul \"q\"", "x": "?"}})";
  const Trace trace = must_read(proc);
  ASSERT_EQ(trace.spans.args.size(), 2u);
  EXPECT_EQ(trace.names[trace.spans.args[0]], R"({"extra_label":"matmul \"q\""})");
  EXPECT_EQ(trace.spans.args[1], kNoIndex);
  ASSERT_NE(finding(trace, "metadata-damaged"), nullptr);
}

// simple.cpp of TraCR registers RED (3) and then TEAL (12); its own tool swaps the two names.
TEST(TracrReader, Defect1NeverGuessesLabelsFromKeyOrder) {
  TestProc proc = new_proc({set(0, 0, 100), set(0, 1, 110), reset(0, 120)});
  proc.metadata = kOldMetadata;
  const Trace trace = must_read(proc);
  EXPECT_EQ(span_texts(trace), (Texts{"event 0@Channel_1 100-110", "event 1@Channel_1 110-120"}));
  const Finding* unknown = finding(trace, "labels-unknown");
  ASSERT_NE(unknown, nullptr);
  EXPECT_NE(unknown->text.find("\"teal\", \"red\""), std::string::npos) << unknown->text;
  EXPECT_NE(unknown->text.find("--tracr-labels-by-key-order"), std::string::npos);

  const Trace forced = must_read(proc, {.tracr_labels_by_key_order = true, .progress = {}});
  EXPECT_EQ(span_texts(forced), (Texts{"teal@Channel_1 100-110", "red@Channel_1 110-120"}));
  EXPECT_NE(finding(forced, "labels-by-key-order"), nullptr);
}

TEST(TracrReader, TakesTheOnlyLabelThereIs) {
  TestProc proc = new_proc({set(0, 0, 100), reset(0, 120)});
  proc.metadata = R"({"start_time": 50, "num_channels": 1, "markerTypes": {"3": "red"}})";
  EXPECT_EQ(span_texts(must_read(proc)), (Texts{"red@Channel_1 100-120"}));
}

std::string auto_color_types(int first, int count) {
  std::string types;
  for (int i = 0; i < count; ++i) {
    types += fmt::format("{}\"{}\": \"marker {}\"", i == 0 ? "" : ", ", first + i, i);
  }
  return fmt::format(R"({{"start_time": 50, "num_channels": 1, "markerTypes": {{{}}}}})", types);
}

// As text "100" comes before "23", so that the old tool names all 120 wrongly.
TEST(TracrReader, Defect1NamesAutomaticColorsByNumber) {
  TestProc proc;
  proc.metadata = auto_color_types(23, 120);
  proc.threads.emplace_back();
  for (uint16_t event = 0; event < 120; ++event) {
    proc.threads[0].push_back(set(0, event, 100u + event));
  }
  proc.threads[0].push_back(reset(0, 300));
  const Trace trace = must_read(proc);
  ASSERT_EQ(trace.spans.size(), 120u);
  for (size_t i = 0; i < 120; ++i) {
    EXPECT_EQ(trace.names[trace.spans.name[i]], fmt::format("marker {}", i));
  }
  EXPECT_EQ(finding(trace, "labels-unknown"), nullptr);
}

TEST(TracrReader, DoesNotTrustKeysThatTracrDidNotGiveOutInOrder) {
  TestProc proc = new_proc({set(0, 0, 100), reset(0, 120)});
  proc.metadata = auto_color_types(30, 2);  // the first automatic one is 23
  EXPECT_NE(finding(must_read(proc), "labels-unknown"), nullptr);
  proc.metadata = auto_color_types(3, 2);  // fixed colours, chosen by the program
  EXPECT_NE(finding(must_read(proc), "labels-unknown"), nullptr);
  proc.metadata = R"({"num_channels": 1, "markerTypes": {"23": "a", "25": "b"}})";
  EXPECT_NE(finding(must_read(proc), "labels-unknown"), nullptr);
  proc.metadata = R"({"num_channels": 1, "markerTypes": {"red": "a", "blue": "b"}})";
  EXPECT_NE(finding(must_read(proc), "labels-unknown"), nullptr);
}

// 4 schedulers, 24 cube cores, 48 vector cores and INVALID, as the device variant writes them.
TestProc device_proc() {
  TestProc proc{.name = "proc.1003", .metadata = "", .threads = {}};
  std::string names;
  const auto add_names = [&names](std::string_view stem, int count) {
    for (int i = 0; i < count; ++i) names += fmt::format("\"{}_{}\", ", stem, i);
  };
  add_names("AICPU", 4);
  add_names("AICube", 24);
  add_names("AIVector", 48);
  proc.metadata = fmt::format(
      R"({{"pid": 1, "tid": 0, "start_time": 0, "channel_names": [{} "INVALID"], "markerTypes":
          {{"01": "Orchestrating", "02": "Scheduling", "03": "Running_Task_Single",
            "04": "Running_Task_Pair", "05": "Drain"}}}})",
      names);
  const uint64_t t = 1'000'000'000;
  proc.threads = {
      {set(0, 1, t), set(4, 2, t + 100, 11), set(4, 3, t + 200, 12), reset(4, t + 300),
       reset(0, t + 900)},
      {set(1, 1, t + 20), set(28, 2, t + 120, 13), reset(28, t + 420), reset(1, t + 900)},
      {set(2, 1, t + 20), set(2, 4, t + 800), reset(2, t + 900)},
      {set(3, 0, t + 40), reset(3, t + 700)},
  };
  return proc;
}

TEST(TracrReader, ReadsTheDeviceDialect) {
  const Trace trace = must_read(device_proc());
  ASSERT_EQ(trace.lanes.size(), 77u);
  EXPECT_EQ(trace.devices[0].number, 1003);
  EXPECT_EQ(trace.lanes[0].kind, LaneKind::kScheduler);
  EXPECT_EQ(trace.lanes[3].kind, LaneKind::kOrchestrator);
  EXPECT_EQ(trace.lanes[4].kind, LaneKind::kCubeCore);
  EXPECT_EQ(trace.lanes[27].meaning, SpanMeaning::kDispatchToFinish);
  EXPECT_EQ(trace.lanes[28].kind, LaneKind::kVectorCore);
  EXPECT_EQ(trace.lanes[0].meaning, SpanMeaning::kExecution);
  EXPECT_EQ(trace.lanes[76].name, "INVALID");
  EXPECT_EQ(trace.lanes[76].kind, LaneKind::kOther);
  EXPECT_EQ(span_texts(trace)[1], "Scheduling@AICPU_1 1000000020-1000000900");
  EXPECT_EQ(span_texts(trace)[4], "Running_Task_Single@AICube_0 1000000100-1000000200#11");
  ASSERT_NE(finding(trace, "dispatch-to-finish"), nullptr);
  EXPECT_EQ(finding(trace, "dispatch-to-finish")->count, 72u);
  ASSERT_NE(finding(trace, "paired-dispatch"), nullptr);
  EXPECT_EQ(finding(trace, "paired-dispatch")->count, 1u);
  EXPECT_EQ(trace.findings.size(), 2u);
}

TEST(TracrReader, NamesMoreThan99DeviceMarkersByNumber) {
  std::string types;
  for (int i = 1; i <= 101; ++i)
    types += fmt::format("{}\"{:02}\": \"m{}\"", i > 1 ? "," : "", i, i);
  TestProc proc = new_proc({set(0, 10, 100), set(0, 100, 110), reset(0, 120)});
  proc.metadata = fmt::format(R"({{"num_channels": 1, "markerTypes": {{{}}}}})", types);
  EXPECT_EQ(span_texts(must_read(proc)),
            (Texts{"m11@Channel_1 100-110", "m101@Channel_1 110-120"}));
}

TEST(TracrReader, Defect4KeepsRecordsOfUndeclaredChannels) {
  const Trace trace = must_read(new_proc({set(9, 0, 100), reset(9, 120)}));
  EXPECT_EQ(span_texts(trace), (Texts{"red@Channel_10 100-120"}));
  ASSERT_NE(finding(trace, "channel-out-of-range"), nullptr);
  EXPECT_EQ(finding(trace, "channel-out-of-range")->count, 2u);
}

TEST(TracrReader, Defect4And14ShowsEventsWithoutLabelByNumber) {
  const Trace trace = must_read(new_proc({set(0, 2, 100), set(0, 500, 110), reset(0, 120)}));
  EXPECT_EQ(span_texts(trace), (Texts{"event 2@first 100-110", "event 500@first 110-120"}));
  ASSERT_NE(finding(trace, "event-out-of-range"), nullptr);
  EXPECT_EQ(finding(trace, "event-out-of-range")->count, 2u);
}

TEST(TracrReader, Defect5NeedsNoDeclaredChannels) {
  TestProc proc = new_proc({set(0, 0, 100), set(3, 0, 110), reset(0, 120), reset(3, 130)});
  proc.metadata = R"({"start_time": 50, "markerLabels": ["red"]})";
  const Trace trace = must_read(proc);
  EXPECT_EQ(span_texts(trace), (Texts{"red@Channel_1 100-120", "red@Channel_4 110-130"}));
  EXPECT_NE(finding(trace, "channels-undeclared"), nullptr);
  EXPECT_EQ(finding(trace, "channel-out-of-range"), nullptr);
}

TEST(TracrReader, Defect6KeepsAndReportsOpenEventsOfEachChannel) {
  const Trace trace = must_read(new_proc({set(0, 0, 100), set(1, 1, 110), reset(2, 200)}));
  EXPECT_EQ(span_texts(trace), (Texts{"red@first 100-200", "teal@second 110-200"}));
  size_t open_count = 0;
  for (const Finding& f : trace.findings) open_count += f.code == "open-spans" ? 1 : 0;
  EXPECT_EQ(open_count, 2u);
}

TEST(TracrReader, SaysWhenThreadsCutEachOther) {
  TestProc proc{.metadata = kNewMetadata,
                .threads = {{set(0, 0, 100), reset(0, 130)}, {set(0, 1, 110), reset(0, 150)}}};
  const Trace trace = must_read(proc);
  EXPECT_EQ(span_texts(trace), (Texts{"red@first 100-110", "teal@first 110-130"}));
  const Finding* shared = finding(trace, "shared-channel");
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(shared->count, 2u);
  EXPECT_EQ(shared->severity, Severity::kWarning);

  proc.threads = {{set(0, 0, 100), reset(0, 110)}, {set(0, 1, 120), reset(0, 150)}};
  ASSERT_NE(finding(must_read(proc), "shared-channel"), nullptr);
  EXPECT_EQ(finding(must_read(proc), "shared-channel")->severity, Severity::kInfo);
  proc.threads = {{set(0, 0, 100), reset(0, 110)}, {set(1, 1, 120), reset(1, 150)}};
  EXPECT_EQ(finding(must_read(proc), "shared-channel"), nullptr);
}

TEST(TracrReader, Defect17MergesUnsortedFilesByTime) {
  const uint64_t ms = 1'000'000;
  TestProc proc{.metadata = R"({"markerLabels": ["red", "teal"], "num_channels": 2})",
                .threads = {{set(0, 0, 500 * ms), reset(0, 600 * ms), set(0, 1, 100 * ms),
                             reset(0, 200 * ms)},
                            {set(1, 0, 150 * ms), reset(1, 550 * ms)}}};
  const Trace trace = must_read(proc);
  EXPECT_EQ(span_texts(trace),
            (Texts{"teal@Channel_1 100000000-200000000", "red@Channel_2 150000000-550000000",
                   "red@Channel_1 500000000-600000000"}));
  ASSERT_NE(finding(trace, "unsorted"), nullptr);
  EXPECT_EQ(finding(trace, "unsorted")->count, 1u);
}

// The counters of two cores may differ a little: the order of the file is right, not the times.
TEST(TracrReader, KeepsTheOrderOfAThreadWhenItsClockGoesBackALittle) {
  const Trace trace =
      must_read(new_proc({set(0, 0, 100), reset(0, 99), set(0, 1, 120), reset(0, 130)}));
  EXPECT_EQ(span_texts(trace), (Texts{"red@first 100-100", "teal@first 120-130"}));
  ASSERT_NE(finding(trace, "time-goes-back"), nullptr);
  EXPECT_EQ(finding(trace, "time-goes-back")->count, 1u);
}

TEST(TracrReader, Defect7And8ReadsSeveralProcsAndAlignsTheirStarts) {
  TestProc a = new_proc({set(0, 0, 100), reset(0, 200)});
  TestProc b = a;
  b.name = "proc.8";
  b.metadata = R"({"start_time": 1050, "end_time": 2000, "markerLabels": ["red"]})";
  b.threads = {{set(0, 0, 1110), reset(0, 1150)}};
  const Result<Trace> trace = read_procs({a, b});
  ASSERT_TRUE(trace);
  EXPECT_EQ(span_texts(*trace), (Texts{"red@first 100-200", "red@Channel_1 110-150"}));
  EXPECT_EQ(trace->devices.size(), 2u);
  EXPECT_EQ(trace->lanes[2].device, 1u);
  EXPECT_NE(finding(*trace, "procs-aligned"), nullptr);
  EXPECT_EQ(finding(*trace, "alignment-unknown"), nullptr);
}

TEST(TracrReader, SaysWhenProcsCannotBeAligned) {
  TestProc a = device_proc();
  TestProc b = a;
  b.name = "proc.1004";
  for (std::vector<TracrRecord>& thread : b.threads) {
    for (TracrRecord& record : thread) record.time_ns += 5'000'000'000;
  }
  const Result<Trace> trace = read_procs({a, b});
  ASSERT_TRUE(trace);
  ASSERT_NE(finding(*trace, "alignment-unknown"), nullptr);
  EXPECT_EQ(finding(*trace, "alignment-unknown")->count, 2u);
  EXPECT_EQ(time_range(*trace).begin_ns, 1'000'000'000);
  EXPECT_EQ(time_range(*trace).end_ns, 1'000'000'900) << "both begin at the same time";
}

TEST(TracrReader, Defect9LeavesOutThreadsOfAnEarlierRun) {
  TestProc proc = new_proc({set(0, 0, 100), reset(0, 200)});
  proc.threads.push_back({set(0, 1, 10), reset(0, 20)});
  proc.threads.push_back({set(0, 1, 5000), reset(0, 6000)});
  const Trace trace = must_read(proc);
  EXPECT_EQ(span_texts(trace), (Texts{"red@first 100-200"}));
  size_t stale_count = 0;
  for (const Finding& f : trace.findings) stale_count += f.code == "stale-thread" ? 1 : 0;
  EXPECT_EQ(stale_count, 2u);
}

TEST(TracrReader, KeepsEverythingWhenNoThreadIsInTheTimeOfTheRun) {
  const Trace trace = must_read(new_proc({set(0, 0, 5000), reset(0, 6000)}));
  EXPECT_EQ(trace.spans.size(), 1u);
  EXPECT_NE(finding(trace, "times-outside-run"), nullptr);
}

TEST(TracrReader, ReportsADistantThreadThatItCannotProveStale) {
  TestProc proc = device_proc();
  proc.threads.push_back({set(0, 1, 100), reset(0, 200)});
  for (size_t i = 0; i < 4; ++i) {
    for (TracrRecord& record : proc.threads[i]) record.time_ns += 3'600'000'000'000;
  }
  const Trace trace = must_read(proc);
  ASSERT_NE(finding(trace, "stale-thread"), nullptr);
  EXPECT_NE(finding(trace, "stale-thread")->text.find("thread.5"), std::string::npos);
  EXPECT_EQ(time_range(trace).begin_ns, 100) << "it is kept";
}

TEST(TracrReader, ReadsWithoutMetadata) {
  TestProc proc = new_proc({set(2, 4, 100), reset(2, 120)});
  proc.metadata.reset();
  const Trace trace = must_read(proc);
  EXPECT_EQ(span_texts(trace), (Texts{"event 4@Channel_3 100-120"}));
  EXPECT_NE(finding(trace, "metadata-missing"), nullptr);
}

TEST(TracrReader, LeavesOutSlotsThatWereNeverWritten) {
  const Trace trace =
      must_read(new_proc({set(0, 0, 100), reset(0, 120), {0, 0, 0, 0}, {0, 0, 0, 0}}));
  EXPECT_EQ(span_texts(trace), (Texts{"red@first 100-120"}));
  ASSERT_NE(finding(trace, "empty-records"), nullptr);
  EXPECT_EQ(finding(trace, "empty-records")->count, 2u);
}

TEST(TracrReader, LeavesOutTimesThatCannotBe) {
  const Trace trace = must_read(new_proc({set(0, 0, 100), set(0, 1, ~uint64_t{0}), reset(0, 120)}));
  EXPECT_EQ(span_texts(trace), (Texts{"red@first 100-120"}));
  EXPECT_NE(finding(trace, "time-out-of-range"), nullptr);
}

TEST(TracrReader, SaysThatThereIsNothing) {
  const Result<Trace> none = read_procs({new_proc({})});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "test: no whole record in it: 1 procs, 1 threads, 0 bytes of records");
}

TEST(TracrReader, KeepsWholeRecordsOfAFileCutAnywhere) {
  const std::vector<TracrRecord> records = {set(0, 0, 100), set(0, 1, 110), reset(0, 120)};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(records));
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const TracrProc proc{"proc.7", kNewMetadata, {{"thread.1", bytes.first(size)}}};
    const Result<Trace> trace = read_tracr_procs({&proc, 1}, "test", {});
    if (size < 16) {
      EXPECT_FALSE(trace);
      continue;
    }
    ASSERT_TRUE(trace);
    EXPECT_EQ(trace->spans.size(), std::min<size_t>(size / 16, 2));
    const Finding* cut = finding(*trace, "cut-short");
    ASSERT_EQ(cut != nullptr, size % 16 != 0) << size;
    EXPECT_EQ(cut == nullptr ? 0 : cut->count, size % 16);
  }
}

TEST(TracrReader, SaysWhereMetadataIsCut) {
  const std::string whole = kNewMetadata;
  TestProc proc = new_proc({set(0, 0, 100), reset(0, 120)});
  for (size_t size = 0; size < whole.size(); ++size) {
    proc.metadata = whole.substr(0, size);
    const Trace trace = must_read(proc);
    EXPECT_EQ(span_texts(trace), (Texts{"event 0@Channel_1 100-120"}));
    const Finding* damage = finding(trace, "metadata-damaged");
    ASSERT_NE(damage, nullptr) << size;
    EXPECT_EQ(damage->severity, Severity::kError);
    EXPECT_NE(damage->text.find(fmt::format("of {};", size)), std::string::npos) << damage->text;
  }
}

TEST(TracrReader, LeavesOutMetadataOfTheWrongType) {
  TestProc proc = new_proc({set(0, 0, 100), reset(0, 120)});
  for (const char* text :
       {R"([1])", R"("x")", R"(null)", R"({"markerLabels": 5})", R"({"markerTypes": ["a"]})",
        R"({"channel_names": {"a": 1}})", R"({"num_channels": "many"})",
        R"({"num_channels": 99999999999})", R"({"start_time": -4})", R"({"start_time": 1.5})",
        R"({"end_time": 18446744073709551615})", R"({"markerLabels": [1, null]})",
        R"({"channel_names": [3, []]})", R"({"extraIdLabels": []})", R"({"gapless": 1})",
        R"({"gapless": {"lanes": [[1, 2, 3]]}})", R"({"pid": "x"})"}) {
    proc.metadata = text;
    const Trace trace = must_read(proc);
    EXPECT_EQ(trace.spans.size(), 1u) << text;
    EXPECT_NE(finding(trace, "metadata-damaged"), nullptr) << text;
  }
}

// Goal: no bytes make the reader crash or lose its order.
// Method: random flips in metadata and records of a device proc; every result must be sorted.
TEST(TracrReader, SurvivesFlippedBytes) {
  std::mt19937_64 random(7);
  const TestProc whole = device_proc();
  for (int round = 0; round < 3000; ++round) {
    TestProc proc = whole;
    const bool in_text = round % 3 == 0;
    for (uint64_t flip = 0; flip <= random() % 4; ++flip) {
      std::vector<TracrRecord>& thread = proc.threads[random() % proc.threads.size()];
      char* bytes = in_text ? proc.metadata->data() : reinterpret_cast<char*>(thread.data());
      const size_t size = in_text ? proc.metadata->size() : thread.size() * sizeof(TracrRecord);
      bytes[random() % size] ^= static_cast<char>(1 << (random() % 8));
    }
    const Result<Trace> trace = read_procs({proc});
    ASSERT_TRUE(trace) << trace.error().message;
    for (size_t i = 0; i < trace->spans.size(); ++i) {
      ASSERT_LE(trace->spans.begin_ns[i], trace->spans.end_ns[i]);
    }
  }
}

class TracrFolders : public TracrDirectory {};

TEST_F(TracrFolders, AreFoundFromAboveAndWithin) {
  put_proc("run/tracr", new_proc({set(0, 0, 100), reset(0, 120)}));
  put("run/readme.txt", "");
  for (const char* name : {"run", "run/", "run/tracr", "run/tracr/", "run/tracr/proc.7"}) {
    EXPECT_TRUE(is_tracr_directory(path(name))) << name;
    const Result<Trace> trace = read_tracr(path(name), {});
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(span_texts(*trace), (Texts{"red@first 100-120"}));
    EXPECT_EQ(trace->devices[0].name, "proc.7");
  }
  EXPECT_FALSE(is_tracr_directory(path("run/tracr/proc.7/thread.1")));
  EXPECT_FALSE(is_tracr_directory(path("run/readme.txt")));
  EXPECT_FALSE(is_tracr_directory(path("nowhere")));
  EXPECT_FALSE(is_tracr_directory(path(".")));
}

TEST_F(TracrFolders, ReadsProcsAndThreadsInOrderOfTheirNumbers) {
  TestProc proc = new_proc({set(0, 0, 100), reset(0, 120)});
  for (int i = 0; i < 10; ++i) proc.threads.push_back({set(1, 1, 200), reset(1, 210)});
  put_proc("tracr_12", proc);
  proc.name = "proc.10";
  put_proc("tracr_12", proc);
  put("tracr_12/proc.x/metadata.json", "{}");
  const Result<Trace> trace = read_tracr(path("tracr_12"), {});
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->devices.size(), 2u);
  EXPECT_EQ(trace->devices[0].number, 7);
  EXPECT_EQ(trace->devices[1].number, 10);
  EXPECT_TRUE(is_tracr_directory(path(".")));
}

TEST_F(TracrFolders, AsksWhichOfSeveralRunsIsMeant) {
  put_proc("tracr_0", new_proc({set(0, 0, 100)}));
  put_proc("tracr_1", new_proc({set(0, 0, 100)}));
  const Result<Trace> trace = read_tracr(path("."), {});
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("holds 2 TraCR runs (tracr_0, tracr_1); name one"),
            std::string::npos)
      << trace.error().message;
}

TEST_F(TracrFolders, SaysWhatIsMissing) {
  std::filesystem::create_directories(root_ / "empty");
  Result<Trace> trace = read_tracr(path("empty"), {});
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("no proc.<id> folder"), std::string::npos);
  put("tracr/proc.1/metadata.json", "{}");
  trace = read_tracr(path("tracr"), {});
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("no whole record in it: 1 procs, 0 threads"),
            std::string::npos);
}

TEST_F(TracrFolders, ReportsProgressInBytes) {
  std::vector<TracrRecord> records;
  for (uint64_t i = 0; i < 200'000; ++i) records.push_back(set(0, 0, 100 + i));
  put_proc("tracr", new_proc(records));
  uint64_t last = 0;
  const Progress progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 200'000u * 16);
    last = done;
  };
  ASSERT_TRUE(
      read_tracr(path("tracr"), {.tracr_labels_by_key_order = false, .progress = progress}));
  EXPECT_GT(last, 0u);
}

}  // namespace
}  // namespace gapless
