// SPDX-License-Identifier: Apache-2.0
//
// gapless convert IN [-o OUT] [--to FORMAT]: any trace that we read as any that we write.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/conversion_target.h"
#include "formats/format.h"

namespace gapless {
namespace {

struct ConvertArguments {
  std::string input;
  std::string output;
  std::string to;
  bool compress = false;
  bool tracr_labels_by_key_order = false;
};

// Spans, and tasks that have a start and an end: what a viewer draws.
uint64_t count_slices(const Trace& trace) {
  uint64_t count = trace.spans.size();
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    const bool has_start = trace.tasks.at(TaskTime::kStart)[row] != kAbsent;
    const bool has_end = trace.tasks.at(TaskTime::kEnd)[row] != kAbsent;
    if (has_start && has_end) ++count;
  }
  return count;
}

// The line goes to standard error when the trace itself went down a pipe.
Result<void> print_summary(const ConversionTarget& target, uint64_t slices, double seconds) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(target.path, error) ||
                       std::filesystem::is_directory(target.path, error);
  const std::string text =
      fmt::format("{}: {}, {} slices, {}, written in {:.3f} s ({} slices/s)", target.path,
                  info_of(target.format).name, slices, format_bytes(output_bytes(target)), seconds,
                  format_count(static_cast<double>(slices) / std::max(seconds, 1e-9)));
  if (is_file && !is_descriptor_path(target.path)) return print(text + "\n");
  print_note("convert", "wrote", text);
  return {};
}

Result<int> run_convert(const ConvertArguments& arguments) {
  const Format input_format = GAPLESS_TRY(detect_format(arguments.input));
  const ConversionTarget target = GAPLESS_TRY(choose_target({.input = arguments.input,
                                                             .input_format = input_format,
                                                             .output = arguments.output,
                                                             .to = format_by_name(arguments.to),
                                                             .compress = arguments.compress}));

  ProgressBar reading("reading", ProgressUnit::kBytes);
  const Trace trace = GAPLESS_TRY(
      read_trace(arguments.input, {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                                   .progress = reading.callback()}));
  reading.erase();
  print_findings("convert", trace);

  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  ProgressBar writing("writing", ProgressUnit::kUnknown);
  const Result<void> written =
      write_trace(trace, target.path, target.format,
                  {.compress = target.compress, .progress = writing.callback()});
  writing.erase();
  if (!written) return written.error();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const Result<void> printed = print_summary(target, count_slices(trace), seconds);
  if (!printed) return printed.error();
  return 0;
}

std::string format_list() {
  std::string text;
  for (const FormatInfo& info : all_formats()) {
    std::string_view direction = info.can_read ? "in, out" : "out";
    if (!info.can_write) direction = "in";
    text += fmt::format("  {:<14}{:<10}{:<9}{}\n", info.name, info.extension, direction,
                        info.description);
  }
  return text;
}

}  // namespace

RunCommand define_convert(CLI::App& command) {
  const auto arguments = std::make_shared<ConvertArguments>();
  std::vector<std::string> names;
  for (const FormatInfo& info : all_formats()) {
    if (info.can_write) names.emplace_back(info.name);
  }
  command.add_option("IN", arguments->input, "A trace of any format that is read")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command
      .add_option("-o,--output", arguments->output,
                  "Where to write. Default: beside IN; for a TraCR\ndirectory, perfetto.json in it")
      ->type_name("PATH");
  command.add_option("--to", arguments->to, "The format to write. Default: from OUT's extension")
      ->check(CLI::IsMember(names))
      ->option_text("FORMAT");
  command.add_flag("--compress", arguments->compress, "gapless: zstd chunks; json: gzip");
  add_tracr_option(command, arguments->tracr_labels_by_key_order);
  command.footer(
      "What IN is, is found by looking inside it, never by its name. What was wrong with the\n"
      "trace is said on standard error; the data is converted all the same.\n"
      "\n"
      "Formats:\n" +
      format_list() +
      "\n"
      "Examples:\n"
      "  gapless convert tracr/                        writes tracr/perfetto.json\n"
      "  gapless convert trace.gapless -o trace.pftrace\n"
      "  gapless convert trace.json.gz --to gapless --compress");
  return [arguments] { return run_convert(*arguments); };
}

}  // namespace gapless
