// SPDX-License-Identifier: Apache-2.0
//
// GPUs as tests without one see them.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device.h"

namespace gapless {

inline CudaLimits test_device(const std::string& name, int capability, int sm_count,
                              int64_t shared_kib) {
  CudaLimits limits;
  limits.name = name;
  limits.sm_count = sm_count;
  limits.compute_capability = capability;
  limits.has_sm90_code = capability == 90;
  limits.shared_block_bytes = shared_kib << 10;
  limits.shared_sm_bytes = (shared_kib + 1) << 10;
  limits.shared_reserved_bytes = 1 << 10;
  limits.l2_bytes = 50 << 20;
  limits.memory_bytes = int64_t{140} << 30;
  limits.pin_bytes_per_s = 4.9e12;
  return limits;
}

// The one we tune for first, and one of each amount of shared memory that there is from sm_80 on.
inline std::vector<CudaLimits> all_test_devices() {
  return {test_device("H200", 90, 132, 227), test_device("B200", 100, 148, 227),
          test_device("A100", 80, 108, 163), test_device("L40S", 89, 142, 99),
          test_device("A10", 86, 72, 99),    test_device("RTX 5090", 120, 170, 99)};
}

}  // namespace gapless
