// SPDX-License-Identifier: Apache-2.0
//
// A kernel whose last block waits for something that never happens, for tests of what becomes of
// that.

#pragma once

#include <cstdint>

#include "cuda/wait_limit.h"

namespace gapless {

enum class TestWait : uint8_t { kPhase, kEither };

struct WaitTestLaunch {
  TestWait wait = TestWait::kPhase;
  int blocks = 1;
  int waiting_warp = 0;  // of the last block
  WaitLimit wait_limit = {};
};

// Returns a cudaError_t; 0 is success. `stream` is a cudaStream_t.
int wait_test_launch_kernel(const WaitTestLaunch& launch, void* stream);

}  // namespace gapless
