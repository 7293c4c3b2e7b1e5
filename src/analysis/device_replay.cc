// SPDX-License-Identifier: Apache-2.0

#include "analysis/device_replay.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/core.h>

#include "analysis/recorded_overheads.h"
#include "analysis/replay_span.h"
#include "analysis/run_on_threads.h"
#include "sim/machine.h"

namespace gapless {
namespace {

// That of a simulated step, so that its blocks vary in the same way again.
uint64_t seed_of(const Trace& trace, uint32_t step) {
  uint64_t seed = 1;
  for (const Property& property : trace.properties) {
    if (property.key != "seed") continue;
    const char* const end = property.value.data() + property.value.size();
    std::from_chars(property.value.data(), end, seed);
  }
  return seed + step;
}

void set_zero(DeviceProfile& profile, std::span<int64_t DeviceProfile::*const> members) {
  for (int64_t DeviceProfile::*const member : members) profile.*member = 0;
}

constexpr std::array kCompletion = {&DeviceProfile::poll_ns, &DeviceProfile::loop_ns,
                                    &DeviceProfile::complete_ns, &DeviceProfile::resolve_ns,
                                    &DeviceProfile::notice_ns};
constexpr std::array kDispatch = {&DeviceProfile::pop_ns, &DeviceProfile::payload_ns,
                                  &DeviceProfile::store_ns, &DeviceProfile::gang_barrier_ns};
constexpr std::array kHandoff = {&DeviceProfile::propagation_ns, &DeviceProfile::setup_ns,
                                 &DeviceProfile::first_setup_ns, &DeviceProfile::switch_ns};
constexpr std::array kSubmit = {&DeviceProfile::submit_ns, &DeviceProfile::submit_edge_ns};

Result<void> set_cores(const WhatIf& change, DeviceProfile& profile) {
  const bool is_unified = profile.is_unified != 0;
  for (int kind = 0; kind < kCoreClassCount; ++kind) {
    const CoreClass core_class = static_cast<CoreClass>(kind);
    const uint32_t count = change.core_counts[static_cast<size_t>(kind)];
    if (count == 0 || (core_class == CoreClass::kAny) == is_unified) continue;
    return fail(ErrorCode::kInvalidInput, "{} cores of class \"{}\": the step has none", count,
                core_class_name(core_class));
  }
  const int64_t clusters =
      change.core_counts[static_cast<size_t>(is_unified ? CoreClass::kAny : CoreClass::kCube)];
  const int64_t vectors = change.core_counts[static_cast<size_t>(CoreClass::kVector)];
  const int64_t cluster_vectors = profile.vector_cores;
  if (clusters > 0) profile.cluster_count = clusters;
  if (vectors == 0) return {};
  if (vectors % profile.cluster_count != 0) {
    return fail(ErrorCode::kInvalidInput,
                "{} vector cores are no multiple of {} clusters, each of which has one cube core "
                "and now {} vector cores",
                vectors, profile.cluster_count, cluster_vectors);
  }
  profile.vector_cores = vectors / profile.cluster_count;
  return {};
}

DeviceChange with_zero(const DeviceProfile& profile, std::string name, const WhatIf& change) {
  DeviceChange made = {.name = std::move(name), .profile = profile};
  if (change.zero_completion) set_zero(made.profile, kCompletion);
  if (change.zero_scheduler) set_zero(made.profile, kDispatch);
  if (change.zero_handoff) set_zero(made.profile, kHandoff);
  if (change.zero_submit) set_zero(made.profile, kSubmit);
  return made;
}

Result<void> check_scales(const Trace& trace, std::span<const DeviceChange> changes) {
  for (const DeviceChange& change : changes) {
    for (uint32_t kernel = 0; kernel < change.kernel_scale.size(); ++kernel) {
      const double scale = change.kernel_scale[kernel];
      if (scale >= 0.0 && scale <= kMaxScale) continue;
      return fail(ErrorCode::kInvalidInput, "{} is scaled by {}, which is not within 0 to {}",
                  trace.names[kernel], scale, kMaxScale);
    }
  }
  return {};
}

}  // namespace

Result<DeviceProfile> profile_for_step(const DeviceProfile& profile, const StepTasks& tasks) {
  const RecordedCores cores = recorded_cores(tasks);
  DeviceProfile made = profile;
  made.kernels.clear();
  if (cores.any_count == tasks.core_count()) {
    made.is_unified = 1;
    made.cluster_count = cores.any_count;
    made.vector_cores = 0;
  } else if (cores.any_count == 0 && cores.cube_count > 0 &&
             (cores.vector_cores() > 0 || cores.vector_count == 0)) {
    made.is_unified = 0;
    made.cluster_count = cores.cube_count;
    made.vector_cores = cores.vector_cores();
  } else {
    return fail(
        ErrorCode::kInvalidInput,
        "the step has {} cube, {} vector and {} other cores; a simulated device has as many "
        "vector cores for each cube core, or cores of one kind",
        cores.cube_count, cores.vector_count, cores.any_count);
  }
  made.scheduler_threads = std::min(made.scheduler_threads, made.cluster_count);
  GAPLESS_TRY(check_profile(made, made.name));
  return made;
}

Result<void> change_profile(const WhatIf& change, DeviceProfile& profile) {
  profile = with_zero(profile, "", change).profile;
  GAPLESS_TRY(set_cores(change, profile));
  return check_profile(profile, profile.name);
}

std::vector<DeviceChange> standard_device_changes(const DeviceProfile& profile, bool is_modelled) {
  std::vector<DeviceChange> changes = {
      with_zero(profile, "no completion cost", {.zero_completion = true}),
      with_zero(profile, "no dispatch cost", {.zero_scheduler = true}),
      with_zero(profile, "no hand-off", {.zero_handoff = true}),
      with_zero(profile, "no overhead",
                {.zero_completion = true, .zero_scheduler = true, .zero_handoff = true}),
      with_zero(profile, "submits that cost nothing", {.zero_submit = true})};
  if (profile.scheduler_threads < profile.cluster_count) {
    DeviceChange change = {
        .name = fmt::format("{} scheduler threads for {}", profile.scheduler_threads + 1,
                            profile.scheduler_threads),
        .profile = profile};
    ++change.profile.scheduler_threads;
    changes.push_back(std::move(change));
  }
  if (profile.has_pending_slot != 0) {
    DeviceChange change = {.name = "no pending slots", .profile = profile};
    change.profile.has_pending_slot = 0;
    changes.push_back(std::move(change));
  }
  if (!is_modelled) return changes;
  DeviceChange memory = {.name = "twice the memory's rate", .profile = profile};
  memory.profile.hbm_bytes_per_s *= 2;
  changes.push_back(std::move(memory));
  DeviceChange cores = {.name = "twice the clusters", .profile = profile};
  cores.profile.cluster_count *= 2;
  if (check_profile(cores.profile, cores.profile.name)) changes.push_back(std::move(cores));
  return changes;
}

Result<StandardChanges> replay_on_device(const DeviceReplayArgs& args,
                                         std::span<const DeviceChange> changes) {
  GAPLESS_TRY(check_order_known(args.tasks));
  GAPLESS_TRY(check_scales(args.trace, changes));
  std::vector<DeviceChange> all = {{.name = "", .profile = args.profile}};
  all.insert(all.end(), changes.begin(), changes.end());
  std::vector<Result<int64_t>> lengths(all.size(), Result<int64_t>(0));
  const ReplaySpan span = replay_span(args.tasks);
  run_on_threads(all.size(), [&](size_t i) {
    const auto run = [&]() -> Result<int64_t> {
      const RecordedGraph recorded = GAPLESS_TRY(make_recorded_graph(
          args.trace, args.tasks,
          {.kernel_scale = all[i].kernel_scale, .is_modelled = args.is_modelled}));
      const SimOptions options = {.seed = seed_of(args.trace, args.step), .has_phases = false};
      const SimResult result = GAPLESS_TRY(simulate(all[i].profile, recorded.graph, options));
      return simulated_length_ns(result, span);
    };
    lengths[i] = run();
  });
  for (const Result<int64_t>& length : lengths) {
    if (!length) return length.error();
  }
  StandardChanges table;
  table.recorded_ns = args.tasks.window_ns();
  const int64_t around_ns = table.recorded_ns - recorded_length_ns(args.tasks, span);
  table.replayed_ns = *lengths[0] + around_ns;
  table.error = static_cast<double>(table.replayed_ns - table.recorded_ns) /
                static_cast<double>(table.recorded_ns);
  if (args.is_modelled) table.memory_bytes_per_s = args.profile.hbm_bytes_per_s;
  for (size_t i = 1; i < all.size(); ++i) {
    const int64_t makespan_ns = *lengths[i] + around_ns;
    table.changes.push_back({.name = all[i].name,
                             .makespan_ns = makespan_ns,
                             .gain = static_cast<double>(table.replayed_ns - makespan_ns) /
                                     static_cast<double>(table.replayed_ns)});
  }
  std::stable_sort(
      table.changes.begin(), table.changes.end(),
      [](const StandardChange& a, const StandardChange& b) { return a.gain > b.gain; });
  return table;
}

}  // namespace gapless
