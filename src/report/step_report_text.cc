// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include <fmt/core.h>

#include "report/quantity.h"
#include "report/step_report.h"
#include "report/text_table.h"

namespace gapless {
namespace {

std::string share_text(int64_t part, int64_t whole) {
  return format_share(whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole));
}

std::string step_text(const StepReport& report) {
  std::string text = fmt::format("{}", format_duration(report.kernels.window_ns()));
  if (report.step_count == 1) return text;
  return text + fmt::format(", number {} of {}: {} to {}, median {}", report.step,
                            report.step_count, format_duration(report.step_lengths.front()),
                            format_duration(report.step_lengths.back()),
                            format_duration(report.step_lengths[report.step_lengths.size() / 2]));
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

void add_kernels(std::string& text, const StepReport& report, size_t top) {
  const int64_t all = report.kernels.busy_ns + report.kernels.idle_ns;
  std::vector<TableRow> rows = {
      {"KERNEL", "RUNS", "CORE TIME", "SHARE", "MEDIAN", "LONGEST", "ON THE PATH"}};
  for (size_t i = 0; i < std::min(top, report.kernels.kernels.size()); ++i) {
    const KernelTime& kernel = report.kernels.kernels[i];
    int64_t on_path = 0;
    for (const KernelTime& part : report.path_kernels)
      if (part.name == kernel.name) on_path = part.self_ns;
    rows.push_back({printable(report.kernel_names[i]), std::to_string(kernel.run_count),
                    format_duration(kernel.self_ns), share_text(kernel.self_ns, all),
                    format_duration(kernel.median_ns), format_duration(kernel.max_ns),
                    on_path == 0 ? "" : format_duration(on_path)});
  }
  text += "\n" + align_columns(rows, "lrrrrrr");
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
    if (bubble.next_task != kNoIndex) {
      const uint32_t row = report.task_rows[bubble.next_task];
      const uint32_t kernel = trace.tasks.kernel[row];
      before = fmt::format("task {} ({})", trace.tasks.id[row],
                           kernel == kNoIndex ? "no name" : printable(trace.names[kernel]));
    }
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
  add_fact(text, "cores",
           fmt::format("{:.3f} of {} busy on average", report.average_busy_cores(),
                       report.core_names.size()));
  if (report.efficiencies)
    add_fact(text, "efficiency",
             fmt::format("{} = parallelism {} x schedule {} x overhead {}",
                         format_share(report.efficiencies->product()),
                         format_share(report.efficiencies->parallelism),
                         format_share(report.efficiencies->schedule),
                         format_share(report.efficiencies->overhead)));
  if (report.overhead.task_count > 0)
    add_fact(
        text, "a task",
        fmt::format("runs {} of dispatch to finish: {} before it starts, {} behind its end, on "
                    "average",
                    format_share(1.0 - report.overhead.share()),
                    format_duration(report.overhead.head_ns / report.overhead.task_count),
                    format_duration(report.overhead.tail_ns / report.overhead.task_count)));
  add_fact(text, "critical path", path_text(report));
  if (report.edge_count > 0)
    add_fact(text, "longest chain",
             fmt::format("{} of tasks alone, {} of them", format_duration(report.longest.length_ns),
                         report.longest.chain.size()));
  add_partition(text, report);
  add_kernels(text, report, options.top);
  add_changes(text, report, options.top);
  add_bubble_list(text, trace, report, options.top);
  if (!report.warnings.empty()) text += "\n";
  for (const std::string& warning : report.warnings) add_fact(text, "note", printable(warning));
  return text;
}

std::string report_summary(const StepReport& report) {
  std::string text = report.verdict + "\n";
  add_partition(text, report);
  return text;
}

}  // namespace gapless
