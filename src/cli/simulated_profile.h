// SPDX-License-Identifier: Apache-2.0
//
// Decode steps on a simulated chip, for gapless profile: from what was typed to a trace and
// figures.
//
// Time is virtual: the same options give the same bytes on every machine. Nothing is computed
// unless
// --compute asks for it, and then no time depends on it. Step i has the seed of the first + i.
// docs/simulator.md describes the machine and the layers.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "analysis/kernel_times.h"
#include "base/result.h"
#include "cli/model_options.h"
#include "cli/simulated_compute.h"
#include "model/model_config.h"
#include "sim/device_profile.h"
#include "sim/overhead_shares.h"
#include "sim/sim_result.h"
#include "trace/trace.h"

namespace gapless {

// As they were typed.
struct SimulatedOptions {
  std::string tiling;                 // empty: by the weights' type
  std::vector<std::string> settings;  // "hbm.bytes_per_s=1.3e12"
  bool attention_only = false;
  bool compute = false;
};

// What the option --device of profile may name: "{cpu,cuda,ascend-910b,...}", as completion wants.
std::string device_choices();
// --tiling, --attention-only, --compute and --set.
void add_simulated_options(CLI::App& command, SimulatedOptions& options);

// Anything but cpu and cuda.
bool is_simulated(const std::string& device);
// What was typed and means nothing on this device is a wrong command line.
Result<void> check_simulated_options(const CLI::App& command, const std::string& device);

struct SimulatedStep {
  uint64_t seed = 0;
  int64_t makespan_ns = 0;
  int64_t submitted_ns = 0;
  int64_t window_wait_ns = 0;
  uint64_t pending_count = 0;                      // records that went into a pending slot
  std::array<int64_t, kSimPhaseCount> phase_ns{};  // of all scheduler threads
  double busy_cube_cores = 0.0;                    // on average; of a unified device all cores
  double busy_vector_cores = 0.0;
  OverheadShares overhead;
};

struct SimulatedProfile {
  DeviceProfile device;
  std::vector<std::string> settings;
  ModelConfig config;  // with the layers that are simulated
  int model_layers = 0;
  std::string dtype;
  std::string kv_dtype;
  std::string tiling;
  std::string tiling_source;  // "pypto-lib #642"
  bool attention_only = false;
  bool has_given_times = false;  // tasks have times, and neither bytes nor operations
  std::vector<int32_t> lengths;
  int page_tokens = 128;

  int64_t task_count = 0;  // of a step
  int64_t edge_count = 0;
  int64_t record_count = 0;
  int64_t bytes = 0;
  int64_t flops = 0;

  std::vector<SimulatedStep> steps;
  size_t middle = 0;    // the step whose length is the median
  KernelTimes kernels;  // of that step
  std::vector<std::string> kernel_names;
  Trace trace;                           // all steps, one after another
  std::optional<ComputedStep> computed;  // the first step

  const SimulatedStep& middle_step() const { return steps[middle]; }
};

struct SimulatedRequest {
  ModelOptions model;  // layers 0: all
  SimulatedOptions simulated;
  int batch = 16;
  std::string lengths;
  int step_count = 1;
  bool validate = true;
};
Result<SimulatedProfile> profile_simulated(const SimulatedRequest& request);

// Where the trace was written; empty: nowhere.
struct SimulatedFiles {
  std::string trace;
  std::string perfetto;
};
std::string simulated_text(const SimulatedProfile& profile, const SimulatedFiles& files);
std::string simulated_json(const SimulatedProfile& profile, const SimulatedFiles& files);

}  // namespace gapless
