// SPDX-License-Identifier: Apache-2.0
//
// The loops over contiguous elements that packing a row is made of.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace gapless {

// Elements of a row: `data[i]` as f32, times gamma[i] when there is one.
struct RowPart {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  const float* gamma = nullptr;
  int64_t count = 0;
};

struct RowLoops {
  // The bits of the largest |x|; those of an infinity or a NaN are larger than all others.
  uint32_t (*largest_magnitude)(const RowPart& part);
  // rint(x * inverse), within +-127; returns the sum.
  int32_t (*quantize)(const RowPart& part, float inverse, int8_t* to);
  void (*cast_to_bf16)(const RowPart& part, uint16_t* to);
  // To kBf16, kF16 or kF32 and back.
  void (*cast_through)(const RowPart& part, DType dtype, float* to);
};

namespace portable {
const RowLoops& row_loops();
}
#if defined(__x86_64__)
namespace avx2 {
const RowLoops& row_loops();
}
namespace avx512 {
const RowLoops& row_loops();
}
#endif

}  // namespace gapless
