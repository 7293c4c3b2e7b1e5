// SPDX-License-Identifier: Apache-2.0

#include "model/random_values.h"

namespace gapless {

void fill_normal(uint64_t seed, uint64_t place, std::span<float> values) {
  // The sum of four uniform 16-bit numbers has mean 2 x 65535 and variance 4 x 65536^2 / 12.
  constexpr float kMean = 2.0f * 65535.0f;
  constexpr float kScale = 1.0f / (65536.0f * 0.57735027f);
  uint64_t counter = mix_bits(mix_bits(seed) + place);
  for (float& value : values) {
    const uint64_t bits = mix_bits(counter++);
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    value = (static_cast<float>(sum) - kMean) * kScale;
  }
}

}  // namespace gapless
