// SPDX-License-Identifier: Apache-2.0
//
// NormForms: what each CpuLevel brings to norm.cc.

#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/norm.h"

namespace gapless {

struct NormForms {
  float (*sum_squares)(const float* x, int64_t k);
  // y = x * factor * gamma.
  void (*scale_row)(const float* x, float factor, const float* gamma, int64_t k, DType dtype,
                    void* y);
  // y = x * gamma; the result is the sum of the squares of x, bit for bit that of sum_squares.
  float (*multiply_row)(const float* x, const float* gamma, int64_t k, DType dtype, void* y);
  void (*rope_head)(const float* x, int head_dim, const float* cos, const float* sin, float* y);
  void (*norm_heads)(const HeadNorm& args, const float* x, float* y);
};

namespace portable {
extern const NormForms kNormForms;
}
namespace avx2 {
extern const NormForms kNormForms;
}
namespace avx512 {
extern const NormForms kNormForms;
}

// Static, like everything that files of several levels share: one copy for each level.
[[gnu::always_inline]] static inline float inverse_root_of_mean(float sum, int64_t count,
                                                                float eps) {
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(count) + eps);
}

}  // namespace gapless
