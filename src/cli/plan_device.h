// SPDX-License-Identifier: Apache-2.0
//
// What `gapless plan matmul|attention` says of a simulated device: how a task goes through its
// buffers, and what published tiling rules would do on its cores.

#pragma once

#include <string>

#include "base/result.h"
#include "sim/atb_tiling.h"
#include "sim/device_profile.h"
#include "sim/matmul_staging.h"

namespace gapless {

struct DeviceMatmulArguments {
  std::string device;  // a profile's name or file
  StagingProblem problem;
  std::string dtype;
  bool json = false;
};

// The text or JSON that the command prints.
Result<std::string> device_matmul_text(const DeviceMatmulArguments& arguments);

struct AtbArguments {
  std::string device_name;
  AtbProblem problem;
  std::string dtype;
  bool json = false;
};

// A defect of the rules is a line of the text, not an error: it is what was asked for.
Result<std::string> atb_attention_text(const AtbArguments& arguments);

}  // namespace gapless
