// SPDX-License-Identifier: Apache-2.0

#include "kernels/elementwise.h"

#include <cstddef>

#include "base/check.h"
#include "kernels/elementwise_levels.h"

namespace gapless {
namespace {

const ElementwiseForms& forms_of(CpuLevel level) {
#if defined(__x86_64__)
  switch (level) {
    case CpuLevel::kAvx512Bf16:
    case CpuLevel::kAvx512:
      return avx512::kElementwiseForms;
    case CpuLevel::kAvx2Vnni:
    case CpuLevel::kAvx2:
      return avx2::kElementwiseForms;
    case CpuLevel::kPortable:
      break;
  }
#else
  static_cast<void>(level);
#endif
  return portable::kElementwiseForms;
}

constexpr bool is_float_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}

}  // namespace

void silu_multiply(CpuLevel level, const float* gate, const float* up, float factor, int64_t count,
                   DType dtype, void* y) {
  GAPLESS_CHECK(is_float_dtype(dtype));
  forms_of(level).silu_multiply(gate, up, factor, count, dtype, y);
}

void add_rows(CpuLevel level, const float* x, const float* delta, int64_t count, float* y) {
  forms_of(level).add_rows(x, delta, count, y);
}

void cast_row(CpuLevel level, DType from, const void* x, int64_t count, DType to, void* y) {
  GAPLESS_CHECK(is_float_dtype(from));
  GAPLESS_CHECK(is_float_dtype(to));
  GAPLESS_CHECK(from == DType::kF32 || to == DType::kF32);
  if (to == DType::kF32) {
    forms_of(level).cast_to_f32(from, x, count, static_cast<float*>(y));
  } else {
    forms_of(level).cast_from_f32(static_cast<const float*>(x), count, to, y);
  }
}

void gather_embedding(CpuLevel level, DType table_dtype, const void* table, int64_t token,
                      int64_t k, float* y) {
  const int64_t row_bytes = k * dtype_bytes(table_dtype);
  const std::byte* const row = static_cast<const std::byte*>(table) + token * row_bytes;
  cast_row(level, table_dtype, row, k, DType::kF32, y);
}

void exp_row(CpuLevel level, const float* x, int64_t count, float* y) {
  forms_of(level).exp_row(x, count, y);
}

}  // namespace gapless
