// SPDX-License-Identifier: Apache-2.0
//
// The truth about a simulated run is another simulated run: what a replay says of a changed device
// is held against the same layer on that device.

#include "analysis/device_replay.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/whatif_test_support.h"
#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_trace.h"

namespace gapless {
namespace {

constexpr uint64_t kSeed = 5;

SimGraph layer_graph(LayerTiling tiling) {
  LayerGraphArgs args;
  args.tiling = tiling;
  return expect_value(make_layer_graph(args));
}

DeviceProfile profile_with(const std::vector<std::string>& settings) {
  DeviceProfile profile = expect_value(find_profile("ascend-910b"));
  for (const std::string& setting : settings) {
    EXPECT_TRUE(set_parameter(profile, setting).has_value()) << setting;
  }
  return profile;
}

SimResult run(const DeviceProfile& profile, const SimGraph& graph) {
  return expect_value(simulate(profile, graph, {.seed = kSeed}));
}

Trace trace_of(const DeviceProfile& profile, const SimGraph& graph) {
  return make_sim_trace(profile, graph, run(profile, graph), {.has_ticks = false, .seed = kSeed});
}

StepTasks whole_step(const Trace& trace) {
  int64_t last_ns = 0;
  for (const int64_t end_ns : trace.spans.end_ns) last_ns = std::max(last_ns, end_ns);
  return make_step_tasks(trace, {0, last_ns});
}

TEST(DeviceReplay, OfModelledTasksGivesTheRunAgain) {
  for (const LayerTiling tiling : {LayerTiling::kBf16, LayerTiling::kA8W8}) {
    const DeviceProfile profile = profile_with({});
    const Trace trace = trace_of(profile, layer_graph(tiling));
    const StepTasks tasks = whole_step(trace);
    const StandardChanges table = expect_value(
        replay_on_device({trace, tasks, expect_value(profile_for_step(profile, tasks)), true}, {}));
    EXPECT_LE(std::abs(table.replayed_ns - table.recorded_ns), 20);
  }
}

// Run times as recorded do not know that memory is shared anew, but nearly nothing has changed.
TEST(DeviceReplay, OfRecordedTimesIsNearTheRun) {
  const DeviceProfile profile = profile_with({});
  const Trace trace = trace_of(profile, layer_graph(LayerTiling::kBf16));
  const StepTasks tasks = whole_step(trace);
  const StandardChanges table = expect_value(
      replay_on_device({trace, tasks, expect_value(profile_for_step(profile, tasks)), false}, {}));
  EXPECT_LT(std::abs(table.error), 0.005);
}

TEST(DeviceReplay, TellsWhatAChangedDeviceTakes) {
  const DeviceProfile profile = profile_with({});
  const SimGraph graph = layer_graph(LayerTiling::kA8W8);
  const Trace trace = trace_of(profile, graph);
  const StepTasks tasks = whole_step(trace);
  const DeviceProfile base = expect_value(profile_for_step(profile, tasks));
  const std::vector<std::vector<std::string>> cases = {
      {"cluster.count=48"},           {"hbm.bytes_per_s=2.4e12"}, {"scheduler.threads=1"},
      {"core.has_pending_slot=0"},    {"scheduler.poll_ns=20"},   {"orchestrator.submit_ns=2000"},
      {"orchestrator.task_window=64"}};
  for (const std::vector<std::string>& settings : cases) {
    DeviceChange change = {.name = settings.front(), .profile = base};
    ASSERT_TRUE(set_parameter(change.profile, settings.front()).has_value());
    const StandardChanges table =
        expect_value(replay_on_device({trace, tasks, base, true}, {&change, 1}));
    const int64_t truth_ns = run(profile_with(settings), graph).makespan_ns;
    // Measured from the first submit on, which a changed submit_ns moves.
    EXPECT_LE(std::abs(table.changes.front().makespan_ns - truth_ns), 2000) << settings.front();
    EXPECT_NE(table.changes.front().makespan_ns, table.replayed_ns) << settings.front();
  }
}

TEST(DeviceReplay, ZeroOverheadsAreTheDevicesParameters) {
  DeviceProfile profile = profile_with({});
  WhatIf change = {.zero_completion = true, .zero_submit = true};
  change.core_counts[static_cast<size_t>(CoreClass::kCube)] = 12;
  change.core_counts[static_cast<size_t>(CoreClass::kVector)] = 12;
  ASSERT_TRUE(change_profile(change, profile).has_value());
  EXPECT_EQ(profile.poll_ns, 0);
  EXPECT_EQ(profile.complete_ns, 0);
  EXPECT_EQ(profile.submit_ns, 0);
  EXPECT_GT(profile.payload_ns, 0);
  EXPECT_GT(profile.setup_ns, 0);
  EXPECT_EQ(profile.cluster_count, 12);
  EXPECT_EQ(profile.vector_cores, 1);
}

TEST(DeviceReplay, RefusesCoresThatMakeNoClusters) {
  DeviceProfile profile = profile_with({});
  WhatIf change;
  change.core_counts[static_cast<size_t>(CoreClass::kVector)] = 50;
  const Result<void> vectors = change_profile(change, profile);
  ASSERT_FALSE(vectors.has_value());
  EXPECT_EQ(vectors.error().message,
            "50 vector cores are no multiple of 24 clusters, each of which has one cube core and "
            "now 2 vector cores");
  change.core_counts = {8, 0, 0};
  const Result<void> any = change_profile(change, profile);
  ASSERT_FALSE(any.has_value());
  EXPECT_EQ(any.error().message, "8 cores of class \"any\": the step has none");
}

TEST(DeviceReplay, RunsTasksOfWorkersOnUnifiedCores) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 100},
                                  {.core = 1, .start_ns = 0, .end_ns = 60},
                                  {.core = 0, .start_ns = 100, .end_ns = 150, .producers = {0, 1}}},
                                 2);
  const StepTasks tasks = make_step_tasks(trace, {0, 150});
  const DeviceProfile ideal = expect_value(find_profile("ideal-910b"));
  const DeviceProfile profile = expect_value(profile_for_step(ideal, tasks));
  EXPECT_EQ(profile.cluster_count, 2);
  EXPECT_EQ(profile.is_unified, 1);
  const StandardChanges table = expect_value(replay_on_device({trace, tasks, profile, false}, {}));
  EXPECT_EQ(table.replayed_ns, 150);
}

TEST(DeviceReplay, CannotModelTasksWithoutBytes) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 100}}, 1);
  const StepTasks tasks = make_step_tasks(trace, {0, 100});
  const DeviceProfile profile =
      expect_value(profile_for_step(expect_value(find_profile("ideal-910b")), tasks));
  const Result<StandardChanges> table = replay_on_device({trace, tasks, profile, true}, {});
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().message,
            "task row 0 (kernel) has neither bytes nor operations: its time cannot be modelled");
}

TEST(DeviceReplay, TakesACostColumnThatIsAlone) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 100, .submit_ns = 0}}, 1);
  const StepTasks tasks = make_step_tasks(trace, {0, 100});
  const DeviceProfile profile =
      expect_value(profile_for_step(expect_value(find_profile("ideal-910b")), tasks));
  trace.tasks.bytes = {1000};  // 1000 bytes at 100 GB/s
  trace.tasks.flops = {};
  EXPECT_EQ(expect_value(replay_on_device({trace, tasks, profile, true}, {})).replayed_ns, 10);
  trace.tasks.bytes = {};
  trace.tasks.flops = {14'745'600};
  EXPECT_EQ(expect_value(replay_on_device({trace, tasks, profile, true}, {})).replayed_ns, 1000);
}

TEST(DeviceReplay, CannotBeWithoutAnOrder) {
  const Trace trace = hand_trace(
      {{.core = 0, .start_ns = 0, .end_ns = 100}, {.core = 0, .start_ns = 100, .end_ns = 200}}, 1);
  const StepTasks tasks = make_step_tasks(trace, {0, 200});
  const DeviceProfile profile =
      expect_value(profile_for_step(expect_value(find_profile("ideal-910b")), tasks));
  const Result<StandardChanges> table = replay_on_device({trace, tasks, profile, false}, {});
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().message,
            "2 tasks have no edges and no ready or submit times: who waited for whom cannot be "
            "known");
}

// A window from the first dispatch to the last end, as of a step that was not recorded: submits and
// finishes outside of it are no part of the length.
TEST(DeviceReplay, IsMeasuredWithinTheWindow) {
  std::vector<HandTask> list;
  for (uint32_t i = 0; i < 10; ++i) {
    const int64_t start_ns = 1000 + 100 * int64_t{i};
    list.push_back({.core = 0,
                    .start_ns = start_ns,
                    .end_ns = start_ns + 100,
                    .submit_ns = int64_t{i},
                    .dispatch_ns = start_ns,
                    .finish_ns = start_ns + 105});
    if (i > 0) list.back().producers = {i - 1};
  }
  const Trace trace = hand_trace(list, 1);
  const StepTasks tasks = make_step_tasks(trace, {1000, 2000});
  const DeviceProfile profile =
      expect_value(profile_for_step(expect_value(find_profile("ideal-910b")), tasks));
  EXPECT_EQ(expect_value(replay_on_device({trace, tasks, profile, false}, {})).replayed_ns, 1000);
}

// The cores of a mixed task work on one result: it takes as long as the longest of them.
TEST(DeviceReplay, ScalesThePartsOfAMixedTask) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 100, .submit_ns = 0},
                            {.core = 1, .start_ns = 0, .end_ns = 100, .submit_ns = 0},
                            {.core = 2, .start_ns = 0, .end_ns = 100, .submit_ns = 0}},
                           3, {LaneKind::kCubeCore, LaneKind::kVectorCore, LaneKind::kVectorCore});
  const uint32_t cube = trace.names.intern("m_aic");
  const uint32_t vector = trace.names.intern("m_aiv");
  trace.tasks.kernel = {cube, vector, vector};
  trace.tasks.id = {7 + (uint64_t{1} << 40), 7 + (uint64_t{2} << 40), 7 + (uint64_t{3} << 40)};
  const StepTasks tasks = make_step_tasks(trace, {0, 100});
  const DeviceProfile profile =
      expect_value(profile_for_step(expect_value(find_profile("ideal-910b")), tasks));
  const auto scaled_ns = [&](uint32_t kernel, double scale) {
    DeviceChange change = {.name = "scaled", .profile = profile};
    change.kernel_scale.assign(trace.names.size(), 1.0);
    change.kernel_scale[kernel] = scale;
    return expect_value(replay_on_device({trace, tasks, profile, false}, {&change, 1}))
        .changes.front()
        .makespan_ns;
  };
  EXPECT_EQ(scaled_ns(cube, 0.5), 100);
  EXPECT_EQ(scaled_ns(cube, 2.0), 200);
  EXPECT_EQ(scaled_ns(vector, 3.0), 300);
}

TEST(DeviceReplay, RefusesAScaleThatMakesNoSense) {
  const Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 100, .submit_ns = 0}}, 1);
  const StepTasks tasks = make_step_tasks(trace, {0, 100});
  const DeviceProfile profile =
      expect_value(profile_for_step(expect_value(find_profile("ideal-910b")), tasks));
  DeviceChange change = {.name = "scaled", .profile = profile, .kernel_scale = {1e19}};
  const Result<StandardChanges> table =
      replay_on_device({trace, tasks, profile, false}, {&change, 1});
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().message, "kernel is scaled by 1e+19, which is not within 0 to 1000");
}

// Each step of a simulated trace has a seed of its own.
TEST(DeviceReplay, KnowsTheSeedOfALaterStep) {
  const DeviceProfile profile = profile_with({});
  const SimGraph graph = layer_graph(LayerTiling::kBf16);
  const SimResult later = expect_value(simulate(profile, graph, {.seed = kSeed + 3}));
  const Trace trace =
      make_sim_trace(profile, graph, later, {.has_ticks = false, .step = 3, .seed = kSeed});
  const StepTasks tasks = whole_step(trace);
  const DeviceProfile base = expect_value(profile_for_step(profile, tasks));
  const StandardChanges table = expect_value(replay_on_device({trace, tasks, base, true, 3}, {}));
  EXPECT_LE(std::abs(table.replayed_ns - table.recorded_ns), 20);
}

TEST(DeviceReplay, StandardChangesLeaveTheDeviceAsItIsButForOneThing) {
  const DeviceProfile profile = profile_with({});
  std::vector<std::string> names;
  for (const DeviceChange& change : standard_device_changes(profile, true)) {
    names.push_back(change.name);
    EXPECT_FALSE(change.profile == profile) << change.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "no completion cost", "no dispatch cost", "no hand-off", "no overhead",
                       "submits that cost nothing", "4 scheduler threads for 3", "no pending slots",
                       "twice the memory's rate", "twice the clusters"}));
  EXPECT_EQ(standard_device_changes(profile, false).size(), names.size() - 2);
}

}  // namespace
}  // namespace gapless
