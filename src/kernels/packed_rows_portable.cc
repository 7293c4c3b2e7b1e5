// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <bit>

#include "base/half.h"
#include "kernels/packed_rows_levels.h"

namespace gapless::portable {
namespace {

float element(const RowPart& part, int64_t i) {
  const float value = load_as_float(part.dtype, part.data, i);
  return part.gamma == nullptr ? value : value * part.gamma[i];
}

uint32_t largest_magnitude(const RowPart& part) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < part.count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(element(part, i)) & 0x7fffffffu);
  return largest;
}

// Adding 1.5 * 2^23 leaves the value, rounded to nearest even, in the low bits of the sum.
int32_t quantize(const RowPart& part, float inverse, int8_t* to) {
  constexpr float kRounder = 12582912.0f;
  int32_t sum = 0;
  for (int64_t i = 0; i < part.count; ++i) {
    const float scaled = element(part, i) * inverse + kRounder;
    const int32_t rounded = std::bit_cast<int32_t>(scaled) - std::bit_cast<int32_t>(kRounder);
    const int32_t value = std::clamp(rounded, -127, 127);
    to[i] = static_cast<int8_t>(value);
    sum += value;
  }
  return sum;
}

void cast_to_bf16_bits(const RowPart& part, uint16_t* to) {
  for (int64_t i = 0; i < part.count; ++i) to[i] = to_bf16(element(part, i)).bits;
}

void cast_all_through(const RowPart& part, DType dtype, float* to) {
  for (int64_t i = 0; i < part.count; ++i) to[i] = gapless::cast_through(dtype, element(part, i));
}

}  // namespace

const RowLoops& row_loops() {
  static constexpr RowLoops kLoops = {.largest_magnitude = largest_magnitude,
                                      .quantize = quantize,
                                      .cast_to_bf16 = cast_to_bf16_bits,
                                      .cast_through = cast_all_through};
  return kLoops;
}

}  // namespace gapless::portable
