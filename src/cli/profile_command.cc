// SPDX-License-Identifier: Apache-2.0
//
// gapless profile: runs decode steps of a model, checks them, records them and says what they took.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/command.h"
#include "cli/cuda_model.h"
#include "cli/model_options.h"
#include "cli/progress_bar.h"
#include "cli/simulated_profile.h"
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
  SimulatedOptions simulated;
  bool whole = false;
  int batch = 16;
  std::string lengths = "1..4096";
  int context = 0;
  int steps = 0;  // as typed; else 20, or 1 on a simulated device
  bool no_validate = false;
  bool no_trace = false;
  bool no_limits = false;
  std::string record = "tasks";
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

Result<void> check_output(const ProfileArguments& arguments) {
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

Result<void> check_arguments(const ProfileArguments& arguments) {
  GAPLESS_TRY(check_device_options(arguments.model));
  if (arguments.batch < 1 || arguments.batch > kMaxMatmulRows)
    return fail(ErrorCode::kUsage, "a batch of {}; must be 1 to {}", arguments.batch,
                kMaxMatmulRows);
  if (arguments.steps < 1)
    return fail(ErrorCode::kUsage, "{} steps; must be at least 1", arguments.steps);
  return check_output(arguments);
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

std::string lengths_text(const ProfileArguments& arguments) {
  return arguments.context > 0 ? std::to_string(arguments.context) : arguments.lengths;
}

Result<ProfileOptions> profile_options(const ProfileArguments& arguments) {
  ProfileOptions options;
  options.lengths =
      GAPLESS_TRY(parse_lengths(lengths_text(arguments), arguments.batch, arguments.model.seed));
  options.step_count = arguments.steps;
  options.validate = !arguments.no_validate;
  options.measure_limits = !arguments.no_limits;
  options.seed = arguments.model.seed;
  if (!arguments.no_trace) options.trace_path = arguments.output;
  options.records_phases = arguments.record == "phases";
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

Result<ModelProfile> profile_model(const ProfileArguments& arguments, const ModelSource& source,
                                   DType dtype, const ProfileOptions& options) {
  const ModelDevice device = GAPLESS_TRY(open_device(arguments.model));
  const int longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  const DecoderNeeds needs = {
      .max_sequences = arguments.batch, .max_length = longest, .with_head = arguments.whole};
  if (!device.cpu) return profile_cuda_model(source, arguments.model, dtype, needs, options);
  const CpuModel model =
      GAPLESS_TRY(load_cpu_model(source, arguments.model, dtype, needs, *device.cpu));
  ProfileResult result =
      GAPLESS_TRY(profile_steps(*model.decoder, device.cpu->worker_count(), options));
  return ModelProfile{subject_of(source, *model.decoder, options), std::move(result)};
}

// A profile that is a file is an input like others.
Result<void> check_profile_kept(const ProfileArguments& arguments) {
  const std::string& profile = arguments.model.device;
  std::vector<std::string> outputs = {arguments.html};
  if (!arguments.no_trace)
    outputs.insert(outputs.end(), {arguments.output, perfetto_path(arguments.output)});
  for (const std::string& output : outputs) {
    std::error_code error;
    if (std::filesystem::equivalent(output, profile, error) && !error)
      return fail(ErrorCode::kUsage, "{}: would be written over the profile of the device", output);
  }
  return {};
}

Result<int> run_simulated(const ProfileArguments& arguments) {
  GAPLESS_TRY(check_output(arguments));
  GAPLESS_TRY(check_profile_kept(arguments));
  const SimulatedProfile profile =
      GAPLESS_TRY(profile_simulated({.model = arguments.model,
                                     .simulated = arguments.simulated,
                                     .batch = arguments.batch,
                                     .lengths = lengths_text(arguments),
                                     .step_count = arguments.steps,
                                     .validate = !arguments.no_validate}));
  SimulatedFiles files;
  std::string summary;
  if (!arguments.no_trace) {
    files = {.trace = arguments.output, .perfetto = perfetto_path(arguments.output)};
    GAPLESS_TRY(write_trace(profile.trace, files.trace, Format::kGapless, {}));
    summary = GAPLESS_TRY(finish_trace(arguments, files.perfetto));
  }
  GAPLESS_TRY(print(arguments.json ? simulated_json(profile, files)
                                   : simulated_text(profile, files) + summary));
  if (!arguments.html.empty())
    GAPLESS_TRY(print_page_path("profile", arguments.html, arguments.json));
  return 0;
}

Result<int> run_profile(const CLI::App& command, ProfileArguments& arguments) {
  const std::string& device = arguments.model.device;
  GAPLESS_TRY(check_simulated_options(command, device));
  if (command.count("--record") > 0 && device != "cuda")
    return fail(ErrorCode::kUsage, "--record is of --device cuda; --device {} has one level",
                device);
  if (command.count("--steps") == 0) arguments.steps = is_simulated(device) ? 1 : 20;
  if (arguments.whole) arguments.model.layers = 0;
  if (is_simulated(device)) return run_simulated(arguments);
  GAPLESS_TRY(check_arguments(arguments));
  const ModelSource source = GAPLESS_TRY(find_model(arguments.model));
  const DType dtype = arguments.model.dtype.empty() && source.checkpoint == nullptr
                          ? DType::kS8
                          : weights_dtype(arguments.model, source.config);
  GAPLESS_TRY(check_device_dtype(arguments.model, dtype));
  ProfileOptions options = GAPLESS_TRY(profile_options(arguments));
  StatusLine status;
  options.on_part = [&](std::string_view part) { status.show(part); };
  ModelProfile profile = GAPLESS_TRY(profile_model(arguments, source, dtype, options));
  status.show("");
  std::string summary;
  if (!arguments.no_trace) {
    profile.subject.perfetto_path = perfetto_path(options.trace_path);
    summary = GAPLESS_TRY(finish_trace(arguments, profile.subject.perfetto_path));
  }
  GAPLESS_TRY(print(arguments.json ? profile_json(profile.subject, profile.result)
                                   : profile_text(profile.subject, profile.result) + summary));
  if (!arguments.html.empty())
    GAPLESS_TRY(print_page_path("profile", arguments.html, arguments.json));
  return 0;
}

// What a step is of, and how many.
void add_step_options(CLI::App& command, ProfileArguments& arguments) {
  command
      .add_option("--model", arguments.model.model,
                  "The folder of a checkpoint, or a size like\n"
                  "qwen3-0.6b with weights that nobody trained,\n"
                  "A8W8 unless asked otherwise (default qwen3-14b)")
      ->option_text("MODEL");
  command.add_flag("--whole", arguments.whole,
                   "All layers, with embedding and head; without\nthem on a simulated device");
  command
      .add_option("--batch", arguments.batch,
                  "Sequences in a step, 1 to 64, simulated to 256\n(default 16)")
      ->option_text("N");
  CLI::Option* lengths =
      command
          .add_option("--lengths", arguments.lengths,
                      "Tokens of all, of each, or a range to spread\nthem over (default 1..4096)")
          ->option_text("N|A,B,...|A..B");
  command.add_option("--ctx", arguments.context, "Tokens of all, instead")
      ->excludes(lengths)
      ->check(CLI::Range(1, kMaxPlanTokens).description(""))
      ->option_text("N");
  command
      .add_option("--steps", arguments.steps,
                  "Steps of each kind: without the recorder, with\nit, without again (default 20); "
                  "simulated: each\nwith another seed (default 1)")
      ->option_text("N");
}

}  // namespace

RunCommand define_profile(CLI::App& command) {
  const std::shared_ptr<ProfileArguments> arguments = std::make_shared<ProfileArguments>();
  arguments->model.model = "qwen3-14b";
  arguments->model.seed = 1234;
  arguments->model.layers = 1;
  add_step_options(command, *arguments);
  command
      .add_option("--device", arguments->model.device,
                  "Where it runs: cpu, cuda for an NVIDIA GPU, or\n"
                  "a simulated chip: ascend-910b, ideal-910b,\n"
                  "cpu-like, the path of a profile (default cpu)")
      ->type_name(device_choices())
      ->option_text("NAME");
  add_simulated_options(command, arguments->simulated);
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
  CLI::Option* record = command
                            .add_option("--record", arguments->record,
                                        "On a GPU: its blocks as tasks, which costs 0.3\n"
                                        "to 1.7 %, or every phase inside them, which\n"
                                        "costs 1 to 3 % (default tasks)")
                            ->check(CLI::IsMember({"tasks", "phases"}))
                            ->option_text("tasks|phases");
  command.add_flag("--no-trace", arguments->no_trace, "Do not record")
      ->excludes(html)
      ->excludes(record);
  command.add_flag("--no-validate", arguments->no_validate,
                   "Do not check the first layer against the reference");
  command.add_flag("--no-limits", arguments->no_limits,
                   "Do not measure what this machine could do");
  add_model_options(command, arguments->model, "inputs, cache and simulated times");
  command.get_option("--whole")->excludes(command.get_option("--layers"));
  command.add_flag("--json", arguments->json, "Everything, as JSON");
  command.footer(
      "Without a checkpoint the defaults are a decode layer of Qwen3-14B in A8W8, 16 sequences of\n"
      "up to 4096 tokens. Limits are measured in the same run; the step's limit is, kernel by\n"
      "kernel, the larger of bytes at the read rate and operations at the peak.\n"
      "A simulated device computes nothing unless --compute asks for it; its time is virtual and\n"
      "the same everywhere.\n"
      "\n"
      "Examples:\n"
      "  gapless profile\n"
      "  gapless profile --batch 1 --ctx 512 --dtype bf16\n"
      "  gapless profile --dual-gate-up off -o two_matmuls.gapless\n"
      "  gapless profile --device cuda --ctx 4096\n"
      "  gapless profile --device cuda --ctx 4096 --record phases --html layer.html\n"
      "  gapless profile --device ascend-910b --dtype bf16 --ctx 4096 --html layer.html\n"
      "  gapless profile --device ascend-910b --tiling ours --compute --ctx 512\n"
      "  gapless profile --model qwen3-0.6b --whole --json | jq .step.median_s");
  return [&command, arguments] { return run_profile(command, *arguments); };
}

}  // namespace gapless
