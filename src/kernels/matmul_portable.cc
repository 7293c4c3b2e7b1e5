// SPDX-License-Identifier: Apache-2.0
//
// The matmul without vector instructions: the order of additions is that of the 512-bit form with
// multiply-adds, one k after the other.

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/matmul_levels.h"

namespace gapless::portable {
namespace {

constexpr int kS8Bias = 128;

template <typename T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Where a row's elements of line 0 begin, and how far apart its units of 4 bytes are.
struct RowUnits {
  const std::byte* first = nullptr;
  int64_t stride = 0;
};
RowUnits row_units(const PanelSums& job, int64_t row, int64_t units_a_line) {
  const int64_t group = row / kRowGroup * kRowGroup;
  const int64_t group_rows = job.m - group < kRowGroup ? job.m - group : kRowGroup;
  return {job.rows + (group * job.panel_lines * units_a_line + (row - group)) * 4, group_rows * 4};
}

void sum_s8(const PanelSums& job, const std::byte* panel, int64_t row, std::byte* sums) {
  const RowUnits units = row_units(job, row, 1);
  int32_t sum[kPanelRows] = {};
  for (int64_t line = job.first_line; line < job.first_line + job.line_count; ++line) {
    const std::byte* weights = panel + line * kLineBytes;
    const std::byte* elements = units.first + line * units.stride;
    for (int column = 0; column < kPanelRows; ++column)
      for (int i = 0; i < 4; ++i)
        sum[column] += static_cast<int>(weights[column * 4 + i]) * read_as<int8_t>(elements + i);
  }
  std::memcpy(sums, sum, sizeof(sum));
}

// Element (line, step) of column: bf16 pairs lie side by side, f16 and f32 column after column.
float weight(DType dtype, const std::byte* line, int step, int column) {
  if (dtype == DType::kBf16) return to_float(read_as<Bf16>(line + (column * 2 + step) * 2));
  if (dtype == DType::kF16) return to_float(read_as<F16>(line + (step * kPanelRows + column) * 2));
  return read_as<float>(line + column * 4);
}

void sum_floats(const PanelSums& job, const std::byte* panel, int64_t row, std::byte* sums) {
  const int steps = line_k(job.weights);
  const RowUnits units = row_units(job, row, steps);
  float sum[kPanelRows] = {};
  for (int64_t line = job.first_line; line < job.first_line + job.line_count; ++line) {
    for (int step = 0; step < steps; ++step) {
      const float element = read_as<float>(units.first + (line * steps + step) * units.stride);
      for (int column = 0; column < kPanelRows; ++column)
        sum[column] += weight(job.weights, panel + line * kLineBytes, step, column) * element;
    }
  }
  std::memcpy(sums, sum, sizeof(sum));
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }

// One element of y before SiLU, residual and cast.
float finished_sum(const PanelOutput& job, int panel, int64_t row, int column) {
  const int64_t at = (panel * job.m + row) * kPanelRows + column;
  float sum = 0.0f;
  if (job.is_s8) {
    int32_t exact = -kS8Bias * job.row_sums[row];
    for (int slice = 0; slice < job.slice_count; ++slice)
      exact += static_cast<const int32_t*>(job.sums[slice])[at];
    sum = static_cast<float>(exact) * job.panel_scales[panel * kPanelRows + column] *
          job.row_scales[row];
  } else {
    sum = static_cast<const float*>(job.sums[0])[at];
    for (int slice = 1; slice < job.slice_count; ++slice)
      sum += static_cast<const float*>(job.sums[slice])[at];
  }
  return job.output.row_factor == nullptr ? sum : sum * job.output.row_factor[row];
}

void store(const MatmulOutput& output, int64_t row, int64_t column, float value) {
  if (output.residual != nullptr) value += output.residual[row * output.residual_stride + column];
  store_from_float(output.dtype, output.data, row * output.row_stride + column, value);
}

}  // namespace

void sum_panels(const PanelSums& job) {
  std::byte* sums = static_cast<std::byte*>(job.sums);
  for (int panel = 0; panel < job.panel_count; ++panel) {
    for (int64_t row = 0; row < job.m; ++row, sums += kLineBytes) {
      const std::byte* lines = job.panels + panel * job.panel_stride;
      if (job.weights == DType::kS8)
        sum_s8(job, lines, row, sums);
      else
        sum_floats(job, lines, row, sums);
    }
  }
}

void finish_panels(const PanelOutput& job) {
  const int step = job.is_pair ? 2 : 1;
  for (int64_t row = 0; row < job.m; ++row) {
    for (int panel = 0; panel < job.panel_count; panel += step) {
      const int64_t done = panel / step * kPanelRows;
      const int64_t left = job.columns_left - done;
      for (int column = 0; column < kPanelRows && column < left; ++column) {
        float y = finished_sum(job, panel, row, column);
        if (job.is_pair) y = silu(y) * finished_sum(job, panel + 1, row, column);
        store(job.output, row, job.first_column + done + column, y);
      }
    }
  }
}

}  // namespace gapless::portable
