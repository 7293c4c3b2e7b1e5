// SPDX-License-Identifier: Apache-2.0
//
// gapless passes CAPTURE: the forward passes of a capture, and any one of them as a file.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/pass_summary.h"
#include "analysis/passes.h"
#include "base/file.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/capture.h"
#include "formats/conversion_target.h"
#include "formats/format.h"
#include "report/pass_metadata.h"
#include "report/passes_report.h"
#include "report/text_table.h"
#include "trace/capture_table.h"
#include "trace/capture_trace.h"
#include "trace/collective_rows.h"

namespace gapless {
namespace {

constexpr std::string_view kCsv = "csv";

struct PassesArguments {
  std::vector<std::string> paths;
  PassOptions search;
  std::string method = "signature";
  std::string window = "full";
  std::string dedup = "interval";
  std::optional<int32_t> device;
  std::optional<uint32_t> pass;
  std::string output;
  std::string to;
  bool with_drafts = false;
  bool with_cut = false;
  bool kernels = false;
  std::optional<size_t> top;
  bool json = false;

  bool is_csv() const { return to == kCsv || (to.empty() && output.ends_with(".csv")); }
};

// What was found, in the order in which each part needs those before it.
struct AnalysedCapture {
  CaptureTable table;
  FoundPasses found;
  CollectiveRows collectives;
  std::vector<PassSummary> summaries;
  std::vector<PassSummary> anchor_summaries;

  PassesInput input() const { return {table, found, collectives, summaries, anchor_summaries}; }
};

// What can be said before a file is read. Names were checked by the parser.
Result<PassesOptions> options_of(const PassesArguments& arguments) {
  if (!arguments.output.empty() && !arguments.pass)
    return fail(ErrorCode::kUsage, "-o writes one pass; say which with --pass N");
  if (!arguments.to.empty() && arguments.output.empty())
    return fail(ErrorCode::kUsage, "--to {}; say where to write with -o FILE", arguments.to);
  if (arguments.method == "count" && arguments.search.layers == 0)
    return fail(ErrorCode::kUsage, "--method count needs the anchors of a pass: --layers N");
  PassesOptions options;
  options.paths = arguments.paths;
  options.search = arguments.search;
  options.search.method = arguments.method == "count" ? PassMethod::kCount : PassMethod::kSignature;
  options.window = window_policy_by_name(arguments.window).value_or(WindowPolicy::kFull);
  options.dedup = dedup_rule_by_name(arguments.dedup).value_or(DedupRule::kInterval);
  options.device = arguments.device;
  options.with_cut = arguments.with_cut;
  options.with_drafts = arguments.with_drafts;
  return options;
}

// Nothing: a CSV file, or nothing is written.
Result<std::optional<ConversionTarget>> trace_target(const PassesArguments& arguments) {
  if (arguments.output.empty() || arguments.is_csv()) return std::optional<ConversionTarget>();
  if (arguments.to.empty() && !format_by_extension(arguments.output))
    return fail(ErrorCode::kUsage,
                "{}: the extension does not name a format; .csv keeps the columns of the capture, "
                "any other needs --to FORMAT",
                arguments.output);
  return std::optional<ConversionTarget>(
      GAPLESS_TRY(choose_target({.input = arguments.paths.front(),
                                 .input_format = Format::kGapless,
                                 .output = arguments.output,
                                 .to = format_by_name(arguments.to)})));
}

std::string device_list(const CaptureTable& table, const std::vector<int32_t>& devices) {
  std::string text;
  for (const int32_t device : devices)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", device_text(table, device));
  return text;
}

Result<void> keep_device(CaptureTable& table, int32_t device) {
  std::vector<uint32_t> rows;
  std::set<int32_t> devices;
  for (uint32_t row = 0; row < table.size(); ++row) {
    devices.insert(table.device[row]);
    if (table.device[row] == device) rows.push_back(row);
  }
  if (rows.empty() && devices.size() == 1 && devices.contains(CaptureTable::kNoDevice))
    return fail(ErrorCode::kUsage, "--device {}; the capture does not say which device it is of",
                device);
  if (rows.empty())
    return fail(ErrorCode::kUsage, "--device {}; the capture has {}", device,
                device_list(table, {devices.begin(), devices.end()}));
  if (rows.size() < table.size()) keep_rows(table, rows);
  return {};
}

Result<AnalysedCapture> analyse(const PassesArguments& arguments, const PassesOptions& options,
                                bool keep_host) {
  AnalysedCapture capture;
  ProgressBar bar("reading", ProgressUnit::kBytes);
  capture.table = GAPLESS_TRY(
      read_capture(arguments.paths, {.keep_host = keep_host, .progress = bar.callback()}));
  bar.erase();
  if (options.device) GAPLESS_TRY(keep_device(capture.table, *options.device));
  capture.found = GAPLESS_TRY(find_passes(capture.table, options.search));
  capture.collectives = find_collective_rows(capture.table, options.dedup);
  capture.summaries =
      summarise_passes(capture.table, capture.found, capture.collectives, options.window);
  capture.anchor_summaries = options.window == WindowPolicy::kAnchor
                                 ? capture.summaries
                                 : summarise_passes(capture.table, capture.found,
                                                    capture.collectives, WindowPolicy::kAnchor);
  return capture;
}

// The pass of that number; there must be one device.
Result<size_t> find_pass(const AnalysedCapture& capture, const PassesReport& report,
                         uint32_t index) {
  const std::vector<ForwardPass>& passes = capture.found.passes;
  if (report.devices.size() > 1)
    return fail(ErrorCode::kUsage, "--pass {}; there are passes of {}: add --device D", index,
                device_list(capture.table, report.devices));
  for (size_t i = 0; i < passes.size(); ++i) {
    if (passes[i].index == index) return i;
  }
  if (passes.empty()) return fail(ErrorCode::kInvalidInput, "--pass {}; there is no pass", index);
  return fail(ErrorCode::kUsage, "--pass {}; {} has passes {} to {}", index,
              device_text(capture.table, passes.front().device), passes.front().index,
              passes.back().index);
}

PassDetail detail_of(const AnalysedCapture& capture, size_t pass, WindowPolicy policy) {
  return make_pass_detail(
      capture.input(), pass,
      pass_window(capture.table, capture.found, capture.found.passes[pass], policy));
}

Result<void> check_not_input(const std::string& path, const CaptureTable& table,
                             const std::vector<std::string>& inputs) {
  std::vector<std::string> read = inputs;
  for (const KernelSource& source : table.sources) read.push_back(source.path);
  for (const std::string& input : read) {
    std::error_code error;
    if (std::filesystem::equivalent(input, path, error) && !error)
      return fail(ErrorCode::kUsage, "{}: would write over the input; name another file with -o",
                  path);
  }
  return {};
}

void add_property(CaptureTable& table, std::string key, std::string value) {
  std::erase_if(table.properties, [&key](const Property& old) { return old.key == key; });
  table.properties.push_back({std::move(key), std::move(value)});
}

// The rows of the pass and no others, with what the host did meanwhile and to launch them.
CaptureTable pass_table(const AnalysedCapture& capture, const PassDetail& detail) {
  CaptureTable table = capture.table;
  keep_rows(table, detail.window.rows);
  int64_t begin_ns = detail.window.begin_ns;
  for (const int64_t launch_ns : table.launch_ns) {
    if (launch_ns != kAbsent) begin_ns = std::min(begin_ns, launch_ns);
  }
  std::erase_if(table.host, [&](const HostSpan& span) {
    return span.end_ns < begin_ns || span.begin_ns > detail.window.end_ns;
  });
  const PhaseGuess& phase = capture.summaries[detail.pass].phase;
  add_property(table, "pass.index", std::to_string(capture.found.passes[detail.pass].index));
  if (phase.phase) add_property(table, "pass.phase", std::string(pass_phase_name(*phase.phase)));
  if (!phase.evidence.empty()) add_property(table, "pass.evidence", phase.evidence);
  return table;
}

// On standard error when standard output is taken: by the pass itself, or by JSON.
Result<void> print_written(const std::string& path, const std::string& text, bool json) {
  if (!json && !is_descriptor_path(path)) return print(text + "\n");
  print_note("passes", "wrote", text);
  return {};
}

Result<void> write_csv(const PassesArguments& arguments, const PassesOptions& options,
                       const AnalysedCapture& capture, const PassDetail& detail) {
  GAPLESS_TRY(check_not_input(arguments.output, capture.table, arguments.paths));
  GAPLESS_TRY(check_not_input(metadata_path(arguments.output), capture.table, arguments.paths));
  const PassesInput input = capture.input();
  const WrittenPass written =
      GAPLESS_TRY(write_pass_csv({input, detail, options, GAPLESS_VERSION}, arguments.output));
  std::string text =
      fmt::format("{}: {} of pass {}, {}", printable(arguments.output),
                  counted(written.row_count, "row"), *arguments.pass, format_bytes(written.bytes));
  if (!has_row_text(capture.table)) text += ", columns written by gapless";
  text += written.metadata_path.empty()
              ? "; no metadata beside a pipe"
              : fmt::format("; {} says what it is", printable(written.metadata_path));
  return print_written(arguments.output, text, arguments.json);
}

Result<void> write_pass_trace(const PassesArguments& arguments, const PassesOptions& options,
                              const AnalysedCapture& capture, const PassDetail& detail,
                              const ConversionTarget& target) {
  GAPLESS_TRY(check_not_input(target.path, capture.table, arguments.paths));
  const Trace trace = trace_of(pass_table(capture, detail), options.dedup);
  ProgressBar writing("writing", ProgressUnit::kUnknown);
  const Result<void> written =
      write_trace(trace, target.path, target.format,
                  {.compress = target.compress, .progress = writing.callback()});
  writing.erase();
  if (!written) return written.error();
  const std::string text =
      fmt::format("{}: {}, {} of pass {}, {}", printable(target.path), info_of(target.format).name,
                  counted(detail.window.rows.size(), "row"), *arguments.pass,
                  format_bytes(output_bytes(target)));
  return print_written(target.path, text, arguments.json);
}

Result<void> show_pass(const PassesArguments& arguments, const PassesOptions& options,
                       const AnalysedCapture& capture, const PassesReport& report,
                       const std::optional<ConversionTarget>& target) {
  const size_t pass = GAPLESS_TRY(find_pass(capture, report, *arguments.pass));
  const PassDetail detail = detail_of(capture, pass, options.window);
  if (!arguments.output.empty()) {
    // Nothing of the text is shown, so what speaks against the capture is said here.
    Trace noted;
    noted.findings = capture.found.findings;
    noted.findings.insert(noted.findings.end(), capture.table.findings.begin(),
                          capture.table.findings.end());
    print_findings("passes", noted);
    GAPLESS_TRY(target ? write_pass_trace(arguments, options, capture, detail, *target)
                       : write_csv(arguments, options, capture, detail));
    if (!arguments.json) return {};
  }
  if (arguments.json) return print(pass_detail_json(capture.input(), report, detail, options));
  constexpr size_t kKernels = 12;
  const size_t top = arguments.kernels ? 0 : arguments.top.value_or(kKernels);
  return print(pass_detail_text(capture.input(), report, detail, options, top));
}

Result<void> show_passes(const PassesArguments& arguments, const PassesOptions& options,
                         const AnalysedCapture& capture, const PassesReport& report) {
  std::optional<PassDetail> detail;
  if (arguments.kernels && !report.groups.empty())
    detail = detail_of(capture, report.groups.front().median_pass, options.window);
  const PassesInput input = capture.input();
  if (arguments.json)
    return print(passes_json(input, report, options, detail ? &*detail : nullptr));
  std::string text = passes_text(input, report, options, arguments.top.value_or(0));
  if (detail) text += pass_kernels_text(input, report, *detail, 0);
  return print(text);
}

Result<int> run_passes(const PassesArguments& arguments) {
  const PassesOptions options = GAPLESS_TRY(options_of(arguments));
  const std::optional<ConversionTarget> target = GAPLESS_TRY(trace_target(arguments));
  const AnalysedCapture capture = GAPLESS_TRY(analyse(arguments, options, target.has_value()));
  const PassesReport report = make_passes_report(capture.input(), options);
  GAPLESS_TRY(arguments.pass ? show_pass(arguments, options, capture, report, target)
                             : show_passes(arguments, options, capture, report));
  return 0;
}

void add_search_options(CLI::App& command, PassesArguments& arguments) {
  command
      .add_option("--anchor", arguments.search.anchor,
                  "Type of the kernel that every layer has once\n(default: chosen among attention "
                  "kernels)")
      ->option_text("TYPE");
  command
      .add_option("--layers", arguments.search.layers,
                  "Anchors of a pass, as you believe; what is found\nis held against it")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->option_text("N");
  command
      .add_option("--method", arguments.method,
                  "Where passes end: where the kernels between\nanchors change (default), or every "
                  "--layers anchors")
      ->check(CLI::IsMember({"signature", "count"}))
      ->option_text("signature|count");
  command.add_option("--device", arguments.device, "Only the rows of this device")
      ->check(CLI::Range(0, 0x7fffffff).description(""))
      ->option_text("D");
  command
      .add_option("--window", arguments.window,
                  "Which rows a pass has: up to the next pass\n(default), first to last anchor, or "
                  "a block of\nthe file")
      ->check(CLI::IsMember({"full", "anchor", "block"}))
      ->option_text("full|anchor|block");
  command
      .add_option("--dedup", arguments.dedup,
                  "Which rows tell of one collective: by interval\n(default), by type and "
                  "microsecond, or none")
      ->check(CLI::IsMember({"interval", "readme", "none"}))
      ->option_text("interval|readme|none");
}

void add_output_options(CLI::App& command, PassesArguments& arguments) {
  std::vector<std::string> formats = {std::string(kCsv)};
  for (const FormatInfo& info : all_formats()) {
    if (info.can_write) formats.emplace_back(info.name);
  }
  command.add_option("--pass", arguments.pass, "This pass in detail, counted from 0")
      ->check(from_zero_on())
      ->option_text("N");
  command
      .add_option("-o,--output", arguments.output,
                  "Write the pass of --pass: .csv as it stands in\nthe capture with a .json beside "
                  "it, or a trace")
      ->type_name("PATH");
  command
      .add_option("--to", arguments.to,
                  "The format to write: csv, or one that convert\nwrites. Default: from the "
                  "extension")
      ->check(CLI::IsMember(formats))
      ->option_text("FORMAT");
  command.add_flag("--drafts", arguments.with_drafts, "Draft sub-passes on lines of their own");
  command.add_flag("--all", arguments.with_cut, "Cut passes count in the statistics, too");
  command.add_flag("--kernels", arguments.kernels,
                   "Kernels by type of the median pass, or all of\nthose of --pass");
  command
      .add_option("--top", arguments.top,
                  "Rows of the table of passes (default: of many the\nfirst, the last and the odd "
                  "ones)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->option_text("N");
  command.add_flag("--json", arguments.json, "Everything, as JSON");
}

}  // namespace

RunCommand define_passes(CLI::App& command) {
  const std::shared_ptr<PassesArguments> arguments = std::make_shared<PassesArguments>();
  command
      .add_option("CAPTURE", arguments->paths,
                  "A capture of any format that is read; several\nfiles: slices or ranks of one")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  add_search_options(command, *arguments);
  add_output_options(command, *arguments);
  command.footer(
      "SUM adds up kernels, each collective once; UNION is the time in which at least one runs;\n"
      "WALL is the first start to the last end. They are never the same thing: kernels overlap,\n"
      "and there are gaps. Wrappers of collectives on the AI CPU are in none of them.\n"
      "\n"
      "Examples:\n"
      "  gapless passes kernel_details.csv\n"
      "  gapless passes kernel_details.csv --layers 64 --kernels\n"
      "  gapless passes kernel_details.csv --pass 3 -o pass3.csv\n"
      "  gapless passes kernel_details.csv --pass 3 --window anchor -o pass3.pftrace");
  return [arguments] { return run_passes(*arguments); };
}

}  // namespace gapless
