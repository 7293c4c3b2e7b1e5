// SPDX-License-Identifier: Apache-2.0
//
// gapless report TRACE: where the core time of a step went, why, and what would change it.

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/format.h"
#include "report/page_data.h"
#include "report/step_report.h"
#include "report/task_trace.h"

namespace gapless {
namespace {

struct ReportArguments {
  std::string trace;
  std::optional<size_t> step;
  std::optional<int32_t> device;
  size_t top = 8;
  double memory_gbs = 0.0;
  double compute_gflops = 0.0;
  std::string html;
  bool json = false;
  bool tracr_labels_by_key_order = false;
};

Result<int> run_report(const ReportArguments& arguments) {
  GAPLESS_TRY(check_page_path(arguments.html, {arguments.trace}));
  ProgressBar bar("reading", ProgressUnit::kBytes);
  const Trace trace =
      GAPLESS_TRY(read_task_trace(arguments.trace,
                                  {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                                   .progress = bar.callback()},
                                  arguments.device));
  bar.erase();
  ReportOptions options;
  options.step = arguments.step;
  options.top = arguments.top;
  options.limits.bytes_per_second = arguments.memory_gbs * 1e9;
  options.limits.flops_per_second = arguments.compute_gflops * 1e9;
  const StepReport report = GAPLESS_TRY(make_step_report(trace, arguments.trace, options));
  if (!arguments.html.empty()) GAPLESS_TRY(write_report_page(arguments.html, trace, report));
  GAPLESS_TRY(
      print(arguments.json ? report_json(trace, report) : report_text(trace, report, options)));
  if (!arguments.html.empty())
    GAPLESS_TRY(print_page_path("report", arguments.html, arguments.json));
  return 0;
}

}  // namespace

RunCommand define_report(CLI::App& command) {
  const std::shared_ptr<ReportArguments> arguments = std::make_shared<ReportArguments>();
  command.add_option("TRACE", arguments->trace, "A trace of any format that is read")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command
      .add_option("--step", arguments->step,
                  "Which step, counted from 0 (default: the one of\nmedian length)")
      ->check(from_zero_on())
      ->option_text("N");
  command
      .add_option("--device", arguments->device,
                  "Of a profiler's capture: which device (default:\nthe first)")
      ->option_text("N");
  command.add_option("--top", arguments->top, "Rows of each table (default 8)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->option_text("N");
  command
      .add_option("--memory-gbs", arguments->memory_gbs,
                  "What the device's memory gives, in GB/s\n(default: what the trace says)")
      ->check(from_zero_on())
      ->option_text("X");
  command
      .add_option("--compute-gflops", arguments->compute_gflops,
                  "What its cores compute together, in GFLOP/s\n(default: what the trace says)")
      ->check(from_zero_on())
      ->option_text("X");
  command
      .add_option("--html", arguments->html,
                  "Write a page to look at, too: one file that\nneeds no network")
      ->option_text("FILE");
  command.add_flag("--json", arguments->json, "Everything, as JSON");
  add_tracr_option(command, arguments->tracr_labels_by_key_order);
  command.footer(
      "Core time is cores x step: busy, and idle by cause, to the nanosecond. The efficiencies\n"
      "multiply to the busy share. A what-if replays the recorded tasks with one thing changed,\n"
      "and is withheld when the unchanged replay is more than 3 % off.\n"
      "\n"
      "Examples:\n"
      "  gapless report profile.gapless\n"
      "  gapless report --step 0 --top 20 trace.gapless\n"
      "  gapless report --html report.html trace.gapless\n"
      "  gapless report --json trace.gapless | jq .partition.causes_ns");
  return [arguments] { return run_report(*arguments); };
}

}  // namespace gapless
