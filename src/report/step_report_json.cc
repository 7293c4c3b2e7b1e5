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

Json devices_json(const StepReport& report) {
  Json devices = Json::array();
  for (size_t i = 0; i < report.devices.size(); ++i) {
    const DeviceTime& time = report.devices[i];
    devices.push_back({{"device", report.device_names[i]},
                       {"step_ns", time.window_ns},
                       {"compute_ns", time.compute_ns},
                       {"overlapped_ns", time.overlapped_ns},
                       {"communication_alone_ns", time.communication_alone_ns},
                       {"copy_alone_ns", time.copy_alone_ns},
                       {"idle_ns", time.idle_ns},
                       {"idle_for_launch_ns", time.idle_for_launch_ns},
                       {"idle_launched_ns", time.idle_launched_ns},
                       {"idle_unknown_ns", time.idle_unknown_ns},
                       {"idle_count", time.gaps.size()}});
  }
  return devices;
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
          {"submission", efficiencies.submission},
          {"overhead", efficiencies.overhead},
          {"product", efficiencies.product()},
          {"lower_bound_ns", efficiencies.lower_bound_ns},
          {"zero_submit_ns", efficiencies.zero_submit_ns},
          {"at_once_ns",
           efficiencies.at_once_ns == kAbsent ? Json(nullptr) : Json(efficiencies.at_once_ns)},
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

Json groups_json(const Trace& trace, const TaskGroups& groups) {
  Json kernels = Json::array();
  for (const KernelFan& kernel : groups.kernels)
    kernels.push_back({{"name", kernel.kernel == kNoIndex ? "" : trace.names[kernel.kernel]},
                       {"tasks", kernel.task_count},
                       {"layers", kernel.layer_count},
                       {"median_per_layer", kernel.median_per_layer},
                       {"max_per_layer", kernel.max_per_layer},
                       {"mean_producers", kernel.mean_fan_in()},
                       {"max_producers", kernel.max_producers},
                       {"mean_consumers", kernel.mean_fan_out()},
                       {"max_consumers", kernel.max_consumers}});
  return {{"layers", groups.layer_count}, {"kernels", kernels}};
}

Json roofline_json(const Trace& trace, const StepReport& report) {
  const Roofline& roofline = *report.roofline;
  Json kernels = Json::array();
  for (const KernelRoof& roof : roofline.kernels)
    kernels.push_back({{"name", roof.kernel == kNoIndex ? "" : trace.names[roof.kernel]},
                       {"tasks", roof.task_count},
                       {"tasks_without_cost", roof.unknown_count},
                       {"bytes", roof.bytes},
                       {"flops", roof.flops},
                       {"wall_ns", roof.wall_ns},
                       {"mean_concurrency", roof.mean_concurrency},
                       {"bytes_per_second", roof.bytes_per_second()},
                       {"flops_per_second", roof.flops_per_second()},
                       {"share_of_limit", roof.share_of_limit(report.limits)},
                       {"is_memory_bound", roof.is_memory_bound(report.limits)},
                       {"limit_ns", roof.limit_ns(report.limits)}});
  return {{"limit_bytes_per_second", report.limits.bytes_per_second},
          {"limit_flops_per_second", report.limits.flops_per_second},
          {"bytes", roofline.bytes},
          {"flops", roofline.flops},
          {"running_ns", roofline.running_ns},
          {"limit_ns", roofline.limit_ns},
          {"kernels", kernels}};
}

Json quality_json(const TraceQuality& quality) {
  Json findings = Json::array();
  for (const QualityFinding& finding : quality.findings)
    findings.push_back({{"check", quality_check_name(finding.check)},
                        {"level", quality_level_name(finding.level)},
                        {"text", finding.text}});
  Json json = {{"withholds_verdict", quality.withholds_verdict},
               {"dominant_gap_ns", quality.dominant_gap_ns},
               {"findings", findings}};
  if (quality.observer_share) json["observer_share"] = *quality.observer_share;
  return json;
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
      {"edges", report.tasks->edge_count()},
      {"devices", devices_json(report)},
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
  json["groups"] = groups_json(trace, report.groups);
  if (report.roofline) json["roofline"] = roofline_json(trace, report);
  json["quality"] = quality_json(report.quality);
  json["notes"] = report.warnings;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
