// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/diff_report.h"
#include "report/text_table.h"

namespace gapless {
namespace {

std::string duration_text(double nanoseconds) { return format_duration(std::llround(nanoseconds)); }

std::string runs_text(const Both<int64_t>& count) {
  if (count.first == count.second) return std::to_string(count.first);
  return fmt::format("{} -> {}", count.first, count.second);
}

std::string mean_text(const KernelDiff& kernel) {
  const Both<double> mean_ns = kernel.mean_ns();
  if (kernel.count.first == 0) return duration_text(mean_ns.second);
  if (kernel.count.second == 0) return duration_text(mean_ns.first);
  return fmt::format("{} -> {}", duration_text(mean_ns.first), duration_text(mean_ns.second));
}

TableRow account_row(const std::string& name, const Both<double>& ns) {
  return {name, duration_text(ns.first), duration_text(ns.second),
          format_difference(ns.second - ns.first)};
}

// The first `top` lines, the others as one, and what all of them add up to.
void add_account(std::string& text, const std::string& title, const std::vector<AccountLine>& lines,
                 bool has_runs, size_t top) {
  std::vector<TableRow> rows = {{title, "A", "B", "DIFFERENCE"}};
  if (has_runs) rows.front().insert(rows.front().end(), {"RUNS", "EACH"});
  Both<double> rest;
  Both<double> all;
  for (size_t i = 0; i < lines.size(); ++i) {
    const AccountLine& line = lines[i];
    all = {all.first + line.ns.first, all.second + line.ns.second};
    if (i >= top) {
      rest = {rest.first + line.ns.first, rest.second + line.ns.second};
      continue;
    }
    rows.push_back(account_row(printable(line.name), line.ns));
    if (!has_runs || line.kernel == nullptr) continue;
    rows.back().push_back(runs_text(line.kernel->count));
    rows.back().push_back(mean_text(*line.kernel));
  }
  if (lines.size() > top)
    rows.push_back(account_row(fmt::format("{} others", lines.size() - top), rest));
  rows.push_back(account_row("step", all));
  text += "\n" + align_columns(rows, "lrrrrr");
}

std::string side_text(const DiffReport& report, bool is_first) {
  const StepDiff& diff = report.diff;
  const auto of = [is_first](const auto& both) { return is_first ? both.first : both.second; };
  const double busy =
      static_cast<double>(of(diff.busy_ns)) / static_cast<double>(of(diff.makespan_ns));
  return fmt::format("{}, step {} of {}: {}, {:.3f} of {} {} busy on average",
                     printable(of(report.source)), of(report.step), of(diff.step_count),
                     format_duration(of(diff.makespan_ns)), busy, of(diff.core_count),
                     report.device ? "streams" : "cores");
}

double over(int64_t nanoseconds, double count) { return static_cast<double>(nanoseconds) / count; }

// What the kernels cost by themselves and in the step, and what became of the time around them.
std::string focus_sentence(const FocusDiff& focus, const Both<int64_t>& busy_ns) {
  const FocusTimes& first = focus.times.first;
  const FocusTimes& second = focus.times.second;
  if (first.task_count == 0 || second.task_count == 0)
    return fmt::format("{} has none of it", first.task_count == 0 ? "A" : "B");
  const double run_first = over(first.run_ns, focus.cores.first);
  const double run_second = over(second.run_ns, focus.cores.second);
  const auto place = [](int64_t run_ns, int64_t all_ns) {
    return run_ns == all_ns ? "alone" : "among other kernels";
  };
  std::string text = fmt::format("{} of core time per core {} in A, {} {} in B",
                                 duration_text(run_first), place(first.run_ns, busy_ns.first),
                                 duration_text(run_second), place(second.run_ns, busy_ns.second));
  if (run_first > 0.0) text += fmt::format(" ({:+.1f} %)", (run_second / run_first - 1.0) * 100.0);
  text += fmt::format(
      "; from its first start to its last end a core is idle for {} in A and for {} in B: {} {}, "
      "{} "
      "{}",
      duration_text(over(first.idle_ns, focus.cores.first)),
      duration_text(over(second.idle_ns, focus.cores.second)),
      duration_text(std::abs(focus.filled_ns)),
      focus.filled_ns < 0.0 ? "no longer filled by other kernels" : "filled by other kernels",
      duration_text(std::abs(focus.gone_ns)), focus.gone_ns < 0.0 ? "new" : "gone");
  return text;
}

void add_focus(std::string& text, const FocusDiff& focus, const Both<int64_t>& busy_ns) {
  const FocusTimes& first = focus.times.first;
  const FocusTimes& second = focus.times.second;
  text += fmt::format("\n{}: {}\n", printable(focus.name), focus_sentence(focus, busy_ns));
  std::vector<TableRow> rows = {{"FOCUS", "A", "B", "DIFFERENCE"}};
  const auto add_clock = [&rows](const std::string& name, int64_t a, int64_t b) {
    rows.push_back(account_row(name, {static_cast<double>(a), static_cast<double>(b)}));
  };
  const auto add_cores = [&](const std::string& name, int64_t a, int64_t b) {
    rows.push_back(account_row(name, {over(a, focus.cores.first), over(b, focus.cores.second)}));
  };
  add_clock("on the clock, some of it runs", first.union_ns, second.union_ns);
  add_clock("  and nothing else", first.exposed_ns, second.exposed_ns);
  add_clock("  behind other kernels", first.hidden_ns, second.hidden_ns);
  add_clock("on the critical path", first.path_ns, second.path_ns);
  add_clock("first start to last end", first.extent_ns, second.extent_ns);
  add_cores("  its core time / cores", first.run_ns, second.run_ns);
  add_cores("  others' core time / cores", first.other_run_ns, second.other_run_ns);
  add_cores("  idle / cores", first.idle_ns, second.idle_ns);
  text += align_columns(rows, "lrrr");
  if (first.episode_count != second.episode_count && first.task_count > 0 && second.task_count > 0)
    text += fmt::format(
        "in {} episodes of A and {} of B: {} and {} of core time per core each\n",
        first.episode_count, second.episode_count,
        duration_text(over(first.run_ns, focus.cores.first * over(first.episode_count, 1))),
        duration_text(over(second.run_ns, focus.cores.second * over(second.episode_count, 1))));
}

// Kernels of streams: what each adds up to. They overlap, so that the sums are no step.
void add_stream_kernels(std::string& text, const StepDiff& diff, size_t top) {
  std::vector<AccountLine> lines = core_time_account(diff);
  std::erase_if(lines, [](const AccountLine& line) { return line.kernel == nullptr; });
  std::vector<TableRow> rows = {{"KERNEL", "A", "B", "DIFFERENCE", "RUNS", "EACH"}};
  for (size_t i = 0; i < std::min(top, lines.size()); ++i) {
    const KernelDiff& kernel = *lines[i].kernel;
    rows.push_back(account_row(
        table_name(lines[i].name),
        {static_cast<double>(kernel.run_ns.first), static_cast<double>(kernel.run_ns.second)}));
    rows.back().push_back(runs_text(kernel.count));
    rows.back().push_back(mean_text(kernel));
  }
  text += "\n" + align_columns(rows, "lrrrrr");
  if (lines.size() > top) text += fmt::format("and {} more\n", lines.size() - top);
}

}  // namespace

std::string diff_text(const DiffReport& report, size_t top) {
  const StepDiff& diff = report.diff;
  std::string text = report.verdict + "\n\n";
  add_fact(text, "A", side_text(report, true));
  add_fact(text, "B", side_text(report, false));
  if (report.device) {
    add_account(text, "TIME OF THE DEVICE", device_account(*report.device), false, SIZE_MAX);
    add_stream_kernels(text, diff, top);
  } else {
    add_account(text, "CORE TIME / CORES", core_time_account(diff), true, top);
    add_account(text, "CRITICAL PATH", path_account(diff), false, top);
  }
  for (const FocusDiff& focus : diff.focuses) add_focus(text, focus, diff.busy_ns);
  if (!diff.warnings.empty()) text += "\n";
  for (const std::string& warning : diff.warnings) add_fact(text, "note", printable(warning));
  return text;
}

}  // namespace gapless
