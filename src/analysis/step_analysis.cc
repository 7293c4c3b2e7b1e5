// SPDX-License-Identifier: Apache-2.0

#include "analysis/step_analysis.h"

#include <array>
#include <functional>
#include <utility>

#include "analysis/recorded_memory.h"
#include "analysis/recorded_overheads.h"
#include "analysis/run_on_threads.h"

namespace gapless {
namespace {

std::vector<uint32_t> lanes_of(const StepTasks& tasks) {
  std::vector<uint32_t> lanes(tasks.core_count());
  for (uint32_t core = 0; core < tasks.core_count(); ++core) lanes[core] = tasks.lane(core);
  return lanes;
}

// What the replays find, and what follows from them.
void add_changes(const Trace& trace, const StepTasks& tasks, const VirtualGraph& graph,
                 const StepAnalysisOptions& options, StepAnalysis& analysis) {
  analysis.has_overheads_only = tasks.task_count() >= options.large_step;
  StandardRows rows = {.kernel_count = options.kernel_count, .has_more_cores = true};
  if (analysis.has_overheads_only) rows = {.kernel_count = 0, .has_more_cores = false};
  Result<StandardChanges> changes = standard_changes(tasks, trace, graph, rows);
  if (!changes) {
    analysis.no_changes = changes.error().message;
    return;
  }
  analysis.changes = *std::move(changes);
  const Result<Efficiencies> efficiencies =
      measure_efficiencies(tasks, *analysis.changes, analysis.longest);
  if (efficiencies) analysis.efficiencies = *efficiencies;
}

}  // namespace

Result<StepAnalysis> analyse_step(const Trace& trace, const StepTasks& tasks,
                                  const StepAnalysisOptions& options) {
  StepAnalysis analysis;
  std::optional<Result<KernelTimes>> kernels;
  std::optional<Result<VirtualGraph>> graph;
  // The longest first, so that two threads end at about the same time.
  const std::array<std::function<void()>, 4> jobs = {
      [&] {
        analysis.bubbles = partition_bubbles(tasks);
        analysis.quality = check_quality({.trace = &trace,
                                          .tasks = &tasks,
                                          .bubbles = &analysis.bubbles,
                                          .steps = options.steps});
      },
      [&] {
        if (tasks.edge_count() == 0) return;
        graph = make_virtual_graph(tasks);
        if (*graph) set_memory(tasks, trace, options.limits, **graph);
      },
      [&] {
        kernels = kernel_times(trace, {.window = tasks.window(), .lanes = lanes_of(tasks)});
        analysis.roofline = measure_roofline(tasks, trace, options.limits);
      },
      [&] {
        analysis.path = observed_path(tasks);
        analysis.longest = static_path(tasks);
        analysis.groups = group_tasks(tasks);
      }};
  run_on_threads(jobs.size(), [&jobs](size_t job) { jobs[job](); });
  analysis.kernels = GAPLESS_TRY(*std::move(kernels));
  if (!graph) return analysis;
  if (*graph) {
    add_changes(trace, tasks, **graph, options, analysis);
  } else {
    analysis.no_changes = graph->error().message;
  }
  return analysis;
}

}  // namespace gapless
