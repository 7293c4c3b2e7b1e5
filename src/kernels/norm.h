// SPDX-License-Identifier: Apache-2.0
//
// RMS norm, per-head QK norm and rotary position embedding (NeoX halves), on f32 rows.
//
// Everything is f32; a row's squares are summed in an order that depends on CpuLevel and k only.
// The sum overflows for rows beyond about 1e19, whose factor is then 0. An infinity in a row does
// the same: the row becomes zeros, and NaN where the infinity was. A NaN makes all of it NaN.

#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/cpu_level.h"

namespace gapless {

// 1 / sqrt(mean(x^2) + eps) of one row, k > 0.
float inverse_rms(CpuLevel level, const float* x, int64_t k, float eps);

// y = x * inverse_rms(x) * gamma, cast to `dtype` (kF32, kBf16 or kF16). y may be x when kF32.
void rms_norm(CpuLevel level, const float* x, const float* gamma, int64_t k, float eps, DType dtype,
              void* y);
// With the factor put off past a projection (it is linear): y = x * gamma, cast; the result is the
// factor, for MatmulOutput::row_factor. y may be x when kF32. Not the same where a cast has an end:
// x * gamma may leave the range of f16 although the normed value is in it, and s8 rows clamp the
// amax of x * gamma at 1e-4, not that of the normed row.
float rms_norm_deferred(CpuLevel level, const float* x, const float* gamma, int64_t k, float eps,
                        DType dtype, void* y);

// cos and sin of position * theta^(-2 i / head_dim) for i < head_dim / 2, computed in double.
class RopeTable {
 public:
  RopeTable() = default;
  // head_dim is even.
  RopeTable(double theta, int head_dim, int64_t position_count);
  int head_dim() const { return head_dim_; }
  int64_t position_count() const { return position_count_; }
  const float* cos(int64_t position) const { return values_.data() + position * head_dim_; }
  const float* sin(int64_t position) const { return cos(position) + head_dim_ / 2; }

 private:
  int head_dim_ = 0;
  int64_t position_count_ = 0;
  std::vector<float> values_;  // [position][cos half, sin half]
};

// Turns head h (of `head_count`, `head_dim` floats each, `stride` apart in x and y) by the
// position's angles: (a, b) -> (a cos - b sin, b cos + a sin) with a from the first half of the
// head, b from the second. cos and sin: [head_dim / 2], the same for all heads. y may be x.
void rope(CpuLevel level, const float* x, int head_count, int head_dim, int64_t stride,
          const float* cos, const float* sin, float* y);

// Each head: x * factor, RMS norm over head_dim times gamma ([head_dim], shared by the heads), then
// rope. With cos == nullptr only the norm. The fused form of the two above and gives the same bits
// as the two in turn. y may be x.
struct HeadNorm {
  int head_count = 0;
  int head_dim = 0;  // even
  int64_t stride = 0;
  const float* gamma = nullptr;
  float eps = 0.0f;
  float factor = 1.0f;  // the 1/rms of the token's row when it was put off
  const float* cos = nullptr;
  const float* sin = nullptr;
};
void norm_heads(CpuLevel level, const HeadNorm& args, const float* x, float* y);

}  // namespace gapless
