// SPDX-License-Identifier: Apache-2.0
//
// Which code of our kernels the device runs. There is one for sm_90a; for all other devices the
// driver makes it from PTX of sm_80, which knows no clusters, copy engine or early launches. So
// does a device of sm_90 with CUDA_FORCE_PTX_JIT=1 in the environment: a way to try that code
// there.

#pragma once

namespace gapless {

// False without a device. Does not change while the process runs.
bool runs_sm90_code();

}  // namespace gapless
