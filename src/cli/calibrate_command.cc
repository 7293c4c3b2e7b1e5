// SPDX-License-Identifier: Apache-2.0
//
// gapless calibrate TRACE: a device profile whose latencies and kernels are those of a recording.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "analysis/calibrate.h"
#include "base/file.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "report/step_report.h"
#include "report/task_trace.h"
#include "report/text_table.h"
#include "sim/device_profile.h"

namespace gapless {
namespace {

// Of the step; less can be chance.
constexpr double kWorseError = 0.02;

using Json = nlohmann::ordered_json;

struct CalibrateArguments {
  std::string trace;
  std::string output;
  std::string device;
  std::string name;
  std::optional<size_t> step;
  bool all_steps = false;
  bool no_kernels = false;
  bool json = false;
  bool tracr_labels_by_key_order = false;
};

struct Calibrated {
  DeviceProfile base;
  std::vector<size_t> steps;  // that were used
  size_t step_count = 0;      // of the trace
  uint64_t run_count = 0;     // of the steps used
  uint64_t task_count = 0;
  uint32_t core_count = 0;
  uint64_t edge_count = 0;
  Calibration calibration;
  size_t replayed_step = 0;
  Result<ReplayCheck> check = Error{};
};

Result<void> check_output(const CalibrateArguments& arguments) {
  if (arguments.output.empty()) return {};
  namespace fs = std::filesystem;
  for (const std::string& input : {arguments.trace, arguments.device}) {
    std::error_code error;
    const bool is_same = fs::equivalent(input, arguments.output, error) && !error;
    // The files of a trace that is a folder are inputs too.
    const fs::path folder = fs::path(arguments.output).parent_path();
    const bool is_within = is_directory(input) && fs::exists(arguments.output, error) &&
                           fs::equivalent(input, folder.empty() ? "." : folder, error) && !error;
    if (is_same || is_within) {
      return fail(ErrorCode::kUsage, "{}: would write over the input; name another file with -o",
                  arguments.output);
    }
  }
  return {};
}

// What was asked for, or what the trace's cores look like.
Result<DeviceProfile> base_profile(const CalibrateArguments& arguments, const StepTasks& tasks) {
  if (!arguments.device.empty()) return find_profile(arguments.device);
  const RecordedCores cores = recorded_cores(tasks);
  const bool is_unified = cores.cube_count + cores.vector_count == 0;
  return find_profile(is_unified ? "cpu-like" : "ascend-910b");
}

Result<Calibrated> calibrate_trace(const CalibrateArguments& arguments, const Trace& trace) {
  const ExplainedStep found = GAPLESS_TRY(find_step(trace, arguments.trace, arguments.step));
  Calibrated made;
  made.step_count = found.windows.size();
  made.replayed_step = found.step;
  made.steps.push_back(found.step);  // first, because it is replayed
  for (size_t step = 0; arguments.all_steps && step < found.windows.size(); ++step) {
    if (step != found.step) made.steps.push_back(step);
  }
  std::vector<StepTasks> tasks;
  tasks.reserve(made.steps.size());
  std::vector<RecordedStep> steps;
  for (const size_t step : made.steps) {
    tasks.push_back(GAPLESS_TRY(StepTasks::create(trace, found.windows[step], found.lanes)));
    steps.push_back({&tasks.back(), GAPLESS_TRY(make_recorded_graph(trace, tasks.back()))});
    made.run_count += tasks.back().task_count();
    made.task_count += steps.back().recorded.graph.task_count();
    made.edge_count += steps.back().recorded.graph.edge_count();
  }
  made.core_count = tasks.front().core_count();
  made.base = GAPLESS_TRY(base_profile(arguments, tasks.front()));
  made.calibration = GAPLESS_TRY(calibrate({.trace = trace,
                                            .steps = steps,
                                            .base = made.base,
                                            .source = arguments.trace,
                                            .name = arguments.name,
                                            .has_kernels = !arguments.no_kernels}));
  made.check = check_calibration(trace, steps.front(), made.base, made.calibration);
  return made;
}

std::string step_text(const Calibrated& made) {
  if (made.steps.size() > 1) return fmt::format("all {} steps", made.steps.size());
  if (made.step_count > 1) return fmt::format("step {} of {}", made.steps.front(), made.step_count);
  return "one step";
}

std::string quartiles(const Spread& spread) {
  if (spread.count == 0) return "";
  return fmt::format("{} {} {}", spread.lower, spread.median, spread.upper);
}

std::string fitted_text(const Calibration& calibration) {
  std::vector<TableRow> rows = {{"FITTED", "BEFORE", "NOW", "QUARTILES", "FROM"}};
  for (const ParameterFit& fit : calibration.parameters) {
    if (!fit.is_fitted) continue;
    rows.push_back({std::string(fit.key), fmt::format("{}", fit.before),
                    fmt::format("{}", fit.value), quartiles(fit.spread), printable(fit.note)});
  }
  return align_columns(rows, "lrrrl");
}

// One line a reason.
std::string kept_text(const Calibration& calibration) {
  std::vector<std::pair<std::string, std::string>> lines;  // reason, keys
  for (const ParameterFit& fit : calibration.parameters) {
    if (fit.is_fitted) continue;
    const auto known = std::find_if(lines.begin(), lines.end(),
                                    [&fit](const auto& line) { return line.first == fit.note; });
    if (known == lines.end()) {
      lines.emplace_back(fit.note, fit.key);
    } else {
      known->second += fmt::format(", {}", fit.key);
    }
  }
  std::string text;
  for (const auto& [note, keys] : lines)
    add_fact(text, "kept", fmt::format("{}: {}", keys, printable(note)));
  return text;
}

std::string kernels_text(const Calibration& calibration) {
  if (calibration.kernels.empty()) return "";
  std::vector<TableRow> rows = {
      {"KERNEL", "RUNS", "BEFORE_NS", "MEAN_NS", "SIGMA_NS", "QUARTILES", ""}};
  for (const KernelFit& fit : calibration.kernels) {
    const std::string left_out =
        fit.outlier_count == 0 ? "" : fmt::format("{} left out", fit.outlier_count);
    rows.push_back({table_name(fit.kernel), fmt::format("{}", fit.spread.count),
                    fit.before_mean_ns == kAbsent ? "-" : fmt::format("{}", fit.before_mean_ns),
                    fmt::format("{}", fit.mean_ns), fmt::format("{}", fit.sigma_ns),
                    quartiles(fit.spread), left_out});
  }
  return "\n" + align_columns(rows, "lrrrrrl");
}

// "+1.6 %"; what rounds to nothing has no sign.
std::string error_text(double error) {
  const double percent = std::round(error * 1000.0) / 10.0;
  return percent == 0.0 ? "0.0 %" : fmt::format("{:+.1f} %", percent);
}

std::string replay_line(const ReplayCheck& check, const ReplayLengths& lengths, int64_t shown_ns,
                        std::string_view what) {
  return fmt::format("{} {}, {}; {} to {} in {} replays", format_duration(shown_ns),
                     error_text(check.error(shown_ns)), what,
                     error_text(check.error(lengths.least_ns)),
                     error_text(check.error(lengths.most_ns)), kReplayCount);
}

std::string replay_text(const Calibrated& made) {
  std::string text = "\n";
  if (!made.check) {
    add_fact(text, "replay", "none: " + printable(made.check.error().message));
    return text;
  }
  const ReplayCheck& check = *made.check;
  add_fact(text, "recorded",
           fmt::format("{} from the first {} to the last {} of step {}",
                       format_duration(check.recorded_ns), task_time_name(check.span.from),
                       task_time_name(check.span.to), made.replayed_step));
  const std::string_view recorded_runs = "with recorded run times";
  add_fact(text, "before",
           replay_line(check, check.before, check.before.recorded_runs_ns,
                       fmt::format("{} {}", made.base.name, recorded_runs)));
  add_fact(text, "after",
           replay_line(check, check.after, check.after.recorded_runs_ns, recorded_runs));
  if (check.kernels)
    add_fact(text, "kernels",
             replay_line(check, *check.kernels, check.kernels->median_ns,
                         "with the kernels' means and sigmas, the median"));
  const double before = std::abs(check.error(check.before.median_ns));
  const double after = std::abs(check.error(check.after.median_ns));
  if (after > before + kWorseError)
    text +=
        "\nnote  the fitted machine replays this step worse than the base: what the trace waits "
        "for "
        "is not modelled, or not in the trace\n";
  return text;
}

std::string calibration_text(const CalibrateArguments& arguments, const Calibrated& made) {
  const Calibration& calibration = made.calibration;
  std::string text;
  add_fact(text, "trace",
           fmt::format("{}, {}: {} of {}, {} on {}", printable(arguments.trace), step_text(made),
                       counted(made.run_count, "run"), counted(made.task_count, "task"),
                       counted(made.edge_count, "edge"), counted(made.core_count, "core")));
  add_fact(text, "base", made.base.name);
  text += "\n" + fitted_text(calibration) + "\n" + kept_text(calibration);
  return text + kernels_text(calibration) + replay_text(made);
}

Json spread_json(const Spread& spread) {
  if (spread.count == 0) return nullptr;
  return {{"count", spread.count},
          {"least", spread.least},
          {"lower_quartile", spread.lower},
          {"median", spread.median},
          {"upper_quartile", spread.upper}};
}

Json replay_json(const Calibrated& made) {
  if (!made.check) return {{"error", made.check.error().message}};
  const ReplayCheck& check = *made.check;
  const auto lengths_json = [&check](const ReplayLengths& lengths) {
    return Json{{"makespan_ns", lengths.recorded_runs_ns},
                {"error", check.error(lengths.recorded_runs_ns)},
                {"least_ns", lengths.least_ns},
                {"median_ns", lengths.median_ns},
                {"most_ns", lengths.most_ns}};
  };
  return {{"step", made.replayed_step},
          {"from", task_time_name(check.span.from)},
          {"to", task_time_name(check.span.to)},
          {"recorded_ns", check.recorded_ns},
          {"before", lengths_json(check.before)},
          {"after", lengths_json(check.after)},
          {"kernels", check.kernels ? lengths_json(*check.kernels) : Json(nullptr)}};
}

std::string calibration_json(const CalibrateArguments& arguments, const Calibrated& made) {
  Json json = {{"trace", arguments.trace},
               {"steps", made.steps},
               {"base", made.base.name},
               {"parameters", Json::array()},
               {"kernels", Json::array()},
               {"replay", replay_json(made)},
               {"profile", Json::parse(profile_json(made.calibration.profile))}};
  for (const ParameterFit& fit : made.calibration.parameters) {
    json["parameters"].push_back({{"name", fit.key},
                                  {"before", fit.before},
                                  {"value", fit.value},
                                  {"is_fitted", fit.is_fitted},
                                  {"samples", spread_json(fit.spread)},
                                  {"note", fit.note}});
  }
  for (const KernelFit& fit : made.calibration.kernels) {
    json["kernels"].push_back({{"name", fit.kernel},
                               {"mean_ns", fit.mean_ns},
                               {"sigma_ns", fit.sigma_ns},
                               {"samples", spread_json(fit.spread)},
                               {"left_out", fit.outlier_count}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<int> run_calibrate(const CalibrateArguments& arguments) {
  if (arguments.step && arguments.all_steps)
    return fail(ErrorCode::kUsage, "--step {} --all-steps; only one of them can be",
                *arguments.step);
  GAPLESS_TRY(check_output(arguments));
  if (!arguments.device.empty()) GAPLESS_TRY(find_profile(arguments.device));
  ProgressBar bar("reading", ProgressUnit::kBytes);
  const Trace trace = GAPLESS_TRY(read_task_trace(
      arguments.trace, {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                        .progress = bar.callback()}));
  bar.erase();
  print_findings("calibrate", trace);
  const Calibrated made = GAPLESS_TRY(calibrate_trace(arguments, trace));
  if (!arguments.output.empty()) {
    GAPLESS_TRY(write_text_file(arguments.output, profile_json(made.calibration.profile)));
  }
  GAPLESS_TRY(print(arguments.json ? calibration_json(arguments, made)
                                   : calibration_text(arguments, made)));
  if (arguments.output.empty()) return 0;
  const std::string line =
      fmt::format("`gapless profile --device {}` runs on it", arguments.output);
  if (arguments.json) {
    print_note("calibrate", "note", line);
    return 0;
  }
  std::string text;
  add_fact(text, "profile", printable(line));
  GAPLESS_TRY(print(text));
  return 0;
}

}  // namespace

RunCommand define_calibrate(CLI::App& command) {
  const std::shared_ptr<CalibrateArguments> arguments = std::make_shared<CalibrateArguments>();
  command.add_option("TRACE", arguments->trace, "A trace of any format that is read")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command.add_option("-o,--output", arguments->output, "Write the profile: a .json for --device")
      ->option_text("FILE");
  command
      .add_option("--device", arguments->device,
                  "What the trace does not tell is as in this profile\n(default: ascend-910b, or "
                  "cpu-like where cores have\nno kind)")
      ->option_text("NAME|FILE");
  command
      .add_option("--step", arguments->step,
                  "Which step, counted from 0 (default: the one of\nmedian length)")
      ->check(from_zero_on())
      ->option_text("N");
  command.add_flag("--all-steps", arguments->all_steps, "Samples of all steps");
  command.add_option("--name", arguments->name, "What the profile is called")->option_text("NAME");
  command.add_flag("--no-kernels", arguments->no_kernels,
                   "Latencies only: kernels stay as they are");
  command.add_flag("--json", arguments->json, "Everything, as JSON, with the profile");
  add_tracr_option(command, arguments->tracr_labels_by_key_order);
  command.footer(
      "Each latency of the simulated machine is the difference of two recorded times; the middle\n"
      "of all samples is the fit. What the trace does not tell stays as the base has it, with the\n"
      "reason. Then the recorded tasks run on both machines, to see how good the fit is.\n"
      "\n"
      "Examples:\n"
      "  gapless calibrate swimlane/ -o chip.json\n"
      "  gapless profile --device chip.json --dtype bf16\n"
      "  gapless calibrate trace.gapless --no-kernels --json | jq .replay");
  return [arguments] { return run_calibrate(*arguments); };
}

}  // namespace gapless
