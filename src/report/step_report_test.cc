// SPDX-License-Identifier: Apache-2.0

#include "report/step_report.h"

#include <numeric>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analysis/made_execution.h"

namespace gapless {
namespace {

using nlohmann::json;

StepReport report_of(const MadeExecution& execution) {
  return make_step_report(execution.trace, "made.gapless").value();
}

std::string text_of(const MadeExecution& execution) {
  return report_text(execution.trace, report_of(execution), {});
}

// pypto-lib issue 665: 38,705 tasks, 45 us a run, 61 us from dispatch to finish, 356 ms, 72 cores.
// Its readers took it for overhead; 4.9 busy cores are a lack of width.
TEST(StepReport, SaysWidthAndNotOverheadOfANarrowStep) {
  const MadeExecution execution = make_execution(narrow_decode_options());
  const StepReport report = report_of(execution);
  EXPECT_NEAR(report.average_busy_cores(), 4.9, 0.1);
  EXPECT_NEAR(report.overhead.share(), 0.26, 0.01);
  EXPECT_TRUE(report.verdict.starts_with("4.9 of 72 cores are busy on average")) << report.verdict;
  EXPECT_NE(report.verdict.find("a task takes 26."), std::string::npos) << report.verdict;
  EXPECT_NE(report.verdict.find("the loss is width, not overhead"), std::string::npos)
      << report.verdict;
}

TEST(StepReport, SaysOverheadWhereItIs) {
  MadeOptions options;
  options.core_counts = {8, 0, 0};
  options.kernels = {{.name = "short", .mean_ns = 1'000}};
  options.level_widths = std::vector<uint32_t>(40, 64);
  options.overheads.dispatch = {1'000, 1'000};  // one scheduler: 1 us a task for all eight cores
  const StepReport report = report_of(make_execution(options));
  EXPECT_NE(report.verdict.find("the loss is overhead"), std::string::npos) << report.verdict;
}

TEST(StepReport, SaysKernelsWhereCoresAreBusy) {
  MadeOptions options;
  options.core_counts = {2, 0, 0};
  options.kernels = {{.name = "long", .mean_ns = 1'000'000}};
  options.level_widths = std::vector<uint32_t>(4, 64);
  options.edges_per_task = 1;
  const StepReport report = report_of(make_execution(options));
  EXPECT_NE(report.verdict.find("is in the kernels"), std::string::npos) << report.verdict;
}

TEST(StepReport, AddsUpToCoresTimesStep) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MadeOptions options;
    options.seed = seed;
    options.core_counts = {0, 3, 6};
    options.kernels = {{.name = "cube", .core_class = CoreClass::kCube, .sigma = 0.5},
                       {.name = "vector", .core_class = CoreClass::kVector, .sigma = 0.5}};
    options.overheads = {.completion = {100, 1200},
                         .dispatch = {200, 400},
                         .propagation = {300, 500},
                         .setup = {100, 200}};
    const MadeExecution execution = make_execution(options);
    const StepReport report = report_of(execution);
    const int64_t idle =
        std::accumulate(report.bubbles.cause_ns.begin(), report.bubbles.cause_ns.end(), int64_t{0});
    EXPECT_EQ(report.bubbles.busy_ns + idle, 9 * report.kernels.window_ns());
    EXPECT_EQ(report.bubbles.busy_ns, report.kernels.busy_ns);
    const int64_t path =
        std::accumulate(report.path.part_ns.begin(), report.path.part_ns.end(), int64_t{0});
    EXPECT_EQ(path, report.kernels.window_ns());
    ASSERT_TRUE(report.efficiencies) << (report.warnings.empty() ? "" : report.warnings.front());
    EXPECT_NEAR(report.efficiencies->product(), report.average_busy_cores() / 9.0, 1e-9);
  }
}

TEST(StepReport, TextAndJsonHaveTheSameFigures) {
  const MadeExecution execution = make_execution({});
  const StepReport report = report_of(execution);
  const std::string text = text_of(execution);
  EXPECT_TRUE(text.starts_with(report.verdict + "\n"));
  for (const char* part : {"efficiency", "critical path", "CORE TIME", "KERNEL", "WHAT IF",
                           "LARGEST BUBBLES", "cores x step"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const json parsed = json::parse(report_json(execution.trace, report));
  EXPECT_EQ(parsed["verdict"], report.verdict);
  EXPECT_EQ(parsed["partition"]["busy_ns"], report.bubbles.busy_ns);
  EXPECT_EQ(parsed["partition"]["cores"].size(), report.core_names.size());
  EXPECT_EQ(parsed["what_if"]["replayed_ns"], report.changes->replayed_ns);
  EXPECT_EQ(parsed["kernels"].size(), report.kernels.kernels.size());
}

TEST(StepReport, WithoutEdgesItWithholdsWhatIfs) {
  MadeExecution execution = make_execution({});
  execution.trace.edges = {};
  const StepReport report = report_of(execution);
  EXPECT_FALSE(report.changes);
  EXPECT_FALSE(report.efficiencies);
  EXPECT_NE(report.verdict.find("without edges"), std::string::npos) << report.verdict;
  ASSERT_FALSE(report.warnings.empty());
}

TEST(StepReport, ATraceWithoutTasksIsAnError) {
  const Result<StepReport> report = make_step_report(Trace(), "empty.gapless");
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "empty.gapless: has no task with a start and an end, so there is no core time to "
            "explain");
}

TEST(StepReport, AStepThatIsNotThereIsAnErrorOfTheCommandLine) {
  const MadeExecution execution = make_execution({});
  ReportOptions options;
  options.step = 1;
  const Result<StepReport> report = make_step_report(execution.trace, "made.gapless", options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUsage);
  EXPECT_EQ(report.error().message, "--step 1; made.gapless has steps 0 to 0");
}

TEST(StepReport, AStepWithoutTasksOnCoresIsAnError) {
  MadeExecution execution = make_execution({});
  execution.trace.tasks = {};
  execution.trace.edges = {};
  const Result<StepReport> report = make_step_report(execution.trace, "made.gapless");
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "made.gapless: has no task with a start and an end, so there is no core time to "
            "explain");
}

TEST(StepReport, CountsWorkersOfTheDeviceThatGotNothing) {
  MadeOptions options;
  options.core_counts = {2, 0, 0};
  options.scheduler_count = 0;
  MadeExecution execution = make_execution(options);
  Lane idle = execution.trace.lanes[report_of(execution).tasks->lane(0)];
  ASSERT_EQ(idle.kind, LaneKind::kWorker);
  idle.name = "worker 9";
  execution.trace.lanes.push_back(idle);
  execution.trace.devices.push_back({.name = "another device"});
  idle.device = static_cast<uint32_t>(execution.trace.devices.size() - 1);
  execution.trace.lanes.push_back(idle);
  const StepReport report = report_of(execution);
  EXPECT_EQ(report.core_names.size(), 3u) << "two that ran something, one that did not";
}

}  // namespace
}  // namespace gapless
