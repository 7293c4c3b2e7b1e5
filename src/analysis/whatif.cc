// SPDX-License-Identifier: Apache-2.0

#include "analysis/whatif.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "analysis/recorded_memory.h"
#include "analysis/recorded_overheads.h"
#include "analysis/run_on_threads.h"

namespace gapless {
namespace {

// More would not fit into the memory of this machine, and is a slip of the finger.
constexpr uint32_t kMaxCoreCount = 1'000'000;
constexpr int64_t kMaxRunNs = int64_t{1} << 50;  // 13 days

Result<void> check_change(const VirtualGraph& graph, const WhatIf& change) {
  for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
    const uint32_t count = change.core_counts[kind];
    if (count > 0 && graph.core_counts[kind] == 0) {
      return fail(ErrorCode::kInvalidInput, "{} cores of class \"{}\": the trace has none", count,
                  core_class_name(static_cast<CoreClass>(kind)));
    }
    if (count > kMaxCoreCount) {
      return fail(ErrorCode::kInvalidInput, "{} cores of class \"{}\" are more than {}", count,
                  core_class_name(static_cast<CoreClass>(kind)), kMaxCoreCount);
    }
  }
  for (size_t kernel = 0; kernel < change.kernel_scale.size(); ++kernel) {
    const double scale = change.kernel_scale[kernel];
    if (scale >= 0.0 && scale <= kMaxScale) continue;
    return fail(ErrorCode::kInvalidInput, "kernel {} is scaled by {}, which is not within 0 to {}",
                kernel, scale, kMaxScale);
  }
  if (change.kernel_scale.empty()) return {};
  for (size_t task = 0; task < graph.tasks.size(); ++task) {
    if (scaled_run_ns(graph.tasks[task], change) <= kMaxRunNs) continue;
    return fail(ErrorCode::kInvalidInput, "task {} would run for more than {:.3g} s", task,
                static_cast<double>(kMaxRunNs) * 1e-9);
  }
  return {};
}

// Replays of smaller steps take less time than a thread to start.
constexpr size_t kTasksForThreads = 4000;

// One replay a change.
std::vector<WhatIfResult> run_changes(const VirtualGraph& graph,
                                      std::span<const WhatIf* const> changes) {
  std::vector<WhatIfResult> results(changes.size());
  const size_t thread_limit = graph.tasks.size() < kTasksForThreads ? 1 : 0;
  run_on_threads(
      changes.size(),
      [&graph, &changes, &results](size_t i) { results[i] = run_graph(graph, *changes[i]); },
      thread_limit);
  return results;
}

// Of list_changes; the last two only where submits are known.
constexpr size_t kNoOverheadRow = 3;
constexpr size_t kNoSubmitRow = 4;
constexpr size_t kAtOnceRow = 5;

bool has_submits(const StepTasks& tasks) {
  return tasks.absent_count(TaskTime::kSubmit) < tasks.task_count();
}

std::vector<StandardChange> list_changes(const StepTasks& tasks, const Trace& trace,
                                         const VirtualGraph& graph, const StandardRows& rows) {
  std::vector<StandardChange> changes = {
      {.name = "no completion delay", .change = {.zero_completion = true}},
      {.name = "no scheduler delay", .change = {.zero_scheduler = true}},
      {.name = "no hand-off delay", .change = {.zero_handoff = true}},
      {.name = "no overhead",
       .change = {.zero_completion = true, .zero_scheduler = true, .zero_handoff = true}}};
  if (has_submits(tasks)) {
    changes.push_back({.name = "no overhead, all submitted at once",
                       .change = {.zero_completion = true,
                                  .zero_scheduler = true,
                                  .zero_handoff = true,
                                  .zero_submit = true}});
    if (rows.has_more_cores) {
      changes.push_back({.name = "all submitted at once", .change = {.zero_submit = true}});
    }
  }
  if (!graph.away_ns.empty() || !graph.bound_cores.empty()) {
    changes.push_back({.name = "ready tasks on any free core", .change = {.zero_placement = true}});
  }
  for (const uint32_t kernel : longest_kernels(tasks, trace, rows.kernel_count)) {
    StandardChange change = {.name = fmt::format("{} in half the time", trace.names[kernel])};
    change.change.kernel_scale.assign(size_t{kernel} + 1, 1.0);
    change.change.kernel_scale[kernel] = 0.5;
    changes.push_back(std::move(change));
  }
  std::array<bool, kCoreClassCount> has_tasks = {};
  for (const VirtualTask& task : graph.tasks) {
    has_tasks[static_cast<size_t>(task.core_class)] = true;
  }
  for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
    if (!has_tasks[kind] || !rows.has_more_cores) continue;
    const CoreClass core_class = static_cast<CoreClass>(kind);
    StandardChange change = {
        .name = core_class == CoreClass::kAny
                    ? "twice the cores"
                    : fmt::format("twice the {} cores", core_class_name(core_class))};
    change.change.core_counts[kind] = 2 * graph.core_counts[kind];
    changes.push_back(std::move(change));
  }
  return changes;
}

// The time that the work alone needs: of the class that has most to do for each of its cores.
int64_t work_bound_ns(const StepTasks& tasks) {
  std::array<int64_t, kCoreClassCount> work_ns = {};
  std::array<int64_t, kCoreClassCount> core_counts = {};
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    ++core_counts[static_cast<size_t>(tasks.core_class(core))];
  }
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    work_ns[static_cast<size_t>(tasks.task_class(task))] +=
        tasks.end_ns(task) - tasks.start_ns(task);
  }
  int64_t bound_ns = 0;
  for (size_t kind = 0; kind < kCoreClassCount; ++kind) {
    if (core_counts[kind] == 0) continue;
    bound_ns = std::max(bound_ns, (work_ns[kind] + core_counts[kind] - 1) / core_counts[kind]);
  }
  return bound_ns;
}

}  // namespace

Result<WhatIfResult> replay_graph(const StepTasks& tasks, const VirtualGraph& graph,
                                  const WhatIf& change) {
  GAPLESS_TRY(check_change(graph, change));
  if (change.fused.empty()) return run_graph(graph, change);
  const VirtualGraph joined = GAPLESS_TRY(fuse_tasks(tasks, graph, change));
  return run_graph(joined, change);
}

Result<WhatIfResult> replay_tasks(const StepTasks& tasks, const WhatIf& change) {
  const VirtualGraph graph = GAPLESS_TRY(make_virtual_graph(tasks));
  return replay_graph(tasks, graph, change);
}

Result<StandardChanges> standard_changes(const StepTasks& tasks, const Trace& trace,
                                         uint32_t kernel_count) {
  VirtualGraph graph = GAPLESS_TRY(make_virtual_graph(tasks));
  set_memory(tasks, trace, recorded_limits(trace), graph);
  return standard_changes(tasks, trace, graph, {.kernel_count = kernel_count});
}

Result<StandardChanges> standard_changes(const StepTasks& tasks, const Trace& trace,
                                         const VirtualGraph& graph, const StandardRows& rows) {
  StandardChanges table;
  table.changes = list_changes(tasks, trace, graph, rows);
  const WhatIf unchanged;
  std::vector<const WhatIf*> changes = {&unchanged};
  for (const StandardChange& row : table.changes) {
    GAPLESS_TRY(check_change(graph, row.change));
    changes.push_back(&row.change);
  }
  const std::vector<WhatIfResult> results = run_changes(graph, changes);
  table.recorded_ns = tasks.window_ns();
  table.memory_bytes_per_s = graph.memory_bytes_per_s;
  table.replayed_ns = results[0].makespan_ns;
  table.zero_overhead_ns = results[1 + kNoOverheadRow].makespan_ns;
  table.zero_submit_ns =
      has_submits(tasks) ? results[1 + kNoSubmitRow].makespan_ns : table.zero_overhead_ns;
  if (has_submits(tasks) && rows.has_more_cores) {
    table.at_once_ns = results[1 + kAtOnceRow].makespan_ns;
  }
  table.error = static_cast<double>(table.replayed_ns - table.recorded_ns) /
                static_cast<double>(table.recorded_ns);
  for (size_t i = 0; i < table.changes.size(); ++i) {
    StandardChange& row = table.changes[i];
    row.makespan_ns = results[i + 1].makespan_ns;
    row.gain = static_cast<double>(table.replayed_ns - row.makespan_ns) /
               static_cast<double>(table.replayed_ns);
  }
  std::stable_sort(
      table.changes.begin(), table.changes.end(),
      [](const StandardChange& a, const StandardChange& b) { return a.gain > b.gain; });
  return table;
}

std::vector<uint32_t> longest_kernels(const StepTasks& tasks, const Trace& trace, uint32_t count) {
  std::vector<int64_t> run_ns(trace.names.size(), 0);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    if (tasks.kernel(task) == kNoIndex) continue;
    run_ns[tasks.kernel(task)] += tasks.end_ns(task) - tasks.start_ns(task);
  }
  std::vector<uint32_t> kernels;
  for (uint32_t kernel = 0; kernel < run_ns.size(); ++kernel) {
    if (run_ns[kernel] > 0) kernels.push_back(kernel);
  }
  std::sort(kernels.begin(), kernels.end(), [&run_ns](uint32_t a, uint32_t b) {
    return run_ns[a] != run_ns[b] ? run_ns[a] > run_ns[b] : a < b;
  });
  if (kernels.size() > count) kernels.resize(count);
  return kernels;
}

namespace {

Result<Efficiencies> efficiencies_of(const StepTasks& tasks, const StandardChanges& changes,
                                     const StaticPath& longest) {
  int64_t busy_ns = 0;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    busy_ns += tasks.end_ns(task) - tasks.start_ns(task);
  }
  if (busy_ns == 0) {
    return fail(ErrorCode::kInvalidInput, "no task ran for any time from {} to {} ns",
                tasks.window().begin_ns, tasks.window().end_ns);
  }
  Efficiencies found;
  found.makespan_ns = tasks.window_ns();
  found.zero_overhead_ns = changes.zero_overhead_ns;
  found.at_once_ns = changes.at_once_ns;
  // A list schedule can become longer by tasks that come earlier: that is no gain of submitting
  // late.
  found.zero_submit_ns = std::min(changes.zero_submit_ns, changes.zero_overhead_ns);
  found.lower_bound_ns = std::max(longest.length_ns, work_bound_ns(tasks));
  const double lower_bound = static_cast<double>(found.lower_bound_ns);
  const double zero_overhead = static_cast<double>(found.zero_overhead_ns);
  found.parallelism =
      static_cast<double>(busy_ns) / (static_cast<double>(tasks.core_count()) * lower_bound);
  found.schedule = lower_bound / static_cast<double>(found.zero_submit_ns);
  found.submission = static_cast<double>(found.zero_submit_ns) / zero_overhead;
  found.overhead = zero_overhead / static_cast<double>(found.makespan_ns);
  return found;
}

}  // namespace

Result<Efficiencies> measure_efficiencies(const StepTasks& tasks) {
  const VirtualGraph graph = GAPLESS_TRY(make_virtual_graph(tasks));
  WhatIf change = {.zero_completion = true, .zero_scheduler = true, .zero_handoff = true};
  StandardChanges changes;
  changes.zero_overhead_ns = run_graph(graph, change).makespan_ns;
  change.zero_submit = true;
  changes.zero_submit_ns = run_graph(graph, change).makespan_ns;
  changes.at_once_ns = run_graph(graph, {.zero_submit = true}).makespan_ns;
  return efficiencies_of(tasks, changes, static_path(tasks));
}

Result<Efficiencies> measure_efficiencies(const StepTasks& tasks, const StandardChanges& changes,
                                          const StaticPath& longest) {
  return efficiencies_of(tasks, changes, longest);
}

}  // namespace gapless
