// SPDX-License-Identifier: Apache-2.0
//
// Each estimate on a trace that was written down for it, so that the answer can be seen.

#include "analysis/calibrate_samples.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/calibrate.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

// submit, ready, dispatch, receive, start, end, finish
using Times = std::array<int64_t, kTaskTimeCount>;

// Lane 0 is a scheduler, lane 1 a cube core, lanes 2 and 3 are vector cores.
class TimedTrace {
 public:
  TimedTrace() {
    trace_.devices.push_back({.name = "hand"});
    trace_.lanes.push_back({.name = "scheduler", .kind = LaneKind::kScheduler});
    trace_.lanes.push_back({.name = "cube", .kind = LaneKind::kCubeCore});
    trace_.lanes.push_back({.name = "first", .kind = LaneKind::kVectorCore});
    trace_.lanes.push_back({.name = "second", .kind = LaneKind::kVectorCore});
  }
  uint32_t add(uint32_t lane, const Times& times, const std::string& kernel = "one") {
    trace_.tasks.id.push_back(trace_.tasks.size());
    trace_.tasks.lane.push_back(lane);
    trace_.tasks.kernel.push_back(trace_.names.intern(kernel));
    for (size_t i = 0; i < times.size(); ++i) trace_.tasks.time_ns[i].push_back(times[i]);
    return static_cast<uint32_t>(trace_.tasks.size() - 1);
  }
  void set_kind(uint32_t lane, LaneKind kind) { trace_.lanes[lane].kind = kind; }
  void add_edge(uint32_t producer, uint32_t consumer) {
    trace_.edges.producer.push_back(producer);
    trace_.edges.consumer.push_back(consumer);
    trace_.edges.kind.push_back(static_cast<uint8_t>(EdgeKind::kData));
  }
  void add_phase(const char* name, int64_t begin_ns, int64_t end_ns, uint32_t value) {
    trace_.spans.begin_ns.push_back(begin_ns);
    trace_.spans.end_ns.push_back(end_ns);
    trace_.spans.lane.push_back(0);
    trace_.spans.name.push_back(trace_.names.intern(name));
    trace_.spans.value.push_back(value);
  }
  Result<Calibration> fit() const {
    const TimeRange range = time_range(trace_);
    Result<StepTasks> tasks =
        StepTasks::create(trace_, {.begin_ns = range.begin_ns, .end_ns = range.end_ns + 1});
    EXPECT_TRUE(tasks.has_value()) << (tasks ? "" : tasks.error().message);
    Result<RecordedGraph> graph = make_recorded_graph(trace_, *tasks);
    EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
    std::vector<RecordedStep> steps;
    steps.push_back({&*tasks, std::move(*graph)});
    const DeviceProfile base = changed_profile("ascend-910b", {});
    return calibrate(
        {.trace = trace_, .steps = steps, .base = base, .source = "hand", .name = "named"});
  }
  ParameterFit fit(std::string_view key) const {
    const Result<Calibration> calibration = fit();
    EXPECT_TRUE(calibration.has_value()) << (calibration ? "" : calibration.error().message);
    for (const ParameterFit& one : calibration->parameters) {
      if (one.key == key) return one;
    }
    ADD_FAILURE() << key;
    return {};
  }

 private:
  Trace trace_;
};

constexpr int64_t kA = kAbsent;

// Tasks every 10 us, each on a core that has been idle for long.
TimedTrace idle_tasks(bool has_dispatch, bool has_receive, bool has_finish) {
  TimedTrace trace;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t begin_ns = i * 10'000;
    // The fourth one is an accident.
    const int64_t receive_ns = begin_ns + (i == 3 ? 5'000 : 701);
    const int64_t finish_ns = begin_ns + 8'000 + 31 + 100 * i;
    trace.add(2, {kA, kA, has_dispatch ? begin_ns : kA, has_receive ? receive_ns : kA,
                  receive_ns + 402, begin_ns + 8'000, has_finish ? finish_ns : kA});
  }
  return trace;
}

TEST(CalibrationSamples, AreMediansThatAnOutlierDoesNotMove) {
  const TimedTrace trace = idle_tasks(true, true, true);
  const ParameterFit propagation = trace.fit("core.propagation_ns");
  EXPECT_EQ(propagation.value, 701);
  EXPECT_EQ(propagation.spread.count, 9u);
  EXPECT_EQ(propagation.spread.lower, 701);
  EXPECT_EQ(propagation.note, "median of 9: receive - dispatch on an idle core");
  EXPECT_EQ(trace.fit("core.setup_ns").value, 402);
  EXPECT_EQ(trace.fit("core.setup_ns").spread.count, 8u) << "the first is a core's first";
  EXPECT_EQ(trace.fit("scheduler.notice_ns").value, 31);
  EXPECT_EQ(trace.fit("clock.tick_ns").value, 0);
}

TEST(CalibrationSamples, OfOneCoreAreTooFewForItsFirstTask) {
  const ParameterFit fit = idle_tasks(true, true, true).fit("core.first_setup_ns");
  EXPECT_FALSE(fit.is_fitted);
  EXPECT_EQ(fit.value, 2300) << "as the base has it";
  EXPECT_EQ(fit.note, "only 1 of: start - receive of a core's first task");
}

TEST(CalibrationSamples, WithoutReceiveAreOfBothPartsOfTheHandOff) {
  const TimedTrace trace = idle_tasks(true, false, true);
  EXPECT_FALSE(trace.fit("core.propagation_ns").is_fitted);
  EXPECT_EQ(trace.fit("core.setup_ns").value, 701 + 402 - 633);
}

TEST(CalibrationSamples, WithoutDispatchAndFinishSayWhatIsMissing) {
  const TimedTrace trace = idle_tasks(false, true, false);
  EXPECT_EQ(trace.fit("core.propagation_ns").note, "no receive - dispatch on an idle core");
  EXPECT_EQ(trace.fit("core.setup_ns").value, 402);
  EXPECT_FALSE(trace.fit("scheduler.notice_ns").is_fitted);
  EXPECT_FALSE(trace.fit("scheduler.poll_ns").is_fitted);
  EXPECT_FALSE(trace.fit("core.has_pending_slot").is_fitted);
  EXPECT_FALSE(trace.fit("orchestrator.submit_ns").is_fitted);
}

TEST(CalibrationSamples, OfStartAndEndAloneGiveKernels) {
  TimedTrace trace;
  for (int64_t i = 0; i < 9; ++i) {
    trace.add(2, {kA, kA, kA, kA, i * 1000, i * 1000 + (i == 4 ? 990 : 60 + i), kA});
  }
  const Result<Calibration> calibration = trace.fit();
  ASSERT_TRUE(calibration.has_value());
  EXPECT_EQ(calibration->profile.name, "named");
  ASSERT_EQ(calibration->kernels.size(), 1u);
  EXPECT_EQ(calibration->kernels[0].outlier_count, 1u);
  EXPECT_EQ(calibration->kernels[0].mean_ns, 64) << "60 to 68 without 64";
  for (const ParameterFit& fit : calibration->parameters) {
    const bool is_of_lanes = fit.key.starts_with("cluster.") || fit.key == "scheduler.threads";
    EXPECT_EQ(fit.is_fitted, is_of_lanes || fit.key == "clock.tick_ns") << fit.key;
  }
}

TEST(CalibrationSamples, OfOneTaskGiveItsKernelAndNothingElse) {
  TimedTrace trace;
  trace.add(2, {0, 10, 20, 30, 40, 540, 600});
  const Result<Calibration> calibration = trace.fit();
  ASSERT_TRUE(calibration.has_value());
  ASSERT_EQ(calibration->kernels.size(), 1u);
  EXPECT_EQ(calibration->kernels[0].mean_ns, 500);
  EXPECT_EQ(calibration->profile.propagation_ns, 633);
  EXPECT_EQ(calibration->profile.tick_ns, 20) << "as the base has it: one task has no rhythm";
  EXPECT_EQ(trace.fit("clock.tick_ns").is_fitted, false);
}

TEST(CalibrationSamples, OfStreamsSayNothingAboutCores) {
  TimedTrace trace;
  trace.set_kind(2, LaneKind::kStream);
  trace.add(2, {kA, kA, kA, kA, 40, 540, kA});
  EXPECT_EQ(trace.fit("cluster.count").note, "1 lane of streams: queues, and not cores");
  EXPECT_EQ(trace.fit("cluster.count").value, 24);
}

TEST(CalibrationSamples, OfNoTaskAreAnError) {
  const TimedTrace trace;
  const Result<Calibration> calibration = trace.fit();
  ASSERT_FALSE(calibration.has_value());
  EXPECT_EQ(calibration.error().message, "hand: no task ran that could be measured");
}

// What was dispatched while another ran starts from the pending slot, and only then is the other's
// end seen.
TEST(CalibrationSamples, OfTasksThatWaitedOnTheirCoreAreSwitches) {
  TimedTrace trace;
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t end_ns = i * 1000;  // of the one before
    trace.add(2, {kA, kA, i * 1000 - 600, end_ns, end_ns + 55, end_ns + 1000,
                  end_ns + 1000 + 55 + 80 + i});
  }
  EXPECT_EQ(trace.fit("core.switch_ns").value, 55);
  EXPECT_EQ(trace.fit("core.has_pending_slot").value, 1);
  EXPECT_EQ(trace.fit("scheduler.notice_ns").value, 80);
}

TEST(CalibrationSamples, OfSubmitsAreALineOverTheProducers) {
  TimedTrace trace;
  int64_t submit_ns = 0;
  std::vector<uint32_t> tasks;
  for (int64_t i = 0; i < 60; ++i) {
    const int64_t producers = i < 3 ? 0 : i % 4;
    // Something else happens now and then.
    submit_ns += 200 + 30 * producers + (i % 10 == 9 ? 5'000 : 0);
    const int64_t start_ns = 100'000 + i * 1000;
    tasks.push_back(trace.add(2, {submit_ns, kA, kA, kA, start_ns, start_ns + 900, kA}));
    for (int64_t j = 0; j < producers; ++j) {
      trace.add_edge(tasks[static_cast<size_t>(i - 1 - j)], tasks.back());
    }
  }
  EXPECT_EQ(trace.fit("orchestrator.submit_ns").value, 200);
  EXPECT_EQ(trace.fit("orchestrator.edge_ns").value, 30);
}

// Phases as the runtime records them: a complete phase is a round over all running cores.
TEST(CalibrationSamples, OfWholeRoundsAreSolvedForTheirParts) {
  TimedTrace trace;
  uint32_t last = kNoIndex;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t begin_ns = i * 20'000;
    const int64_t running = 1 + i % 3;
    const int64_t edges = i == 39 ? 0 : i % 2;
    for (int64_t core = 0; core < running; ++core) {
      const bool is_seen = core == 0;
      const int64_t finish_ns = begin_ns + 10'000 + (is_seen ? 50 : 5'000);
      const uint32_t task = trace.add(
          static_cast<uint32_t>(1 + core),
          {kA, kA, begin_ns + 100, begin_ns + 200, begin_ns + 300, begin_ns + 9'900, finish_ns});
      if (!is_seen) continue;
      // Every second of them waits for the one of the round before.
      if (last != kNoIndex && (i - 1) % 2 == 1) trace.add_edge(last, task);
      last = task;
    }
    trace.add_phase("complete", begin_ns + 10'000,
                    begin_ns + 10'000 + running * 110 + 230 + edges * 47, 1);
  }
  EXPECT_EQ(trace.fit("scheduler.poll_ns").value, 110);
  EXPECT_EQ(trace.fit("scheduler.complete_ns").value, 230);
  EXPECT_EQ(trace.fit("scheduler.resolve_ns").value, 47);
}

TEST(Samples, HaveAMiddleCloserThanATick) {
  Samples samples;
  for (const int64_t value : {620, 640, 640, 620, 640, 640, 640, 620, 640, 640}) samples.add(value);
  samples.add(9'000);
  EXPECT_EQ(samples.middle(1), 640);
  EXPECT_EQ(samples.middle(20), 634);
  EXPECT_EQ(samples.spread().least, 620);
  EXPECT_EQ(samples.spread().upper, 640);
  EXPECT_EQ(Samples().spread().count, 0u);
}

}  // namespace
}  // namespace gapless
