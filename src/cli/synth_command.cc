// SPDX-License-Identifier: Apache-2.0
//
// gapless synth capture --model M --phase P -o FILE: a kernel table as the Ascend profiler would
// write it, of passes that are known. For trying tools where no capture is at hand.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/capture_file_order.h"
#include "analysis/capture_truth.h"
#include "analysis/synthetic_capture.h"
#include "base/file.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/ascend_csv_writer.h"

namespace gapless {
namespace {

// With more, kernels of collectives begin further from their summaries than any clock would have
// it, and passes run into each other: the truth would not be in the file.
constexpr double kMostNoise = 2.5;

struct SynthArguments {
  CaptureOptions capture;
  FileOrderOptions order;
  AscendWriteOptions file;
  std::string phase = "decode";
  std::string cut;
  std::string stamps = "tab";
  std::string output;
  std::string truth;
  double prefill_share = 0.0;
  double mixed_share = 0.0;
  double dummy_share = 0.0;
  double noise = 1.0;
  int64_t gap_us = -1;
  uint64_t slice_rows = 0;
  bool op_summary = false;
  bool level0 = false;
  bool line_feeds = false;
  bool no_counters = false;
};

// Shares are thousandths from here on.
Result<int32_t> permille_of(double value, double most, std::string_view option) {
  if (!(value >= 0.0 && value <= most)) {
    return fail(ErrorCode::kUsage, "{} {}; 0 to {} is possible", option, value, most);
  }
  return static_cast<int32_t>(std::lround(value * 1000.0));
}

Result<CaptureOptions> capture_options(const SynthArguments& arguments) {
  CaptureOptions options = arguments.capture;
  options.phase = arguments.phase == "prefill" ? PassPhase::kPrefill
                  : arguments.phase == "mixed" ? PassPhase::kMixed
                                               : PassPhase::kDecode;
  options.prefill_permille =
      GAPLESS_TRY(permille_of(arguments.prefill_share, 1.0, "--prefill-share"));
  options.mixed_permille = GAPLESS_TRY(permille_of(arguments.mixed_share, 1.0, "--mixed-share"));
  options.dummy_permille = GAPLESS_TRY(permille_of(arguments.dummy_share, 1.0, "--dummy-share"));
  options.noise_permille = GAPLESS_TRY(permille_of(arguments.noise, kMostNoise, "--noise"));
  options.starts_mid_pass = arguments.cut == "start" || arguments.cut == "both";
  options.ends_mid_pass = arguments.cut == "end" || arguments.cut == "both";
  if (arguments.gap_us > 1'000'000'000) {
    return fail(ErrorCode::kUsage, "--gap {}; up to 1000000000 us are possible", arguments.gap_us);
  }
  if (arguments.gap_us >= 0) options.pass_gap_ns = arguments.gap_us * 1000;
  return options;
}

AscendWriteOptions write_options(const SynthArguments& arguments, const FileOrder& order) {
  AscendWriteOptions options = arguments.file;
  if (arguments.op_summary || arguments.slice_rows > 0) options.naming = AscendNaming::kOpSummary;
  if (arguments.stamps == "quoted-tab") options.start_style = AscendStartStyle::kQuotedTab;
  if (arguments.stamps == "plain") options.start_style = AscendStartStyle::kPlain;
  options.has_types = !arguments.level0;
  options.carriage_returns = !arguments.line_feeds;
  options.has_counters = !arguments.no_counters;
  options.rows = order.rows;
  options.headers_before = order.headers_before;
  return options;
}

Result<int> run_synth_capture(const SynthArguments& arguments) {
  const CaptureOptions options = GAPLESS_TRY(capture_options(arguments));
  if (!arguments.truth.empty() && arguments.truth == arguments.output) {
    return fail(ErrorCode::kUsage, "--truth and --output are both {}", arguments.output);
  }
  // All that can be wrong is what was asked for.
  const Result<SyntheticCapture> made = make_synthetic_capture(options);
  if (!made) return fail(ErrorCode::kUsage, "{}", made.error().message);
  const SyntheticCapture& capture = *made;
  FileOrderOptions order_options = arguments.order;
  order_options.seed = options.seed;
  const FileOrder order = make_file_order(capture.table, order_options);
  AscendWriteOptions file_options = write_options(arguments, order);
  ProgressBar writing("writing", ProgressUnit::kUnknown);
  file_options.progress = writing.callback();
  std::string wrote;
  if (arguments.slice_rows > 0) {
    const std::vector<std::string> paths = GAPLESS_TRY(
        write_ascend_slices(capture.table, arguments.output, file_options, arguments.slice_rows));
    wrote = counted(paths.size(), "file");
  } else {
    const uint64_t bytes =
        GAPLESS_TRY(write_ascend_csv(capture.table, arguments.output, file_options));
    wrote = format_bytes(bytes);
  }
  writing.erase();
  if (!arguments.truth.empty()) {
    GAPLESS_TRY(write_text_file(arguments.truth, capture_truth_json(capture)));
  }
  const std::string text = fmt::format(
      "{}: {} of {}, {}", arguments.output, counted(order.rows.size(), "row"),
      capture.passes.size() == 1 ? "1 pass" : fmt::format("{} passes", capture.passes.size()),
      wrote);
  // The table itself may be going down the pipe.
  if (arguments.output == "/dev/stdout") {
    print_note("synth capture", "wrote", text);
  } else {
    GAPLESS_TRY(print(text + "\n"));
  }
  return 0;
}

void add_pass_options(CLI::App& command, SynthArguments& arguments) {
  CaptureOptions& capture = arguments.capture;
  std::vector<std::string> models;
  for (const CaptureModel& model : capture_models()) models.emplace_back(model.name);
  command.add_option("--model", capture.model, "Whose kernels (default qwen3-32b)")
      ->check(CLI::IsMember(models))
      ->option_text("NAME");
  command.add_option("--phase", arguments.phase, "Of the passes (default decode)")
      ->check(CLI::IsMember({"decode", "prefill", "mixed"}))
      ->option_text("decode|prefill|mixed");
  command.add_option("--passes", capture.pass_count, "Passes of each device (default 20)")
      ->option_text("N");
  command.add_option("--devices", capture.device_count, "Devices (default 1)")->option_text("N");
  command.add_option("--tokens", capture.prefill_tokens, "Tokens of a pass in prefill")
      ->check(from_zero_on())
      ->option_text("N");
  command.add_option("--sequences", capture.sequences, "Sequences of a pass in decode")
      ->check(from_zero_on())
      ->option_text("N");
  command.add_option("--drafts", capture.draft_count, "Draft sub-passes after each pass")
      ->check(from_zero_on())
      ->option_text("N");
  command.add_option("--prefill-share", arguments.prefill_share, "Of passes that are prefill")
      ->option_text("X");
  command.add_option("--mixed-share", arguments.mixed_share, "Of passes that are mixed")
      ->option_text("X");
  command
      .add_option("--dummy-share", arguments.dummy_share, "Of passes of an idle worker: one token")
      ->option_text("X");
  command.add_option("--cut", arguments.cut, "The capture begins or ends within a pass")
      ->check(CLI::IsMember({"start", "end", "both"}))
      ->option_text("start|end|both");
  command.add_option("--gap", arguments.gap_us, "Between passes; 0: none")
      ->check(from_zero_on())
      ->option_text("US");
  command
      .add_option("--noise", arguments.noise,
                  "Spread of durations and gaps: 0 none, 1 as\nmeasured (default 1)")
      ->option_text("X");
  command.add_option("--seed", capture.seed, "Of all that is random (default 1)")->option_text("N");
}

void add_file_options(CLI::App& command, SynthArguments& arguments) {
  command
      .add_option("--header", arguments.file.header,
                  "Columns: 0 to 4 as at level 0, 5 to 10 all of\nthem, 11 collectives, 12 a graph "
                  "(default 9)")
      ->option_text("N");
  command.add_flag("--op-summary", arguments.op_summary,
                   "Columns named as in op_summary, not as in\nkernel_details");
  command.add_flag("--level0", arguments.level0, "No types and no cores");
  command.add_flag("--no-counters", arguments.no_counters, "No columns of the cores' counters");
  command.add_option("--stamps", arguments.stamps, "What stands behind a start (default tab)")
      ->check(CLI::IsMember({"tab", "quoted-tab", "plain"}))
      ->option_text("tab|quoted-tab|plain");
  command.add_flag("--lf", arguments.line_feeds, "Lines end with LF, not with CRLF");
  command
      .add_option("--steps", arguments.capture.passes_per_step,
                  "A Step Id column, with so many passes in a step")
      ->option_text("N");
  command.add_option("--blocks", arguments.order.block_rows, "Blocks of N rows in random order")
      ->option_text("N");
  command.add_option("--breaks", arguments.order.order_break_count, "Runs of rows out of order")
      ->option_text("N");
  command.add_option("--duplicates", arguments.order.duplicate_count, "Rows that are there twice")
      ->option_text("N");
  command
      .add_option("--repeat-header", arguments.order.repeated_header_count,
                  "Headers in the middle of the file")
      ->option_text("N");
  command
      .add_option("--slices", arguments.slice_rows,
                  "OUT is a folder of op_summary files with N rows\neach; the profiler has 1000000")
      ->option_text("N");
  command.add_option("--truth", arguments.truth, "Where to write what is true of it, as JSON")
      ->type_name("PATH");
}

std::string model_list() {
  std::string text;
  for (const CaptureModel& model : capture_models()) {
    text += fmt::format("  {:<13}{}\n", model.name, model.description);
  }
  return text;
}

RunCommand define_synth_capture(CLI::App& command) {
  const std::shared_ptr<SynthArguments> arguments = std::make_shared<SynthArguments>();
  command.add_option("-o,--output", arguments->output, "Where to write")
      ->required()
      ->type_name("PATH");
  add_pass_options(command, *arguments);
  add_file_options(command, *arguments);
  command.footer(
      "Kernels, counts and times follow measured captures where there are any. The same options\n"
      "give the same file on every machine.\n"
      "\n"
      "Models:\n" +
      model_list() +
      "\n"
      "Examples:\n"
      "  gapless synth capture -o kernel_details.csv\n"
      "  gapless synth capture --model deepseek-v3 --phase prefill --passes 4 -o prefill.csv\n"
      "  gapless synth capture --model qwen3.8-27b --prefill-share 0.3 --mixed-share 0.3 \\\n"
      "      --cut both --breaks 3 --truth truth.json -o serving.csv");
  return [arguments] { return run_synth_capture(*arguments); };
}

}  // namespace

RunCommand define_synth(CLI::App& command) {
  command.require_subcommand(1);
  CLI::App& capture =
      *command.add_subcommand("capture", "Write a capture of forward passes that are known");
  capture.group("Commands");
  command.footer("`gapless synth COMMAND --help` tells more.");
  return define_synth_capture(capture);
}

}  // namespace gapless
