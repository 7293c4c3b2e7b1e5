// SPDX-License-Identifier: Apache-2.0
//
// y = x W^T as the matmul's contract says it, element by element, for tests.
//
// Only the cast points are f32: x times gamma, its cast to the weights' type, its quantisation.
// Sums are double (s8: exact integers), and so is all that follows; y is not cast.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace gapless {

// An activation row as s8 (packed_rows.h): amax = max(max |x|, 1e-4) and 127 / amax in f32,
// q = x * (127 / amax) rounded to nearest even, within +-127. A row that is not finite has zeros
// and the scale NaN.
struct QuantizedRow {
  std::vector<int8_t> values;
  float scale = 0.0f;
  int32_t sum = 0;
};
QuantizedRow quantize_row_reference(std::span<const float> row);

// Row-major weights: [n][k] values of type `dtype`, or [n][k] s8 and a scale for each row.
struct ReferenceWeights {
  DType dtype = DType::kF32;
  const float* values = nullptr;
  const int8_t* quantized = nullptr;  // kS8
  const float* scales = nullptr;      // kS8: [n]
};

struct MatmulReferenceArgs {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  const float* x = nullptr;      // [m][k]
  const float* gamma = nullptr;  // [k] or nothing
  ReferenceWeights weights;
  const ReferenceWeights* up = nullptr;  // or nothing; then `weights` is the gate
  const float* row_factor = nullptr;     // [m] or nothing
  const float* residual = nullptr;       // [m][n] or nothing
};

// y: [m][n], before the cast to the output's type.
std::vector<double> matmul_reference(const MatmulReferenceArgs& args);

// sum |x| |w|, scales and row_factor included: what the error of a sum in f32 is measured by. Of
// `weights` alone, without `up` and `residual`.
std::vector<double> matmul_magnitudes(const MatmulReferenceArgs& args);

}  // namespace gapless
