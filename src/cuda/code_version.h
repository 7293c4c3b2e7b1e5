// SPDX-License-Identifier: Apache-2.0
//
// Which code of our kernels the device runs. There is one for sm_90a; for all other devices the
// driver makes it from PTX of sm_80, which knows no clusters, copy engine or early launches. So
// does a device of sm_90 with CUDA_FORCE_PTX_JIT=1 in the environment: a way to try that code
// there.

#pragma once

namespace gapless {

// Asks the driver until it has once answered: what it says does not change while the process runs.
// A cudaError_t; 0 is success.
int find_sm90_code(bool* is_sm90);

// What it answered. False where it could not: without a device a launch will say so.
bool runs_sm90_code();

}  // namespace gapless
