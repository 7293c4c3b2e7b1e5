// SPDX-License-Identifier: Apache-2.0

#include "base/dtype.h"

#include <array>
#include <cstddef>

namespace gapless {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kNames = {"u8",  "s8",  "f16", "bf16",
                                                              "f32", "s32", "s64", "f64"};

}  // namespace

std::string_view dtype_name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace gapless
