// SPDX-License-Identifier: Apache-2.0
//
// How long the analyses of one step take, and how much memory beyond the trace: the decode shape
// (38.5 k tasks, 219 k edges), a narrow one of as many tasks, and a million tasks with 5.7 million
// edges. Executions are made (made_execution.h), so that every machine measures the same. Each
// analysis by itself (replays of the standard changes use all threads), then all as a report has
// them, several at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/bubbles.h"
#include "analysis/critical_path.h"
#include "analysis/kernel_times.h"
#include "analysis/made_execution.h"
#include "analysis/roofline.h"
#include "analysis/step_analysis.h"
#include "analysis/step_tasks.h"
#include "analysis/task_groups.h"
#include "analysis/trace_quality.h"
#include "analysis/whatif.h"
#include "bench/measurement.h"

namespace gapless {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kDecodeGoalMs = 50.0;
constexpr double kMillionGoalMs = 1000.0;
constexpr uint32_t kKernelCount = 8;  // that a report halves
constexpr int kMillionRepeats = 26;   // of the decode shape

// One figure an analysis, in the order in which they run.
enum Part : size_t {
  kStepTasks,
  kKernelTimes,
  kBubbles,
  kObservedPath,
  kStaticPath,
  kChanges,
  kEfficiencies,
  kGroups,
  kRoofline,
  kQuality,
  kAll,  // again, as a report does it: what needs nothing of each other at the same time
  kPartCount,
};
constexpr const char* kPartNames[kPartCount] = {
    "step tasks",   "kernel times", "bubbles",  "observed path", "static path", "standard changes",
    "efficiencies", "task groups",  "roofline", "trace quality", "all analyses"};

struct Shape {
  std::string name;
  MadeExecution made;
  double goal_ms = 0.0;
  std::vector<Figure> parts = std::vector<Figure>(kPartCount, Figure{"ms", {}});
  Figure memory{"MiB", {}};
  double replay_error = 0.0;
};

class Stopwatch {
 public:
  explicit Stopwatch(std::vector<Figure>& parts) : parts_(parts) {}
  // What ran since the last call, or since the begin.
  void stop(Part part) {
    const int64_t now_ns = wall_ns();
    parts_[part].values.push_back(static_cast<double>(now_ns - last_ns_) * 1e-6);
    last_ns_ = now_ns;
  }

 private:
  std::vector<Figure>& parts_;
  int64_t last_ns_ = wall_ns();
};

// As a report does it, with the memory that it takes.
Result<void> run_together(Shape& shape) {
  reset_peak_memory();
  const uint64_t before_bytes = resident_bytes();
  Stopwatch watch(shape.parts);
  const StepTasks tasks = GAPLESS_TRY(StepTasks::create(shape.made.trace, shape.made.window));
  const StepAnalysis analysis = GAPLESS_TRY(
      analyse_step(shape.made.trace, tasks,
                   {.steps = {shape.made.window}, .limits = {}, .kernel_count = kKernelCount}));
  watch.stop(kAll);
  const uint64_t peak_bytes = peak_memory_bytes();
  const uint64_t added_bytes = peak_bytes > before_bytes ? peak_bytes - before_bytes : 0;
  shape.memory.values.push_back(static_cast<double>(added_bytes) / kMebibyte);
  return {};
}

Result<void> run_round(Shape& shape) {
  const Trace& trace = shape.made.trace;
  const TimeRange window = shape.made.window;
  GAPLESS_TRY(run_together(shape));
  Stopwatch watch(shape.parts);
  const StepTasks tasks = GAPLESS_TRY(StepTasks::create(trace, window));
  watch.stop(kStepTasks);
  const KernelTimes kernels = GAPLESS_TRY(kernel_times(trace, {.window = window, .lanes = {}}));
  watch.stop(kKernelTimes);
  const BubblePartition bubbles = partition_bubbles(tasks);
  watch.stop(kBubbles);
  const CriticalPath observed = observed_path(tasks);
  watch.stop(kObservedPath);
  const StaticPath longest = static_path(tasks);
  watch.stop(kStaticPath);
  const StandardChanges changes = GAPLESS_TRY(standard_changes(tasks, trace, kKernelCount));
  watch.stop(kChanges);
  const Efficiencies efficiencies = GAPLESS_TRY(measure_efficiencies(tasks, changes, longest));
  watch.stop(kEfficiencies);
  const TaskGroups groups = group_tasks(tasks);
  watch.stop(kGroups);
  const std::optional<Roofline> roofline = measure_roofline(tasks, trace, recorded_limits(trace));
  watch.stop(kRoofline);
  const TraceQuality quality =
      check_quality({.trace = &trace, .tasks = &tasks, .bubbles = &bubbles, .steps = {window}});
  watch.stop(kQuality);
  shape.replay_error = changes.error;
  const int64_t core_ns = bubbles.busy_ns + bubbles.idle_ns;
  const bool adds_up = core_ns == int64_t{tasks.core_count()} * tasks.window_ns() &&
                       kernels.busy_ns == bubbles.busy_ns && efficiencies.product() <= 1.0;
  if (adds_up) return {};
  return fail(ErrorCode::kInvalidInput, "{}: {} ns of core time do not add up", shape.name,
              core_ns);
}

void add_rows(const Shape& shape, std::vector<Row>& rows) {
  const std::string size = fmt::format("{} tasks, {} edges", shape.made.trace.tasks.size(),
                                       shape.made.trace.edges.size());
  for (size_t part = 0; part < kPartCount; ++part) {
    Row row{"analysis",
            fmt::format("{}, {}", shape.name, kPartNames[part]),
            shape.parts[part],
            "",
            {},
            "",
            {},
            ""};
    if (part == kAll) {
      expect_at_most(row, shape.goal_ms);
      row.note = fmt::format("{}; replay error {:+.3f} %", size, 100.0 * shape.replay_error);
    }
    rows.push_back(std::move(row));
  }
  Row memory{
      "analysis", shape.name + ", peak memory beyond the trace", shape.memory, "", {}, "", {}, ""};
  const double trace_mib = static_cast<double>(memory_bytes(shape.made.trace)) / kMebibyte;
  memory.note = fmt::format("the trace has {:.0f} MiB", trace_mib);
  rows.push_back(std::move(memory));
}

MadeOptions million_options() {
  MadeOptions options = wide_decode_options();
  const std::vector<uint32_t> step = options.level_widths;
  for (int i = 1; i < kMillionRepeats; ++i) {
    options.level_widths.insert(options.level_widths.end(), step.begin(), step.end());
  }
  return options;
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  std::vector<Row> rows;
  const auto measure_shape = [&rows](Shape shape, int round_count) -> Result<void> {
    fmt::print("analysis: {}\n", shape.name);
    for (int round = 0; round < round_count; ++round) GAPLESS_TRY(run_round(shape));
    add_rows(shape, rows);
    return {};
  };
  const int round_count = options.quick ? 1 : 11;
  GAPLESS_TRY(measure_shape(
      {.name = "decode", .made = make_execution(wide_decode_options()), .goal_ms = kDecodeGoalMs},
      round_count));
  GAPLESS_TRY(measure_shape({.name = "narrow decode",
                             .made = make_execution(narrow_decode_options()),
                             .goal_ms = kDecodeGoalMs},
                            round_count));
  if (options.quick) return rows;
  GAPLESS_TRY(measure_shape(
      {.name = "a million", .made = make_execution(million_options()), .goal_ms = kMillionGoalMs},
      5));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
