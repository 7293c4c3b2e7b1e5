// SPDX-License-Identifier: Apache-2.0
//
// DeviceProfile: all numbers of a simulated chip, as data.
//
// Each parameter is a whole number with a name ("hbm.bytes_per_s") and the text that says where it
// comes from. One table lists them: reading, writing and --set know no other place. Profiles that
// come with the program are the files of src/sim/profiles, compiled in. docs/simulator.md tells
// what each parameter does to the machine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gapless {

// How long a block of one kernel was measured to run, whatever its bytes and flops.
struct KernelCalibration {
  std::string kernel;
  int64_t mean_ns = 0;
  int64_t sigma_ns = 0;
  std::string source;
  bool operator==(const KernelCalibration&) const = default;
};

// Times in nanoseconds, sizes in bytes; switches are 0 or 1.
struct DeviceProfile {
  std::string name;
  std::string summary;  // one sentence

  // Cores. A cluster has one cube core; where it is unified, that core runs every shape.
  int64_t cluster_count = 1;
  int64_t vector_cores = 0;  // of a cluster
  int64_t is_unified = 0;

  int64_t scheduler_threads = 1;
  int64_t poll_ns = 0;      // one load of a core's state
  int64_t loop_ns = 0;      // of a round of the scheduler's loop beside polls, ends and dispatches
  int64_t complete_ns = 0;  // for each end that was seen
  int64_t resolve_ns = 0;   // for each consumer of a task that is complete
  int64_t pop_ns = 0;       // to take blocks of one task from a ready queue
  int64_t payload_ns = 0;   // to write what one core needs to know
  int64_t store_ns = 0;     // the store that tells the core, posted
  int64_t notice_ns = 0;    // from a core's store until a load can see it
  int64_t gang_barrier_ns = 0;  // all threads agree to start a gang
  int64_t has_skip_hint = 0;    // no pending slots while another thread has an idle core
  int64_t has_early_dispatch = 0;

  int64_t submit_ns = 0;       // of one task
  int64_t submit_edge_ns = 0;  // and of each of its producers
  int64_t task_window = 1;     // submitted tasks that are not complete, counted from the oldest

  int64_t has_pending_slot = 0;
  int64_t propagation_ns = 0;  // from the store until the core sees it
  int64_t setup_ns = 0;        // from there to the kernel's start
  int64_t first_setup_ns = 0;  // the same for a core's first block
  int64_t switch_ns = 0;       // from a block's end to the start of the one in the pending slot

  int64_t hbm_bytes_per_s = 1;
  int64_t cube_bytes_per_s = 1;    // most that one core can get
  int64_t vector_bytes_per_s = 1;  // "
  int64_t cube_bf16_flops_per_s = 1;
  int64_t cube_int8_flops_per_s = 1;
  int64_t vector_flops_per_s = 1;
  int64_t block_fixed_ns = 0;       // of a block whose time is modelled, beside bytes and flops
  int64_t variation_per_mille = 0;  // sigma of the work of such a block

  int64_t mat_bytes = 0;
  int64_t l0a_bytes = 0;
  int64_t l0b_bytes = 0;
  int64_t l0c_bytes = 0;
  int64_t ub_bytes = 0;
  int64_t tick_ns = 0;  // recorded times are multiples of it; 0: exact

  std::vector<std::string> sources;        // by parameter
  std::vector<KernelCalibration> kernels;  // sorted by name
  bool operator==(const DeviceProfile&) const = default;

  int64_t vector_core_count() const { return cluster_count * vector_cores; }
  int64_t core_count() const { return cluster_count + vector_core_count(); }
  // nullptr: not measured.
  const KernelCalibration* find_kernel(std::string_view kernel) const;
};

struct ProfileParameter {
  std::string_view key;
  int64_t DeviceProfile::*member;
  int64_t least;
  int64_t most;
};
std::span<const ProfileParameter> profile_parameters();

// A file of src/sim/profiles as it is, made by embed_profiles.cmake.
struct ProfileText {
  std::string_view path;
  std::string_view text;
};
std::span<const ProfileText> builtin_profile_texts();

// All that come with the program, in the order of their names.
Result<std::vector<DeviceProfile>> builtin_profiles();
// One of them by its name, or a file (what has a '/' or ends in ".json").
Result<DeviceProfile> find_profile(const std::string& name_or_path);
// `path` is for messages. Every parameter must be there, and no other key.
Result<DeviceProfile> parse_profile(std::string_view text, const std::string& path);
// "hbm.bytes_per_s=1.2e12"; of a kernel "kernel.q_proj.mean_ns=22700" or "kernel.q_proj.sigma_ns".
Result<void> set_parameter(DeviceProfile& profile, std::string_view assignment);
// What parse_profile reads.
std::string profile_json(const DeviceProfile& profile);
// What no single parameter can be wrong about.
Result<void> check_profile(const DeviceProfile& profile, const std::string& path);

}  // namespace gapless
