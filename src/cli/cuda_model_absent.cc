// SPDX-License-Identifier: Apache-2.0
//
// What stands for cuda_model.cc in a build without the CUDA toolkit.

#include "cli/cuda_model.h"

namespace gapless {
namespace {

Error no_cuda() { return fail(ErrorCode::kUsage, "device 'cuda'; this build runs on: cpu"); }

}  // namespace

Result<std::string> find_cuda_device() { return no_cuda(); }

Result<LoadedModel> load_cuda_model(const ModelSource& /*source*/, const ModelOptions& /*options*/,
                                    DType /*dtype*/, const DecoderNeeds& /*needs*/) {
  return no_cuda();
}

Result<ModelProfile> profile_cuda_model(const ModelSource& /*source*/,
                                        const ModelOptions& /*options*/, DType /*dtype*/,
                                        const DecoderNeeds& /*needs*/,
                                        const ProfileOptions& /*profile*/) {
  return no_cuda();
}

}  // namespace gapless
