// SPDX-License-Identifier: Apache-2.0
//
// The search for the next logit that matters, on any machine.

#include "kernels/sampling_levels.h"

namespace gapless::portable {
namespace {

constexpr int64_t kBlock = 16;

// Looks at all of a block before it decides: compilers make vector compares of it.
bool has_above(const float* logits, float threshold) {
  int found = 0;
  for (int64_t i = 0; i < kBlock; ++i) found |= static_cast<int>(!(logits[i] <= threshold));
  return found != 0;
}

}  // namespace

int64_t find_above(const float* logits, int64_t begin, int64_t count, float threshold) {
  int64_t i = begin;
  while (i + kBlock <= count && !has_above(logits + i, threshold)) i += kBlock;
  while (i < count && logits[i] <= threshold) ++i;
  return i;
}

}  // namespace gapless::portable
