// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/step_report.h"
#include "report/text_table.h"

namespace gapless {
namespace {

std::string share_text(int64_t part, int64_t whole) {
  return format_share(whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole));
}

// Submission is named where it costs something.
std::string efficiency_text(const Efficiencies& efficiencies) {
  const std::string submission = format_share(efficiencies.submission);
  return fmt::format("{} = parallelism {} x schedule {}{} x overhead {}",
                     format_share(efficiencies.product()), format_share(efficiencies.parallelism),
                     format_share(efficiencies.schedule),
                     submission == format_share(1.0) ? "" : " x submission " + submission,
                     format_share(efficiencies.overhead));
}

std::string step_text(const StepReport& report) {
  std::string text = fmt::format("{}", format_duration(report.kernels.window_ns()));
  if (report.step_count == 1) return text;
  const std::vector<int64_t>& lengths = report.step_lengths;
  return text + fmt::format(", number {} of {}: {} to {}, median {}", report.step,
                            report.step_count, format_duration(lengths.front()),
                            format_duration(lengths.back()),
                            format_duration(lengths[(lengths.size() - 1) / 2]));
}

std::string graph_text(const StepReport& report) {
  const TaskGroups& groups = report.groups;
  uint32_t widest = 0;
  for (const KernelFan& kernel : groups.kernels) widest = std::max(widest, kernel.max_consumers);
  const uint32_t tasks = report.tasks->task_count();
  if (report.is_of_streams()) return fmt::format("{} of {} types", tasks, groups.kernels.size());
  std::string text = fmt::format("{} tasks of {} kernels, {} edges", tasks, groups.kernels.size(),
                                 report.tasks->edge_count());
  if (report.tasks->edge_count() == 0) return text;
  return text +
         fmt::format("; {} through the kernels; {:.1f} consumers a task, {} at most",
                     counted(groups.layer_count, "round"),
                     static_cast<double>(report.tasks->edge_count()) / static_cast<double>(tasks),
                     widest);
}

void add_device_times(std::string& text, const StepReport& report) {
  for (size_t i = 0; i < report.devices.size(); ++i) {
    const DeviceTime& time = report.devices[i];
    std::vector<TableRow> rows = {
        {fmt::format("TIME OF {}", printable(report.device_names[i])), "", "SHARE"}};
    const auto add = [&](std::string_view name, int64_t ns) {
      if (ns > 0)
        rows.push_back({std::string(name), format_duration(ns), share_text(ns, time.window_ns)});
    };
    add("computing", time.compute_ns - time.overlapped_ns);
    add("computing and communicating", time.overlapped_ns);
    add("communicating alone", time.communication_alone_ns);
    add("copying alone", time.copy_alone_ns);
    add("idle, next kernel not launched", time.idle_for_launch_ns);
    add("idle, next kernel launched", time.idle_launched_ns);
    add("idle, launch not known", time.idle_unknown_ns);
    add("step", time.window_ns);
    text += "\n" + align_columns(rows, "lrr");
  }
}

std::string task_text(const Trace& trace, const StepReport& report, uint32_t task) {
  const uint32_t row = report.tasks->row(task);
  const uint32_t kernel = trace.tasks.kernel[row];
  return fmt::format("task {} ({})", trace.tasks.id[row],
                     kernel == kNoIndex ? "no name" : table_name(trace.names[kernel]));
}

// The longest times in which a device ran nothing.
void add_gaps(std::string& text, const Trace& trace, const StepReport& report, size_t top) {
  std::vector<std::pair<size_t, DeviceGap>> gaps;
  for (size_t i = 0; i < report.devices.size(); ++i) {
    for (const DeviceGap& gap : report.devices[i].gaps) gaps.emplace_back(i, gap);
  }
  std::stable_sort(gaps.begin(), gaps.end(), [](const auto& a, const auto& b) {
    return a.second.end_ns - a.second.begin_ns > b.second.end_ns - b.second.begin_ns;
  });
  if (gaps.empty()) return;
  std::vector<TableRow> rows = {{"LONGEST GAPS", "AT", "DEVICE", "AFTER", "BEFORE", "LAUNCHED"}};
  for (size_t i = 0; i < std::min(top, gaps.size()); ++i) {
    const DeviceGap& gap = gaps[i].second;
    const int64_t late_ns = gap.launch_ns == kAbsent ? 0 : gap.launch_ns - gap.begin_ns;
    rows.push_back(
        {format_duration(gap.end_ns - gap.begin_ns),
         format_duration(gap.begin_ns - report.kernels.window.begin_ns),
         printable(report.device_names[gaps[i].first]),
         gap.task_before == kNoIndex ? "the begin" : task_text(trace, report, gap.task_before),
         gap.task_after == kNoIndex ? "the end" : task_text(trace, report, gap.task_after),
         gap.launch_ns == kAbsent ? ""
         : late_ns <= 0           ? "before it"
                                  : format_duration(late_ns) + " into it"});
  }
  text += "\n" + align_columns(rows, "rrllll");
}

// Streams wait for each other by their nature: what each was busy with, and no causes.
void add_streams(std::string& text, const StepReport& report) {
  std::vector<TableRow> rows = {{"STREAM", "KERNELS", "BUSY", "OF THE STEP"}};
  for (size_t core = 0; core < report.core_names.size(); ++core) {
    const LaneTime& lane = report.kernels.lanes[core];
    rows.push_back({printable(report.core_names[core]), std::to_string(lane.run_count),
                    format_duration(lane.busy_ns),
                    share_text(lane.busy_ns, report.kernels.window_ns())});
  }
  text += "\n" + align_columns(rows, "lrrr");
}

void add_partition(std::string& text, const StepReport& report) {
  const int64_t all = report.bubbles.busy_ns + report.bubbles.idle_ns;
  std::vector<TableRow> rows = {{"CORE TIME", "", "SHARE", "BUBBLES"}};
  rows.push_back({"busy", format_duration(report.bubbles.busy_ns),
                  share_text(report.bubbles.busy_ns, all), ""});
  for (int cause = 0; cause < kBubbleCauseCount; ++cause) {
    const int64_t ns = report.bubbles.cause_ns[static_cast<size_t>(cause)];
    if (ns == 0) continue;
    const int64_t count = std::count_if(
        report.bubbles.bubbles.begin(), report.bubbles.bubbles.end(),
        [&](const Bubble& bubble) { return static_cast<int>(bubble.cause) == cause; });
    rows.push_back({std::string(bubble_cause_name(static_cast<BubbleCause>(cause))),
                    format_duration(ns), share_text(ns, all), std::to_string(count)});
  }
  rows.push_back({"cores x step", format_duration(all), share_text(all, all), ""});
  text += "\n" + align_columns(rows, "lrrr");
}

// Tasks of the kernel in a layer that has some, as the median.
std::string per_layer_text(const StepReport& report, uint32_t kernel) {
  for (const KernelFan& fan : report.groups.kernels)
    if (fan.kernel == kernel) return std::to_string(fan.median_per_layer);
  return "";
}

// What the kernel moves a second while it runs, and of which limit that is how much.
void add_roof_cells(const StepReport& report, uint32_t kernel, TableRow& row) {
  if (!report.roofline) return;
  for (const KernelRoof& roof : report.roofline->kernels) {
    if (roof.kernel != kernel || (roof.bytes == 0 && roof.flops == 0)) continue;
    row.push_back(fmt::format("{:.1f}", roof.bytes_per_second() * 1e-9));
    row.push_back(fmt::format("{:.1f}", roof.flops_per_second() * 1e-9));
    const double share = roof.share_of_limit(report.limits);
    if (share > 0.0)
      row.push_back(fmt::format("{} of {}", format_share(share),
                                roof.is_memory_bound(report.limits) ? "memory" : "compute"));
  }
}

// Of streams: without layers, which come from edges, and as shares of the step.
void add_stream_kernels(std::string& text, const StepReport& report, size_t top) {
  std::vector<TableRow> rows = {{"KERNEL", "RUNS", "TIME", "OF THE STEP", "MEDIAN", "LONGEST"}};
  for (size_t i = 0; i < std::min(top, report.kernels.kernels.size()); ++i) {
    const KernelTime& kernel = report.kernels.kernels[i];
    rows.push_back({table_name(report.kernel_names[i]), std::to_string(kernel.run_count),
                    format_duration(kernel.sum_ns),
                    share_text(kernel.sum_ns, report.kernels.window_ns()),
                    format_duration(kernel.median_ns), format_duration(kernel.max_ns)});
  }
  text += "\n" + align_columns(rows, "lrrrrr");
  if (report.kernels.kernels.size() > top)
    text += fmt::format("and {} more\n", report.kernels.kernels.size() - top);
}

void add_kernels(std::string& text, const StepReport& report, size_t top) {
  const int64_t all = report.kernels.busy_ns + report.kernels.idle_ns;
  std::vector<TableRow> rows = {
      {"KERNEL", "RUNS", "A LAYER", "CORE TIME", "SHARE", "MEDIAN", "LONGEST", "ON THE PATH"}};
  if (report.roofline) {
    rows.front().push_back("GB/S");
    rows.front().push_back("GFLOP/S");
    if (report.roofline->limit_ns > 0.0) rows.front().push_back("OF THE LIMIT");
  }
  for (size_t i = 0; i < std::min(top, report.kernels.kernels.size()); ++i) {
    const KernelTime& kernel = report.kernels.kernels[i];
    int64_t on_path = 0;
    for (const KernelTime& part : report.path_kernels)
      if (part.name == kernel.name) on_path = part.self_ns;
    TableRow row = {
        table_name(report.kernel_names[i]),  std::to_string(kernel.run_count),
        per_layer_text(report, kernel.name), format_duration(kernel.self_ns),
        share_text(kernel.self_ns, all),     format_duration(kernel.median_ns),
        format_duration(kernel.max_ns),      on_path == 0 ? "" : format_duration(on_path)};
    add_roof_cells(report, kernel.name, row);
    rows.push_back(std::move(row));
  }
  text += "\n" + align_columns(rows, "lrrrrrrrrrl");
  if (report.kernels.kernels.size() > top)
    text += fmt::format("and {} more\n", report.kernels.kernels.size() - top);
}

std::string path_text(const StepReport& report) {
  std::string text;
  const int64_t all = report.kernels.window_ns();
  for (int part = 0; part < kPathPartCount; ++part) {
    const int64_t ns = report.path.part_ns[static_cast<size_t>(part)];
    if (ns == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        path_part_name(static_cast<PathPart>(part)), share_text(ns, all));
  }
  return text;
}

void add_bubble_list(std::string& text, const Trace& trace, const StepReport& report, size_t top) {
  std::vector<Bubble> largest = report.bubbles.bubbles;
  const size_t count = std::min(top, largest.size());
  std::partial_sort(largest.begin(), largest.begin() + static_cast<int64_t>(count), largest.end(),
                    [](const Bubble& a, const Bubble& b) {
                      return a.end_ns - a.begin_ns > b.end_ns - b.begin_ns;
                    });
  if (count == 0) return;
  std::vector<TableRow> rows = {{"LARGEST BUBBLES", "AT", "CORE", "CAUSE", "BEFORE"}};
  for (size_t i = 0; i < count; ++i) {
    const Bubble& bubble = largest[i];
    std::string before = "the end";
    if (bubble.next_task != kNoIndex) before = task_text(trace, report, bubble.next_task);
    rows.push_back({format_duration(bubble.end_ns - bubble.begin_ns),
                    format_duration(bubble.begin_ns - report.kernels.window.begin_ns),
                    printable(report.core_names[bubble.core]),
                    std::string(bubble_cause_name(bubble.cause)), before});
  }
  text += "\n" + align_columns(rows, "rrlll");
}

void add_changes(std::string& text, const StepReport& report, size_t top) {
  if (!report.changes) return;
  std::vector<TableRow> rows = {{"WHAT IF", "STEP", "GAIN"}};
  for (size_t i = 0; i < std::min(top, report.changes->changes.size()); ++i) {
    const StandardChange& line = report.changes->changes[i];
    rows.push_back(
        {printable(line.name), format_duration(line.makespan_ns), format_share(line.gain)});
  }
  text += "\n" + align_columns(rows, "lrr");
  text +=
      fmt::format("replaying the step unchanged is {:+.2f} % off\n", report.changes->error * 100.0);
}

}  // namespace

std::string report_text(const Trace& trace, const StepReport& report,
                        const ReportOptions& options) {
  std::string text = report.verdict + "\n\n";
  add_fact(text, "trace", printable(report.source));
  add_fact(text, "step", step_text(report));
  add_fact(text, fmt::format("{}s", report.core_word()),
           fmt::format("{:.3f} of {} busy on average", report.average_busy_cores(),
                       report.core_names.size()));
  if (report.efficiencies) add_fact(text, "efficiency", efficiency_text(*report.efficiencies));
  if (report.overhead.task_count > 0)
    add_fact(
        text, "a task",
        fmt::format("runs {} of dispatch to finish: {} before it starts, {} behind its end, on "
                    "average",
                    format_share(1.0 - report.overhead.share()),
                    format_duration(report.overhead.head_ns / report.overhead.task_count),
                    format_duration(report.overhead.tail_ns / report.overhead.task_count)));
  // Without edges the walk back would follow one core, whatever the others waited for.
  if (report.tasks->edge_count() > 0) {
    add_fact(text, "critical path", path_text(report));
    add_fact(text, "longest chain",
             fmt::format("{} of tasks alone, {} of them", format_duration(report.longest.length_ns),
                         report.longest.chain.size()));
  }
  add_fact(text, report.is_of_streams() ? "kernels" : "graph", graph_text(report));
  if (report.is_of_streams()) {
    add_device_times(text, report);
    add_stream_kernels(text, report, options.top);
    add_streams(text, report);
    add_gaps(text, trace, report, options.top);
  } else {
    add_partition(text, report);
    add_kernels(text, report, options.top);
    add_changes(text, report, options.top);
    add_bubble_list(text, trace, report, options.top);
  }
  if (!report.warnings.empty()) text += "\n";
  for (const std::string& warning : report.warnings) add_fact(text, "note", printable(warning));
  return text;
}

std::string report_summary(const StepReport& report) {
  std::string text = report.verdict + "\n";
  if (report.is_of_streams()) {
    add_device_times(text, report);
  } else {
    add_partition(text, report);
  }
  return text;
}

}  // namespace gapless
