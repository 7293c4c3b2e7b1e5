// SPDX-License-Identifier: Apache-2.0

#include "report/diff_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/text_table.h"
#include "report/trace_info.h"

namespace gapless {
namespace {

// A step that somebody chose stands for itself and not for the others.
DiffSide side_of(const ReportedTrace& side) {
  return {.trace = &side.trace,
          .tasks = &*side.report.tasks,
          .bubbles = &side.report.bubbles,
          .path = &side.report.path,
          .step_lengths_ns =
              side.report.is_step_chosen ? std::vector<int64_t>{} : side.report.step_lengths};
}

// What names a recording and not what was recorded: it differs between any two.
bool is_of_recording(std::string_view key) {
  constexpr std::string_view kKeys[] = {"program", "command", "pid", "processes"};
  return key.starts_with("recorder.") || key.starts_with("process_labels.") ||
         std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

constexpr size_t kLongestValue = 40;  // longer ones are documents: only their key is named

void add_property_warnings(const Trace& first, const Trace& second,
                           std::vector<std::string>& warnings) {
  std::string text;
  for (const Property& property : first.properties) {
    if (is_of_recording(property.key)) continue;
    const auto other =
        std::find_if(second.properties.begin(), second.properties.end(),
                     [&](const Property& candidate) { return candidate.key == property.key; });
    if (other == second.properties.end() || other->value == property.value) continue;
    text += (text.empty() ? "" : ", ") + property.key;
    if (std::max(property.value.size(), other->value.size()) <= kLongestValue)
      text += fmt::format(" ({} and {})", property.value, other->value);
  }
  if (first.format != second.format)
    warnings.push_back(
        fmt::format("A was read as {} and B as {}: the same time may mean another thing",
                    first.format, second.format));
  if (!text.empty()) warnings.push_back(fmt::format("A and B differ in {}", text));
}

using KindCounts = std::map<LaneKind, uint32_t>;

KindCounts count_kinds(const ReportedTrace& side) {
  KindCounts counts;
  const StepTasks& tasks = *side.report.tasks;
  for (uint32_t core = 0; core < tasks.core_count(); ++core)
    ++counts[side.trace.lanes[tasks.lane(core)].kind];
  return counts;
}

std::string kinds_text(const KindCounts& counts) {
  std::string text;
  for (const auto& [kind, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : " + ", count, lane_kind_name(kind));
  return text;
}

void add_kind_warning(const ReportedTrace& first, const ReportedTrace& second,
                      std::vector<std::string>& warnings) {
  const KindCounts counts_first = count_kinds(first);
  const KindCounts counts_second = count_kinds(second);
  // How many there are is said already where they are all of one kind.
  const bool is_said = counts_first.size() == 1 && counts_second.size() == 1 &&
                       counts_first.begin()->first == counts_second.begin()->first;
  if (is_said || counts_first == counts_second) return;
  warnings.push_back(fmt::format("the kinds of cores differ: {} in A, {} in B",
                                 kinds_text(counts_first), kinds_text(counts_second)));
}

constexpr size_t kFindingsShown = 4;

void add_findings(const Trace& trace, std::string_view side, std::vector<std::string>& warnings) {
  size_t count = 0;
  for (const Finding& finding : trace.findings) {
    if (finding.severity == Severity::kInfo || ++count > kFindingsShown) continue;
    warnings.push_back(fmt::format("{}: {}", side, finding.text));
  }
  if (count > kFindingsShown)
    warnings.push_back(fmt::format("{}: {} more findings, which `gapless info` lists", side,
                                   count - kFindingsShown));
}

// What keeps a report of one side from giving a verdict speaks against this one too.
void add_quality(const StepReport& report, std::string_view side,
                 std::vector<std::string>& warnings) {
  if (report.quality.withholds_verdict)
    warnings.push_back(
        fmt::format("{}: a report would give no verdict: {}", side, report.quality.reason()));
}

std::string kernel_text(const KernelDiff& kernel) {
  if (!kernel.second_name.empty()) return fmt::format("{} -> {}", kernel.name, kernel.second_name);
  if (kernel.first_names.size() < 2) return kernel.name;
  std::string names;
  for (const std::string& name : kernel.first_names) names += (names.empty() ? "" : "+") + name;
  return fmt::format("{} -> {}", names, kernel.name);
}

void sort_lines(std::vector<AccountLine>& lines) {
  std::erase_if(
      lines, [](const AccountLine& line) { return line.ns.first == 0.0 && line.ns.second == 0.0; });
  std::sort(lines.begin(), lines.end(), [](const AccountLine& a, const AccountLine& b) {
    const double by_difference = std::abs(a.difference_ns()) - std::abs(b.difference_ns());
    if (by_difference != 0.0) return by_difference > 0.0;
    return a.ns.first != b.ns.first ? a.ns.first > b.ns.first : a.name < b.name;
  });
}

double per_core(int64_t core_time_ns, uint32_t cores) {
  return static_cast<double>(core_time_ns) / static_cast<double>(cores);
}

// "(-12.3 %, ratio 0.877, 95 % 0.860..0.891 over 20 and 20 steps)".
std::string evidence_text(const StepDiff& diff) {
  const double change =
      static_cast<double>(diff.difference_ns()) / static_cast<double>(diff.makespan_ns.first);
  const std::string steps =
      fmt::format("{} and {} steps", diff.step_count.first, diff.step_count.second);
  if (diff.has_interval)
    return fmt::format("{:+.1f} %, ratio {:.3f}, 95 % {:.3f}..{:.3f} over {}", change * 100.0,
                       diff.ratio.value, diff.ratio.low, diff.ratio.high, steps);
  if (diff.step_count.first == 1 && diff.step_count.second == 1)
    return fmt::format("{:+.1f} %, one step each: nobody can say how much of it is noise",
                       change * 100.0);
  return fmt::format("{:+.1f} %, ratio {:.3f} over {}, which are too few to tell it from noise",
                     change * 100.0, diff.ratio.value, steps);
}

// Steps that somebody chose may say another thing than all of them do.
void add_contradiction(StepDiff& diff) {
  if (!diff.has_interval || diff.ratio.contains(1.0)) return;
  const bool is_longer = diff.difference_ns() > 0;
  if (is_longer == (diff.ratio.value > 1.0)) return;
  diff.warnings.push_back(
      fmt::format("the steps that are compared differ the other way than the medians of all steps, "
                  "whose ratio is {:.3f}",
                  diff.ratio.value));
}

std::string line_text(const AccountLine& line) {
  return fmt::format("{} ({})", printable(line.name), format_difference(line.difference_ns()));
}

// The lines that make up most of the difference, at most three, and the largest against it.
std::string causes_text(const StepDiff& diff, std::vector<AccountLine> lines) {
  constexpr double kMost = 0.6;
  constexpr double kWorthNaming = 0.25;
  const double whole = static_cast<double>(diff.difference_ns());
  std::vector<std::string> named;
  std::optional<std::string> against;
  double sum = 0.0;
  sort_lines(lines);
  for (const AccountLine& line : lines) {
    const double share = line.difference_ns() / whole;
    if (share > 0.0 && named.size() < 3 && sum < kMost) {
      sum += share;
      named.push_back(line_text(line));
    }
    if (share < -kWorthNaming && !against) against = line_text(line);
  }
  std::string text =
      named.size() == 1 || sum >= kMost ? "most of it is " : "the largest parts are ";
  for (size_t i = 0; i < named.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == named.size() ? " and " : ", ", named[i]);
  return against ? fmt::format("{}, against it {}", text, *against) : text;
}

std::string verdict_of(const DiffReport& report) {
  const StepDiff& diff = report.diff;
  const std::vector<AccountLine> account =
      report.device ? device_account(*report.device) : core_time_account(diff);
  const int64_t difference_ns = diff.difference_ns();
  const std::string evidence = evidence_text(diff);
  if (difference_ns == 0)
    return fmt::format("A and B both take {} ({})", format_duration(diff.makespan_ns.first),
                       evidence);
  const std::string change = fmt::format("B takes {} {}", format_duration(std::abs(difference_ns)),
                                         difference_ns < 0 ? "less" : "more");
  if (diff.has_interval && diff.ratio.contains(1.0))
    return fmt::format("no difference beyond noise: {} ({}); of these two steps, {}", change,
                       evidence, causes_text(diff, account));
  return fmt::format("{} ({}): {}", change, evidence, causes_text(diff, account));
}

}  // namespace

std::string format_difference(double nanoseconds) {
  const int64_t rounded = std::llround(nanoseconds);
  return (rounded > 0 ? "+" : "") + format_duration(rounded);
}

std::vector<AccountLine> core_time_account(const StepDiff& diff) {
  std::vector<AccountLine> lines;
  for (const KernelDiff& kernel : diff.kernels)
    lines.push_back({.name = kernel_text(kernel),
                     .ns = {per_core(kernel.run_ns.first, diff.core_count.first),
                            per_core(kernel.run_ns.second, diff.core_count.second)},
                     .kernel = &kernel});
  for (size_t cause = 0; cause < kBubbleCauseCount; ++cause)
    lines.push_back(
        {.name = fmt::format("{} bubbles", bubble_cause_name(static_cast<BubbleCause>(cause))),
         .ns = {per_core(diff.cause_ns.first[cause], diff.core_count.first),
                per_core(diff.cause_ns.second[cause], diff.core_count.second)}});
  sort_lines(lines);
  return lines;
}

std::vector<AccountLine> device_account(const Both<DeviceTime>& device) {
  std::vector<AccountLine> lines;
  const auto add = [&](std::string_view name, const auto& part_of) {
    const Both<double> ns = {static_cast<double>(part_of(device.first)),
                             static_cast<double>(part_of(device.second))};
    if (ns.first != 0.0 || ns.second != 0.0) lines.push_back({std::string(name), ns, nullptr});
  };
  add("computing", [](const DeviceTime& time) { return time.compute_ns - time.overlapped_ns; });
  add("computing and communicating", [](const DeviceTime& time) { return time.overlapped_ns; });
  add("communicating alone", [](const DeviceTime& time) { return time.communication_alone_ns; });
  add("copying alone", [](const DeviceTime& time) { return time.copy_alone_ns; });
  add("idle, next kernel not launched",
      [](const DeviceTime& time) { return time.idle_for_launch_ns; });
  add("idle, next kernel launched", [](const DeviceTime& time) { return time.idle_launched_ns; });
  add("idle, launch not known", [](const DeviceTime& time) { return time.idle_unknown_ns; });
  return lines;
}

std::vector<AccountLine> path_account(const StepDiff& diff) {
  std::vector<AccountLine> lines;
  for (const KernelDiff& kernel : diff.kernels)
    lines.push_back({.name = kernel_text(kernel),
                     .ns = {static_cast<double>(kernel.path_ns.first),
                            static_cast<double>(kernel.path_ns.second)},
                     .kernel = &kernel});
  for (size_t part = 0; part < kPathPartCount; ++part) {
    if (static_cast<PathPart>(part) == PathPart::kRun) continue;  // that is the kernels
    lines.push_back({.name = fmt::format("{} gaps", path_part_name(static_cast<PathPart>(part))),
                     .ns = {static_cast<double>(diff.path_part_ns.first[part]),
                            static_cast<double>(diff.path_part_ns.second[part])}});
  }
  sort_lines(lines);
  return lines;
}

Result<DiffReport> make_diff_report(const ReportedTrace& first, const ReportedTrace& second,
                                    const DiffOptions& options) {
  DiffReport report;
  report.source = {first.report.source, second.report.source};
  report.step = {first.report.step, second.report.step};
  report.diff = GAPLESS_TRY(diff_steps(side_of(first), side_of(second), options));
  std::vector<std::string>& warnings = report.diff.warnings;
  if (first.report.devices.size() == 1 && second.report.devices.size() == 1) {
    report.device = {first.report.devices[0], second.report.devices[0]};
    warnings.clear();  // of bubbles and paths, which are not looked at
  }
  add_contradiction(report.diff);
  add_kind_warning(first, second, warnings);
  add_property_warnings(first.trace, second.trace, warnings);
  add_findings(first.trace, "A", warnings);
  add_findings(second.trace, "B", warnings);
  add_quality(first.report, "A", warnings);
  add_quality(second.report, "B", warnings);
  report.verdict = verdict_of(report);
  return report;
}

}  // namespace gapless
