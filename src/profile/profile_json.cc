// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "profile/profile_text.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

Json times_json(const StepTimes& times) {
  return {{"median_s", times.median()},
          {"min_s", times.min()},
          {"max_s", times.max()},
          {"seconds", times.seconds}};
}

Json planned_json(const std::vector<StepKernel>& planned) {
  Json kernels = Json::array();
  for (const StepKernel& kernel : planned)
    kernels.push_back({{"name", kernel.name},
                       {"group", kernel.group},
                       {"tile", kernel.tile},
                       {"tasks", kernel.task_count},
                       {"bytes", kernel.bytes},
                       {"memory_bytes", kernel.memory_bytes},
                       {"flops", kernel.flops}});
  return kernels;
}

Json plan_json(const ProfilePlan& plan) {
  return {{"tasks", plan.task_count},
          {"bytes", plan.bytes},
          {"memory_bytes", plan.memory_bytes},
          {"flops", plan.flops},
          {"kernels", planned_json(plan.kernels)},
          {"outside_layers", planned_json(plan.outside)}};
}

Json kernels_json(const ProfileResult& result) {
  Json kernels = Json::array();
  for (size_t i = 0; i < result.kernels->kernels.size(); ++i) {
    const KernelTime& kernel = result.kernels->kernels[i];
    kernels.push_back({{"name", result.kernel_names[i]},
                       {"runs", kernel.run_count},
                       {"core_ns", kernel.self_ns},
                       {"share", result.kernels->share(kernel)},
                       {"min_ns", kernel.min_ns},
                       {"median_ns", kernel.median_ns},
                       {"max_ns", kernel.max_ns}});
  }
  return {{"window_ns", result.kernels->window_ns()},
          {"busy_ns", result.kernels->busy_ns},
          {"idle_ns", result.kernels->idle_ns},
          {"kernels", kernels}};
}

Json fusions_json(const Fusions& fusions) {
  return {{"dual_gate_up", fusions.dual_gate_up},
          {"qk_norm_rope", fusions.qk_norm_rope},
          {"deferred_norm", fusions.deferred_norm},
          {"residual", fusions.residual}};
}

Json subject_json(const ProfileSubject& subject, const ProfileResult& result) {
  Json json{{"model", subject.model},
            {"layers", result.layers},
            {"model_layers", subject.model_layers},
            {"has_head", result.has_head},
            {"dtype", subject.dtype},
            {"kv_dtype", subject.kv_dtype},
            {"page_tokens", subject.page_tokens},
            {"lengths", subject.lengths},
            {"fusions", fusions_json(subject.fusions)},
            {"device", subject.device},
            {"machine", subject.machine}};
  if (!subject.level.empty()) json["cpu_level"] = subject.level;
  json[subject.device == "cuda" ? "sms" : "cores"] = subject.core_count;
  return json;
}

}  // namespace

std::string profile_json(const ProfileSubject& subject, const ProfileResult& result) {
  Json json = subject_json(subject, result);
  if (result.validation) {
    json["validation"] = {{"values", result.validation->count},
                          {"outside", result.validation->outside_count},
                          {"not_finite", result.validation->not_finite_count},
                          {"largest_difference", result.validation->largest_difference}};
  }
  json["step"] = times_json(result.plain);
  if (!result.with_host.seconds.empty()) json["step_with_host"] = times_json(result.with_host);
  json["step_bytes"] = result.step_bytes;
  json["step_flops"] = result.step_flops;
  json["tpot_s"] = result.plain.median() / result.layers * subject.model_layers;
  if (result.limits) {
    json["limits"] = {{"read_bytes_per_s", result.limits->read_bytes_per_s},
                      {"s8_ops_per_s", result.limits->s8_ops_per_s},
                      {"bf16_ops_per_s", result.limits->bf16_ops_per_s},
                      {"f32_ops_per_s", result.limits->f32_ops_per_s},
                      {"step_s", result.limit_seconds}};
  }
  json["plan"] = plan_json(result.plan);
  if (result.kernels) {
    json["recorded_step"] = times_json(result.recorded);
    json["recorder"] = {{"events", result.recording.event_count},
                        {"dropped", result.recording.dropped_count},
                        {"cost", result.recorder_cost()}};
    if (result.recording.ns_per_event > 0.0)
      json["recorder"]["ns_per_event"] = result.recording.ns_per_event;
    json[subject.device == "cuda" ? "average_busy_sms" : "average_busy_cores"] =
        result.average_busy_cores;
    json["median_step"] = kernels_json(result);
    json["trace"] = subject.trace_path;
    json["perfetto"] = subject.perfetto_path;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
