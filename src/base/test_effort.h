// SPDX-License-Identifier: Apache-2.0
//
// How much of a random test to do: all of it, or a part where a sanitizer makes everything slow.

#pragma once

#include <cstdint>

namespace gapless {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// `count` rounds, or a tenth of them.
inline constexpr uint32_t test_effort(uint32_t count) {
  return kSanitized ? (count + 9) / 10 : count;
}

}  // namespace gapless
