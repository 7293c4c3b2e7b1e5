// SPDX-License-Identifier: Apache-2.0
//
// How rows of a trace are called that stand for a task with several blocks and did not run: a join,
// which is complete when all blocks are, and a gate, which is ready when they may start.

#pragma once

#include <string_view>

namespace gapless {

inline constexpr std::string_view kJoinSuffix = " (all blocks)";
inline constexpr std::string_view kGateSuffix = " (before all blocks)";

}  // namespace gapless
