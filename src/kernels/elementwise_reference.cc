// SPDX-License-Identifier: Apache-2.0

#include "kernels/elementwise_reference.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace gapless {

double silu_reference(double x) {
  const double sigmoid = 1.0 / (1.0 + std::exp(-x));
  return x * sigmoid;
}

std::vector<double> silu_multiply_reference(std::span<const float> gate, std::span<const float> up,
                                            float factor) {
  GAPLESS_CHECK(gate.size() == up.size());
  std::vector<double> y(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const float g = gate[i] * factor;
    const float u = up[i] * factor;
    y[i] = silu_reference(static_cast<double>(g)) * static_cast<double>(u);
  }
  return y;
}

}  // namespace gapless
