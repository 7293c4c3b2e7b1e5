// SPDX-License-Identifier: Apache-2.0
//
// Goal: parameters that made a trace come back from it.
// Method: a simulated device with known numbers makes the trace, and a profile with others is
// fitted to it. Without ticks the fit must be exact where differences of times are the parameter.

#include "analysis/calibrate.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

using Settings = std::initializer_list<std::string_view>;

constexpr std::array<std::string_view, 16> kExactKeys = {
    "cluster.count",       "cluster.vector_cores", "cluster.is_unified",     "scheduler.threads",
    "scheduler.poll_ns",   "scheduler.loop_ns",    "scheduler.complete_ns",  "scheduler.resolve_ns",
    "scheduler.pop_ns",    "scheduler.payload_ns", "orchestrator.submit_ns", "orchestrator.edge_ns",
    "core.propagation_ns", "core.setup_ns",        "core.first_setup_ns",    "core.switch_ns"};

int64_t value_of(const DeviceProfile& profile, std::string_view key) {
  for (const ProfileParameter& parameter : profile_parameters()) {
    if (parameter.key == key) return profile.*parameter.member;
  }
  ADD_FAILURE() << key;
  return 0;
}

const ParameterFit& fit_of(const Calibration& calibration, std::string_view key) {
  for (const ParameterFit& fit : calibration.parameters) {
    if (fit.key == key) return fit;
  }
  ADD_FAILURE() << key;
  return calibration.parameters.front();
}

TracedSim made_layer(const DeviceProfile& profile, LayerTiling tiling, uint64_t seed,
                     bool has_ticks) {
  Result<SimGraph> graph = make_layer_graph({.tiling = tiling});
  EXPECT_TRUE(graph.has_value());
  TracedSim made{profile, std::move(*graph), {}, {}};
  Result<SimResult> result = simulate(profile, made.graph, {.seed = seed});
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  made.result = std::move(*result);
  made.trace = make_sim_trace(profile, made.graph, made.result, {.has_ticks = has_ticks});
  return made;
}

// A trace whose only step is all of it.
struct OneStep {
  explicit OneStep(const Trace& made, const char* base_name = "ascend-910b")
      : trace(made), base(changed_profile(base_name, {})) {
    Result<StepTasks> created = StepTasks::create(trace, time_range(trace));
    EXPECT_TRUE(created.has_value()) << (created ? "" : created.error().message);
    tasks.push_back(std::move(*created));
    Result<RecordedGraph> graph = make_recorded_graph(trace, tasks.front());
    EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
    steps.push_back({&tasks.front(), std::move(*graph)});
  }
  Result<Calibration> fit(bool has_kernels = true) const {
    return calibrate({.trace = trace,
                      .steps = steps,
                      .base = base,
                      .source = "made",
                      .name = "",
                      .has_kernels = has_kernels});
  }
  const Trace& trace;
  DeviceProfile base;
  std::vector<StepTasks> tasks;
  std::vector<RecordedStep> steps;
};

Calibration fitted(const Trace& trace, const char* base_name = "ascend-910b") {
  const OneStep step(trace, base_name);
  Result<Calibration> calibration = step.fit();
  EXPECT_TRUE(calibration.has_value()) << (calibration ? "" : calibration.error().message);
  return std::move(*calibration);
}

const std::array<Settings, 3>& changed_settings() {
  static const std::array<Settings, 3> settings = {
      Settings{"core.propagation_ns=501", "core.setup_ns=333", "core.first_setup_ns=1507",
               "core.switch_ns=650", "scheduler.poll_ns=121", "scheduler.complete_ns=310",
               "scheduler.resolve_ns=41", "scheduler.pop_ns=222", "scheduler.payload_ns=170",
               "scheduler.notice_ns=90", "scheduler.loop_ns=333", "orchestrator.submit_ns=410",
               "orchestrator.edge_ns=17"},
      Settings{"core.propagation_ns=950", "core.setup_ns=12", "core.first_setup_ns=4001",
               "core.switch_ns=77", "scheduler.poll_ns=60", "scheduler.complete_ns=90",
               "scheduler.resolve_ns=150", "scheduler.pop_ns=33", "scheduler.payload_ns=411",
               "scheduler.notice_ns=211", "scheduler.loop_ns=83", "orchestrator.submit_ns=1234",
               "orchestrator.edge_ns=101"},
      Settings{"scheduler.threads=2", "cluster.count=12", "cluster.vector_cores=3",
               "scheduler.poll_ns=300", "core.setup_ns=900", "core.switch_ns=1100"}};
  return settings;
}

TEST(Calibration, GivesBackWhatMadeTheTrace) {
  for (const Settings& settings : changed_settings()) {
    for (const uint64_t seed : {1u, 2u, 3u}) {
      const DeviceProfile truth = changed_profile("ascend-910b", settings);
      const LayerTiling tiling = seed == 3 ? LayerTiling::kA8W8 : LayerTiling::kBf16;
      const TracedSim made = made_layer(truth, tiling, seed, false);
      const Calibration calibration = fitted(made.trace);
      for (const std::string_view key : kExactKeys) {
        EXPECT_TRUE(fit_of(calibration, key).is_fitted) << key;
        EXPECT_EQ(value_of(calibration.profile, key), value_of(truth, key)) << key;
      }
      const int64_t notice_ns = calibration.profile.notice_ns;
      EXPECT_GE(notice_ns, truth.notice_ns) << "a poll cannot see an end before that";
      EXPECT_LE(notice_ns, truth.notice_ns + 30);
      EXPECT_EQ(calibration.profile.tick_ns, 0);
    }
  }
}

TEST(Calibration, IsWithinATickOfWhatMadeTheTrace) {
  for (const Settings& settings : changed_settings()) {
    const DeviceProfile truth = changed_profile("ascend-910b", settings);
    const TracedSim made = made_layer(truth, LayerTiling::kBf16, 5, true);
    const Calibration calibration = fitted(made.trace);
    EXPECT_EQ(calibration.profile.tick_ns, 20);
    for (const std::string_view key : kExactKeys) {
      EXPECT_LE(std::abs(value_of(calibration.profile, key) - value_of(truth, key)), 20) << key;
    }
    EXPECT_LE(std::abs(calibration.profile.notice_ns - truth.notice_ns), 30);
  }
}

TEST(Calibration, GivesBackTheTimesOfKernels) {
  const DeviceProfile truth = changed_profile(
      "ascend-910b", {"kernel.q_proj.mean_ns=22700", "kernel.q_proj.sigma_ns=1000",
                      "kernel.gate_proj.mean_ns=40000", "kernel.fa_fused.mean_ns=200000"});
  const TracedSim made = made_layer(truth, LayerTiling::kBf16, 1, false);
  const Calibration calibration = fitted(made.trace);
  const KernelCalibration* q_proj = calibration.profile.find_kernel("q_proj");
  const KernelCalibration* gate_proj = calibration.profile.find_kernel("gate_proj");
  const KernelCalibration* attention = calibration.profile.find_kernel("fa_fused");
  ASSERT_NE(q_proj, nullptr);
  ASSERT_NE(gate_proj, nullptr);
  ASSERT_NE(attention, nullptr);
  EXPECT_NEAR(static_cast<double>(q_proj->mean_ns), 22700.0, 400.0) << "of 50 with a sigma of 1000";
  EXPECT_NEAR(static_cast<double>(q_proj->sigma_ns), 1000.0, 250.0);
  EXPECT_EQ(gate_proj->mean_ns, 40000);
  EXPECT_EQ(gate_proj->sigma_ns, 0);
  EXPECT_NEAR(static_cast<double>(attention->mean_ns), 200000.0, 20.0) << "a block of three cores";
  EXPECT_EQ(attention->source, "fitted to made: mean of 24 runs");
  EXPECT_EQ(calibration.kernels.size(), 24u);
}

TEST(Calibration, FindsAFullWindow) {
  const DeviceProfile truth =
      changed_profile("ascend-910b", {"orchestrator.task_window=50", "orchestrator.submit_ns=100"});
  const TracedSim made = made_layer(truth, LayerTiling::kBf16, 1, false);
  const Calibration calibration = fitted(made.trace);
  EXPECT_EQ(calibration.profile.task_window, 50);
  EXPECT_EQ(calibration.profile.submit_ns, 100);
}

TEST(Calibration, KeepsAWindowThatWasNeverFull) {
  const TracedSim made =
      made_layer(changed_profile("ascend-910b", {}), LayerTiling::kBf16, 1, false);
  const ParameterFit fit = fit_of(fitted(made.trace), "orchestrator.task_window");
  EXPECT_FALSE(fit.is_fitted);
  EXPECT_EQ(fit.note, "was never seen to be full");
}

TEST(Calibration, SeesWhetherThereArePendingSlots) {
  const DeviceProfile without = changed_profile("ascend-910b", {"core.has_pending_slot=0"});
  const TracedSim made = made_layer(without, LayerTiling::kBf16, 1, false);
  EXPECT_EQ(fitted(made.trace).profile.has_pending_slot, 0);
  const TracedSim with =
      made_layer(changed_profile("ascend-910b", {}), LayerTiling::kBf16, 1, false);
  EXPECT_EQ(fitted(with.trace, "ideal-910b").profile.has_pending_slot, 1);
}

TEST(Calibration, SeesEarlyDispatch) {
  SimGraphBuilder builder;
  std::vector<uint32_t> last;
  for (int i = 0; i < 40; ++i) {
    SimTask task = timed_task(builder.add_kernel("one"), SimShape::kVector, 50'000);
    task.early_resolve = true;
    last = {builder.add_task(task, last)};
  }
  Result<SimGraph> graph = builder.finish();
  ASSERT_TRUE(graph.has_value());
  const TracedSim made =
      traced_sim(changed_profile("ascend-910b", {"scheduler.has_early_dispatch=1"}), *graph);
  EXPECT_EQ(fitted(made.trace).profile.has_early_dispatch, 1);
}

TEST(Calibration, FitsCoresOfOneKind) {
  const DeviceProfile truth = changed_profile(
      "cpu-like", {"cluster.count=6", "core.propagation_ns=77", "core.setup_ns=31",
                   "scheduler.pop_ns=44", "scheduler.complete_ns=19", "scheduler.notice_ns=53"});
  const TracedSim made = made_layer(truth, LayerTiling::kBf16, 1, false);
  for (const char* base : {"cpu-like", "ascend-910b"}) {
    const Calibration calibration = fitted(made.trace, base);
    EXPECT_EQ(calibration.profile.cluster_count, 6);
    EXPECT_EQ(calibration.profile.vector_cores, 0);
    EXPECT_EQ(calibration.profile.is_unified, 1);
    EXPECT_EQ(calibration.profile.scheduler_threads, 1);
    for (const std::string_view key : {"core.propagation_ns", "core.setup_ns", "scheduler.pop_ns",
                                       "scheduler.complete_ns", "scheduler.notice_ns"}) {
      EXPECT_EQ(value_of(calibration.profile, key), value_of(truth, key)) << key << " " << base;
    }
  }
}

// Without phases only a replay tells the polls.
TEST(Calibration, FindsThePollsByAReplay) {
  const DeviceProfile truth = changed_profile("ascend-910b", {"scheduler.poll_ns=350"});
  TracedSim made = made_layer(truth, LayerTiling::kBf16, 1, false);
  made.trace.spans = {};
  const Calibration calibration = fitted(made.trace);
  EXPECT_TRUE(fit_of(calibration, "scheduler.poll_ns").is_fitted);
  EXPECT_NEAR(static_cast<double>(calibration.profile.poll_ns), 350.0, 40.0);
  EXPECT_EQ(calibration.profile.complete_ns, 200) << "as the base has it";
  EXPECT_FALSE(fit_of(calibration, "scheduler.complete_ns").is_fitted);
}

TEST(Calibration, IsAProfileThatCanBeRead) {
  const TracedSim made =
      made_layer(changed_profile("ascend-910b", {}), LayerTiling::kBf16, 1, true);
  const Calibration calibration = fitted(made.trace);
  EXPECT_EQ(calibration.profile.name, "ascend-910b-fitted");
  const Result<DeviceProfile> again = parse_profile(profile_json(calibration.profile), "again");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(*again, calibration.profile);
  for (size_t index = 0; index < calibration.parameters.size(); ++index) {
    EXPECT_EQ(calibration.profile.sources[index].starts_with("fitted to made: "),
              calibration.parameters[index].is_fitted)
        << calibration.parameters[index].key;
    EXPECT_FALSE(calibration.parameters[index].note.empty());
  }
}

TEST(CalibrationCheck, IsExactWhereThePlanIs) {
  const DeviceProfile truth = changed_profile("ascend-910b", {});
  const TracedSim made = made_layer(truth, LayerTiling::kBf16, 2, false);
  const OneStep step(made.trace);
  const Result<Calibration> calibration = step.fit();
  ASSERT_TRUE(calibration.has_value());
  const Result<ReplayCheck> check =
      check_calibration(made.trace, step.steps.front(), step.base, *calibration);
  ASSERT_TRUE(check.has_value()) << check.error().message;
  EXPECT_EQ(check->span.from, TaskTime::kSubmit);
  EXPECT_EQ(check->span.to, TaskTime::kFinish);
  EXPECT_EQ(check->recorded_ns, made.result.makespan_ns - made.result.tasks[0].submit_ns);
  EXPECT_EQ(check->before.recorded_runs_ns, check->recorded_ns) << "the base made the trace";
  EXPECT_LE(check->before.least_ns, check->before.median_ns);
  EXPECT_LE(check->before.median_ns, check->before.most_ns);
  ASSERT_TRUE(check->kernels.has_value());
  EXPECT_LT(std::abs(check->error(check->kernels->median_ns)), 0.05);
}

TEST(CalibrationCheck, ComesCloserThanTheBase) {
  const DeviceProfile slow = changed_profile(
      "ascend-910b", {"core.switch_ns=4000", "core.setup_ns=3000", "core.propagation_ns=2500"});
  const TracedSim made = made_layer(slow, LayerTiling::kBf16, 1, true);
  const OneStep step(made.trace);
  const Result<Calibration> calibration = step.fit(false);
  ASSERT_TRUE(calibration.has_value());
  EXPECT_TRUE(calibration->kernels.empty());
  const Result<ReplayCheck> check =
      check_calibration(made.trace, step.steps.front(), step.base, *calibration);
  ASSERT_TRUE(check.has_value()) << check.error().message;
  EXPECT_LT(check->error(check->before.median_ns), -0.05);
  EXPECT_LT(std::abs(check->error(check->after.median_ns)), 0.03);
  EXPECT_FALSE(check->kernels.has_value());
}

TEST(CalibrationCheck, NeedsEdges) {
  TracedSim made = made_layer(changed_profile("ascend-910b", {}), LayerTiling::kBf16, 1, true);
  made.trace.edges = {};
  const OneStep step(made.trace);
  const Result<Calibration> calibration = step.fit();
  ASSERT_TRUE(calibration.has_value());
  EXPECT_EQ(calibration->profile.propagation_ns / 10, 63) << "633, which needs no edges";
  EXPECT_FALSE(
      check_calibration(made.trace, step.steps.front(), step.base, *calibration).has_value());
}

}  // namespace
}  // namespace gapless
