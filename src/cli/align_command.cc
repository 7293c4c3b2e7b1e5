// SPDX-License-Identifier: Apache-2.0
//
// gapless align MEASURED MODEL: how far a model is from what was measured, kernel type by kernel
// type.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/align.h"
#include "analysis/align_passes.h"
#include "analysis/pass_summary.h"
#include "analysis/passes.h"
#include "base/file.h"
#include "base/input_stream.h"
#include "cli/command.h"
#include "cli/nearest_name.h"
#include "cli/progress_bar.h"
#include "formats/ascend_csv.h"
#include "formats/capture.h"
#include "report/align_report.h"
#include "trace/collective_rows.h"

namespace gapless {
namespace {

struct AlignArguments {
  std::string measured;
  std::string model;
  std::optional<uint32_t> pass;
  std::optional<uint32_t> model_pass;
  std::string anchor;
  std::string dedup = "interval";
  std::string map;
  AlignOptions options;
  size_t top = 20;
  bool json = false;
};

// Which pass of a side was asked for, and how.
struct PassRequest {
  std::string_view option;
  const std::optional<uint32_t>& pass;
};

constexpr size_t kLargestTableBytes = 64 << 20;

// The text of a table of predictions; nothing when the file is something else. A profiler's kernel
// table has a type and a time as well, and is a capture.
Result<std::optional<std::string>> read_table_text(const std::string& path) {
  if (is_directory(path)) return std::optional<std::string>();
  constexpr size_t kBlockBytes = 16 << 10;
  InputStream input = GAPLESS_TRY(InputStream::open_file(path));
  std::string text(kBlockBytes, '\0');
  text.resize(GAPLESS_TRY(input.read(text)));
  if (looks_like_ascend_csv(text) || !looks_like_align_csv(text))
    return std::optional<std::string>();
  for (bool has_more = text.size() == kBlockBytes; has_more;) {
    std::string block(kBlockBytes, '\0');
    block.resize(GAPLESS_TRY(input.read(block)));
    has_more = block.size() == kBlockBytes;
    text += block;
    if (text.size() > kLargestTableBytes)
      return fail(ErrorCode::kInvalidInput, "{}: a table of more than {} bytes", path,
                  kLargestTableBytes);
  }
  if (!input.damage().empty())
    return fail(ErrorCode::kInvalidInput, "{}: {}", path, input.damage());
  return std::optional<std::string>(std::move(text));
}

void add_findings(const std::vector<Finding>& findings, std::vector<std::string>& warnings) {
  constexpr size_t kShown = 4;
  size_t count = 0;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kInfo || ++count > kShown) continue;
    warnings.push_back(finding.text);
  }
  if (count > kShown) warnings.push_back(fmt::format("{} more findings", count - kShown));
}

// What stands for a capture in which no pass is whole: an extracted window, a trace of one step.
void take_all_rows(const CaptureTable& table, const CollectiveRows& collectives, bool by_shape,
                   std::string_view why, AlignedSide& side) {
  std::vector<uint32_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), 0u);
  side.side = align_side_of(table, rows, collectives, by_shape);
  const uint32_t device_count = device_count_of(table);
  side.side.pass_count = device_count;
  side.passes = device_count == 1
                    ? fmt::format("all {} rows as one pass ({})", table.size(), why)
                    : fmt::format("all {} rows as one pass of each of {} devices ({})",
                                  table.size(), device_count, why);
}

void take_passes(const CaptureTable& table, const FoundPasses& found, const PassChoice& choice,
                 std::span<const PassSummary> summaries, const CollectiveRows& collectives,
                 bool by_shape, AlignedSide& side) {
  std::vector<uint32_t> rows;
  double wall_ns = 0.0;
  uint64_t straddling_count = 0;
  for (const uint32_t pass : choice.passes) {
    const PassWindow window = pass_window(table, found, found.passes[pass], WindowPolicy::kFull);
    rows.insert(rows.end(), window.rows.begin(), window.rows.end());
    straddling_count += window.straddling_count;
    wall_ns += static_cast<double>(summaries[pass].wall_ns);
  }
  side.side = align_side_of(table, rows, collectives, by_shape);
  side.side.pass_count = static_cast<double>(choice.passes.size());
  side.passes = choice.text;
  side.wall_ns = wall_ns / side.side.pass_count;
  side.warnings.insert(side.warnings.end(), choice.warnings.begin(), choice.warnings.end());
  if (straddling_count > 0)
    side.warnings.push_back(fmt::format(
        "{} rows reach beyond the pass they begin in and are left out", straddling_count));
}

// Passes where there are some. That there are none is only an error when somebody asked for one.
Result<void> choose_rows(const CaptureTable& table, const PassRequest& request,
                         const AlignArguments& arguments, bool must_have_anchor,
                         AlignedSide& side) {
  const DedupRule rule = dedup_rule_by_name(arguments.dedup).value_or(DedupRule::kInterval);
  const CollectiveRows collectives = find_collective_rows(table, rule);
  const bool by_shape = arguments.options.by_shape;
  Result<FoundPasses> found = find_passes(table, {.anchor = arguments.anchor});
  if (!found) {
    if (request.pass || must_have_anchor) return std::move(found).error();
    take_all_rows(table, collectives, by_shape, "no passes were found in it", side);
    return {};
  }
  const std::vector<PassSummary> summaries =
      summarise_passes(table, *found, collectives, WindowPolicy::kFull);
  Result<PassChoice> choice = choose_passes(table, *found, summaries, request.pass);
  if (!choice)
    return fail(choice.error().code, "{} {}: {}", request.option, *request.pass,
                choice.error().message);
  if (choice->passes.empty()) {
    take_all_rows(table, collectives, by_shape, "no pass in it is whole", side);
    return {};
  }
  add_findings(found->findings, side.warnings);
  take_passes(table, *found, *choice, summaries, collectives, by_shape, side);
  return {};
}

Result<AlignedSide> read_side(const std::string& path, const PassRequest& request,
                              const AlignArguments& arguments, bool must_have_anchor) {
  AlignedSide side;
  const std::optional<std::string> text = GAPLESS_TRY(read_table_text(path));
  if (text) {
    if (request.pass)
      return fail(ErrorCode::kUsage, "{} {}; {} is a table without passes", request.option,
                  *request.pass, path);
    side.side = GAPLESS_TRY(align_side_of_csv(*text, path, arguments.options.by_shape));
    return side;
  }
  ProgressBar bar("reading", ProgressUnit::kBytes);
  CaptureReadOptions options;
  options.progress = bar.callback();
  const CaptureTable table = GAPLESS_TRY(read_capture(std::span(&path, 1), options));
  bar.erase();
  add_findings(table.findings, side.warnings);
  Result<void> chosen = choose_rows(table, request, arguments, must_have_anchor, side);
  if (!chosen)
    return Error{chosen.error().code, fmt::format("{}: {}", path, chosen.error().message)};
  side.side.source = path;
  return side;
}

std::vector<std::string> types_of(const AlignSide& side) {
  std::vector<std::string> types;
  for (const AlignEntry& entry : side.entries) types.push_back(entry.type);
  return types;
}

// A type that its side does not have is a typing error more often than not.
Result<void> check_map(const KernelMap& map, const std::string& path, const AlignSide& measured,
                       const AlignSide& model) {
  const auto check = [&](const AlignSide& side, const std::string& name) -> Result<void> {
    const std::vector<std::string> types = types_of(side);
    if (std::find(types.begin(), types.end(), name) != types.end()) return {};
    const std::optional<std::string> nearest = nearest_name(name, types);
    return fail(ErrorCode::kInvalidInput, "{}: {} has no kernel type {}{}", path, side.source, name,
                nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  };
  for (const auto& [from, to] : map) {
    GAPLESS_TRY(check(measured, from));
    GAPLESS_TRY(check(model, to));
  }
  return {};
}

Result<int> run_align(const AlignArguments& arguments) {
  KernelMap map;
  if (!arguments.map.empty()) {
    const std::string text = GAPLESS_TRY(read_text_file(arguments.map));
    map = GAPLESS_TRY(parse_kernel_map(text, arguments.map));
  }
  const bool has_anchor = !arguments.anchor.empty();
  AlignedSide measured =
      GAPLESS_TRY(read_side(arguments.measured, {"--pass", arguments.pass}, arguments, has_anchor));
  AlignedSide model = GAPLESS_TRY(
      read_side(arguments.model, {"--model-pass", arguments.model_pass}, arguments, false));
  GAPLESS_TRY(check_map(map, arguments.map, measured.side, model.side));
  const AlignReport report =
      GAPLESS_TRY(make_align_report(std::move(measured), std::move(model), arguments.options, map));
  GAPLESS_TRY(print(arguments.json ? align_json(report) : align_text(report, arguments.top)));
  return 0;
}

void add_pass_options(CLI::App& command, AlignArguments& arguments) {
  command
      .add_option("--pass", arguments.pass,
                  "Which pass of MEASURED, counted from 0 (default:\nthe mean of the whole ones of "
                  "the commonest kind)")
      ->check(from_zero_on())
      ->option_text("N");
  command.add_option("--model-pass", arguments.model_pass, "Which pass of MODEL, likewise")
      ->check(from_zero_on())
      ->option_text("N");
  command
      .add_option("--anchor", arguments.anchor,
                  "The kernel type that passes are counted by\n(default: found among attention "
                  "kernels)")
      ->option_text("TYPE");
  command
      .add_option("--dedup", arguments.dedup, "How collectives are counted once (default interval)")
      ->check(CLI::IsMember({"interval", "readme", "none"}))
      ->option_text("interval|readme|none");
}

void add_table_options(CLI::App& command, AlignArguments& arguments) {
  command.add_flag("--shapes", arguments.options.by_shape, "A row for each input shape of a type");
  command
      .add_option("--map", arguments.map,
                  "Types that have other names in MODEL: lines\n\"measured type = model type\"; "
                  "several may become one")
      ->option_text("FILE");
  command
      .add_option("--tolerance", arguments.options.time_tolerance,
                  "Of the mean time of a kernel (default 0.15)")
      ->check(from_zero_on())
      ->option_text("X");
  command
      .add_option("--count-tolerance", arguments.options.count_tolerance,
                  "Of the count of a kernel (default 0)")
      ->check(from_zero_on())
      ->option_text("X");
  command.add_option("--top", arguments.top, "Rows of the table (default 20)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->option_text("N");
  command.add_flag("--json", arguments.json, "Everything, as JSON");
}

}  // namespace

RunCommand define_align(CLI::App& command) {
  const std::shared_ptr<AlignArguments> arguments = std::make_shared<AlignArguments>();
  command
      .add_option("MEASURED", arguments->measured, "A capture or trace of any format that is read")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command
      .add_option("MODEL", arguments->model,
                  "Likewise, or a CSV table with a header such as\ntype,shape,us,count")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  add_pass_options(command, *arguments);
  add_table_options(command, *arguments);
  command.footer(
      "HIT: count and mean time agree; PARTIAL: both sides have it; MISS: measured, not modelled;\n"
      "EXTRA: modelled, not measured. The ratio is the sum of modelled over the sum of measured\n"
      "kernel time, each collective once, as if kernels ran one after the other; 0.85 to 1.15 is\n"
      "close.\n"
      "\n"
      "Examples:\n"
      "  gapless align kernel_details.csv model.csv\n"
      "  gapless align capture_ascend_pt simulated.gapless --shapes --top 50\n"
      "  gapless align before.csv after.csv --pass 3 --model-pass 3");
  return [arguments] { return run_align(*arguments); };
}

}  // namespace gapless
