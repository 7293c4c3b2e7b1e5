// SPDX-License-Identifier: Apache-2.0
//
// What silu_multiply means, in double precision. The cast points are its own: gate * factor and
// up * factor are f32.

#pragma once

#include <span>
#include <vector>

namespace gapless {

// x / (1 + e^-x)
double silu_reference(double x);
std::vector<double> silu_multiply_reference(std::span<const float> gate, std::span<const float> up,
                                            float factor);

}  // namespace gapless
