// SPDX-License-Identifier: Apache-2.0
//
// The TraCR macro names on our recorder. Tests named Defect<N> are about the defect of that number
// in docs/from-tracr.md.

#define ENABLE_TRACR
#include "gapless/tracr.h"

#if defined(likely) || defined(unlikely)
#error "defect 11: the header must not define macros that are not its own"
#endif

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trace/trace_file.h"

namespace gapless {
namespace {

class TracrMacros : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/gapless_tracr_XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    INSTRUMENTATION_TRACE_PATH(folder_ + "/");
  }
  void TearDown() override {
    INSTRUMENTATION_END();
    std::filesystem::remove_all(folder_);
  }

  Trace read() const {
    const std::string path = folder_ + "/tracr." + std::to_string(getpid()) + ".gapless";
    Result<Trace> trace = read_trace_file(path);
    EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
    return trace ? std::move(*trace) : Trace{};
  }

  std::string folder_;
};

std::string span_name(const Trace& trace, size_t row) {
  return std::string(trace.names[trace.spans.name[row]]);
}

TEST_F(TracrMacros, SetAndResetMakeSpansOnNamedChannels) {
  INSTRUMENTATION_START();
  EXPECT_TRUE(INSTRUMENTATION_ACTIVE);
  EXPECT_TRUE(INSTRUMENTATION_IS_PROC_READY());
  const uint16_t work = INSTRUMENTATION_MARK_ADD("work");
  const uint16_t idle = INSTRUMENTATION_MARK_ADD("idle");
  INSTRUMENTATION_MARK_SET(0, work);
  INSTRUMENTATION_MARK_SET(0, idle, 42);
  INSTRUMENTATION_MARK_RESET(0);
  INSTRUMENTATION_MARK_RESET(0);  // nothing is open: ignored, as in TraCR
  INSTRUMENTATION_ADD_CHANNEL_NAMES({"first"});
  INSTRUMENTATION_END();

  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 2u);
  EXPECT_EQ(span_name(trace, 0), "work");
  EXPECT_EQ(span_name(trace, 1), "idle");
  EXPECT_EQ(trace.spans.value[1], 42u);
  EXPECT_EQ(trace.spans.end_ns[0], trace.spans.begin_ns[1]);
  EXPECT_EQ(trace.lanes[trace.spans.lane[0]].name, "first");
  EXPECT_TRUE(trace.findings.empty());
}

TEST_F(TracrMacros, ChannelNamesMayBeAnyList) {
  INSTRUMENTATION_START();
  INSTRUMENTATION_ADD_NUM_CHANNELS(4);
  const std::vector<std::string> names = {"a", "b", "c"};
  INSTRUMENTATION_ADD_CHANNEL_NAMES(names);
  INSTRUMENTATION_END();
  const Trace trace = read();
  std::vector<std::string> found;
  for (const Lane& lane : trace.lanes) found.push_back(lane.name);
  for (const char* name : {"a", "b", "c", "Channel_4"}) {
    EXPECT_NE(std::find(found.begin(), found.end(), name), found.end()) << name;
  }
}

TEST_F(TracrMacros, FlowsTieTheOpenSpans) {
  INSTRUMENTATION_START();
  const uint16_t send = INSTRUMENTATION_MARK_ADD("send");
  const uint16_t receive = INSTRUMENTATION_MARK_ADD("receive");
  INSTRUMENTATION_MARK_SET(0, send);
  INSTRUMENTATION_FLOW_START(0, 5);
  INSTRUMENTATION_MARK_SET(1, receive);
  INSTRUMENTATION_FLOW_END(1, 5);
  INSTRUMENTATION_MARK_RESET(0);
  INSTRUMENTATION_MARK_RESET(1);
  INSTRUMENTATION_END();
  const Trace trace = read();
  ASSERT_EQ(trace.flows.size(), 2u);
  EXPECT_EQ(span_name(trace, trace.flows.span[0]), "send");
  EXPECT_EQ(span_name(trace, trace.flows.span[1]), "receive");
}

TEST_F(TracrMacros, Defect1LabelsBelongToTheirEventsWhateverTheColours) {
  INSTRUMENTATION_START();
  const uint16_t red = INSTRUMENTATION_MARK_W_COLOR_ADD("red one", MARK_COLOR_RED);
  const uint16_t teal = INSTRUMENTATION_MARK_W_COLOR_ADD("teal one", MARK_COLOR_TEAL);
  std::vector<uint16_t> lazy;
  for (int i = 0; i < 120; ++i) {
    lazy.push_back(INSTRUMENTATION_MARK_ADD("lazy " + std::to_string(i)));
  }
  INSTRUMENTATION_MARK_SET(0, red);
  INSTRUMENTATION_MARK_SET(0, teal);
  for (const uint16_t event : lazy) INSTRUMENTATION_MARK_SET(0, event);
  INSTRUMENTATION_MARK_RESET(0);
  INSTRUMENTATION_END();
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 122u);
  EXPECT_EQ(span_name(trace, 0), "red one");
  EXPECT_EQ(span_name(trace, 1), "teal one");
  for (size_t i = 0; i < 120; ++i) EXPECT_EQ(span_name(trace, i + 2), "lazy " + std::to_string(i));
}

TEST_F(TracrMacros, Defect3And13TheRingKeepsTheNewestAndCountsTheRest) {
  start_tracr(FullPolicy::kKeepNewest, 1 << 20);
  const uint16_t tick = INSTRUMENTATION_MARK_ADD("tick");
  constexpr uint32_t kEvents = 200'000;
  for (uint32_t i = 0; i < kEvents; ++i) INSTRUMENTATION_MARK_SET(0, tick, i);
  const RecordingSummary summary = stop_recording();
  EXPECT_EQ(summary.event_count + summary.dropped_count, kEvents);
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), summary.event_count);
  EXPECT_EQ(trace.spans.value.back(), kEvents - 1);
  EXPECT_EQ(trace.lanes[trace.spans.lane[0]].dropped_count, summary.dropped_count);
}

TEST_F(TracrMacros, Defect6OpenEventsAreKeptAndReported) {
  INSTRUMENTATION_START();
  const uint16_t open = INSTRUMENTATION_MARK_ADD("open");
  INSTRUMENTATION_MARK_SET(0, open);
  INSTRUMENTATION_MARK_SET(1, open);
  INSTRUMENTATION_END();
  const Trace trace = read();
  EXPECT_EQ(trace.spans.size(), 2u);
  EXPECT_EQ(std::count_if(trace.findings.begin(), trace.findings.end(),
                          [](const Finding& finding) { return finding.code == "open-spans"; }),
            2)
      << "one for each channel";
}

TEST_F(TracrMacros, Defect10AFailedStartDoesNotEndTheProgram) {
  INSTRUMENTATION_TRACE_PATH("/nowhere/at/all/");
  INSTRUMENTATION_START();
  EXPECT_FALSE(INSTRUMENTATION_IS_PROC_READY());
  INSTRUMENTATION_MARK_SET(0, INSTRUMENTATION_MARK_ADD("unheard"));
  INSTRUMENTATION_MARK_RESET(0);
}

TEST_F(TracrMacros, Defect9And12ThreadsNeedNoInitAndNeverShareALane) {
  INSTRUMENTATION_START();
  const uint16_t work = INSTRUMENTATION_MARK_ADD("work");
  for (uint16_t i = 0; i < 8; ++i) {  // one after another: their kernel ids may repeat
    std::thread([i, work] {
      INSTRUMENTATION_MARK_SET(i, work, i);
      INSTRUMENTATION_MARK_RESET(i);
    }).join();
  }
  INSTRUMENTATION_END();
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 8u);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(trace.spans.value[i], i);
}

TEST_F(TracrMacros, Defect14MarkersMadeLateHaveTheirLabels) {
  INSTRUMENTATION_START();
  INSTRUMENTATION_MARK_SET(0, INSTRUMENTATION_MARK_ADD("early"));
  INSTRUMENTATION_MARK_SET(0, INSTRUMENTATION_MARK_ADD("late"));
  INSTRUMENTATION_MARK_RESET(0);
  INSTRUMENTATION_END();
  EXPECT_EQ(span_name(read(), 1), "late");
}

TEST_F(TracrMacros, OnAndOffGateTheRecording) {
  INSTRUMENTATION_START();
  const uint16_t work = INSTRUMENTATION_MARK_ADD("work");
  INSTRUMENTATION_OFF();
  INSTRUMENTATION_MARK_SET(0, work, 1);
  INSTRUMENTATION_ON();
  INSTRUMENTATION_MARK_SET(0, work, 2);
  INSTRUMENTATION_MARK_RESET(0);
  INSTRUMENTATION_END();
  const Trace trace = read();
  ASSERT_EQ(trace.spans.size(), 1u);
  EXPECT_EQ(trace.spans.value[0], 2u);
}

}  // namespace
}  // namespace gapless
