// SPDX-License-Identifier: Apache-2.0
//
// Bf16 and F16: the two 16-bit float formats, and the casts between them and float.
//
// Casts to 16 bits round to nearest, ties to even; too large becomes infinity, a NaN stays a NaN,
// denormals are kept. To and from f16 that is what the hardware does, bit for bit;
// vcvtneps2bf16 would differ in taking denormals as zero, and is not used for casts.

#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace gapless {

struct Bf16 {
  uint16_t bits = 0;
};
struct F16 {
  uint16_t bits = 0;
};

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline Bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

float to_float(F16 value);
F16 to_f16(float value);

// The value as it is after a cast to `dtype` and back: an explicit cast point. kBf16, kF16 or kF32.
float cast_through(DType dtype, float value);

// One element of an array of kBf16, kF16 or kF32.
float load_as_float(DType dtype, const void* data, int64_t index);
void store_from_float(DType dtype, void* data, int64_t index, float value);

// The same with the type known in advance, for loops.
template <DType kDType>
float load_as_float(const void* data, int64_t index) {
  if constexpr (kDType == DType::kBf16) return to_float(static_cast<const Bf16*>(data)[index]);
  if constexpr (kDType == DType::kF16) return to_float(static_cast<const F16*>(data)[index]);
  if constexpr (kDType == DType::kF32) return static_cast<const float*>(data)[index];
}
template <DType kDType>
void store_from_float(void* data, int64_t index, float value) {
  if constexpr (kDType == DType::kBf16) static_cast<Bf16*>(data)[index] = to_bf16(value);
  if constexpr (kDType == DType::kF16) static_cast<F16*>(data)[index] = to_f16(value);
  if constexpr (kDType == DType::kF32) static_cast<float*>(data)[index] = value;
}

}  // namespace gapless
