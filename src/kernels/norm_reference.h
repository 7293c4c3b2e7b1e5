// SPDX-License-Identifier: Apache-2.0
//
// What norm.h means, in double precision and without cleverness. Nothing is cast on the way.

#pragma once

#include <span>
#include <vector>

#include "kernels/norm.h"

namespace gapless {

double inverse_rms_reference(std::span<const float> x, float eps);
std::vector<double> rms_norm_reference(std::span<const float> x, std::span<const float> gamma,
                                       float eps);
// One head; cos and sin have half as many elements as it.
std::vector<double> rope_reference(std::span<const double> head, std::span<const float> cos,
                                   std::span<const float> sin);
// [head_count][head_dim], without the gaps that args.stride may leave.
std::vector<double> norm_heads_reference(const HeadNorm& args, const float* x);

}  // namespace gapless
