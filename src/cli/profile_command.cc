// SPDX-License-Identifier: Apache-2.0
//
// gapless profile: runs decode steps of a model, checks them, records them and says what they took.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "formats/format.h"
#include "kernels/attention_plan.h"
#include "kernels/packed_rows.h"
#include "machine/machine_limits.h"
#include "profile/profile.h"
#include "profile/profile_text.h"
#include "report/page_data.h"
#include "report/step_report.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

struct ProfileArguments {
  ModelOptions model;
  std::string device = "cpu";
  bool whole = false;
  int batch = 16;
  std::string lengths = "1..4096";
  int context = 0;
  int steps = 20;
  bool no_validate = false;
  bool no_trace = false;
  bool no_limits = false;
  std::string output = "profile.gapless";
  std::string html;
  bool json = false;
};

// A profile writes two files: the trace, and the same for Perfetto beside it.
std::string perfetto_path(const std::string& trace_path) {
  constexpr std::string_view kEnding = ".gapless";
  std::string stem = trace_path;
  if (stem.ends_with(kEnding)) stem.resize(stem.size() - kEnding.size());
  return stem + ".pftrace";
}

Result<void> check_arguments(const ProfileArguments& arguments) {
  if (arguments.device != "cpu")
    return fail(ErrorCode::kUsage, "device '{}'; this build runs on: cpu", arguments.device);
  if (arguments.batch < 1 || arguments.batch > kMaxMatmulRows)
    return fail(ErrorCode::kUsage, "a batch of {}; must be 1 to {}", arguments.batch,
                kMaxMatmulRows);
  if (arguments.steps < 1)
    return fail(ErrorCode::kUsage, "{} steps; must be at least 1", arguments.steps);
  if (arguments.no_trace) return {};
  GAPLESS_TRY(check_page_path(arguments.html, {arguments.output, perfetto_path(arguments.output)}));
  if (arguments.output.empty()) return fail(ErrorCode::kUsage, "--output: '' is no name of a file");
  // The trace is made behind a minute of other work.
  const std::filesystem::path folder = std::filesystem::path(arguments.output).parent_path();
  if (!folder.empty() && !is_directory(folder.string()))
    return fail(ErrorCode::kInvalidInput, "{}: cannot create: {} is not a folder", arguments.output,
                folder.string());
  return {};
}

// Writes the file for Perfetto and, where asked for, the page; gives what the report says of the
// trace in short.
Result<std::string> finish_trace(const ProfileArguments& arguments, const std::string& perfetto) {
  const std::string& trace_path = arguments.output;
  const Trace trace = GAPLESS_TRY(read_trace_file(trace_path));
  GAPLESS_TRY(write_trace(trace, perfetto, Format::kPerfetto, {}));
  const StepReport report = GAPLESS_TRY(make_step_report(trace, trace_path));
  const std::string summary = report_summary(report);
  if (arguments.html.empty())
    return fmt::format(
        "\n{0}\n`gapless report {1}` says more; `gapless report {1} --html report.html` draws "
        "it.\n",
        summary, trace_path);
  GAPLESS_TRY(write_report_page(arguments.html, trace, report));
  return fmt::format("\n{}\n`gapless report {}` says more.\n", summary, trace_path);
}

Result<ProfileOptions> profile_options(const ProfileArguments& arguments) {
  const std::string lengths =
      arguments.context > 0 ? std::to_string(arguments.context) : arguments.lengths;
  ProfileOptions options;
  options.lengths = GAPLESS_TRY(parse_lengths(lengths, arguments.batch, arguments.model.seed));
  options.step_count = arguments.steps;
  options.validate = !arguments.no_validate;
  options.measure_limits = !arguments.no_limits;
  options.seed = arguments.model.seed;
  if (!arguments.no_trace) options.trace_path = arguments.output;
  return options;
}

ProfileSubject subject_of(const ModelSource& source, const CpuDecoder& decoder,
                          const ProfileOptions& options) {
  return {.model = source.text(),
          .dtype = std::string(weights_dtype_name(decoder.model().weights->dtype)),
          .kv_dtype = std::string(dtype_name(decoder.options().kv_dtype)),
          .machine = cpu_name(),
          .level = std::string(cpu_level_name(decoder.options().level)),
          .core_count = decoder.model().core_count,
          .model_layers = source.model_layers,
          .page_tokens = decoder.options().page_tokens,
          .fusions = decoder.options().fusions,
          .lengths = options.lengths,
          .trace_path = options.trace_path,
          .perfetto_path = {}};
}

Result<int> run_profile(ProfileArguments& arguments) {
  GAPLESS_TRY(check_arguments(arguments));
  if (arguments.whole) arguments.model.layers = 0;
  const ModelSource source = GAPLESS_TRY(find_model(arguments.model));
  const DType dtype = arguments.model.dtype.empty() && source.checkpoint == nullptr
                          ? DType::kS8
                          : weights_dtype(arguments.model, source.config);
  const ProfileOptions options = GAPLESS_TRY(profile_options(arguments));
  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(make_device(arguments.model));
  const int longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  const LoadedModel model = GAPLESS_TRY(load_model(
      source, arguments.model, dtype,
      {.max_sequences = arguments.batch, .max_length = longest, .with_head = arguments.whole},
      *device));
  const ProfileResult result =
      GAPLESS_TRY(profile_steps(*model.decoder, device->worker_count(), options));
  ProfileSubject subject = subject_of(source, *model.decoder, options);
  std::string summary;
  if (!arguments.no_trace) {
    subject.perfetto_path = perfetto_path(options.trace_path);
    summary = GAPLESS_TRY(finish_trace(arguments, subject.perfetto_path));
  }
  GAPLESS_TRY(print(arguments.json ? profile_json(subject, result)
                                   : profile_text(subject, result) + summary));
  if (!arguments.html.empty())
    GAPLESS_TRY(print_page_path("profile", arguments.html, arguments.json));
  return 0;
}

}  // namespace

RunCommand define_profile(CLI::App& command) {
  const std::shared_ptr<ProfileArguments> arguments = std::make_shared<ProfileArguments>();
  arguments->model.model = "qwen3-14b";
  arguments->model.seed = 1234;
  arguments->model.layers = 1;
  command
      .add_option("--model", arguments->model.model,
                  "The folder of a checkpoint, or a size like\n"
                  "qwen3-0.6b with weights that nobody trained,\n"
                  "A8W8 unless asked otherwise (default qwen3-14b)")
      ->option_text("MODEL");
  command.add_flag("--whole", arguments->whole, "All layers, with embedding and head");
  command.add_option("--batch", arguments->batch, "Sequences in a step, 1 to 64 (default 16)")
      ->option_text("N");
  CLI::Option* lengths =
      command
          .add_option("--lengths", arguments->lengths,
                      "Tokens of all, of each, or a range to spread\nthem over (default 1..4096)")
          ->option_text("N|A,B,...|A..B");
  command.add_option("--ctx", arguments->context, "Tokens of all, instead")
      ->excludes(lengths)
      ->check(CLI::Range(1, kMaxPlanTokens).description(""))
      ->option_text("N");
  command
      .add_option("--steps", arguments->steps,
                  "Steps of each kind: without the recorder, with\nit, without again (default 20)")
      ->option_text("N");
  command.add_option("--device", arguments->device, "Where it runs (default cpu)")
      ->option_text("cpu");
  command
      .add_option("-o,--output", arguments->output,
                  "The trace; the same for Perfetto is written\n"
                  "beside it (default profile.gapless)")
      ->option_text("PATH");
  CLI::Option* html =
      command
          .add_option("--html", arguments->html,
                      "Write the report as a page to look at, too: one\nfile that needs no network")
          ->option_text("FILE");
  command.add_flag("--no-trace", arguments->no_trace, "Do not record")->excludes(html);
  command.add_flag("--no-validate", arguments->no_validate,
                   "Do not check the first layer against the reference");
  command.add_flag("--no-limits", arguments->no_limits,
                   "Do not measure what this machine could do");
  add_model_options(command, arguments->model, "inputs and cache");
  command.get_option("--whole")->excludes(command.get_option("--layers"));
  command.add_flag("--json", arguments->json, "Everything, as JSON");
  command.footer(
      "Without a checkpoint the defaults are a decode layer of Qwen3-14B in A8W8, 16 sequences of\n"
      "up to 4096 tokens. Limits are measured in the same run; the step's limit is, kernel by\n"
      "kernel, the larger of bytes at the read rate and operations at the peak.\n"
      "\n"
      "Examples:\n"
      "  gapless profile\n"
      "  gapless profile --batch 1 --ctx 512 --dtype bf16\n"
      "  gapless profile --dual-gate-up off -o two_matmuls.gapless\n"
      "  gapless profile --model qwen3-0.6b --whole --json | jq .step.median_s");
  return [arguments] { return run_profile(*arguments); };
}

}  // namespace gapless
