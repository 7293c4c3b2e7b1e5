// SPDX-License-Identifier: Apache-2.0

#include <cmath>

#include <nlohmann/json.hpp>

#include "report/diff_report.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json both_json(const Both<T>& both) {
  return {{"first", both.first}, {"second", both.second}};
}

Json side_json(const DiffReport& report, bool is_first) {
  const StepDiff& diff = report.diff;
  const auto of = [is_first](const auto& both) { return is_first ? both.first : both.second; };
  return {{"trace", of(report.source)},        {"step", of(report.step)},
          {"step_count", of(diff.step_count)}, {"makespan_ns", of(diff.makespan_ns)},
          {"core_count", of(diff.core_count)}, {"busy_ns", of(diff.busy_ns)}};
}

Json kernel_json(const KernelDiff& kernel, const Both<uint32_t>& cores) {
  return {{"name", kernel.name},
          {"second_name", kernel.second_name.empty() ? kernel.name : kernel.second_name},
          {"first_names", kernel.first_names},
          {"second_names", kernel.second_names},
          {"match", kernel_match_name(kernel.match)},
          {"count", both_json(kernel.count)},
          {"run_ns", both_json(kernel.run_ns)},
          {"mean_ns", both_json(kernel.mean_ns())},
          {"path_ns", both_json(kernel.path_ns)},
          {"count_effect_ns", kernel.count_effect_ns()},
          {"mean_effect_ns", kernel.mean_effect_ns()},
          {"wall_effect_ns", kernel.wall_effect_ns(cores)}};
}

Json causes_json(const StepDiff& diff) {
  Json causes = Json::array();
  for (size_t i = 0; i < kBubbleCauseCount; ++i) {
    const BubbleCause cause = static_cast<BubbleCause>(i);
    const Both<int64_t> idle_ns = {diff.cause_ns.first[i], diff.cause_ns.second[i]};
    causes.push_back({{"cause", bubble_cause_name(cause)},
                      {"idle_ns", both_json(idle_ns)},
                      {"wall_effect_ns", diff.cause_effect_ns(cause)}});
  }
  return causes;
}

Json path_json(const StepDiff& diff) {
  Json parts = Json::array();
  for (size_t i = 0; i < kPathPartCount; ++i) {
    const Both<int64_t> part_ns = {diff.path_part_ns.first[i], diff.path_part_ns.second[i]};
    parts.push_back({{"part", path_part_name(static_cast<PathPart>(i))},
                     {"ns", both_json(part_ns)},
                     {"difference_ns", part_ns.second - part_ns.first}});
  }
  return parts;
}

Json times_json(const FocusTimes& times) {
  return {{"task_count", times.task_count},       {"run_ns", times.run_ns},
          {"union_ns", times.union_ns},           {"exposed_ns", times.exposed_ns},
          {"hidden_ns", times.hidden_ns},         {"path_ns", times.path_ns},
          {"episode_count", times.episode_count}, {"extent_ns", times.extent_ns},
          {"other_run_ns", times.other_run_ns},   {"idle_ns", times.idle_ns}};
}

Json focus_json(const FocusDiff& focus) {
  return {{"name", focus.name},
          {"kernels", focus.kernels},
          {"first", times_json(focus.times.first)},
          {"second", times_json(focus.times.second)},
          {"filled_ns", focus.filled_ns},
          {"gone_ns", focus.gone_ns}};
}

}  // namespace

std::string diff_json(const DiffReport& report) {
  const StepDiff& diff = report.diff;
  Json json = {{"verdict", report.verdict},
               {"first", side_json(report, true)},
               {"second", side_json(report, false)},
               {"difference_ns", diff.difference_ns()},
               {"ratio", {{"value", diff.ratio.value}, {"has_interval", diff.has_interval}}}};
  if (diff.has_interval) {
    json["ratio"]["low"] = diff.ratio.low;
    json["ratio"]["high"] = diff.ratio.high;
  }
  json["kernels"] = Json::array();
  for (const KernelDiff& kernel : diff.kernels)
    json["kernels"].push_back(kernel_json(kernel, diff.core_count));
  json["causes"] = causes_json(diff);
  json["path_parts"] = path_json(diff);
  if (report.device) {
    json["device"] = Json::array();
    for (const AccountLine& line : device_account(*report.device)) {
      json["device"].push_back({{"part", line.name},
                                {"first_ns", std::llround(line.ns.first)},
                                {"second_ns", std::llround(line.ns.second)}});
    }
  }
  json["focuses"] = Json::array();
  for (const FocusDiff& focus : diff.focuses) json["focuses"].push_back(focus_json(focus));
  json["notes"] = diff.warnings;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
