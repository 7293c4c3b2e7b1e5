// SPDX-License-Identifier: Apache-2.0
//
// What a simulated device did, as one screen of text and as JSON with everything in it.

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/simulated_profile.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, kSimPhaseCount> kPhaseKeys = {
    "complete_ns", "dispatch_ns", "gang_ns", "dummy_ns", "early_dispatch_ns"};

void add_line(std::string& text, std::string_view key, std::string_view value) {
  add_fact(text, key, value, 12);
}

// Of all scheduler threads.
double phase_share(const SimulatedProfile& profile, SimPhase phase) {
  const SimulatedStep& step = profile.middle_step();
  const double threads_ns = static_cast<double>(profile.device.scheduler_threads) *
                            static_cast<double>(std::max(step.makespan_ns, int64_t{1}));
  return static_cast<double>(step.phase_ns[static_cast<size_t>(phase)]) / threads_ns;
}

// A second, of what the middle step does.
double per_second(const SimulatedProfile& profile, int64_t count) {
  const int64_t step_ns = std::max(profile.middle_step().makespan_ns, int64_t{1});
  return static_cast<double>(count) / static_cast<double>(step_ns) * 1e9;
}

int64_t all_layers_ns(const SimulatedProfile& profile) {
  return profile.middle_step().makespan_ns * profile.model_layers / profile.config.layers;
}

std::string model_text(const SimulatedProfile& profile) {
  return fmt::format("{}, {}{} of {} layers, {}", printable(profile.config.name),
                     profile.attention_only ? "the attention of " : "", profile.config.layers,
                     profile.model_layers, profile.dtype);
}

std::string machine_text(const DeviceProfile& device) {
  const std::string cores = device.is_unified != 0
                                ? fmt::format("{} cores", device.cluster_count)
                                : fmt::format("{} cube + {} vector cores", device.cluster_count,
                                              device.vector_core_count());
  return fmt::format("{}, simulated: {}, {} scheduler{}, 1 orchestrator, virtual time",
                     printable(device.name), cores, device.scheduler_threads,
                     device.scheduler_threads == 1 ? "" : "s");
}

std::string batch_text(const SimulatedProfile& profile) {
  const std::vector<int32_t>& lengths = profile.lengths;
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  const std::string range =
      *least == *most ? fmt::format("{}", *most) : fmt::format("{} to {}", *least, *most);
  return fmt::format("{} of {} tokens ({} in all), kv {} in pages of {}",
                     counted(lengths.size(), "sequence"), range, total, profile.kv_dtype,
                     profile.page_tokens);
}

std::string tiling_text(const SimulatedProfile& profile) {
  return fmt::format("{} ({}): {} tasks, {} records, {} edges", profile.tiling,
                     profile.tiling_source, profile.task_count, profile.record_count,
                     profile.edge_count);
}

std::string step_text(const SimulatedProfile& profile) {
  const SimulatedStep& middle = profile.middle_step();
  const std::string time = format_duration(middle.makespan_ns);
  if (profile.steps.size() == 1) return fmt::format("{}, seed {}", time, middle.seed);
  const auto [least, most] = std::minmax_element(
      profile.steps.begin(), profile.steps.end(),
      [](const SimulatedStep& a, const SimulatedStep& b) { return a.makespan_ns < b.makespan_ns; });
  return fmt::format("{} median of {} ({} to {}), seeds {} to {}", time, profile.steps.size(),
                     format_duration(least->makespan_ns), format_duration(most->makespan_ns),
                     profile.steps.front().seed, profile.steps.back().seed);
}

std::string tpot_text(const SimulatedProfile& profile) {
  const bool is_whole = profile.config.layers == profile.model_layers;
  return fmt::format("{} for {} layers{}; embedding, head and sampling are not modelled",
                     format_duration(all_layers_ns(profile)), profile.model_layers,
                     is_whole ? "" : " at this rate");
}

void add_computed(std::string& text, const ComputedStep& computed) {
  add_line(
      text, "computed",
      fmt::format("{} blocks in the order of their starts, by the CPU kernels ({}): {} values, "
                  "equal to those of {} bit for bit",
                  computed.block_count, computed.level, computed.value_count,
                  counted(static_cast<size_t>(computed.core_count), "core")));
  if (!computed.validation) {
    add_line(text, "checked", "nothing against the reference (--no-validate)");
    return;
  }
  const Closeness& closeness = *computed.validation;
  add_line(text, "checked",
           fmt::format("{} values of the first layer against the double-precision reference: {} "
                       "outside 3e-3 ({}), the furthest {:.1e}",
                       closeness.count, closeness.outside_count,
                       format_share(closeness.outside_share()), closeness.largest_difference));
}

void add_limits(std::string& text, const SimulatedProfile& profile) {
  if (profile.has_given_times) {
    add_line(text, "bytes", "not modelled: the tasks of this tiling have given times");
    return;
  }
  const double rate = per_second(profile, profile.bytes);
  const double limit = static_cast<double>(profile.device.hbm_bytes_per_s);
  add_line(text, "bytes",
           fmt::format("{:.1f} MB a step: {:.1f} GB/s, {} of the memory's {:.1f} GB/s",
                       static_cast<double>(profile.bytes) * 1e-6, rate * 1e-9,
                       format_share(rate / limit), limit * 1e-9));
  add_line(text, "operations",
           fmt::format("{:.2f} G a step: {:.0f} Gop/s", static_cast<double>(profile.flops) * 1e-9,
                       per_second(profile, profile.flops) * 1e-9));
}

std::string cores_text(const SimulatedProfile& profile) {
  const SimulatedStep& step = profile.middle_step();
  if (profile.device.is_unified != 0)
    return fmt::format("{:.2f} of {} busy, on average", step.busy_cube_cores,
                       profile.device.cluster_count);
  return fmt::format("{:.2f} of {} cube and {:.2f} of {} vector cores busy, on average",
                     step.busy_cube_cores, profile.device.cluster_count, step.busy_vector_cores,
                     profile.device.vector_core_count());
}

// A unified device has one kind of core, and the kinds of work are not told apart.
std::string overhead_text(const SimulatedProfile& profile) {
  const OverheadShares& shares = profile.middle_step().overhead;
  if (profile.device.is_unified != 0)
    return fmt::format("{} of the time a task was ready and a core idle",
                       format_share(shares.cube));
  return fmt::format(
      "cube {}, vector {}, both at once {}, every kind with ready work {} of the time: work was "
      "ready and a core of its kind idle",
      format_share(shares.cube), format_share(shares.vector), format_share(shares.all),
      format_share(shares.has));
}

std::string schedulers_text(const SimulatedProfile& profile) {
  const double other = phase_share(profile, SimPhase::kGang) +
                       phase_share(profile, SimPhase::kDummy) +
                       phase_share(profile, SimPhase::kEarly);
  const std::string other_text =
      other > 0.0 ? fmt::format("{} other work, ", format_share(other)) : "";
  return fmt::format(
      "{} completing, {} dispatching, {}else polling; {} of {} records into a pending slot",
      format_share(phase_share(profile, SimPhase::kComplete)),
      format_share(phase_share(profile, SimPhase::kDispatch)), other_text,
      profile.middle_step().pending_count, profile.record_count);
}

std::string submit_text(const SimulatedProfile& profile) {
  const SimulatedStep& step = profile.middle_step();
  return fmt::format("all tasks within {}; {} of that with a full window",
                     format_duration(step.submitted_ns), format_duration(step.window_wait_ns));
}

void add_kernel_table(std::string& text, const SimulatedProfile& profile) {
  const KernelTimes& times = profile.kernels;
  std::vector<TableRow> rows = {{"kernel", "records", "core time", "share", "median"}};
  for (size_t i = 0; i < times.kernels.size(); ++i) {
    const KernelTime& kernel = times.kernels[i];
    rows.push_back({profile.kernel_names[i], std::to_string(kernel.run_count),
                    format_duration(kernel.self_ns), format_share(times.share(kernel)),
                    format_duration(kernel.median_ns)});
  }
  const double lanes_ns = static_cast<double>(times.busy_ns + times.idle_ns);
  rows.push_back({"(no task)", "", format_duration(times.idle_ns),
                  format_share(static_cast<double>(times.idle_ns) / lanes_ns)});
  text += "\n" + align_columns(rows, "lrrrr");
}

Json steps_json(const SimulatedProfile& profile) {
  Json steps = Json::array();
  for (const SimulatedStep& step : profile.steps) {
    Json phases = Json::object();
    for (size_t i = 0; i < kPhaseKeys.size(); ++i) phases[kPhaseKeys[i]] = step.phase_ns[i];
    steps.push_back({{"seed", step.seed},
                     {"makespan_ns", step.makespan_ns},
                     {"submitted_ns", step.submitted_ns},
                     {"window_wait_ns", step.window_wait_ns},
                     {"pending_records", step.pending_count},
                     {"busy_cube_cores", step.busy_cube_cores},
                     {"busy_vector_cores", step.busy_vector_cores},
                     {"overhead",
                      {{"cube", step.overhead.cube},
                       {"vector", step.overhead.vector},
                       {"both", step.overhead.all},
                       {"has", step.overhead.has}}},
                     {"schedulers", std::move(phases)}});
  }
  return steps;
}

Json kernels_json(const SimulatedProfile& profile) {
  Json kernels = Json::array();
  for (size_t i = 0; i < profile.kernels.kernels.size(); ++i) {
    const KernelTime& kernel = profile.kernels.kernels[i];
    kernels.push_back({{"name", profile.kernel_names[i]},
                       {"records", kernel.run_count},
                       {"core_ns", kernel.self_ns},
                       {"share", profile.kernels.share(kernel)},
                       {"min_ns", kernel.min_ns},
                       {"median_ns", kernel.median_ns},
                       {"max_ns", kernel.max_ns}});
  }
  return {{"step", profile.middle},
          {"makespan_ns", profile.middle_step().makespan_ns},
          {"window_ns", profile.kernels.window_ns()},
          {"busy_ns", profile.kernels.busy_ns},
          {"idle_ns", profile.kernels.idle_ns},
          {"kernels", std::move(kernels)}};
}

Json computed_json(const ComputedStep& computed) {
  Json json{{"cpu_level", computed.level},
            {"cores", computed.core_count},
            {"blocks", computed.block_count},
            {"values", computed.value_count},
            {"equal_to_cores", true}};  // anything else is an error
  if (computed.validation) {
    json["validation"] = {{"values", computed.validation->count},
                          {"outside", computed.validation->outside_count},
                          {"not_finite", computed.validation->not_finite_count},
                          {"largest_difference", computed.validation->largest_difference}};
  }
  return json;
}

}  // namespace

std::string simulated_text(const SimulatedProfile& profile, const SimulatedFiles& files) {
  std::string text;
  add_line(text, "model", model_text(profile));
  add_line(text, "machine", machine_text(profile.device));
  if (!profile.settings.empty())
    add_line(text, "set", printable(fmt::format("{}", fmt::join(profile.settings, ", "))));
  add_line(text, "batch", batch_text(profile));
  add_line(text, "tiling", tiling_text(profile));
  if (profile.computed) add_computed(text, *profile.computed);
  add_line(text, "step", step_text(profile));
  if (!profile.attention_only) add_line(text, "tpot", tpot_text(profile));
  add_limits(text, profile);
  add_line(text, "cores", cores_text(profile));
  add_line(text, "overhead", overhead_text(profile));
  add_line(text, "schedulers", schedulers_text(profile));
  add_line(text, "submitted", submit_text(profile));
  add_kernel_table(text, profile);
  if (files.trace.empty()) return text;
  text += "\n";
  add_line(text, "trace", printable(files.trace));
  add_line(text, "perfetto", printable(files.perfetto) + "  (drop it on https://ui.perfetto.dev)");
  return text;
}

std::string simulated_json(const SimulatedProfile& profile, const SimulatedFiles& files) {
  Json json{{"model", profile.config.name},
            {"layers", profile.config.layers},
            {"model_layers", profile.model_layers},
            {"attention_only", profile.attention_only},
            {"has_head", false},
            {"dtype", profile.dtype},
            {"kv_dtype", profile.kv_dtype},
            {"page_tokens", profile.page_tokens},
            {"lengths", profile.lengths},
            {"tiling", profile.tiling},
            {"tiling_source", profile.tiling_source},
            {"simulated", true},
            {"set", profile.settings},
            {"device", Json::parse(profile_json(profile.device))},
            {"tasks", profile.task_count},
            {"records", profile.record_count},
            {"edges", profile.edge_count}};
  if (!profile.has_given_times) {
    json["step_bytes"] = profile.bytes;
    json["step_flops"] = profile.flops;
  }
  if (!profile.attention_only) json["tpot_ns"] = all_layers_ns(profile);
  if (profile.computed) json["computed"] = computed_json(*profile.computed);
  json["steps"] = steps_json(profile);
  json["median_step"] = kernels_json(profile);
  if (!files.trace.empty()) {
    json["trace"] = files.trace;
    json["perfetto"] = files.perfetto;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
