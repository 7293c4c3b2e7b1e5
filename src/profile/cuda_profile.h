// SPDX-License-Identifier: Apache-2.0
//
// A profile of decode steps on a GPU: what profile/profile.h says of CPU cores, with launches for
// kernels, blocks for tasks and SMs for cores.
//
// A step's time is the device's, of steps back to back; what it takes with the host's part, from
// the call to its result, is ProfileResult::with_host.

#pragma once

#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "model/cuda_decoder.h"
#include "model/weights.h"
#include "profile/profile.h"

namespace gapless {

// As profile_steps. `first_layer` is what the decoder's first layer was made of, packed for the
// CPU: the reference reads it, so that the device's weights are checked too. Null only where
// nothing is validated.
Result<ProfileResult> profile_cuda_steps(CudaDecoder& decoder, const LayerWeights* first_layer,
                                         const ProfileOptions& options);

// The part of a layer that a launch belongs to: one of kLayerGroups.
std::string_view cuda_group_name(std::string_view launch, DType weights);

}  // namespace gapless
