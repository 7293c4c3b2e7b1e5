// SPDX-License-Identifier: Apache-2.0
//
// CaptureDraws: random times in whole numbers only, so that they are the same on every machine.

#pragma once

#include <algorithm>
#include <cstdint>

#include "base/mix_bits.h"

namespace gapless {

class CaptureDraws {
 public:
  // `noise_permille` scales how far a time is from its mean.
  CaptureDraws(uint64_t seed, uint64_t stream, int64_t noise_permille)
      : state_(mix_bits(mix_bits(seed) + stream)), noise_permille_(noise_permille) {}

  uint64_t bits() { return mix_bits(state_++); }

  // 0 to count - 1. The bias of the remainder is far below what a test could see.
  uint64_t below(uint64_t count) { return bits() % count; }

  bool one_in_thousand(int64_t permille) { return static_cast<int64_t>(below(1000)) < permille; }

  // About normal: the sum of four uniform numbers, at most 3.5 deviations from the mean.
  int64_t bell(int64_t mean, int64_t spread_permille) {
    const uint64_t random = bits();
    int64_t sum = 0;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<int64_t>((random >> (16 * part)) & 0xffff);
    }
    const int64_t deviations = (sum - 2 * 0xffff) * 1000 / kBellDeviation;  // in thousandths
    return with_noise(mean, mean + mean / 1000 * spread_permille * deviations / 1000 +
                                mean % 1000 * spread_permille * deviations / 1'000'000);
  }

  // The square of a uniform number: mostly little, sometimes three times the mean.
  int64_t uneven(int64_t mean) {
    const int64_t uniform = static_cast<int64_t>(bits() & 0xffff);
    return with_noise(mean, (uniform * uniform >> 16) * mean * 3 >> 16);
  }

  // From low to high, both included.
  int64_t between(int64_t low, int64_t high) {
    const int64_t drawn = low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
    return with_noise((low + high) / 2, drawn);
  }

 private:
  static constexpr int64_t kBellDeviation = 37'837;  // of the sum of four

  int64_t with_noise(int64_t mean, int64_t drawn) const {
    return mean + (drawn - mean) * noise_permille_ / 1000;
  }

  uint64_t state_;
  int64_t noise_permille_;
};

}  // namespace gapless
