// SPDX-License-Identifier: Apache-2.0
//
// gapless diff A B: why the one step takes longer than the other, and whether that is noise.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/diff.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/nearest_name.h"
#include "cli/progress_bar.h"
#include "formats/format.h"
#include "report/diff_report.h"
#include "report/page.h"
#include "report/page_data.h"
#include "report/step_report.h"
#include "report/task_trace.h"
#include "report/text_table.h"

namespace gapless {
namespace {

struct DiffArguments {
  std::string first;
  std::string second;
  std::optional<size_t> first_step;
  std::optional<size_t> second_step;
  std::string map;
  std::vector<std::string> focuses;  // "attention=fa_fused+online_softmax"
  size_t top = 8;
  bool json = false;
  std::string html;
  bool tracr_labels_by_key_order = false;
};

struct ReportedFile {
  Trace trace;
  StepReport report;
};

// `option` names the step in messages.
Result<ReportedFile> read_side(const std::string& path, std::string_view option,
                               const std::optional<size_t>& step, const DiffArguments& arguments) {
  ProgressBar bar("reading", ProgressUnit::kBytes);
  Trace trace = GAPLESS_TRY(
      read_task_trace(path, {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                             .progress = bar.callback()}));
  bar.erase();
  const size_t step_count = GAPLESS_TRY(find_step(trace, path, std::nullopt)).windows.size();
  if (step && *step >= step_count)
    return fail(ErrorCode::kUsage, "{} {}; {} has steps 0 to {}", option, *step, path,
                step_count - 1);
  ReportOptions options;
  options.step = step;
  StepReport report = GAPLESS_TRY(make_step_report(trace, path, options));
  return ReportedFile{std::move(trace), std::move(report)};
}

std::string suggestion(const std::string& typed, const std::vector<std::string>& names) {
  const std::optional<std::string> nearest = nearest_name(typed, names);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

// Kernels of a focus that neither step has are typing errors more often than not.
Result<void> check_focus(const FocusSpec& focus, const std::vector<std::string>& names) {
  for (const std::string& kernel : focus.kernels) {
    const std::string normalised = normalised_kernel_name(kernel);
    const bool is_known = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name == kernel || normalised_kernel_name(name) == normalised;
    });
    if (is_known) continue;
    return fail(ErrorCode::kUsage, "--focus {}: neither step has a kernel called {}{}", focus.name,
                kernel, suggestion(kernel, names));
  }
  return {};
}

// Likewise of a map.
Result<void> check_map(const KernelMap& map, const std::string& path, const StepReport& first,
                       const StepReport& second) {
  const auto has = [](const StepReport& report, const std::string& name) {
    return std::find(report.kernel_names.begin(), report.kernel_names.end(), name) !=
           report.kernel_names.end();
  };
  for (const auto& [from, to] : map) {
    if (!has(first, from))
      return fail(ErrorCode::kInvalidInput, "{}: {} = {}, but {} has no kernel {}{}", path, from,
                  to, first.source, from, suggestion(from, first.kernel_names));
    if (!has(second, to))
      return fail(ErrorCode::kInvalidInput, "{}: {} = {}, but {} has no kernel {}{}", path, from,
                  to, second.source, to, suggestion(to, second.kernel_names));
  }
  return {};
}

// What can be said before a trace is read.
Result<DiffOptions> options_of(const DiffArguments& arguments) {
  DiffOptions options;
  if (!arguments.map.empty()) {
    const std::string text = GAPLESS_TRY(read_text_file(arguments.map));
    options.map = GAPLESS_TRY(parse_kernel_map(text, arguments.map));
  }
  for (const std::string& text : arguments.focuses) {
    Result<FocusSpec> focus = parse_focus(text);
    if (!focus) return Error{ErrorCode::kUsage, "--" + focus.error().message};
    options.focuses.push_back(*std::move(focus));
  }
  GAPLESS_TRY(check_page_path(arguments.html, {arguments.first, arguments.second}));
  return options;
}

Result<void> check_names(const DiffOptions& options, const std::string& map,
                         const StepReport& first, const StepReport& second) {
  GAPLESS_TRY(check_map(options.map, map, first, second));
  std::vector<std::string> names = first.kernel_names;
  names.insert(names.end(), second.kernel_names.begin(), second.kernel_names.end());
  for (const FocusSpec& focus : options.focuses) GAPLESS_TRY(check_focus(focus, names));
  return {};
}

Result<void> write_diff_page(const std::string& path, const ReportedFile& first,
                             const ReportedFile& second, const DiffReport& report) {
  PageInput page;
  page.title = fmt::format("{} and {}", report.source.first, report.source.second);
  page.first = GAPLESS_TRY(page_data_json(first.trace, first.report));
  page.second = GAPLESS_TRY(page_data_json(second.trace, second.report));
  page.diff = diff_json(report);
  return write_page(path, page);
}

Result<int> run_diff(const DiffArguments& arguments) {
  const DiffOptions options = GAPLESS_TRY(options_of(arguments));
  const ReportedFile first =
      GAPLESS_TRY(read_side(arguments.first, "--step-a", arguments.first_step, arguments));
  const ReportedFile second =
      GAPLESS_TRY(read_side(arguments.second, "--step-b", arguments.second_step, arguments));
  GAPLESS_TRY(check_names(options, arguments.map, first.report, second.report));
  const DiffReport report = GAPLESS_TRY(
      make_diff_report({first.trace, first.report}, {second.trace, second.report}, options));
  if (!arguments.html.empty()) GAPLESS_TRY(write_diff_page(arguments.html, first, second, report));
  GAPLESS_TRY(print(arguments.json ? diff_json(report) : diff_text(report, arguments.top)));
  if (!arguments.html.empty()) GAPLESS_TRY(print_page_path("diff", arguments.html, arguments.json));
  return 0;
}

void add_trace_argument(CLI::App& command, const char* name, std::string& path,
                        const char* description) {
  command.add_option(name, path, description)->required()->type_name("PATH")->option_text(" ");
}

}  // namespace

RunCommand define_diff(CLI::App& command) {
  const std::shared_ptr<DiffArguments> arguments = std::make_shared<DiffArguments>();
  add_trace_argument(command, "A", arguments->first, "A trace of any format that is read");
  add_trace_argument(command, "B", arguments->second, "What it is compared with");
  command
      .add_option("--step-a", arguments->first_step,
                  "Which step of A, counted from 0 (default: the one\nof median length)")
      ->check(from_zero_on())
      ->option_text("N");
  command.add_option("--step-b", arguments->second_step, "Which step of B, likewise")
      ->check(from_zero_on())
      ->option_text("N");
  command
      .add_option("--map", arguments->map,
                  "Kernels that have other names in B: lines\n\"name in A = name in B\"")
      ->option_text("FILE");
  command
      .add_option("--focus", arguments->focuses,
                  "What these kernels cost by themselves and among\nothers; may be given again")
      ->option_text("NAME=KERNEL+KERNEL");
  command.add_option("--top", arguments->top, "Rows of each table (default 8)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->option_text("N");
  command.add_flag("--json", arguments->json, "Everything, as JSON");
  command.add_option("--html", arguments->html, "Write a page with both timelines, too")
      ->option_text("FILE");
  add_tracr_option(command, arguments->tracr_labels_by_key_order);
  command.footer(
      "Two accounts, and each adds up to the difference of the steps: core time over cores, by\n"
      "kernel and by cause of idle time; and the critical path, by kernel and by gap. Kernels\n"
      "meet by the map, by name, or by name without namespaces, template arguments, aic_, aiv_,\n"
      "_kernel, _incore and numbers. With five steps a side or more the ratio has an interval.\n"
      "\n"
      "Examples:\n"
      "  gapless diff before.gapless after.gapless\n"
      "  gapless diff a.gapless b.gapless --map names.txt --top 20\n"
      "  gapless diff alone.gapless layer.gapless --focus attention=fa_fused+online_softmax");
  return [arguments] { return run_diff(*arguments); };
}

}  // namespace gapless
