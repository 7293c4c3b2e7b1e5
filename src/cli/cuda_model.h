// SPDX-License-Identifier: Apache-2.0
//
// Models on an NVIDIA GPU, for the commands. cuda_model.cc is built where CUDA is found; elsewhere
// cuda_model_absent.cc answers that this build has none.

#pragma once

#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/model_options.h"
#include "profile/profile.h"
#include "profile/profile_text.h"

namespace gapless {

// "NVIDIA H200, 132 SMs"; an error says why there is none.
Result<std::string> find_cuda_device();

// Weights are packed, or made from a seed, on the device.
Result<LoadedModel> load_cuda_model(const ModelSource& source, const ModelOptions& options,
                                    DType dtype, const DecoderNeeds& needs);

struct ModelProfile {
  ProfileSubject subject;
  ProfileResult result;
};
Result<ModelProfile> profile_cuda_model(const ModelSource& source, const ModelOptions& options,
                                        DType dtype, const DecoderNeeds& needs,
                                        const ProfileOptions& profile);

}  // namespace gapless
