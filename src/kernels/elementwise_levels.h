// SPDX-License-Identifier: Apache-2.0
//
// ElementwiseForms: what each CpuLevel brings to elementwise.cc.

#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace gapless {

struct ElementwiseForms {
  void (*silu_multiply)(const float* gate, const float* up, float factor, int64_t count,
                        DType dtype, void* y);
  void (*add_rows)(const float* x, const float* delta, int64_t count, float* y);
  void (*cast_to_f32)(DType from, const void* x, int64_t count, float* y);
  void (*cast_from_f32)(const float* x, int64_t count, DType to, void* y);
  void (*exp_row)(const float* x, int64_t count, float* y);
};

namespace portable {
extern const ElementwiseForms kElementwiseForms;
}
namespace avx2 {
extern const ElementwiseForms kElementwiseForms;
}
namespace avx512 {
extern const ElementwiseForms kElementwiseForms;
}

}  // namespace gapless
