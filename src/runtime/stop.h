// SPDX-License-Identifier: Apache-2.0
//
// Why a run does not run all its tasks: bits that workers look at before each task.

#pragma once

#include <cstdint>

namespace gapless {

inline constexpr uint32_t kStopFailure = 1;
inline constexpr uint32_t kStopCancel = 2;

}  // namespace gapless
