// SPDX-License-Identifier: Apache-2.0
//
// What a CpuLevel gives to take_top: the search for the next logit that matters.

#pragma once

#include <cstdint>

namespace gapless {

// The first index in [begin, count) whose logit is above `threshold` or NaN; `count` when there is
// none. `threshold` is not NaN.
namespace portable {
int64_t find_above(const float* logits, int64_t begin, int64_t count, float threshold);
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
int64_t find_above(const float* logits, int64_t begin, int64_t count, float threshold);
}  // namespace avx2

namespace avx512 {
int64_t find_above(const float* logits, int64_t begin, int64_t count, float threshold);
}  // namespace avx512
#endif

}  // namespace gapless
