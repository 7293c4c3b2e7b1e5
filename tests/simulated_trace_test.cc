// SPDX-License-Identifier: Apache-2.0
//
// Traces of the simulated device, explained: every core-nanosecond must be there.

#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "analysis/kernel_times.h"
#include "report/step_report.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

TEST(SimulatedTrace, AddsUpInAReport) {
  for (const LayerTiling tiling : {LayerTiling::kBf16, LayerTiling::kA8W8}) {
    const TracedSim made = traced_sim_layer({.tiling = tiling});
    const Result<StepReport> report = make_step_report(made.trace, "sim");
    ASSERT_TRUE(report.has_value()) << report.error().message;
    int64_t busy_ns = 0;
    for (const SimRecord& record : made.result.records) {
      busy_ns += record.end_ns / 20 * 20 - record.start_ns / 20 * 20;
    }
    EXPECT_EQ(report->bubbles.busy_ns, busy_ns);
    EXPECT_EQ(report->bubbles.busy_ns + report->bubbles.idle_ns,
              72 * (made.result.makespan_ns / 20 * 20));
    EXPECT_TRUE(report->roofline.has_value());
    EXPECT_EQ(report->limits.bytes_per_second, 1.2e12);
    EXPECT_EQ(step_windows(made.trace).size(), 1u);
  }
}

TEST(SimulatedTrace, OfRandomGraphsAddsUpToo) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 10; ++round) {
    const SimGraph graph =
        random_sim_graph(random, {.task_count = 60, .has_memory = true, .has_special = true});
    const TracedSim made = traced_sim(changed_profile("ascend-910b", {}), graph);
    const Result<StepReport> report = make_step_report(made.trace, "sim");
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->bubbles.busy_ns + report->bubbles.idle_ns,
              72 * (made.result.makespan_ns / 20 * 20));
  }
}

TEST(SimulatedTrace, OfUnifiedCoresIsExplainedToo) {
  std::mt19937_64 random(5);
  const TracedSim made = traced_sim(changed_profile("cpu-like", {}), random_sim_graph(random, {}));
  EXPECT_TRUE(make_step_report(made.trace, "sim").has_value());
}

// The replay of the report knows nothing of clusters and loops of polls; it must come close.
TEST(SimulatedTrace, ReplaysUnchanged) {
  const TracedSim made = traced_sim_layer();
  ReportOptions options;
  options.max_replay_error = 0.05;
  const Result<StepReport> report = make_step_report(made.trace, "sim", options);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->changes.has_value()) << "more than 5 % off";
}

// A slow orchestrator uses few cores, whose tasks are not bound to them for that; and tasks that
// are all there at once share the memory. The truth is the same layer with free submits.
TEST(SimulatedTrace, OfASlowOrchestratorTellsWhatSubmissionCosts) {
  Result<SimGraph> graph = make_layer_graph({});
  ASSERT_TRUE(graph.has_value());
  const TracedSim slow =
      traced_sim(changed_profile("ascend-910b", {"orchestrator.submit_ns=6000"}), *graph);
  const TracedSim free =
      traced_sim(changed_profile("ascend-910b", {"orchestrator.submit_ns=0"}), *graph);
  const Result<StepReport> report = make_step_report(slow.trace, "sim");
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_TRUE(report->efficiencies.has_value());
  ASSERT_GT(slow.result.makespan_ns, 2 * free.result.makespan_ns);
  EXPECT_NEAR(static_cast<double>(report->efficiencies->at_once_ns),
              static_cast<double>(free.result.makespan_ns),
              0.1 * static_cast<double>(free.result.makespan_ns));
  EXPECT_NE(report->verdict.find("the loss is submission: "), std::string::npos) << report->verdict;
}

// The layer reads at 88 % of the memory's rate: more cores do not make it 26 % faster.
TEST(SimulatedTrace, MoreCoresShareTheMemory) {
  const TracedSim made = traced_sim_layer();
  const Result<StepReport> report = make_step_report(made.trace, "sim");
  ASSERT_TRUE(report.has_value());
  ASSERT_TRUE(report->changes.has_value());
  bool has_row = false;
  for (const StandardChange& change : report->changes->changes) {
    if (change.name != "twice the cube cores") continue;
    has_row = true;
    EXPECT_LT(change.gain, 0.08);
  }
  EXPECT_TRUE(has_row);
}

}  // namespace
}  // namespace gapless
