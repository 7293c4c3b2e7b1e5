// SPDX-License-Identifier: Apache-2.0
//
// gapless whatif TRACE: the recorded tasks of a step again in virtual time, with something changed.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "analysis/device_replay.h"
#include "analysis/recorded_memory.h"
#include "analysis/recorded_overheads.h"
#include "analysis/whatif.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/nearest_name.h"
#include "cli/progress_bar.h"
#include "formats/format.h"
#include "report/step_report.h"
#include "report/task_trace.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMaxError = 0.03;

struct WhatIfArguments {
  std::string trace;
  std::optional<size_t> step;
  std::vector<std::string> zero;
  std::vector<std::string> cores;  // "cube=48"
  std::vector<std::string> scale;  // "gate_up=0.5"
  std::vector<std::string> fuse;   // "gate_up,silu"
  std::string device;              // empty: none is simulated
  std::vector<std::string> set;    // "scheduler.poll_ns=100"
  bool modelled = false;
  uint32_t kernels = 8;
  bool force = false;
  bool json = false;
  bool tracr_labels_by_key_order = false;
};

bool asks_for_change(const WhatIfArguments& arguments) {
  return !arguments.zero.empty() || !arguments.cores.empty() || !arguments.scale.empty() ||
         !arguments.fuse.empty() || !arguments.set.empty();
}

Result<uint32_t> find_kernel(const Trace& trace, const StepTasks& tasks, const std::string& name) {
  std::vector<std::string> names;
  std::vector<bool> seen(trace.names.size(), false);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const uint32_t kernel = tasks.kernel(task);
    if (kernel == kNoIndex || seen[kernel]) continue;
    seen[kernel] = true;
    if (trace.names[kernel] == name) return kernel;
    names.emplace_back(trace.names[kernel]);
  }
  const std::optional<std::string> nearest = nearest_name(name, names);
  return fail(ErrorCode::kUsage, "no task of the step is called {}{}", name,
              nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

// "NAME=NUMBER"; names may have a '=' in them.
struct Setting {
  std::string name;
  double value = 0.0;
};
Result<Setting> parse_setting(std::string_view option, const std::string& text) {
  const size_t equals = text.rfind('=');
  Setting setting;
  if (equals == std::string::npos || equals == 0)
    return fail(ErrorCode::kUsage, "{} {}; must look like NAME=NUMBER", option, text);
  setting.name = text.substr(0, equals);
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data() + equals + 1, end, setting.value);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(setting.value) ||
      setting.value < 0.0)
    return fail(ErrorCode::kUsage, "{} {}; must end with a number from 0 on", option, text);
  return setting;
}

Result<void> add_cores(const std::string& text, WhatIf& change) {
  const Setting setting = GAPLESS_TRY(parse_setting("--cores", text));
  for (int i = 0; i < kCoreClassCount; ++i) {
    if (core_class_name(static_cast<CoreClass>(i)) != setting.name) continue;
    if (setting.value < 1.0 || setting.value > 1e6 || setting.value != std::floor(setting.value))
      return fail(ErrorCode::kUsage, "--cores {}; must be a whole number from 1 on", text);
    change.core_counts[static_cast<size_t>(i)] = static_cast<uint32_t>(setting.value);
    return {};
  }
  return fail(ErrorCode::kUsage, "--cores {}; kinds of cores are any, cube and vector", text);
}

Result<void> add_zero(const std::string& overhead, WhatIf& change) {
  const bool all = overhead == "all";
  change.zero_completion |= all || overhead == "completion";
  change.zero_scheduler |= all || overhead == "dispatch";
  change.zero_handoff |= all || overhead == "handoff";
  change.zero_submit |= overhead == "submit";
  return {};
}

Result<WhatIf> change_of(const WhatIfArguments& arguments, const Trace& trace,
                         const StepTasks& tasks) {
  WhatIf change;
  for (const std::string& overhead : arguments.zero) GAPLESS_TRY(add_zero(overhead, change));
  if (change.zero_submit && tasks.absent_count(TaskTime::kSubmit) == tasks.task_count())
    return fail(ErrorCode::kUsage, "--zero submit: the step's tasks have no submit times");
  for (const std::string& text : arguments.cores) GAPLESS_TRY(add_cores(text, change));
  for (const std::string& text : arguments.scale) {
    const Setting setting = GAPLESS_TRY(parse_setting("--scale", text));
    if (setting.value > kMaxScale)
      return fail(ErrorCode::kUsage, "--scale {}; must be {} at most", text, kMaxScale);
    const uint32_t kernel = GAPLESS_TRY(find_kernel(trace, tasks, setting.name));
    if (change.kernel_scale.empty()) change.kernel_scale.assign(trace.names.size(), 1.0);
    change.kernel_scale[kernel] = setting.value;
  }
  for (const std::string& text : arguments.fuse) {
    std::vector<uint32_t> group;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      group.push_back(GAPLESS_TRY(find_kernel(trace, tasks, text.substr(begin, end - begin))));
      begin = end + 1;
    }
    if (group.size() < 2)
      return fail(ErrorCode::kUsage, "--fuse {}; must name two kernels or more", text);
    change.fused.push_back(std::move(group));
  }
  return change;
}

std::string changes_text(const StandardChanges& changes, const std::string& note) {
  std::string text = fmt::format("unchanged       {} replayed, {} recorded: {:+.2f} %\n",
                                 format_duration(changes.replayed_ns),
                                 format_duration(changes.recorded_ns), changes.error * 100.0);
  if (changes.memory_bytes_per_s > 0)
    text += fmt::format("memory          {:.1f} GB/s, which more cores share too\n",
                        static_cast<double>(changes.memory_bytes_per_s) * 1e-9);
  text += '\n';
  std::vector<TableRow> rows = {{"WHAT IF", "STEP", "GAIN"}};
  for (const StandardChange& line : changes.changes)
    rows.push_back(
        {printable(line.name), format_duration(line.makespan_ns), format_share(line.gain)});
  text += align_columns(rows, "lrr");
  return note.empty() ? text : text + fmt::format("\nnote  {}\n", note);
}

std::string changes_json(const StandardChanges& changes, const std::string& note) {
  Json json = {{"recorded_ns", changes.recorded_ns},
               {"replayed_ns", changes.replayed_ns},
               {"replay_error", changes.error},
               {"memory_bytes_per_s",
                changes.memory_bytes_per_s > 0 ? Json(changes.memory_bytes_per_s) : Json(nullptr)},
               {"changes", Json::array()}};
  for (const StandardChange& line : changes.changes)
    json["changes"].push_back(
        {{"what", line.name}, {"makespan_ns", line.makespan_ns}, {"gain", line.gain}});
  if (!note.empty()) json["note"] = note;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// A table of one line, for what was asked for.
Result<StandardChanges> one_change(const WhatIfArguments& arguments, const Trace& trace,
                                   const StepTasks& tasks) {
  const WhatIf change = GAPLESS_TRY(change_of(arguments, trace, tasks));
  VirtualGraph graph = GAPLESS_TRY(make_virtual_graph(tasks));
  set_memory(tasks, trace, recorded_limits(trace), graph);
  const WhatIfResult unchanged = GAPLESS_TRY(replay_graph(tasks, graph, {}));
  const WhatIfResult changed = GAPLESS_TRY(replay_graph(tasks, graph, change));
  if (!change.fused.empty() && changed.task_count == tasks.task_count())
    return fail(ErrorCode::kInvalidInput,
                "--fuse joins nothing: no task of these kernels waits for one of a kernel that is "
                "named before its own");
  StandardChanges changes;
  changes.recorded_ns = tasks.window_ns();
  changes.memory_bytes_per_s = graph.memory_bytes_per_s;
  changes.replayed_ns = unchanged.makespan_ns;
  const double recorded = static_cast<double>(changes.recorded_ns);
  const double replayed = static_cast<double>(changes.replayed_ns);
  changes.error = (replayed - recorded) / recorded;
  changes.changes.push_back(
      {.name = fmt::format("as asked, {} of {} tasks", changed.task_count, tasks.task_count()),
       .change = change,
       .makespan_ns = changed.makespan_ns,
       .gain = 1.0 - static_cast<double>(changed.makespan_ns) / replayed});
  return changes;
}

Result<void> check_device_options(const WhatIfArguments& arguments) {
  if (arguments.device.empty() && !arguments.set.empty())
    return fail(ErrorCode::kUsage, "--set {}: needs --device, whose parameter it is",
                arguments.set.front());
  if (arguments.device.empty() && arguments.modelled)
    return fail(ErrorCode::kUsage, "--modelled: needs --device, whose memory tasks share");
  if (!arguments.device.empty() && !arguments.fuse.empty())
    return fail(ErrorCode::kUsage,
                "--fuse {}: not with --device; it joins tasks as they were "
                "recorded",
                arguments.fuse.front());
  return {};
}

// Clusters come whole: more cube cores are more vector cores too.
std::string cores_text(const DeviceProfile& before, const DeviceProfile& now) {
  if (before.cluster_count == now.cluster_count && before.vector_cores == now.vector_cores)
    return "";
  if (now.is_unified != 0) return fmt::format(", {} cores", now.cluster_count);
  return fmt::format(", {} cube and {} vector cores", now.cluster_count, now.vector_core_count());
}

// What was asked for, or the standard table, on a simulated device.
Result<StandardChanges> device_changes(const WhatIfArguments& arguments, const Trace& trace,
                                       const StepTasks& tasks, size_t step) {
  const DeviceProfile found = GAPLESS_TRY(find_profile(arguments.device));
  const DeviceProfile profile = GAPLESS_TRY(profile_for_step(found, tasks));
  std::vector<DeviceChange> changes;
  if (asks_for_change(arguments)) {
    const WhatIf change = GAPLESS_TRY(change_of(arguments, trace, tasks));
    DeviceChange asked = {
        .name = "as asked", .profile = profile, .kernel_scale = change.kernel_scale};
    GAPLESS_TRY(change_profile(change, asked.profile));
    for (const std::string& text : arguments.set) {
      const Result<void> set = set_parameter(asked.profile, text);
      if (!set) return fail(ErrorCode::kUsage, "--set: {}", set.error().message);
    }
    for (const KernelCalibration& kernel : asked.profile.kernels)
      GAPLESS_TRY(find_kernel(trace, tasks, kernel.kernel));
    asked.name += cores_text(profile, asked.profile);
    changes.push_back(std::move(asked));
  } else {
    changes = standard_device_changes(profile, arguments.modelled);
    for (const uint32_t kernel : longest_kernels(tasks, trace, arguments.kernels)) {
      DeviceChange half = {.name = fmt::format("{} in half the time", trace.names[kernel]),
                           .profile = profile};
      half.kernel_scale.assign(trace.names.size(), 1.0);
      half.kernel_scale[kernel] = 0.5;
      changes.push_back(std::move(half));
    }
  }
  return replay_on_device({trace, tasks, profile, arguments.modelled, static_cast<uint32_t>(step)},
                          changes);
}

// Of what is printed behind the table; empty: nothing.
std::string note_on(const WhatIfArguments& arguments) {
  const bool has_recorded_times = !arguments.device.empty() && !arguments.modelled;
  if (!has_recorded_times || (arguments.cores.empty() && arguments.set.empty())) return "";
  return "run times are as recorded or set, whatever cores and memory are now; --modelled follows "
         "them";
}

Result<StandardChanges> make_table(const WhatIfArguments& arguments, const Trace& trace,
                                   const StepTasks& tasks, size_t step) {
  if (!arguments.device.empty()) return device_changes(arguments, trace, tasks, step);
  if (asks_for_change(arguments)) return one_change(arguments, trace, tasks);
  return standard_changes(tasks, trace, arguments.kernels);
}

Result<int> run_whatif(const WhatIfArguments& arguments) {
  GAPLESS_TRY(check_device_options(arguments));
  ProgressBar bar("reading", ProgressUnit::kBytes);
  const Trace trace = GAPLESS_TRY(read_task_trace(
      arguments.trace, {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                        .progress = bar.callback()}));
  bar.erase();
  print_findings("whatif", trace);
  const ExplainedStep step = GAPLESS_TRY(find_step(trace, arguments.trace, arguments.step));
  const StepTasks tasks =
      GAPLESS_TRY(StepTasks::create(trace, step.windows[step.step], step.lanes));
  const StandardChanges changes = GAPLESS_TRY(make_table(arguments, trace, tasks, step.step));
  if (std::abs(changes.error) > kMaxError && !arguments.force)
    return fail(ErrorCode::kInvalidInput,
                "{}: replaying step {} unchanged takes {} instead of {} ({:+.1f} %); what would "
                "change cannot be told from that ({}--force shows it all the same)",
                arguments.trace, step.step, format_duration(changes.replayed_ns),
                format_duration(changes.recorded_ns), changes.error * 100.0,
                arguments.device.empty() ? "" : "`gapless calibrate` fits a profile to a trace; ");
  const std::string note = note_on(arguments);
  GAPLESS_TRY(print(arguments.json ? changes_json(changes, note) : changes_text(changes, note)));
  return 0;
}

}  // namespace

RunCommand define_whatif(CLI::App& command) {
  const std::shared_ptr<WhatIfArguments> arguments = std::make_shared<WhatIfArguments>();
  command.add_option("TRACE", arguments->trace, "A trace of any format that is read")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command.add_option("--zero", arguments->zero, "An overhead that costs nothing")
      ->delimiter(',')
      ->check(CLI::IsMember({"completion", "dispatch", "handoff", "submit", "all"}))
      ->option_text("completion|dispatch|handoff|submit|all");
  command.add_option("--cores", arguments->cores, "So many cores of a kind: any, cube or vector")
      ->option_text("KIND=N");
  command.add_option("--scale", arguments->scale, "Run time of a kernel, times X")
      ->option_text("KERNEL=X");
  command
      .add_option("--fuse", arguments->fuse,
                  "Kernels that become one task where one follows\nthe other")
      ->option_text("A,B,...");
  command
      .add_option(
          "--device", arguments->device,
          "Run the tasks on this simulated device: its protocol\ninstead of the recorded overheads")
      ->option_text("NAME|FILE");
  command.add_option("--set", arguments->set, "A parameter of that device (docs/simulator.md)")
      ->option_text("NAME=NUMBER");
  command.add_flag(
      "--modelled", arguments->modelled,
      "On that device: run times from bytes and operations,\nand a memory that cores share");
  command
      .add_option("--step", arguments->step,
                  "Which step, counted from 0 (default: the one of\nmedian length)")
      ->check(from_zero_on())
      ->option_text("N");
  command
      .add_option("--kernels", arguments->kernels,
                  "Without a change: kernels that are tried in half\nthe time (default 8)")
      ->option_text("N");
  command.add_flag("--force", arguments->force,
                   "Also when the unchanged replay is more than 3 % off");
  command.add_flag("--json", arguments->json, "The same as JSON, with exact numbers");
  add_tracr_option(command, arguments->tracr_labels_by_key_order);
  command.footer(
      "The recorded tasks run again in virtual time, with their recorded run times and overheads.\n"
      "Without a change the standard table is printed: each overhead zero, each kernel in half\n"
      "the time, twice the cores.\n"
      "\n"
      "Examples:\n"
      "  gapless whatif profile.gapless\n"
      "  gapless whatif profile.gapless --zero dispatch --scale gate_up=0.5\n"
      "  gapless whatif swimlane.gapless --cores cube=48 --fuse gate_up,silu\n"
      "  gapless whatif swimlane.gapless --device ascend-910b --set scheduler.poll_ns=100");
  return [arguments] { return run_whatif(*arguments); };
}

}  // namespace gapless
