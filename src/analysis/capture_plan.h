// SPDX-License-Identifier: Apache-2.0
//
// PassPlan: the kernels of one shape of pass with everything that does not change from pass to
// pass: names and shapes in a table, streams, mean times.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/capture_models.h"
#include "trace/capture_table.h"

namespace gapless {

struct PlannedKernel {
  KernelRow row;  // name, type, core, shapes, stream and kind; of a collective no name
  KernelPlace place = KernelPlace::kGraph;
  int64_t mean_ns = 0;
  int64_t spread_permille = 0;
  int64_t wait_ns = 0;
  int32_t draft = 0;
  bool is_anchor = false;
  bool is_collective = false;
  uint32_t group = kNoIndex;      // of `names`: the communicator
  uint32_t companion = kNoIndex;  // the same: the collective's kernel or wrapper
  int64_t companion_ns = 0;       // 0: a kernel, not a wrapper
};

struct PassPlan {
  PassShape shape;
  std::vector<PlannedKernel> kernels;
  std::vector<uint32_t> aiv_collectives;  // of `kernels`
  std::vector<uint32_t> anchors;
};

// Texts go to `names`.
PassPlan make_pass_plan(const CaptureModel& model, const PassShape& shape, NameTable& names);

}  // namespace gapless
