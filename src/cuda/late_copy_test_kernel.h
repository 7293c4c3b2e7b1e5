// SPDX-License-Identifier: Apache-2.0
//
// A launch that lets the next one start at once and writes what that one reads as late as it can,
// for tests of launches that start early. It has few blocks: a block of an attention or of a matmul
// fills an SM, and finds one that this launch is not on.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless {

struct LateCopy {
  std::byte* target = nullptr;        // at 4 bytes
  const std::byte* source = nullptr;  // nothing: bytes of 0xff
  int64_t bytes = 0;                  // a multiple of 4
};

struct LateCopyLaunch {
  const LateCopy* copies = nullptr;  // on the device
  int copy_count = 0;
  uint32_t delay_ns = 0;           // from the begin of a block to its first copy
  uint64_t* written_ns = nullptr;  // the GPU's timer before the first copy of block 0; or nothing
};

// Returns a cudaError_t; 0 is success. `stream` is a cudaStream_t.
int late_copy_launch_kernel(const LateCopyLaunch& launch, void* stream);

}  // namespace gapless
