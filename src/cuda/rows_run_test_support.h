// SPDX-License-Identifier: Apache-2.0
//
// A batch of rows for a matmul (launch_rows) on both sides, and what its results must be: the CPU's
// bit for bit where the formula has no sum in it, else within a bound of double precision.

#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "cuda/rows.h"
#include "cuda/rows_test_support.h"
#include "kernels/norm_reference.h"
#include "kernels/packed_rows.h"

namespace gapless::rows_test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kEps = 1e-6f;

enum class Norm { kNone, kNow, kDeferred };

struct RowsCase {
  int rows = 1;
  int64_t k = 0;
  int64_t x_gap = 0;  // NaN behind each row of x
  Norm norm = Norm::kNone;
  DType dtype = DType::kBf16;
  bool is_gathered = false;  // the last row of x first
  bool is_whole = false;     // not in parts
  int64_t y_gap = 64;        // zeros behind each row of y, and more up to a multiple of 64
};

inline std::string name_of(const RowsCase& c) {
  const char* const norms[] = {"plain", "normed", "deferred"};
  return std::string(dtype_name(c.dtype)) + " " + norms[static_cast<int>(c.norm)] + ", " +
         std::to_string(c.rows) + " rows of " + std::to_string(c.k) + " + " +
         std::to_string(c.x_gap) + (c.is_gathered ? ", gathered" : "") +
         (c.is_whole ? ", whole" : "");
}

// One row of the result.
struct RowResult {
  std::vector<float> y;  // as f32; s8: the integers
  float factor = 0.0f;
};

// A batch of rows, on both sides.
class RowsRun {
 public:
  explicit RowsRun(const RowsCase& c)
      : c_(c),
        x_(random_floats(c.rows * x_stride(), static_cast<uint64_t>(c.k) + 1)),
        gamma_(random_floats(c.k, 7)) {
    for (int64_t row = 0; row < c.rows; ++row) {
      // Rows of very different sizes.
      for (int64_t i = 0; i < c.k; ++i) at(row, i) *= std::ldexp(1.0f, static_cast<int>(row % 9));
      for (int64_t i = c.k; i < x_stride(); ++i) at(row, i) = kNan;
    }
  }

  float& at(int64_t row, int64_t i) { return x_[static_cast<size_t>(row * x_stride() + i)]; }
  std::span<const float> row(int64_t index) const {
    const int64_t source = c_.is_gathered ? c_.rows - 1 - index : index;
    return std::span(x_).subspan(static_cast<size_t>(source * x_stride()),
                                 static_cast<size_t>(c_.k));
  }
  const std::vector<float>& gamma() const { return gamma_; }
  float& gamma_at(int64_t i) { return gamma_[static_cast<size_t>(i)]; }

  // The launch is started `times` times.
  std::vector<RowResult> run(const CudaRowsLaunch& launch = {}, int times = 1) const {
    const DeviceArray<float> x(x_);
    const DeviceArray<float> gamma(gamma_);
    std::vector<int32_t> order(static_cast<size_t>(c_.rows));
    std::iota(order.rbegin(), order.rend(), 0);
    const DeviceArray<int32_t> row_of(order);
    const int64_t bytes = c_.rows * k_stride() * dtype_bytes(c_.dtype);
    const DeviceArray<std::byte> y = DeviceArray<std::byte>::poisoned(bytes);
    const DeviceArray<float> factors = DeviceArray<float>::poisoned(c_.rows);
    const CudaRowsArgs args = {.x = x.data(),
                               .x_stride = x_stride(),
                               .row_of = c_.is_gathered ? row_of.data() : nullptr,
                               .rows = c_.rows,
                               .k = c_.k,
                               .gamma = c_.norm == Norm::kNone ? nullptr : gamma.data(),
                               .eps = kEps,
                               .is_deferred = c_.norm == Norm::kDeferred,
                               .dtype = c_.dtype,
                               .y = y.data(),
                               .k_stride = k_stride(),
                               .factors = factors.data(),
                               .is_whole = c_.is_whole};
    for (int i = 0; i < times; ++i)
      EXPECT_EQ(rows_error(launch_rows(args, launch)), "") << name_of(c_);
    return results_of(y.values(), factors.values());
  }

 private:
  int64_t x_stride() const { return c_.k + c_.x_gap; }
  int64_t k_stride() const { return (c_.k + c_.y_gap + 63) / 64 * 64; }

  std::vector<RowResult> results_of(const std::vector<std::byte>& y,
                                    const std::vector<float>& factors) const {
    std::vector<RowResult> results;
    for (int64_t row = 0; row < c_.rows; ++row) {
      RowResult result;
      result.factor = factors[static_cast<size_t>(row)];
      for (int64_t i = 0; i < k_stride(); ++i) {
        const float value = element(y, row * k_stride() + i);
        if (i < c_.k) {
          result.y.push_back(value);
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(value), 0u) << name_of(c_) << ": behind row " << row;
        }
      }
      results.push_back(std::move(result));
    }
    return results;
  }
  float element(const std::vector<std::byte>& y, int64_t index) const {
    const size_t i = static_cast<size_t>(index);
    if (c_.dtype == DType::kS8) return static_cast<float>(static_cast<int8_t>(y[i]));
    return load_as_float<DType::kBf16>(y.data(), index);
  }

  RowsCase c_;
  std::vector<float> x_;
  std::vector<float> gamma_;
};

inline bool is_same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}
inline bool is_same(const RowResult& a, const RowResult& b) {
  if (a.y.size() != b.y.size() || !is_same(a.factor, b.factor)) return false;
  for (size_t i = 0; i < a.y.size(); ++i) {
    if (!is_same(a.y[i], b.y[i])) return false;
  }
  return true;
}

// The CPU's quantised row, with gamma or without; the factor is the scale.
inline RowResult quantised(std::span<const float> x, const float* gamma) {
  const int64_t k = static_cast<int64_t>(x.size());
  const CpuLevel level = CpuLevel::kPortable;
  std::vector<std::byte> block(
      static_cast<size_t>(packed_rows_block_bytes(DType::kS8, level, 1, k)));
  const PackedRows rows = packed_rows_in(block.data(), DType::kS8, level, 1, k);
  pack_rows(level, {.data = x.data(), .row_stride = k, .gamma = gamma}, 0, 1, rows);
  RowResult result;
  result.factor = rows.scales[0];
  for (int64_t i = 0; i < k; ++i)
    result.y.push_back(static_cast<float>(static_cast<int8_t>(rows.data[i])));
  return result;
}

// Plain and deferred rows: no sum reaches the elements, so they are those of the CPU.
inline void expect_cpu_elements(const RowsCase& c, const RowsRun& run, const RowResult& result,
                                int64_t row) {
  const float* gamma = c.norm == Norm::kDeferred ? run.gamma().data() : nullptr;
  const std::span<const float> x = run.row(row);
  double factor = c.norm == Norm::kDeferred ? inverse_rms_reference(x, kEps) : 1.0;
  const RowResult packed = quantised(x, gamma);
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = gamma == nullptr ? x[i] : x[i] * gamma[i];
    const float expected = c.dtype == DType::kS8 ? packed.y[i] : to_float(to_bf16(value));
    ASSERT_TRUE(is_same(result.y[i], expected)) << name_of(c) << ": row " << row << " element " << i
                                                << " is " << result.y[i] << ", not " << expected;
  }
  if (c.dtype == DType::kS8) factor *= static_cast<double>(packed.factor);
  if (c.dtype == DType::kS8 && c.norm == Norm::kNone) {
    EXPECT_EQ(result.factor, packed.factor) << name_of(c);
  } else if (c.norm == Norm::kDeferred) {
    EXPECT_NEAR(result.factor, factor, 2e-6 * factor) << name_of(c) << ": row " << row;
  } else {
    EXPECT_TRUE(std::isnan(result.factor)) << name_of(c) << ": a factor that nobody asked for";
  }
}

// The factor is within 1e-6 (sums of squares have no cancellation), a cast to bf16 within 2^-8, an
// s8 within half a step.
inline void expect_normed(const RowsCase& c, const RowsRun& run, const RowResult& result,
                          int64_t row) {
  const std::vector<double> expected = rms_norm_reference(run.row(row), run.gamma(), kEps);
  double amax = 0.0;
  for (const double value : expected) amax = std::max(amax, std::abs(value));
  const double scale = amax / 127.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = static_cast<double>(result.y[i]);
    if (c.dtype == DType::kS8) {
      ASSERT_NEAR(value, expected[i] / scale, 0.501) << name_of(c) << ": row " << row << " " << i;
    } else {
      ASSERT_NEAR(value, expected[i], 0.00392 * std::abs(expected[i]))
          << name_of(c) << ": row " << row << " " << i;
    }
  }
  if (c.dtype == DType::kS8) {
    EXPECT_NEAR(result.factor, scale, 2e-6 * scale) << name_of(c) << ": row " << row;
  } else {
    EXPECT_TRUE(std::isnan(result.factor)) << name_of(c) << ": a factor that nobody asked for";
  }
}

// Of a row of the case, whichever its norm.
inline void expect_row(const RowsCase& c, const RowsRun& run, const RowResult& result,
                       int64_t row) {
  if (c.norm == Norm::kNow) {
    expect_normed(c, run, result, row);
  } else {
    expect_cpu_elements(c, run, result, row);
  }
}

inline void expect_right(const RowsCase& c) {
  const RowsRun run(c);
  const std::vector<RowResult> results = run.run();
  const std::vector<RowResult> again = run.run({.starts_early = true, .lets_next_start = true});
  for (int64_t row = 0; row < c.rows; ++row) {
    const RowResult& result = results[static_cast<size_t>(row)];
    expect_row(c, run, result, row);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_TRUE(is_same(result, again[static_cast<size_t>(row)])) << name_of(c) << ": run again";
  }
}

inline constexpr Norm kNorms[] = {Norm::kNone, Norm::kNow, Norm::kDeferred};
inline constexpr DType kDTypes[] = {DType::kBf16, DType::kS8};

}  // namespace gapless::rows_test
