// SPDX-License-Identifier: Apache-2.0
//
// Defect 2 of TraCR: ticks * 1e9 / frequency in 64 bits starts again every 2^64 / frequency ns.

#include "formats/tracr_clock.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "formats/tracr_test_data.h"

namespace gapless {
namespace {

constexpr uint64_t kDesktopHz = 2'794'000'000;
constexpr uint64_t kDeviceHz = 50'000'000;

// What the old clock of TraCR shows at a time, in 64 bits as it computes it.
uint64_t wrapped_ns(double time_s, uint64_t hz) {
  const uint64_t ticks = static_cast<uint64_t>(time_s * static_cast<double>(hz));
  return ticks * 1'000'000'000u / hz;
}

double period_s(uint64_t hz) { return std::ldexp(1.0, 64) * 1e-9 / static_cast<double>(hz); }

// Events every `step_s` from `begin_s` until `end_s`.
std::vector<TracrRecord> ticking(double begin_s, double end_s, double step_s, uint64_t hz) {
  std::vector<TracrRecord> records;
  for (int i = 0; begin_s + i * step_s < end_s; ++i) {
    records.push_back(set(0, 0, wrapped_ns(begin_s + i * step_s, hz)));
  }
  return records;
}

// Times since the first record, against the truth, must be within `tolerance_s`, and go up.
void expect_times(const std::vector<TracrRecord>& records, double step_s, double tolerance_s) {
  for (size_t i = 1; i < records.size(); ++i) {
    ASSERT_GE(records[i].time_ns, records[i - 1].time_ns) << i;
    const double elapsed_s = static_cast<double>(records[i].time_ns - records[0].time_ns) * 1e-9;
    ASSERT_NEAR(elapsed_s, static_cast<double>(i) * step_s, tolerance_s) << i;
  }
}

struct WrapCase {
  uint64_t hz;
  double begin_s;
  double end_s;
  double step_s;
  uint64_t wrap_count;
};

class TracrClockWrap : public testing::TestWithParam<WrapCase> {};

TEST_P(TracrClockWrap, Defect2IsRepaired) {
  const WrapCase& test = GetParam();
  std::vector<TracrThreadRecords> threads(1);
  threads[0].records = ticking(test.begin_s, test.end_s, test.step_s, test.hz);
  const std::optional<ClockRepair> repair = repair_clock_wrap(threads, {});
  ASSERT_TRUE(repair);
  EXPECT_EQ(repair->wrap_count, test.wrap_count);
  const double found_s = static_cast<double>(repair->period_ns) * 1e-9;
  EXPECT_NEAR(found_s, period_s(test.hz), 1e-6) << "events at a steady pace give the exact period";
  expect_times(threads[0].records, test.step_s, 1e-6 * static_cast<double>(test.wrap_count) + 1e-7);
}

INSTANTIATE_TEST_SUITE_P(TracrClock, TracrClockWrap,
                         testing::Values(WrapCase{kDesktopHz, 5.0, 8.0, 0.001, 1},   // dense, once
                                         WrapCase{kDesktopHz, 1.0, 15.0, 0.001, 2},  // dense, twice
                                         WrapCase{kDesktopHz, 1.0, 15.0, 0.9, 2},    // sparse
                                         WrapCase{kDesktopHz, 100.0, 140.0, 0.31,
                                                  6},  // up for a long time
                                         WrapCase{kDeviceHz, 360.0, 400.0, 0.01, 1},  // device
                                         WrapCase{kDeviceHz, 10.0, 800.0, 0.05, 2},
                                         WrapCase{kDeviceHz, 10.0, 800.0, 45.0, 2}));

// Uneven gaps: the period is off by at most about one gap, and the repair says so.
TEST(TracrClock, Defect2SaysHowFarItsEstimateMayBeOff) {
  std::vector<TracrThreadRecords> threads(1);
  double time_s = 1.0;
  for (int i = 0; time_s < 15.0; ++i) {
    threads[0].records.push_back(set(0, 0, wrapped_ns(time_s, kDesktopHz)));
    time_s += i % 3 == 0 ? 0.02 : 0.3;
  }
  const std::optional<ClockRepair> repair = repair_clock_wrap(threads, {});
  ASSERT_TRUE(repair);
  EXPECT_EQ(repair->wrap_count, 2u);
  const double error_s =
      std::abs(static_cast<double>(repair->period_ns) * 1e-9 - period_s(kDesktopHz));
  EXPECT_LE(error_s, static_cast<double>(repair->uncertainty_ns) * 1e-9);
  EXPECT_LE(error_s, 0.3);
}

// The device counter has a known frequency: even silent seconds around the wrap cost nothing.
TEST(TracrClock, KnowsTheFrequencyOfTheDevice) {
  std::vector<TracrThreadRecords> threads(1);
  for (const double time_s : {300.0, 310.0, 345.0, 366.0, 372.0, 390.0, 420.0}) {
    threads[0].records.push_back(set(0, 0, wrapped_ns(time_s, kDeviceHz)));
  }
  const std::optional<ClockRepair> repair = repair_clock_wrap(threads, {});
  ASSERT_TRUE(repair);
  EXPECT_TRUE(repair->is_nominal);
  EXPECT_NEAR(static_cast<double>(threads[0].records.back().time_ns), 420e9, 2.0);
}

// Threads that began after a wrap get the same period as the thread that saw it.
TEST(TracrClock, PutsThreadsBesideEachOther) {
  std::vector<TracrThreadRecords> threads(3);
  threads[0].records = ticking(5.0, 9.5, 0.001, kDesktopHz);
  threads[1].records = ticking(7.0, 9.0, 0.001, kDesktopHz);
  threads[2].records = ticking(5.2, 6.0, 0.001, kDesktopHz);
  const std::optional<ClockRepair> repair =
      repair_clock_wrap(threads, {.start_ns = 4'900'000'000, .end_ns = 0});
  ASSERT_TRUE(repair);
  EXPECT_EQ(repair->ambiguous_thread_count, 0u);
  const double begin_s[] = {5.0, 7.0, 5.2};
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_NEAR(static_cast<double>(threads[t].records.front().time_ns) * 1e-9, begin_s[t], 1e-5);
    expect_times(threads[t].records, 0.001, 1e-5);
  }
}

// With two wraps a short thread fits into either period, and nothing in the file says which.
TEST(TracrClock, SaysWhenAThreadFitsIntoTwoPeriods) {
  std::vector<TracrThreadRecords> threads(2);
  threads[0].records = ticking(5.0, 14.5, 0.001, kDesktopHz);
  threads[1].records = ticking(13.3, 13.9, 0.001, kDesktopHz);
  const std::optional<ClockRepair> repair = repair_clock_wrap(threads, {});
  ASSERT_TRUE(repair);
  EXPECT_EQ(repair->ambiguous_thread_count, 1u);
}

TEST(TracrClock, CountsAWrapBetweenStartAndTheFirstRecord) {
  std::vector<TracrThreadRecords> threads(1);
  threads[0].records = ticking(7.0, 14.0, 0.001, kDesktopHz);
  ASSERT_TRUE(repair_clock_wrap(threads, {.start_ns = 6'500'000'000, .end_ns = 0}));
  EXPECT_NEAR(static_cast<double>(threads[0].records.front().time_ns) * 1e-9, 7.0, 1e-5);
}

void expect_untouched(std::vector<TracrThreadRecords> threads, const RunLimits& limits) {
  const std::vector<TracrRecord> before = threads[0].records;
  EXPECT_FALSE(repair_clock_wrap(threads, limits));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(threads[0].records[i].time_ns, before[i].time_ns);
  }
}

TEST(TracrClock, LeavesAloneWhatIsNoWrap) {
  const uint64_t s = 1'000'000'000;
  // Small steps back, a file in two halves, a clock that counts since boot, a proof in metadata.
  expect_untouched({{"", {set(0, 0, 900), set(0, 0, 100)}}}, {});
  std::vector<TracrRecord> rotated = ticking(5.0, 5.5, 0.001, kDesktopHz);
  for (const TracrRecord& record : ticking(2.0, 5.0, 0.001, kDesktopHz)) rotated.push_back(record);
  expect_untouched({{"", rotated}}, {});
  expect_untouched({{"", {set(0, 0, 90000 * s), set(0, 0, 10 * s)}}}, {});
  expect_untouched({{"", {set(0, 0, 9 * s), set(0, 0, 2 * s), set(0, 0, 9 * s)}}},
                   {.start_ns = 1, .end_ns = 10'000'000'000});
  // A file in no order at all.
  expect_untouched({{"", {set(0, 0, 9 * s), set(0, 0, 2 * s), set(0, 0, 7 * s), set(0, 0, 5 * s)}}},
                   {});
}

TEST(TracrClock, IsRepairedAndReportedByTheReader) {
  TestProc proc{.metadata = R"({"start_time": 900000000, "num_channels": 1,
                                "markerTypes": {"3": "work"}})",
                .threads = {ticking(1.0, 15.0, 0.001, kDesktopHz)}};
  const Trace trace = must_read(proc);
  const Finding* wrap = finding(trace, "clock-wrap");
  ASSERT_NE(wrap, nullptr);
  EXPECT_EQ(wrap->count, 2u);
  EXPECT_NE(wrap->text.find("period of 6.602"), std::string::npos) << wrap->text;
  EXPECT_NE(wrap->text.find("an estimate"), std::string::npos);
  EXPECT_NE(wrap->text.find("2794."), std::string::npos) << wrap->text;
  EXPECT_EQ(finding(trace, "unsorted"), nullptr);
  int64_t longest_ns = 0;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    longest_ns = std::max(longest_ns, trace.spans.end_ns[i] - trace.spans.begin_ns[i]);
  }
  EXPECT_LT(longest_ns, 1'100'000) << "no span crosses a wrap";
}

}  // namespace
}  // namespace gapless
