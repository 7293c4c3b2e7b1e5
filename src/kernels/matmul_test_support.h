// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the matmul share: a matmul with random operands in plain and in packed form,
// and ways to run it in memory that ends where its views do.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernel_test_support.h"
#include "kernels/matmul.h"
#include "kernels/matmul_reference.h"

namespace gapless {

inline constexpr DType kWeightTypes[] = {DType::kS8, DType::kBf16, DType::kF16, DType::kF32};
inline constexpr DType kFloatTypes[] = {DType::kBf16, DType::kF16, DType::kF32};
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Packed rows in three arrays, each of which ends (or begins) where memory does. The data is then
// aligned to 4 bytes only, which is all that packing and the kernels need.
struct GuardedRows {
  GuardedRows(DType weights, CpuLevel level, int64_t m, int64_t k, GuardSide side = GuardSide::kEnd)
      : data(packed_rows_bytes(weights, level, m, k), side), scales(m, side), sums(m, side) {
    rows = packed_rows_in(data.data(), weights, level, m, k);
    rows.scales = weights == DType::kS8 ? scales.data() : nullptr;
    rows.sums = weights == DType::kS8 ? sums.data() : nullptr;
    std::memset(data.data(), 0xa5, static_cast<size_t>(data.size()));
  }
  GuardedArray<std::byte> data;
  GuardedArray<float> scales;
  GuardedArray<int32_t> sums;
  PackedRows rows;
};

// Rows of y that are `gap` elements apart; the last one ends where memory does.
class GuardedOutput {
 public:
  GuardedOutput(DType dtype, int64_t m, int64_t n, int64_t gap)
      : dtype_(dtype), m_(m), n_(n), stride_(n + gap), bytes_((count()) * dtype_bytes(dtype)) {
    std::memset(bytes_.data(), kPattern, static_cast<size_t>(bytes_.size()));
  }
  MatmulOutput output() const {
    return {.dtype = dtype_, .data = bytes_.data(), .row_stride = stride_};
  }
  // [m][n], without the gaps.
  std::vector<float> values() const {
    std::vector<float> values;
    for (int64_t row = 0; row < m_; ++row)
      for (int64_t column = 0; column < n_; ++column)
        values.push_back(load_as_float(dtype_, bytes_.data(), row * stride_ + column));
    return values;
  }
  bool has_untouched_gaps() const {
    for (int64_t i = 0; i < count(); ++i) {
      if (i % stride_ < n_) continue;
      const std::byte* element = bytes_.data() + i * dtype_bytes(dtype_);
      for (int64_t byte = 0; byte < dtype_bytes(dtype_); ++byte)
        if (element[byte] != std::byte{kPattern}) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kPattern = 0xa5;
  int64_t count() const { return (m_ - 1) * stride_ + n_; }
  DType dtype_;
  int64_t m_;
  int64_t n_;
  int64_t stride_;
  GuardedArray<std::byte> bytes_;
};

struct MatmulShape {
  DType weights = DType::kF32;
  int64_t m = 1;
  int64_t k = 1;
  int64_t n = 1;
  Interleave interleave = Interleave::kNone;
  bool is_positive = false;  // all products: sums then grow with every k
  uint32_t seed = 1;
};

inline std::string shape_text(const MatmulShape& shape, CpuLevel level) {
  return std::string(cpu_level_name(level)) + ": " + std::string(dtype_name(shape.weights)) +
         " m " + std::to_string(shape.m) + " k " + std::to_string(shape.k) + " n " +
         std::to_string(shape.n) + (shape.interleave == Interleave::kPairs ? " pairs" : "");
}

// Operands as plain arrays, which a test may change before it calls pack().
struct MatmulCase {
  MatmulShape shape;
  std::vector<float> x;              // [m][k]
  std::vector<float> values[2];      // [n][k], of the weights' type; the second one of a pair
  std::vector<int8_t> quantized[2];  // s8: [n][k]
  std::vector<float> scales[2];      // s8: [n]
  std::unique_ptr<PackedMatrix> matrix;

  explicit MatmulCase(const MatmulShape& of_shape) : shape(of_shape) {
    x = normal_values(shape.m * shape.k, shape.seed);
    for (int which = 0; which < matrix_count(); ++which) {
      const uint32_t seed = shape.seed + 1000 * static_cast<uint32_t>(which + 1);
      if (shape.weights == DType::kS8)
        fill_quantized(which, seed);
      else
        values[which] = normal_values(shape.n * shape.k, seed);
      for (float& value : values[which]) {
        if (shape.is_positive) value = std::abs(value);
        value = cast_through(shape.weights, value);
      }
    }
    if (shape.is_positive)
      for (float& value : x) value = std::abs(value);
    pack();
  }

  int matrix_count() const { return shape.interleave == Interleave::kPairs ? 2 : 1; }
  int64_t panel_step() const { return matrix_count(); }

  void pack() {
    Result<PackedMatrix> made =
        PackedMatrix::create(shape.weights, shape.n, shape.k, shape.interleave);
    GAPLESS_CHECK(made.has_value());
    matrix = std::make_unique<PackedMatrix>(std::move(made).value());
    for (int which = 0; which < matrix_count(); ++which) {
      if (shape.weights == DType::kS8)
        matrix->set_quantized_rows(0, shape.n, quantized[which].data(), scales[which].data(),
                                   which);
      else
        matrix->set_rows(0, shape.n, DType::kF32, values[which].data(), which);
    }
  }

  ReferenceWeights reference_weights(int which) const {
    return {.dtype = shape.weights,
            .values = values[which].data(),
            .quantized = quantized[which].data(),
            .scales = scales[which].data()};
  }
  // Of one matrix, without an epilogue.
  MatmulReferenceArgs reference(int which = 0) const {
    return {.m = shape.m,
            .k = shape.k,
            .n = shape.n,
            .x = x.data(),
            .weights = reference_weights(which)};
  }

 private:
  void fill_quantized(int which, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> distribution(-127, 127);
    for (int64_t i = 0; i < shape.n * shape.k; ++i)
      quantized[which].push_back(static_cast<int8_t>(distribution(random)));
    scales[which] = uniform_values(shape.n, 0.001f, 0.02f, seed + 1);
  }
};

struct RunOptions {
  DType output = DType::kF32;
  const float* row_factor = nullptr;  // [m]
  const float* residual = nullptr;    // [m][n]
  int64_t gap = 0;                    // between rows of y, and of the residual
  int64_t panels_per_tile = 0;        // 0: all in one
};

// Rows `gap` elements apart, NaN between them.
inline GuardedArray<float> spread_rows(const float* rows, int64_t m, int64_t n, int64_t gap) {
  std::vector<float> spread(static_cast<size_t>((m - 1) * (n + gap) + n), kNan);
  for (int64_t row = 0; row < m; ++row)
    std::copy_n(rows + row * n, n, spread.begin() + row * (n + gap));
  return GuardedArray<float>(std::span<const float>(spread));
}

inline void run_tiles(CpuLevel level, const MatmulArgs& args, int64_t panels_per_tile) {
  const int64_t panels = args.weights->panel_count();
  const int64_t step = panels_per_tile == 0 ? panels : panels_per_tile;
  for (int64_t panel = 0; panel < panels; panel += step)
    matmul_tile(level, args, panel, std::min(step, panels - panel));
}

// Packs the rows, runs all tiles and gives y as [m][n].
inline std::vector<float> run_matmul(CpuLevel level, const MatmulCase& of_case,
                                     const RunOptions& options = {}) {
  const MatmulShape& shape = of_case.shape;
  const GuardedRows rows(shape.weights, level, shape.m, shape.k);
  pack_rows(level, {.data = of_case.x.data(), .row_stride = shape.k}, 0, shape.m, rows.rows);
  const GuardedOutput y(options.output, shape.m, shape.n, options.gap);
  MatmulArgs args = {.weights = of_case.matrix.get(), .rows = rows.rows, .output = y.output()};
  args.output.row_factor = options.row_factor;
  const std::vector<float> no_residual(static_cast<size_t>(shape.m * shape.n));
  const GuardedArray<float> residual =
      spread_rows(options.residual == nullptr ? no_residual.data() : options.residual, shape.m,
                  shape.n, options.gap);
  if (options.residual != nullptr) {
    args.output.residual = residual.data();
    args.output.residual_stride = shape.n + options.gap;
  }
  const Result<void> fits = check_matmul(level, args);
  EXPECT_TRUE(fits.has_value()) << fits.error().message;
  run_tiles(level, args, options.panels_per_tile);
  EXPECT_TRUE(y.has_untouched_gaps());
  return y.values();
}

// Equal bits, or both NaN.
inline bool is_same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

inline testing::AssertionResult all_same(std::span<const float> actual,
                                         std::span<const float> expected) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure() << actual.size() << " elements, not " << expected.size();
  for (size_t i = 0; i < actual.size(); ++i)
    if (!is_same_float(actual[i], expected[i]))
      return testing::AssertionFailure()
             << "element " << i << " is " << actual[i] << ", not " << expected[i];
  return testing::AssertionSuccess();
}

}  // namespace gapless
