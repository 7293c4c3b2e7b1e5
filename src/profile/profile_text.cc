// SPDX-License-Identifier: Apache-2.0

#include "profile/profile_text.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/core.h>

#include "base/quantity.h"
#include "model/layer_plan.h"
#include "report/text_table.h"

namespace gapless {
namespace {

void add_line(std::string& text, std::string_view key, std::string_view value) {
  add_fact(text, key, value, 12);
}

// A GPU's layer is a fraction of a millisecond.
std::string ms_text(double seconds) {
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 1e-3 ? 4 : seconds < 1e-2 ? 3 : 2);
}
std::string gb_text(int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}
std::string rate_text(double bytes_per_s) { return fmt::format("{:.1f} GB/s", bytes_per_s * 1e-9); }
std::string ops_text(double ops_per_s) { return fmt::format("{:.0f} Gop/s", ops_per_s * 1e-9); }

std::string thousands(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string batch_text(const ProfileSubject& subject) {
  const std::vector<int32_t>& lengths = subject.lengths;
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  const std::string range =
      *least == *most ? fmt::format("{}", *most) : fmt::format("{} to {}", *least, *most);
  return fmt::format("{} sequence{} of {} tokens ({} in all), kv {} in pages of {}", lengths.size(),
                     lengths.size() == 1 ? "" : "s", range, thousands(total), subject.kv_dtype,
                     subject.page_tokens);
}

std::string fusions_text(const Fusions& fusions) {
  std::string text;
  const auto add = [&](bool is_on, std::string_view name) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, is_on ? "on" : "off");
  };
  add(fusions.dual_gate_up, "dual gate/up");
  add(fusions.qk_norm_rope, "qk-norm + rope");
  add(fusions.deferred_norm, "deferred norm");
  add(fusions.residual, "residual");
  return text;
}

std::string checked_text(const Closeness& closeness) {
  return fmt::format(
      "{} values of the first layer against the double-precision reference: {} outside 3e-3 "
      "({}), the furthest {:.1e}",
      thousands(closeness.count), closeness.outside_count, format_share(closeness.outside_share()),
      closeness.largest_difference);
}

std::string step_text(const StepTimes& times) {
  return fmt::format("{} median of {} ({} to {})", ms_text(times.median()), times.seconds.size(),
                     ms_text(times.min()), ms_text(times.max()));
}

bool is_cuda(const ProfileSubject& subject) { return subject.device == "cuda"; }

void add_steps(std::string& text, const ProfileSubject& subject, const ProfileResult& result) {
  add_line(text, "step",
           step_text(result.plain) + (is_cuda(subject) ? ", on the device, back to back" : ""));
  if (!result.with_host.seconds.empty())
    add_line(text, "with host",
             step_text(result.with_host) + ", one at a time, from the call to its result");
}

// Time per output token of all layers, when each takes as long as these.
std::string tpot_text(const ProfileSubject& subject, const ProfileResult& result) {
  if (result.has_head && result.layers == subject.model_layers)
    return fmt::format("{} measured, embedding and head included", ms_text(result.plain.median()));
  const double all = result.plain.median() / result.layers * subject.model_layers;
  return fmt::format("{} for {} layers at this rate{}", ms_text(all), subject.model_layers,
                     result.has_head ? "" : ", without embedding and head");
}

void add_limits(std::string& text, const ProfileResult& result) {
  const double seconds = result.plain.median();
  const double rate = static_cast<double>(result.step_bytes) / seconds;
  std::string bytes = fmt::format(
      "{} a step ({} weights, {} keys and values): {}", gb_text(result.step_bytes),
      gb_text(result.step_bytes - result.kv_bytes), gb_text(result.kv_bytes), rate_text(rate));
  std::string operations =
      fmt::format("{:.2f} G a step: {}", static_cast<double>(result.step_flops) * 1e-9,
                  ops_text(static_cast<double>(result.step_flops) / seconds));
  if (result.limits) {
    bytes += fmt::format(", {} of what this machine reads",
                         format_share(rate / result.limits->read_bytes_per_s));
  }
  add_line(text, "bytes", bytes);
  add_line(text, "operations", operations);
  if (result.limits)
    add_line(
        text, "limit",
        fmt::format("{} kernel by kernel, the larger of bytes and operations: the step "
                    "reaches {}",
                    ms_text(result.limit_seconds), format_share(result.limit_seconds / seconds)));
}

std::string_view core_word(const ProfileSubject& subject) {
  return is_cuda(subject) ? "SM" : "core";
}

std::string machine_text(const ProfileSubject& subject, const ProfileResult& result) {
  std::string text = fmt::format("{}, {} {}{}", subject.machine, subject.core_count,
                                 core_word(subject), subject.core_count == 1 ? "" : "s");
  if (!subject.level.empty()) text += fmt::format(", {}", subject.level);
  if (result.limits)
    text += fmt::format(
        "; in this run: reads {}, s8 {}, bf16 {}, f32 {}",
        rate_text(result.limits->read_bytes_per_s), ops_text(result.limits->s8_ops_per_s),
        ops_text(result.limits->bf16_ops_per_s), ops_text(result.limits->f32_ops_per_s));
  return text;
}

// "159: qkv 40, attention 30, ...", in the order of a token's way.
std::string tasks_text(const ProfileSubject& subject, const ProfileResult& result) {
  std::string text = fmt::format(
      "{} a layer{}:", result.plan.task_count,
      is_cuda(subject) ? fmt::format(" (blocks of {} launches)", result.plan.kernels.size()) : "");
  for (const std::string_view group : kLayerGroups) {
    int64_t count = 0;
    for (const StepKernel& kernel : result.plan.kernels)
      if (kernel.group == group) count += kernel.task_count;
    text += fmt::format("{} {} {}", group == kLayerGroups[0] ? "" : ",", group, count);
  }
  return text;
}

// The kernel in the whole step: what all layers move and compute. Nothing when it is not planned.
struct StepCost {
  int64_t memory_bytes = 0;
  int64_t flops = 0;
};
StepCost cost_of(const ProfileResult& result, std::string_view name) {
  StepCost cost;
  const auto add = [&](const StepKernel& kernel, int64_t times) {
    if (kernel.name != name) return;
    cost.memory_bytes += kernel.memory_bytes * times;
    cost.flops += kernel.flops * times;
  };
  for (const StepKernel& kernel : result.plan.kernels) add(kernel, result.layers);
  for (const StepKernel& kernel : result.plan.outside) add(kernel, 1);
  return cost;
}

void add_kernel_table(std::string& text, const ProfileSubject& subject,
                      const ProfileResult& result) {
  const std::string_view core = core_word(subject);
  const std::string a_core = is_cuda(subject) ? "an SM" : "a core";
  std::vector<TableRow> rows = {{"kernel", is_cuda(subject) ? "blocks" : "tasks",
                                 fmt::format("{} time", core), "share", "median", "GB/s " + a_core,
                                 "Gop/s " + a_core}};
  for (size_t i = 0; i < result.kernels->kernels.size(); ++i) {
    const KernelTime& kernel = result.kernels->kernels[i];
    const StepCost cost = cost_of(result, result.kernel_names[i]);
    const auto rate = [&](int64_t count) {
      return static_cast<double>(count) / static_cast<double>(kernel.self_ns);
    };
    const bool has_rate = cost.memory_bytes > 0 && kernel.self_ns > 0;
    rows.push_back({result.kernel_names[i], std::to_string(kernel.run_count),
                    format_duration(kernel.self_ns), format_share(result.kernels->share(kernel)),
                    format_duration(kernel.median_ns),
                    has_rate ? fmt::format("{:.1f}", rate(cost.memory_bytes)) : "",
                    has_rate ? fmt::format("{:.0f}", rate(cost.flops)) : ""});
  }
  const double lanes_ns = static_cast<double>(result.kernels->busy_ns + result.kernels->idle_ns);
  rows.push_back({"(no task)", "", format_duration(result.kernels->idle_ns),
                  format_share(static_cast<double>(result.kernels->idle_ns) / lanes_ns)});
  text += "\n" + align_columns(rows, "lrrrrrr");
}

void add_recording(std::string& text, const ProfileSubject& subject, const ProfileResult& result) {
  const RecordingSummary& recording = result.recording;
  add_line(text, is_cuda(subject) ? "SMs" : "cores",
           fmt::format("{:.3f} of {} busy with tasks, on average over all recorded steps",
                       result.average_busy_cores, result.kernels->lanes.size()));
  std::string events = thousands(static_cast<int64_t>(recording.event_count)) + " events";
  if (recording.ns_per_event > 0.0) events += fmt::format(" of {:.1f} ns", recording.ns_per_event);
  add_line(text, "recorder",
           fmt::format("{} with it ({:+.2f} %): {}, {} dropped", ms_text(result.recorded.median()),
                       result.recorder_cost() * 100.0, events, recording.dropped_count));
  if (is_cuda(subject))  // steps are timed by the GPU's events, which see the graph begin and end
    add_line(text, "window",
             fmt::format("{} from the first block of the median recorded step to its last",
                         ms_text(static_cast<double>(result.kernels->window_ns()) * 1e-9)));
  if (recording.dropped_count > 0)
    add_line(text, "note",
             fmt::format("{} events were lost: cores and the table are of what is left",
                         recording.dropped_count));
}

}  // namespace

std::string profile_text(const ProfileSubject& subject, const ProfileResult& result) {
  std::string text;
  add_line(
      text, "model",
      fmt::format("{}, {} of {} layers{}, {}", subject.model, result.layers, subject.model_layers,
                  result.has_head ? " with embedding and head" : "", subject.dtype));
  add_line(text, "machine", machine_text(subject, result));
  add_line(text, "batch", batch_text(subject));
  add_line(text, "fused", fusions_text(subject.fusions));
  add_line(text, "checked",
           result.validation ? checked_text(*result.validation) : "nothing (--no-validate)");
  add_steps(text, subject, result);
  add_line(text, "tpot", tpot_text(subject, result));
  add_limits(text, result);
  add_line(text, "tasks", tasks_text(subject, result));
  if (!result.kernels) return text;
  add_recording(text, subject, result);
  add_kernel_table(text, subject, result);
  text += "\n";
  if (!subject.trace_path.empty()) add_line(text, "trace", subject.trace_path);
  if (!subject.perfetto_path.empty())
    add_line(text, "perfetto", subject.perfetto_path + "  (drop it on https://ui.perfetto.dev)");
  return text;
}

}  // namespace gapless
