// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "report/step_report.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

Json causes_json(const std::array<int64_t, kBubbleCauseCount>& causes) {
  Json json = Json::object();
  for (size_t cause = 0; cause < causes.size(); ++cause)
    json[std::string(bubble_cause_name(static_cast<BubbleCause>(cause)))] = causes[cause];
  return json;
}

Json partition_json(const StepReport& report) {
  Json cores = Json::array();
  for (size_t core = 0; core < report.core_names.size(); ++core)
    cores.push_back({{"name", report.core_names[core]},
                     {"busy_ns", report.bubbles.core_busy_ns[core]},
                     {"causes_ns", causes_json(report.bubbles.core_ns[core])}});
  return {{"busy_ns", report.bubbles.busy_ns},
          {"idle_ns", report.bubbles.idle_ns},
          {"causes_ns", causes_json(report.bubbles.cause_ns)},
          {"cores", cores}};
}

Json kernels_json(const StepReport& report) {
  Json kernels = Json::array();
  for (size_t i = 0; i < report.kernels.kernels.size(); ++i) {
    const KernelTime& kernel = report.kernels.kernels[i];
    kernels.push_back({{"name", report.kernel_names[i]},
                       {"runs", kernel.run_count},
                       {"core_ns", kernel.self_ns},
                       {"min_ns", kernel.min_ns},
                       {"median_ns", kernel.median_ns},
                       {"max_ns", kernel.max_ns},
                       {"cores", kernel.lane_count}});
  }
  return kernels;
}

Json path_json(const Trace& trace, const StepReport& report) {
  Json parts = Json::object();
  for (size_t part = 0; part < report.path.part_ns.size(); ++part)
    parts[std::string(path_part_name(static_cast<PathPart>(part)))] = report.path.part_ns[part];
  Json kernels = Json::array();
  for (const KernelTime& kernel : report.path_kernels)
    kernels.push_back(
        {{"name", kernel_name(trace, kernel)}, {"runs", kernel.run_count}, {"ns", kernel.self_ns}});
  return {{"parts_ns", parts}, {"kernels", kernels}, {"core_bound_ns", report.path.core_bound_ns}};
}

Json efficiencies_json(const Efficiencies& efficiencies) {
  return {{"parallelism", efficiencies.parallelism},
          {"schedule", efficiencies.schedule},
          {"overhead", efficiencies.overhead},
          {"product", efficiencies.product()},
          {"lower_bound_ns", efficiencies.lower_bound_ns},
          {"zero_overhead_ns", efficiencies.zero_overhead_ns},
          {"makespan_ns", efficiencies.makespan_ns}};
}

Json changes_json(const StandardChanges& changes) {
  Json lines = Json::array();
  for (const StandardChange& line : changes.changes)
    lines.push_back({{"what", line.name}, {"makespan_ns", line.makespan_ns}, {"gain", line.gain}});
  return {{"recorded_ns", changes.recorded_ns},
          {"replayed_ns", changes.replayed_ns},
          {"replay_error", changes.error},
          {"lines", lines}};
}

}  // namespace

std::string report_json(const Trace& trace, const StepReport& report) {
  Json json = {
      {"trace", report.source},
      {"verdict", report.verdict},
      {"step", report.step},
      {"step_count", report.step_count},
      {"step_lengths_ns", report.step_lengths},
      {"window_ns", report.kernels.window_ns()},
      {"average_busy_cores", report.average_busy_cores()},
      {"edges", report.edge_count},
      {"partition", partition_json(report)},
      {"kernels", kernels_json(report)},
      {"critical_path", path_json(trace, report)},
      {"longest_chain", {{"ns", report.longest.length_ns}, {"tasks", report.longest.chain.size()}}},
      {"task_overhead",
       {{"tasks", report.overhead.task_count},
        {"run_ns", report.overhead.run_ns},
        {"dispatch_to_finish_ns", report.overhead.dispatch_to_finish_ns},
        {"head_ns", report.overhead.head_ns},
        {"tail_ns", report.overhead.tail_ns},
        {"share", report.overhead.share()}}}};
  if (report.efficiencies) json["efficiencies"] = efficiencies_json(*report.efficiencies);
  if (report.changes) json["what_if"] = changes_json(*report.changes);
  json["notes"] = report.warnings;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
