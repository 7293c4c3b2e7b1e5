// SPDX-License-Identifier: Apache-2.0
//
// What the device recorder recorded goes through the report and adds up.

#include <random>

#include <gtest/gtest.h>

#include "analysis/kernel_times.h"
#include "cuda/recorder.h"
#include "cuda/recorder_test_support.h"
#include "report/adds_up_test_support.h"
#include "report/step_report.h"

namespace gapless {
namespace {

int64_t cause_ns(const StepReport& report, BubbleCause cause) {
  return report.bubbles.cause_ns[static_cast<size_t>(cause)];
}

TEST(DeviceTraceReport, OfARecordingMadeByHandIsWhatTheHandMade) {
  const Trace trace = device_trace(hand_made_recording().recording());
  const std::vector<StepWindow> steps = step_windows(trace);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].step, 1u);
  const Result<StepReport> report = make_step_report(trace, "made");
  ASSERT_TRUE(report) << report.error().message;
  expect_report_adds_up(*report);

  EXPECT_EQ(report->step_count, 2u);
  EXPECT_EQ(report->core_names, (std::vector<std::string>{"SM 0", "SM 1", "SM 2", "SM 3"}));
  EXPECT_FALSE(report->is_of_streams());
  constexpr double kTick = kMadeTickNs;
  EXPECT_NEAR(static_cast<double>(report->kernels.window_ns()), 31'000.0, 2 * kTick);
  // 20.9, 21.4 and 25.9 us; nothing ran on the last SM.
  EXPECT_NEAR(static_cast<double>(report->bubbles.core_busy_ns[0]), 20'900.0, 6 * kTick);
  EXPECT_NEAR(static_cast<double>(report->bubbles.core_busy_ns[1]), 21'400.0, 4 * kTick);
  EXPECT_NEAR(static_cast<double>(report->bubbles.core_busy_ns[2]), 25'900.0, 6 * kTick);
  EXPECT_EQ(report->bubbles.core_busy_ns[3], 0);
  EXPECT_NEAR(report->average_busy_cores(), 2.2, 0.02);
  // After the launch before had ended, its end had to be seen: 2 x 0.5 and 3 x 0.6 us.
  EXPECT_NEAR(static_cast<double>(cause_ns(*report, BubbleCause::kSetup)), 2'800.0, 10 * kTick);
  // SM 2 waits 4 us for SM 1; SM 0 2 and 2 us, SM 1 8 us.
  const int64_t dependency_ns =
      cause_ns(*report, BubbleCause::kDependencySame) -
      report->bubbles.core_ns[3][static_cast<size_t>(BubbleCause::kDependencySame)];
  EXPECT_NEAR(static_cast<double>(dependency_ns), 16'000.0, 8 * kTick);
  ASSERT_TRUE(report->tasks);
  EXPECT_EQ(report->tasks->task_count(), 8u);
  EXPECT_EQ(report->tasks->edge_count(), 5u);
  EXPECT_EQ(report->tasks->cut_count(), 0u);
  ASSERT_TRUE(report->roofline);
  EXPECT_EQ(report->roofline->bytes, 6003);
  EXPECT_EQ(report->roofline->flops, 17);
  EXPECT_FALSE(report->quality.withholds_verdict) << report->quality.reason();
}

// Goal: sums are exact whatever is recorded. Method: launches of random lengths over all SMs, each
// waiting for the one before, two blocks of a launch on some SMs.
TEST(DeviceTraceReport, OfRandomRecordingsAddsUp) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    std::vector<RecordedLaunch> launches;
    for (int i = 0; i < 6; ++i) {
      launches.push_back(
          {.name = "launch " + std::to_string(i % 4), .layer = i, .blocks = 10, .bytes = 777});
    }
    MadeRecording made(8, launches, 3, seed % 2 == 0 ? RecordLevel::kTasks : RecordLevel::kPhases);
    int64_t ended_ns = 70'000;
    for (size_t i = 0; i < 18; ++i) {
      const int64_t waited_ns = ended_ns + 600;
      const int64_t begin_ns = ended_ns - (i % 6 == 0 ? 0 : 1'500);
      for (size_t block = 0; block < 10; ++block) {
        const int64_t end_ns = waited_ns + 1'000 + static_cast<int64_t>(random() % 5'000);
        made.add({.step = i / 6,
                  .launch = i % 6,
                  .index = block,
                  .sm = static_cast<uint32_t>(block % 8),
                  .begin_ns = begin_ns,
                  .end_ns = end_ns,
                  .main = {{begin_ns, DevicePhase::kWaitLaunch}, {waited_ns, DevicePhase::kWork}}});
        ended_ns = std::max(ended_ns, end_ns);
      }
    }
    const Trace trace = device_trace(made.recording());
    for (size_t step = 0; step < 3; ++step) {
      const Result<StepReport> report = make_step_report(trace, "made", {.step = step});
      ASSERT_TRUE(report) << report.error().message;
      expect_report_adds_up(*report);
      EXPECT_EQ(report->tasks->task_count(), 60u);
      EXPECT_EQ(report->tasks->cut_count(), 0u);
      EXPECT_EQ(report->tasks->edge_count(), 50u);
      EXPECT_EQ(report->tasks->backward_count(), 0u);
      EXPECT_EQ(report->roofline->bytes, 6 * 777);
      EXPECT_FALSE(report->quality.withholds_verdict) << report->quality.reason();
    }
  }
}

TEST(DeviceTraceReport, WithholdsTheVerdictWhenBlocksAreMissing) {
  MadeRecording made = hand_made_recording();
  made.set_header(made.place_of(0, 2, 1), {});
  const Trace trace = device_trace(made.recording());
  const Result<StepReport> report = make_step_report(trace, "made", {.step = 0});
  ASSERT_TRUE(report) << report.error().message;
  expect_report_adds_up(*report);
  EXPECT_TRUE(report->quality.withholds_verdict);
}

}  // namespace
}  // namespace gapless
