// SPDX-License-Identifier: Apache-2.0

#include "profile/profile_text.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/text_table.h"

namespace gapless {
namespace {

void add_line(std::string& text, std::string_view key, std::string_view value) {
  add_fact(text, key, value, 12);
}

std::string ms_text(double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); }
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

std::string step_text(const ProfileResult& result) {
  return fmt::format("{} median of {} ({:.2f} to {:.2f})", ms_text(result.plain.median()),
                     result.plain.seconds.size(), result.plain.min() * 1e3,
                     result.plain.max() * 1e3);
}

// Time per output token of all layers, when each takes as long as these.
std::string tpot_text(const ProfileSubject& subject, const ProfileResult& result) {
  if (result.has_head && result.layers == subject.model_layers)
    return fmt::format("{} measured, embedding and head included", ms_text(result.plain.median()));
  const double all = result.plain.median() / result.layers * subject.model_layers;
  return fmt::format("{} for {} layers at this rate{}", ms_text(all), subject.model_layers,
                     result.has_head ? "" : ", without embedding and head");
}

int64_t kv_bytes(const ProfileResult& result) {
  const KernelPlan* attention = result.plan.find(LayerKernel::kAttention);
  return attention == nullptr ? 0 : attention->weight_bytes * result.layers;
}

void add_limits(std::string& text, const ProfileResult& result) {
  const double seconds = result.plain.median();
  const double rate = static_cast<double>(result.step_bytes) / seconds;
  const int64_t kv = kv_bytes(result);
  std::string bytes =
      fmt::format("{} a step ({} weights, {} keys and values): {}", gb_text(result.step_bytes),
                  gb_text(result.step_bytes - kv), gb_text(kv), rate_text(rate));
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

std::string machine_text(const ProfileSubject& subject, const ProfileResult& result) {
  std::string text = fmt::format("{}, {} core{}, {}", subject.machine, subject.core_count,
                                 subject.core_count == 1 ? "" : "s", subject.level);
  if (result.limits)
    text += fmt::format(
        "; in this run: reads {}, s8 {}, bf16 {}, f32 {}",
        rate_text(result.limits->read_bytes_per_s), ops_text(result.limits->s8_ops_per_s),
        ops_text(result.limits->bf16_ops_per_s), ops_text(result.limits->f32_ops_per_s));
  return text;
}

// "159: qkv 40, attention 30, ...", in the order of a token's way.
std::string tasks_text(const ProfileResult& result) {
  std::string text = fmt::format("{} a layer:", result.plan.task_count);
  for (const std::string_view group : kLayerGroups) {
    int64_t count = 0;
    for (const KernelPlan& kernel : result.plan.kernels)
      if (layer_group_name(kernel.kernel) == group) count += kernel.task_count;
    text += fmt::format("{} {} {}", group == kLayerGroups[0] ? "" : ",", group, count);
  }
  return text;
}

const KernelPlan* plan_of(const ProfileResult& result, std::string_view name) {
  for (const KernelPlan& kernel : result.plan.kernels)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

void add_kernel_table(std::string& text, const ProfileResult& result) {
  std::vector<TableRow> rows = {
      {"kernel", "tasks", "core time", "share", "median", "GB/s a core", "Gop/s a core"}};
  for (size_t i = 0; i < result.kernels->kernels.size(); ++i) {
    const KernelTime& kernel = result.kernels->kernels[i];
    const KernelPlan* plan = plan_of(result, result.kernel_names[i]);
    const double seconds = static_cast<double>(kernel.self_ns) * 1e-9 / result.layers;
    const bool has_rate = plan != nullptr && plan->weight_bytes > 0;
    rows.push_back(
        {result.kernel_names[i], std::to_string(kernel.run_count), format_duration(kernel.self_ns),
         format_share(result.kernels->share(kernel)), format_duration(kernel.median_ns),
         has_rate ? fmt::format("{:.1f}", static_cast<double>(plan->weight_bytes) * 1e-9 / seconds)
                  : "",
         has_rate ? fmt::format("{:.0f}", static_cast<double>(plan->flops) * 1e-9 / seconds) : ""});
  }
  const double lanes_ns = static_cast<double>(result.kernels->busy_ns + result.kernels->idle_ns);
  rows.push_back({"(no task)", "", format_duration(result.kernels->idle_ns),
                  format_share(static_cast<double>(result.kernels->idle_ns) / lanes_ns)});
  text += "\n" + align_columns(rows, "lrrrrrr");
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
  add_line(text, "step", step_text(result));
  add_line(text, "tpot", tpot_text(subject, result));
  add_limits(text, result);
  add_line(text, "tasks", tasks_text(result));
  if (!result.kernels) return text;
  add_line(text, "cores",
           fmt::format("{:.3f} of {} busy with tasks, on average", result.average_busy_cores,
                       result.kernels->lanes.size()));
  add_line(text, "recorder",
           fmt::format("{} with it ({:+.2f} %): {} events of {:.1f} ns, {} dropped",
                       ms_text(result.recorded.median()), result.recorder_cost() * 100.0,
                       thousands(static_cast<int64_t>(result.recording.event_count)),
                       result.recording.ns_per_event, result.recording.dropped_count));
  if (result.recording.dropped_count > 0)
    add_line(text, "note",
             fmt::format("{} events were lost: cores and the table are of what is left",
                         result.recording.dropped_count));
  add_kernel_table(text, result);
  text += "\n";
  if (!subject.trace_path.empty()) add_line(text, "trace", subject.trace_path);
  if (!subject.perfetto_path.empty())
    add_line(text, "perfetto", subject.perfetto_path + "  (drop it on https://ui.perfetto.dev)");
  return text;
}

}  // namespace gapless
