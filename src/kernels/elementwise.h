// SPDX-License-Identifier: Apache-2.0
//
// The element by element operations of a layer: SiLU(gate) x up, residual, embedding rows, casts.
//
// Casts, sums and gathers give the same bits at every level; exp and SiLU differ within their
// bounds between the portable form and the others (elementwise_test.cc).

#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu_level.h"

namespace gapless {

// y = g * sigmoid(g) * u with g = gate * factor and u = up * factor (both f32), cast to `dtype`
// (kF32, kBf16 or kF16). SiLU of large negative numbers is -0, of infinity infinity, of -infinity
// a NaN, as is -infinity times a sigmoid of 0. y may be gate or up when kF32.
void silu_multiply(CpuLevel level, const float* gate, const float* up, float factor, int64_t count,
                   DType dtype, void* y);
// y = x + delta. y may be either.
void add_rows(CpuLevel level, const float* x, const float* delta, int64_t count, float* y);
// Casts between kF32, kBf16 and kF16, one of the two being kF32.
void cast_row(CpuLevel level, DType from, const void* x, int64_t count, DType to, void* y);
// Row `token` of a [vocabulary][k] table as f32. The caller has checked the token.
void gather_embedding(CpuLevel level, DType table_dtype, const void* table, int64_t token,
                      int64_t k, float* y);
// y = e^x. What is below the smallest normal float may be 0. y may be x.
void exp_row(CpuLevel level, const float* x, int64_t count, float* y);

}  // namespace gapless
