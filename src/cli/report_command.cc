// SPDX-License-Identifier: Apache-2.0
//
// gapless report TRACE: where the core time of a step went, why, and what would change it.

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/format.h"
#include "report/step_report.h"

namespace gapless {
namespace {

struct ReportArguments {
  std::string trace;
  std::optional<size_t> step;
  size_t top = 8;
  bool json = false;
  bool tracr_labels_by_key_order = false;
};

Result<int> run_report(const ReportArguments& arguments) {
  ProgressBar bar("reading", ProgressUnit::kBytes);
  const Trace trace = GAPLESS_TRY(
      read_trace(arguments.trace, {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                                   .progress = bar.callback()}));
  bar.erase();
  ReportOptions options;
  options.step = arguments.step;
  options.top = arguments.top;
  const StepReport report = GAPLESS_TRY(make_step_report(trace, arguments.trace, options));
  GAPLESS_TRY(
      print(arguments.json ? report_json(trace, report) : report_text(trace, report, options)));
  return 0;
}

}  // namespace

RunCommand define_report(CLI::App& command) {
  const std::shared_ptr<ReportArguments> arguments = std::make_shared<ReportArguments>();
  command.add_option("TRACE", arguments->trace, "A trace file or a TraCR directory")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command
      .add_option("--step", arguments->step,
                  "Which step, counted from 0 (default: the one of\nmedian length)")
      ->option_text("N");
  command.add_option("--top", arguments->top, "Rows of each table (default 8)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->option_text("N");
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
      "  gapless report --json trace.gapless | jq .partition.causes_ns");
  return [arguments] { return run_report(*arguments); };
}

}  // namespace gapless
