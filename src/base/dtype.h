// SPDX-License-Identifier: Apache-2.0
//
// DType: the element types that tensors have here.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gapless {

enum class DType : uint8_t { kU8 = 0, kS8, kF16, kBf16, kF32, kS32, kS64, kF64 };
inline constexpr int kDTypeCount = 8;

inline constexpr int64_t dtype_bytes(DType dtype) {
  constexpr int64_t kBytes[kDTypeCount] = {1, 1, 2, 2, 4, 4, 8, 8};
  return kBytes[static_cast<int>(dtype)];
}

// "bf16", "s8": the names that files and messages use.
std::string_view dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace gapless
