// SPDX-License-Identifier: Apache-2.0
//
// What a core can run. Tasks of one class could have run on any core of that class.

#pragma once

#include <cstdint>
#include <string_view>

#include "trace/trace.h"

namespace gapless {

enum class CoreClass : uint8_t { kAny = 0, kCube = 1, kVector = 2 };
inline constexpr int kCoreClassCount = 3;
std::string_view core_class_name(CoreClass core_class);
CoreClass core_class_of(LaneKind kind);

}  // namespace gapless
