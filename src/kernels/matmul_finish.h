// SPDX-License-Identifier: Apache-2.0
//
// The matmul's epilogue, for any width of vector: V names the vector's floats and what it does
// with sums of either type. For level files only: everything is in an anonymous namespace.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul_levels.h"

namespace gapless {
namespace {

constexpr int kS8Bias = 128;  // what packed_matrix.h adds to a weight

// What stays the same over all the columns of a row.
struct RowFinish {
  int64_t row = 0;
  int32_t bias = 0;  // s8: what the weights' bias added to each sum
  float scale = 1.0f;
  float factor = 1.0f;
};

template <bool kIsS8>
RowFinish row_finish(const PanelOutput& job, int64_t row) {
  RowFinish finish = {.row = row};
  if constexpr (kIsS8) {
    finish.bias = kS8Bias * job.row_sums[row];
    finish.scale = job.row_scales[row];
  }
  if (job.output.row_factor != nullptr) finish.factor = job.output.row_factor[row];
  return finish;
}

// The sums of all slices of V::kLanes columns of a panel, as floats, scaled.
template <typename V, bool kIsS8>
[[gnu::always_inline]] inline typename V::Floats finished_sums(const PanelOutput& job,
                                                               const RowFinish& finish, int panel,
                                                               int lane) {
  const int64_t at = (panel * job.m + finish.row) * kPanelRows + lane;
  typename V::Floats sums;
  if constexpr (kIsS8) {
    typename V::Integers exact = V::splat(-finish.bias);
    for (int slice = 0; slice < job.slice_count; ++slice)
      exact = V::add(exact, V::load(static_cast<const int32_t*>(job.sums[slice]) + at));
    const float* scales = job.panel_scales + panel * kPanelRows + lane;
    sums = V::to_floats(exact) * V::load(scales) * V::splat(finish.scale);
  } else {
    sums = V::load(static_cast<const float*>(job.sums[0]) + at);
    for (int slice = 1; slice < job.slice_count; ++slice)
      sums = sums + V::load(static_cast<const float*>(job.sums[slice]) + at);
  }
  return job.output.row_factor == nullptr ? sums : sums * V::splat(finish.factor);
}

template <typename V, bool kIsS8, bool kIsPair, DType kStored>
void finish_rows(const PanelOutput& job) {
  constexpr int kStep = kIsPair ? 2 : 1;
  const MatmulOutput& output = job.output;
  for (int64_t row = 0; row < job.m; ++row) {
    const RowFinish finish = row_finish<kIsS8>(job, row);
    for (int panel = 0; panel < job.panel_count; panel += kStep) {
      for (int lane = 0; lane < kPanelRows; lane += V::kLanes) {
        const int64_t done = panel / kStep * kPanelRows + lane;
        const int64_t left = job.columns_left - done;
        if (left <= 0) break;
        const int64_t column = job.first_column + done;
        typename V::Floats y = finished_sums<V, kIsS8>(job, finish, panel, lane);
        if constexpr (kIsPair) {
          const typename V::Floats silu = y / (V::splat(1.0f) + V::exp(-y));
          y = silu * finished_sums<V, kIsS8>(job, finish, panel + 1, lane);
        }
        if (output.residual != nullptr)
          y = y + V::load_left(output.residual + row * output.residual_stride + column, left);
        V::template store_left<kStored>(output.data, row * output.row_stride + column, left, y);
      }
    }
  }
}

template <typename V, bool kIsS8, bool kIsPair>
void finish_rows_stored(const PanelOutput& job) {
  switch (job.output.dtype) {
    case DType::kBf16:
      return finish_rows<V, kIsS8, kIsPair, DType::kBf16>(job);
    case DType::kF16:
      return finish_rows<V, kIsS8, kIsPair, DType::kF16>(job);
    default:
      return finish_rows<V, kIsS8, kIsPair, DType::kF32>(job);
  }
}

template <typename V>
void finish_panels_with(const PanelOutput& job) {
  if (job.is_s8)
    return job.is_pair ? finish_rows_stored<V, true, true>(job)
                       : finish_rows_stored<V, true, false>(job);
  return job.is_pair ? finish_rows_stored<V, false, true>(job)
                     : finish_rows_stored<V, false, false>(job);
}

}  // namespace
}  // namespace gapless
