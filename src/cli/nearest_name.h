// SPDX-License-Identifier: Apache-2.0
//
// "did you mean ...?": the name closest to what was typed.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gapless {

// Letters to insert, delete, replace or swap with their neighbour to turn one into the other.
size_t edit_distance(std::string_view from, std::string_view to);

// The closest of `names`, the first of equals; nothing when none is close enough to be a typing
// error.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace gapless
