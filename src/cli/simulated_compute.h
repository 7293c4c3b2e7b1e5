// SPDX-License-Identifier: Apache-2.0
//
// gapless profile --compute: the step of a simulated chip computed by the CPU kernels, task by task
// in the order in which the simulation started them, and checked.
//
// The first layer is held against the double-precision reference as on other devices; all values
// must be those that CPU cores give for the same step, bit for bit.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/model_options.h"
#include "model/layer_plan.h"
#include "model/layer_reference.h"
#include "sim/device_profile.h"

namespace gapless {

struct ComputeRequest {
  const ModelOptions& model;
  LayerProblem problem;  // of simulated_problem(), with the layers that are wanted
  const DeviceProfile& device;
  uint64_t seed = 0;        // of the simulated step
  int64_t makespan_ns = 0;  // that it took: it is simulated once more
  bool validate = true;     // against the reference
};

struct ComputedStep {
  std::string level;  // of the CPU
  int core_count = 0;
  int64_t block_count = 0;  // that ran, of all layers
  int64_t value_count = 0;  // behind the last layer, equal to those of the cores
  std::optional<Closeness> validation;
};

// Error when a value differs, or the reference is too far.
Result<ComputedStep> compute_simulated_step(const ComputeRequest& request);

}  // namespace gapless
