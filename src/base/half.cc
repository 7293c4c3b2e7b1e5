// SPDX-License-Identifier: Apache-2.0

#include "base/half.h"

#include "base/check.h"

namespace gapless {
namespace {

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kQuietBit = 0x00400000u;
constexpr uint32_t kExponentShift = (127 - 15) << 23;  // between the biases of f32 and f16
constexpr uint32_t kSmallestNormal = 0x38800000u;      // 2^-14 as f32
constexpr uint32_t kTooLarge = 0x47800000u;            // 2^16 as f32

}  // namespace

float to_float(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu);
  if (magnitude > 0x7c00u) {
    return std::bit_cast<float>(sign | kInfinityBits | kQuietBit | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude == 0x7c00u) return std::bit_cast<float>(sign | kInfinityBits);
  if (magnitude >= 0x0400u) {
    return std::bit_cast<float>(sign | ((magnitude << 13) + kExponentShift));
  }
  const float denormal = static_cast<float>(magnitude) * 0x1p-24f;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(denormal));
}

F16 to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits & kSignBit) >> 16;
  const uint32_t magnitude = bits & ~kSignBit;
  if (magnitude > kInfinityBits) {
    return {static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  }
  if (magnitude >= kTooLarge) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude >= kSmallestNormal) {
    // What rounds up past 65504 carries into the exponent and is infinity.
    const uint32_t scaled = magnitude - kExponentShift;
    return {static_cast<uint16_t>(sign | ((scaled + 0xfffu + ((scaled >> 13) & 1u)) >> 13))};
  }
  // In units of the smallest denormal, rounded by the addition: floats from 2^23 on are integers.
  const float units = std::bit_cast<float>(magnitude) * 0x1p24f + 0x1p23f;
  return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(units) & 0x7ffu))};
}

float cast_through(DType dtype, float value) {
  if (dtype == DType::kBf16) return to_float(to_bf16(value));
  if (dtype == DType::kF16) return to_float(to_f16(value));
  GAPLESS_CHECK(dtype == DType::kF32);
  return value;
}

float load_as_float(DType dtype, const void* data, int64_t index) {
  if (dtype == DType::kBf16) return load_as_float<DType::kBf16>(data, index);
  if (dtype == DType::kF16) return load_as_float<DType::kF16>(data, index);
  GAPLESS_CHECK(dtype == DType::kF32);
  return load_as_float<DType::kF32>(data, index);
}

void store_from_float(DType dtype, void* data, int64_t index, float value) {
  if (dtype == DType::kBf16) return store_from_float<DType::kBf16>(data, index, value);
  if (dtype == DType::kF16) return store_from_float<DType::kF16>(data, index, value);
  GAPLESS_CHECK(dtype == DType::kF32);
  store_from_float<DType::kF32>(data, index, value);
}

}  // namespace gapless
