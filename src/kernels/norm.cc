// SPDX-License-Identifier: Apache-2.0

#include "kernels/norm.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "kernels/norm_levels.h"

namespace gapless {
namespace {

const NormForms& forms_of(CpuLevel level) {
#if defined(__x86_64__)
  switch (level) {
    case CpuLevel::kAvx512Bf16:
    case CpuLevel::kAvx512:
      return avx512::kNormForms;
    case CpuLevel::kAvx2Vnni:
    case CpuLevel::kAvx2:
      return avx2::kNormForms;
    case CpuLevel::kPortable:
      break;
  }
#else
  static_cast<void>(level);
#endif
  return portable::kNormForms;
}

constexpr bool is_output_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}

}  // namespace

float inverse_rms(CpuLevel level, const float* x, int64_t k, float eps) {
  GAPLESS_CHECK(k > 0);
  return inverse_root_of_mean(forms_of(level).sum_squares(x, k), k, eps);
}

void rms_norm(CpuLevel level, const float* x, const float* gamma, int64_t k, float eps, DType dtype,
              void* y) {
  GAPLESS_CHECK(is_output_dtype(dtype));
  forms_of(level).scale_row(x, inverse_rms(level, x, k, eps), gamma, k, dtype, y);
}

float rms_norm_deferred(CpuLevel level, const float* x, const float* gamma, int64_t k, float eps,
                        DType dtype, void* y) {
  GAPLESS_CHECK(k > 0);
  GAPLESS_CHECK(is_output_dtype(dtype));
  return inverse_root_of_mean(forms_of(level).multiply_row(x, gamma, k, dtype, y), k, eps);
}

RopeTable::RopeTable(double theta, int head_dim, int64_t position_count)
    : head_dim_(head_dim),
      position_count_(position_count),
      values_(static_cast<size_t>(position_count * head_dim)) {
  GAPLESS_CHECK(head_dim % 2 == 0);
  const size_t half = static_cast<size_t>(head_dim / 2);
  std::vector<double> frequencies(half);
  for (size_t i = 0; i < half; ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / head_dim);
  }
  float* row = values_.data();
  for (int64_t position = 0; position < position_count; ++position, row += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void rope(CpuLevel level, const float* x, int head_count, int head_dim, int64_t stride,
          const float* cos, const float* sin, float* y) {
  GAPLESS_CHECK(head_dim % 2 == 0);
  const NormForms& forms = forms_of(level);
  for (int64_t head = 0; head < head_count; ++head) {
    forms.rope_head(x + head * stride, head_dim, cos, sin, y + head * stride);
  }
}

void norm_heads(CpuLevel level, const HeadNorm& args, const float* x, float* y) {
  GAPLESS_CHECK(args.head_dim > 0);
  GAPLESS_CHECK(args.head_dim % 2 == 0);
  forms_of(level).norm_heads(args, x, y);
}

}  // namespace gapless
