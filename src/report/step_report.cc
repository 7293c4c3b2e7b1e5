// SPDX-License-Identifier: Apache-2.0

#include "report/step_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "analysis/step_analysis.h"
#include "base/quantity.h"

namespace gapless {
namespace {

// Without steps: from the first dispatch (or start) to the last finish (or end) of any task.
std::optional<TimeRange> task_window(const Trace& trace) {
  TimeRange window = {.begin_ns = INT64_MAX, .end_ns = INT64_MIN};
  const auto take = [&](int64_t time_ns) {
    if (time_ns == kAbsent) return;
    window.begin_ns = std::min(window.begin_ns, time_ns);
    window.end_ns = std::max(window.end_ns, time_ns);
  };
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    if (trace.tasks.at(TaskTime::kStart)[row] == kAbsent) continue;
    for (const TaskTime time : {TaskTime::kDispatch, TaskTime::kStart, TaskTime::kEnd})
      take(trace.tasks.at(time)[row]);
  }
  if (window.begin_ns >= window.end_ns) return std::nullopt;
  return window;
}

Result<std::vector<TimeRange>> windows_of(const Trace& trace, const std::string& source) {
  const std::optional<TimeRange> all = task_window(trace);
  if (!all)
    return fail(ErrorCode::kInvalidInput,
                "{}: has no task with a start and an end, so there is no core time to explain",
                source);
  std::vector<TimeRange> windows;
  for (const StepWindow& step : step_windows(trace)) windows.push_back(step.window);
  if (!windows.empty()) return windows;
  windows.push_back(*all);
  return windows;
}

int64_t length_of(const TimeRange& window) { return window.end_ns - window.begin_ns; }

// The index of the window whose length is the median; of an even number the smaller of the two.
size_t median_window(const std::vector<TimeRange>& windows) {
  std::vector<size_t> order(windows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return length_of(windows[a]) < length_of(windows[b]);
  });
  return order[(order.size() - 1) / 2];
}

// Workers of devices on which nothing ever ran stood by, as those of other devices of the process;
// all other cores count, although they had nothing to do.
std::vector<uint32_t> lanes_in_use(const Trace& trace) {
  std::set<uint32_t> devices;
  const std::vector<int64_t>& starts = trace.tasks.at(TaskTime::kStart);
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    const uint32_t lane = trace.tasks.lane[row];
    if (lane != kNoIndex && starts[row] != kAbsent) devices.insert(trace.lanes[lane].device);
  }
  std::vector<uint32_t> lanes = core_lanes(trace);
  std::erase_if(lanes, [&](uint32_t lane) {
    return trace.lanes[lane].kind == LaneKind::kWorker &&
           !devices.contains(trace.lanes[lane].device);
  });
  return lanes;
}

// Lanes of several devices may have the same name; their device is then part of it.
std::vector<std::string> core_names(const Trace& trace, const std::vector<uint32_t>& lanes) {
  std::map<std::string_view, int> counts;
  for (const uint32_t lane : lanes) ++counts[trace.lanes[lane].name];
  std::vector<std::string> names;
  for (const uint32_t lane : lanes) {
    const std::string& name = trace.lanes[lane].name;
    const std::string& device = trace.devices[trace.lanes[lane].device].name;
    names.push_back(counts[name] == 1 ? name : fmt::format("{} {}", device, name));
  }
  return names;
}

TaskOverhead measure_overhead(const StepTasks& tasks) {
  TaskOverhead overhead;
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const int64_t dispatch = tasks.time_ns(task, TaskTime::kDispatch);
    const int64_t finish = tasks.time_ns(task, TaskTime::kFinish);
    const int64_t start = tasks.start_ns(task);
    const int64_t end = tasks.end_ns(task);
    if (dispatch == kAbsent || finish == kAbsent || dispatch > start || finish < end) continue;
    ++overhead.task_count;
    overhead.run_ns += end - start;
    overhead.dispatch_to_finish_ns += finish - dispatch;
    overhead.head_ns += start - dispatch;
    overhead.tail_ns += finish - end;
  }
  return overhead;
}

std::vector<KernelTime> path_kernels(const StepTasks& tasks, const CriticalPath& path) {
  std::map<uint32_t, KernelTime> by_name;
  for (const PathSegment& segment : path.segments) {
    if (segment.part != PathPart::kRun) continue;
    KernelTime& kernel = by_name[tasks.kernel(segment.task)];
    kernel.name = tasks.kernel(segment.task);
    ++kernel.run_count;
    kernel.self_ns += segment.end_ns - segment.begin_ns;
  }
  std::vector<KernelTime> kernels;
  for (const auto& [name, kernel] : by_name) kernels.push_back(kernel);
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.self_ns > b.self_ns; });
  return kernels;
}

// The largest cause of idle time, in words.
std::string largest_bubble_text(const StepReport& report) {
  const auto largest =
      std::max_element(report.bubbles.cause_ns.begin(), report.bubbles.cause_ns.end());
  const double all = static_cast<double>(report.bubbles.busy_ns + report.bubbles.idle_ns);
  const BubbleCause cause = static_cast<BubbleCause>(largest - report.bubbles.cause_ns.begin());
  return fmt::format("most idle core time is {} ({})", bubble_cause_name(cause),
                     format_share(static_cast<double>(*largest) / all));
}

std::string overhead_text(const StepReport& report) {
  if (report.overhead.task_count == 0) return "";
  return fmt::format("; beside its run a task takes {} of dispatch to finish",
                     format_share(report.overhead.share()));
}

// Which of the four factors loses most.
std::string loss_text(const Efficiencies& efficiencies) {
  const double least = std::min({efficiencies.parallelism, efficiencies.schedule,
                                 efficiencies.submission, efficiencies.overhead});
  if (least == efficiencies.parallelism)
    return fmt::format(
        "the loss is width, not overhead: even without any overhead the graph keeps {} of the "
        "cores busy",
        format_share(efficiencies.parallelism * efficiencies.schedule));
  if (least == efficiencies.overhead)
    return fmt::format("the loss is overhead: without it the step would take {} instead of {}",
                       format_duration(efficiencies.zero_overhead_ns),
                       format_duration(efficiencies.makespan_ns));
  // Of what is gained without both, submits at once alone bring less than half.
  const bool is_hidden = efficiencies.at_once_ns != kAbsent &&
                         2 * (efficiencies.makespan_ns - efficiencies.at_once_ns) <
                             efficiencies.zero_overhead_ns - efficiencies.zero_submit_ns;
  if (least == efficiencies.submission && is_hidden)
    return fmt::format(
        "the loss is submission and overhead, each behind the other: {} would be possible without "
        "overhead, {} with all tasks submitted at once, {} with both",
        format_duration(efficiencies.zero_overhead_ns), format_duration(efficiencies.at_once_ns),
        format_duration(efficiencies.zero_submit_ns));
  if (least == efficiencies.submission)
    return fmt::format(
        "the loss is submission: {} would be possible without overhead, {} with all tasks "
        "submitted at once as well",
        format_duration(efficiencies.zero_overhead_ns),
        format_duration(efficiencies.zero_submit_ns));
  return fmt::format(
      "the loss is the schedule: {} would be possible without overhead{}, {} is the "
      "least that the graph allows",
      format_duration(efficiencies.zero_submit_ns),
      efficiencies.zero_submit_ns < efficiencies.zero_overhead_ns
          ? " and with all tasks submitted at once"
          : "",
      format_duration(efficiencies.lower_bound_ns));
}

constexpr double kBusyEnough = 0.9;

std::string share_of(int64_t part, int64_t whole) {
  return format_share(whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole));
}

// What the largest part of the time that is not spent computing was spent on.
std::string device_loss_text(const DeviceTime& time) {
  const int64_t largest =
      std::max({time.communication_alone_ns, time.copy_alone_ns, time.idle_for_launch_ns,
                time.idle_launched_ns, time.idle_unknown_ns});
  if (largest == 0) return "it computes all the time";
  const std::string share = share_of(largest, time.window_ns);
  if (largest == time.communication_alone_ns)
    return fmt::format("the largest loss is communication that nothing hides ({})", share);
  if (largest == time.idle_for_launch_ns)
    return fmt::format("the largest loss is the host: {} idle for kernels it had not launched",
                       share);
  if (largest == time.idle_launched_ns)
    return fmt::format("the largest loss lies between launch and start: {} idle", share);
  if (largest == time.copy_alone_ns) return fmt::format("the largest loss is copies ({})", share);
  return fmt::format(
      "the largest loss is idle time ({}), and the trace does not say when kernels were launched",
      share);
}

// Of several devices the one that computes least.
std::string device_verdict(const StepReport& report) {
  size_t worst = 0;
  for (size_t i = 1; i < report.devices.size(); ++i) {
    if (report.devices[i].compute_ns < report.devices[worst].compute_ns) worst = i;
  }
  const DeviceTime& time = report.devices[worst];
  return fmt::format(
      "{} computes {} of the step, communicates {} with nothing beside it and is idle {}; {}",
      report.device_names[worst], share_of(time.compute_ns, time.window_ns),
      share_of(time.communication_alone_ns, time.window_ns), share_of(time.idle_ns, time.window_ns),
      device_loss_text(time));
}

// A gap that dominates is what a report of streams is about: it says who was late. Anything else
// that withholds a verdict does so here too.
bool is_verdict_withheld(const StepReport& report) {
  if (!report.is_of_streams()) return report.quality.withholds_verdict;
  const std::vector<QualityFinding>& findings = report.quality.findings;
  return std::any_of(findings.begin(), findings.end(), [](const QualityFinding& finding) {
    return finding.level == QualityLevel::kWithholds && finding.check != QualityCheck::kDominantGap;
  });
}

std::string verdict_of(const StepReport& report) {
  const size_t cores = report.bubbles.core_ns.size();
  const double busy = report.average_busy_cores();
  const std::string evidence =
      fmt::format("{:.1f} of {} {}s are busy on average", busy, cores, report.core_word());
  if (is_verdict_withheld(report))
    return fmt::format("no verdict, the trace cannot carry one: {} ({})", report.quality.reason(),
                       evidence);
  if (report.is_of_streams()) return device_verdict(report);
  if (busy >= kBusyEnough * static_cast<double>(cores))
    return fmt::format("{}: what is left to win is in the kernels, not between them ({}){}",
                       evidence, largest_bubble_text(report), overhead_text(report));
  if (!report.efficiencies)
    return fmt::format(
        "{}; {}{}; {} nobody can say what it would be otherwise", evidence,
        largest_bubble_text(report), overhead_text(report),
        report.tasks->edge_count() == 0 ? "without edges" : "without a replay that fits");
  return fmt::format("{}; {}{}; {}", evidence, largest_bubble_text(report), overhead_text(report),
                     loss_text(*report.efficiencies));
}

// Replays that are too far off say nothing.
void take_changes(StepAnalysis& analysis, const ReportOptions& options, StepReport& report) {
  if (!analysis.no_changes.empty() && !report.is_of_streams())
    report.warnings.push_back(analysis.no_changes);
  if (!analysis.changes) return;
  const StandardChanges& changes = *analysis.changes;
  if (std::abs(changes.error) > options.max_replay_error) {
    report.warnings.push_back(fmt::format(
        "replaying the recorded tasks takes {} instead of {} ({:+.1f} %): what-ifs are withheld",
        format_duration(changes.replayed_ns), format_duration(changes.recorded_ns),
        changes.error * 100.0));
    return;
  }
  if (analysis.has_overheads_only)
    report.warnings.push_back(fmt::format(
        "what-ifs are of overheads alone, because the step has {} tasks; `gapless whatif` tries "
        "kernels and cores",
        report.tasks->task_count()));
  report.changes = std::move(analysis.changes);
  report.efficiencies = analysis.efficiencies;
}

void add_trace_warnings(const Trace& trace, const StepTasks& tasks, StepReport& report) {
  for (const Finding& finding : trace.findings)
    if (finding.severity != Severity::kInfo) report.warnings.push_back(finding.text);
  for (const QualityFinding& finding : report.quality.findings) {
    // A capture of streams has neither edges nor seven times, and its report needs none of them.
    const bool is_expected =
        report.is_of_streams() &&
        (finding.check == QualityCheck::kMissingTimes || finding.check == QualityCheck::kObserver ||
         finding.check == QualityCheck::kEdges);
    if (finding.level != QualityLevel::kFine && !is_expected)
      report.warnings.push_back(finding.text);
  }
  if (tasks.cut_count() > 0)
    report.warnings.push_back(fmt::format(
        "{} tasks reach beyond the step: only their part in it counts", tasks.cut_count()));
}

}  // namespace

Result<ExplainedStep> find_step(const Trace& trace, const std::string& source,
                                const std::optional<size_t>& step) {
  ExplainedStep found;
  found.windows = GAPLESS_TRY(windows_of(trace, source));
  if (step && *step >= found.windows.size())
    return fail(ErrorCode::kUsage, "--step {}; {} has steps 0 to {}", *step, source,
                found.windows.size() - 1);
  found.step = step.value_or(median_window(found.windows));
  found.lanes = lanes_in_use(trace);
  if (found.lanes.empty())
    return fail(ErrorCode::kInvalidInput,
                "{}: no lane of a core ran a task, so there is no core time to explain", source);
  return found;
}

Result<StepReport> make_step_report(const Trace& trace, const std::string& source,
                                    const ReportOptions& options) {
  const ExplainedStep found = GAPLESS_TRY(find_step(trace, source, options.step));
  StepReport report;
  report.source = source;
  report.step_count = found.windows.size();
  report.step = found.step;
  report.is_step_chosen = options.step.has_value();
  for (const TimeRange& window : found.windows) report.step_lengths.push_back(length_of(window));
  std::sort(report.step_lengths.begin(), report.step_lengths.end());

  const TimeRange window = found.windows[report.step];
  const std::vector<uint32_t>& lanes = found.lanes;
  report.tasks = GAPLESS_TRY(StepTasks::create(trace, window, lanes));
  const StepTasks& tasks = *report.tasks;
  report.limits = recorded_limits(trace, options.limits);
  StepAnalysis analysis =
      GAPLESS_TRY(analyse_step(trace, tasks,
                               {.steps = found.windows,
                                .limits = report.limits,
                                .kernel_count = static_cast<uint32_t>(options.top)}));
  report.kernels = std::move(analysis.kernels);
  for (const KernelTime& kernel : report.kernels.kernels)
    report.kernel_names.emplace_back(kernel_name(trace, kernel));
  report.core_names = core_names(trace, lanes);
  report.devices = device_times(trace, tasks);
  for (const DeviceTime& time : report.devices)
    report.device_names.push_back(trace.devices[time.device].name);
  report.bubbles = std::move(analysis.bubbles);
  report.overhead = measure_overhead(tasks);
  report.path = std::move(analysis.path);
  report.path_kernels = path_kernels(tasks, report.path);
  report.longest = std::move(analysis.longest);
  report.groups = std::move(analysis.groups);
  report.roofline = std::move(analysis.roofline);
  report.quality = std::move(analysis.quality);
  take_changes(analysis, options, report);
  add_trace_warnings(trace, tasks, report);
  report.verdict = verdict_of(report);
  return report;
}

}  // namespace gapless
