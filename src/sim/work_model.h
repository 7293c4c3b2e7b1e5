// SPDX-License-Identifier: Apache-2.0
//
// WorkModel: what one core has to do for one block.
//
// A kernel that the profile has measured, or a cost that gives its time, takes that time. Any other
// block moves its bytes through the shared memory, computes meanwhile, and has a fixed part after
// both; all three vary together. The part of a block that is not whole is taken of all but the
// fixed time.

#pragma once

#include <cstdint>
#include <vector>

#include "sim/device_profile.h"
#include "sim/sim_graph.h"

namespace gapless {

struct BlockWork {
  int64_t bytes = 0;       // through the memory; 0: none
  int64_t compute_ns = 0;  // at the same time
  int64_t fixed_ns = 0;    // after both
};

// Numbers are a function of seed, task and block only. Profile and graph must outlive it.
class WorkModel {
 public:
  WorkModel(const DeviceProfile& profile, const SimGraph& graph, uint64_t seed);
  BlockWork cube_work(uint32_t task, uint32_t block) const;
  BlockWork vector_work(uint32_t task, uint32_t block) const;

 private:
  BlockWork work(uint32_t task, uint32_t block, const SimCost& cost, int64_t compute_ns) const;

  const DeviceProfile& profile_;
  const SimGraph& graph_;
  uint64_t seed_;
  std::vector<const KernelCalibration*> calibrations_;  // by kernel
};

}  // namespace gapless
