// SPDX-License-Identifier: Apache-2.0

#include "sim/device_profile.h"

#include <algorithm>
#include <array>

#include "base/file.h"

namespace gapless {
namespace {

constexpr int64_t kMaxNs = 1'000'000'000;
constexpr int64_t kMinRate = 1'000'000;
constexpr int64_t kMaxRate = 1'000'000'000'000'000;  // bytes/s x 1 s of ns stays below 2^64
constexpr int64_t kMaxFlops = 1'000'000'000'000'000'000;
constexpr int64_t kMaxBuffer = int64_t{1} << 40;
constexpr int64_t kMaxCores = 256;  // of a CoreSet

constexpr std::array<ProfileParameter, 37> kParameters = {{
    {"cluster.count", &DeviceProfile::cluster_count, 1, kMaxCores},
    {"cluster.vector_cores", &DeviceProfile::vector_cores, 0, 7},
    {"cluster.is_unified", &DeviceProfile::is_unified, 0, 1},
    {"scheduler.threads", &DeviceProfile::scheduler_threads, 1, 64},
    {"scheduler.poll_ns", &DeviceProfile::poll_ns, 0, kMaxNs},
    {"scheduler.loop_ns", &DeviceProfile::loop_ns, 0, kMaxNs},
    {"scheduler.complete_ns", &DeviceProfile::complete_ns, 0, kMaxNs},
    {"scheduler.resolve_ns", &DeviceProfile::resolve_ns, 0, kMaxNs},
    {"scheduler.pop_ns", &DeviceProfile::pop_ns, 0, kMaxNs},
    {"scheduler.payload_ns", &DeviceProfile::payload_ns, 0, kMaxNs},
    {"scheduler.store_ns", &DeviceProfile::store_ns, 0, kMaxNs},
    {"scheduler.notice_ns", &DeviceProfile::notice_ns, 0, kMaxNs},
    {"scheduler.gang_barrier_ns", &DeviceProfile::gang_barrier_ns, 0, kMaxNs},
    {"scheduler.has_skip_hint", &DeviceProfile::has_skip_hint, 0, 1},
    {"scheduler.has_early_dispatch", &DeviceProfile::has_early_dispatch, 0, 1},
    {"orchestrator.submit_ns", &DeviceProfile::submit_ns, 0, kMaxNs},
    {"orchestrator.edge_ns", &DeviceProfile::submit_edge_ns, 0, kMaxNs},
    {"orchestrator.task_window", &DeviceProfile::task_window, 1, int64_t{1} << 31},
    {"core.has_pending_slot", &DeviceProfile::has_pending_slot, 0, 1},
    {"core.propagation_ns", &DeviceProfile::propagation_ns, 0, kMaxNs},
    {"core.setup_ns", &DeviceProfile::setup_ns, 0, kMaxNs},
    {"core.first_setup_ns", &DeviceProfile::first_setup_ns, 0, kMaxNs},
    {"core.switch_ns", &DeviceProfile::switch_ns, 0, kMaxNs},
    {"hbm.bytes_per_s", &DeviceProfile::hbm_bytes_per_s, kMinRate, kMaxRate},
    {"hbm.cube_bytes_per_s", &DeviceProfile::cube_bytes_per_s, kMinRate, kMaxRate},
    {"hbm.vector_bytes_per_s", &DeviceProfile::vector_bytes_per_s, kMinRate, kMaxRate},
    {"cube.bf16_flops_per_s", &DeviceProfile::cube_bf16_flops_per_s, kMinRate, kMaxFlops},
    {"cube.int8_flops_per_s", &DeviceProfile::cube_int8_flops_per_s, kMinRate, kMaxFlops},
    {"vector.flops_per_s", &DeviceProfile::vector_flops_per_s, kMinRate, kMaxFlops},
    {"block.fixed_ns", &DeviceProfile::block_fixed_ns, 0, kMaxNs},
    {"block.variation_per_mille", &DeviceProfile::variation_per_mille, 0, 250},
    {"buffer.mat_bytes", &DeviceProfile::mat_bytes, 0, kMaxBuffer},
    {"buffer.l0a_bytes", &DeviceProfile::l0a_bytes, 0, kMaxBuffer},
    {"buffer.l0b_bytes", &DeviceProfile::l0b_bytes, 0, kMaxBuffer},
    {"buffer.l0c_bytes", &DeviceProfile::l0c_bytes, 0, kMaxBuffer},
    {"buffer.ub_bytes", &DeviceProfile::ub_bytes, 0, kMaxBuffer},
    {"clock.tick_ns", &DeviceProfile::tick_ns, 0, kMaxNs},
}};

}  // namespace

std::span<const ProfileParameter> profile_parameters() { return kParameters; }

const KernelCalibration* DeviceProfile::find_kernel(std::string_view kernel) const {
  const auto found = std::lower_bound(
      kernels.begin(), kernels.end(), kernel,
      [](const KernelCalibration& one, std::string_view wanted) { return one.kernel < wanted; });
  return found == kernels.end() || found->kernel != kernel ? nullptr : &*found;
}

Result<void> check_profile(const DeviceProfile& profile, const std::string& path) {
  if (profile.core_count() > kMaxCores) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} clusters of 1 cube and {} vector cores are {} cores; at most {} are "
                "simulated",
                path, profile.cluster_count, profile.vector_cores, profile.core_count(), kMaxCores);
  }
  if (profile.is_unified != 0 && profile.vector_cores != 0) {
    return fail(ErrorCode::kInvalidInput,
                "{}: cluster.is_unified is 1, so cluster.vector_cores must be 0 and not {}", path,
                profile.vector_cores);
  }
  if (profile.scheduler_threads > profile.cluster_count) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} scheduler threads for {} clusters; each thread needs one", path,
                profile.scheduler_threads, profile.cluster_count);
  }
  return {};
}

Result<std::vector<DeviceProfile>> builtin_profiles() {
  std::vector<DeviceProfile> profiles;
  for (const ProfileText& file : builtin_profile_texts()) {
    profiles.push_back(GAPLESS_TRY(parse_profile(file.text, std::string(file.path))));
  }
  std::sort(profiles.begin(), profiles.end(),
            [](const DeviceProfile& a, const DeviceProfile& b) { return a.name < b.name; });
  return profiles;
}

Result<DeviceProfile> find_profile(const std::string& name_or_path) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (is_path) return parse_profile(GAPLESS_TRY(read_text_file(name_or_path)), name_or_path);
  std::string names;
  for (DeviceProfile& profile : GAPLESS_TRY(builtin_profiles())) {
    if (profile.name == name_or_path) return std::move(profile);
    names += (names.empty() ? "" : ", ") + profile.name;
  }
  return fail(ErrorCode::kUsage,
              "no device profile is called \"{}\"; there are {}, and files that end in .json",
              name_or_path, names);
}

}  // namespace gapless
