// SPDX-License-Identifier: Apache-2.0
//
// A kernel that does nothing but record, for the recorder's tests.

#pragma once

#include "cuda/recorder_launch.h"

namespace gapless {

struct RecorderTestLaunch {
  RecorderLaunch recorder;
  int blocks = 1;
  int phases = 1;  // of work, that kMain records, numbered by their value
  RecordLevel level = RecordLevel::kPhases;
  bool starts_early = false;
};

// Returns a cudaError_t; 0 is success. `stream` is a cudaStream_t.
int recorder_test_launch_kernel(const RecorderTestLaunch& launch, void* stream);

}  // namespace gapless
