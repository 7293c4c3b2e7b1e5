// SPDX-License-Identifier: Apache-2.0
//
// Rows for a matmul whose parts are several blocks' (rows_parts.cuh): every form against the CPU
// and double precision, against whole rows, and with what one part must tell the others. On a
// device that does not cut rows the same is asked of whole ones. Without a GPU these are skipped
// and say so.

#include <cmath>
#include <cstdlib>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/code_version.h"
#include "cuda/rows.h"
#include "cuda/rows_launch.h"
#include "cuda/rows_run_test_support.h"

namespace gapless::rows_test {
namespace {

// The last k of each form and the first of the next.
constexpr int64_t kFormEdges[] = {2048, 2049, 5120, 5121, 10240, 10241, 20480, 20481};

class CudaRowPartsOnDevice : public CudaRowsOnDevice {};

TEST_F(CudaRowPartsOnDevice, LongRowsAreCutIntoPartsOnHopper) {
  const int capability = cuda_limits()->compute_capability;
  if (capability <= 90 && std::getenv("CUDA_FORCE_PTX_JIT") == nullptr) {
    EXPECT_EQ(runs_sm90_code(), capability == 90) << "the build has code for sm_80 and sm_90a";
  }
  for (const int64_t k : kFormEdges) {
    const int parts = !runs_sm90_code() || k <= 2048 ? 1 : k <= 5120 ? 4 : 8;
    EXPECT_EQ(rows_blocks({.rows = 3, .k = k}), 3 * parts) << k;
    EXPECT_EQ(rows_blocks({.rows = 3, .k = k, .is_whole = true}), 3) << k;
  }
  alignas(16) static float values[4] = {};
  const CudaRowsArgs args = {.x = values, .x_stride = 8192, .rows = -1, .k = 8192, .y = values};
  EXPECT_EQ(rows_error(launch_rows(args, {})),
            runs_sm90_code() ? "rows for a matmul of -1 rows; 0 to 268435455 can be done"
                             : "rows for a matmul of -1 rows; 0 to 2147483647 can be done");
}

TEST_F(CudaRowPartsOnDevice, RowsOfEveryFormAgree) {
  for (const DType dtype : kDTypes) {
    for (const Norm norm : kNorms) {
      for (const int64_t k : kFormEdges) {
        const int rows = k <= 10241 ? 2 : 1;
        expect_right({.rows = rows, .k = k, .norm = norm, .dtype = dtype, .is_gathered = true});
      }
      // Rows that do not begin at 16 bytes, the last vector of which is not whole.
      for (const int64_t k : {2050, 5123, 10242, 20483}) {
        expect_right({.rows = 1, .k = k, .x_gap = 2, .norm = norm, .dtype = dtype});
      }
      // Zeros behind what the threads of all parts hold.
      expect_right({.rows = 2, .k = 2052, .norm = norm, .dtype = dtype, .y_gap = 9000});
      expect_right({.rows = 2, .k = 5124, .norm = norm, .dtype = dtype, .y_gap = 20'000});
      if (HasFatalFailure()) return;
    }
  }
}

// Only sums may differ, and those in the last bits: a rounding may go the other way by one step.
void expect_nearly_same(const RowsCase& c, const RowResult& parts, const RowResult& whole) {
  if (c.norm == Norm::kNone) {
    EXPECT_TRUE(is_same(parts, whole)) << name_of(c);
    return;
  }
  ASSERT_EQ(std::isnan(parts.factor), std::isnan(whole.factor)) << name_of(c);
  if (!std::isnan(whole.factor)) {
    EXPECT_NEAR(parts.factor, whole.factor, 2e-6f * whole.factor) << name_of(c);
  }
  for (size_t i = 0; i < whole.y.size(); ++i) {
    const float step = c.norm == Norm::kDeferred ? 0.0f
                       : c.dtype == DType::kS8   ? 1.0f
                                                 : std::abs(whole.y[i]) / 128.0f;
    ASSERT_NEAR(parts.y[i], whole.y[i], step) << name_of(c) << ": element " << i;
  }
}

TEST_F(CudaRowPartsOnDevice, PartsAndWholeRowsAreNearlyTheSame) {
  for (const DType dtype : kDTypes) {
    for (const Norm norm : kNorms) {
      for (const int64_t k : {2052, 5120, 7001, 10240, 17408, 24576}) {
        RowsCase c = {.rows = 2, .k = k, .norm = norm, .dtype = dtype};
        const std::vector<RowResult> parts = RowsRun(c).run();
        c.is_whole = true;
        const std::vector<RowResult> whole = RowsRun(c).run();
        for (size_t row = 0; row < whole.size(); ++row)
          expect_nearly_same(c, parts[row], whole[row]);
        if (HasFatalFailure()) return;
      }
    }
  }
}

constexpr int kRegions = 8;  // as many as a row has parts, at most
int64_t place_in_region(int64_t k, int64_t region) { return region % kRegions * k / kRegions + 5; }

// Goal: a part knows of a NaN or an infinity in any other. Method: row r has it in region r, the
// last row nowhere.
TEST_F(CudaRowPartsOnDevice, WhatIsNotFiniteInOnePartIsSeenByAll) {
  for (const int64_t k : {5120, 9999, 17408, 32768}) {
    for (const Norm norm : kNorms) {
      for (const float bad : {kNan, kInfinity}) {
        const RowsCase c = {.rows = kRegions + 1, .k = k, .norm = norm, .dtype = DType::kS8};
        RowsRun run(c);
        for (int64_t row = 0; row < kRegions; ++row) run.at(row, place_in_region(k, row)) = bad;
        const std::vector<RowResult> results = run.run();
        const std::vector<float> zeros(static_cast<size_t>(k));
        for (size_t row = 0; row < kRegions; ++row) {
          EXPECT_TRUE(std::isnan(results[row].factor)) << name_of(c) << ": row " << row;
          EXPECT_TRUE(results[row].y == zeros) << name_of(c) << ": row " << row;
        }
        expect_row(c, run, results[kRegions], kRegions);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Goal: the sum and the largest magnitude each come from any part. Method: in row r the largest of
// x * gamma is in region r, nearly all of the sum in another.
TEST_F(CudaRowPartsOnDevice, TheSumAndTheLargestMayBeInDifferentParts) {
  for (const int64_t k : {4096, 5120, 8193, 17408}) {
    for (const Norm norm : kNorms) {
      const RowsCase c = {.rows = kRegions, .k = k, .norm = norm, .dtype = DType::kS8};
      RowsRun run(c);
      for (int64_t i = 0; i < k; ++i) run.gamma_at(i) = 1e-3f;
      for (int64_t row = 0; row < kRegions; ++row) {
        run.gamma_at(place_in_region(k, row)) = 1.0f;
        const int64_t heavy = place_in_region(k, row + 3) + 1;
        for (int64_t i = 0; i < 64; ++i) run.at(row, heavy + i) = i % 2 == 0 ? 9e4f : -9e4f;
        run.at(row, place_in_region(k, row)) = -8e4f;
      }
      const std::vector<RowResult> results = run.run();
      for (int64_t row = 0; row < kRegions; ++row) {
        const RowResult& result = results[static_cast<size_t>(row)];
        expect_row(c, run, result, row);
        if (HasFatalFailure()) return;
        if (norm == Norm::kNone) continue;  // gamma is what makes the other the largest
        EXPECT_EQ(result.y[static_cast<size_t>(place_in_region(k, row))], -127.0f) << name_of(c);
      }
    }
  }
}

TEST_F(CudaRowPartsOnDevice, ARowDoesNotSeeTheOthers) {
  for (const int64_t k : {2048, 5120, 10240, 17408}) {
    for (const Norm norm : kNorms) {
      const DType dtype = k == 10240 ? DType::kBf16 : DType::kS8;
      RowsCase c = {.rows = 64, .k = k, .norm = norm, .dtype = dtype};
      const std::vector<RowResult> expected = RowsRun(c).run();
      for (const int rows : {1, 2, 7, 33}) {
        c.rows = rows;  // the first of them
        const std::vector<RowResult> results = RowsRun(c).run();
        for (size_t row = 0; row < results.size(); ++row)
          EXPECT_TRUE(is_same(results[row], expected[row])) << name_of(c) << ": row " << row;
      }
    }
  }
}

class CudaRowPartsEarlyOnDevice
    : public CudaRowPartsOnDevice,
      public testing::WithParamInterface<std::tuple<int64_t, Norm, DType>> {};
INSTANTIATE_TEST_SUITE_P(Of, CudaRowPartsEarlyOnDevice,
                         testing::Combine(testing::Values(5120, 17408), testing::ValuesIn(kNorms),
                                          testing::ValuesIn(kDTypes)));

// Goal: no block of a row ends before what the others send has come. Method: many launches, each
// under way while the one before ends.
TEST_P(CudaRowPartsEarlyOnDevice, ManyLaunchesHaveTheSameBits) {
  const auto [k, norm, dtype] = GetParam();
  const RowsCase c = {.rows = 16, .k = k, .norm = norm, .dtype = dtype};
  const RowsRun run(c);
  const std::vector<RowResult> expected = run.run();
  const std::vector<RowResult> results =
      run.run({.starts_early = true, .lets_next_start = true}, 300);
  for (size_t row = 0; row < results.size(); ++row)
    EXPECT_TRUE(is_same(results[row], expected[row])) << name_of(c) << ": row " << row;
}

TEST(CudaRowParts, ABlockHasAWholeRowWhereThatIsAskedFor) {
  EXPECT_EQ(rows_blocks({.rows = 16, .k = 2048}), 16);
  EXPECT_EQ(rows_blocks({.rows = 16, .k = 5120, .is_whole = true}), 16);
  EXPECT_EQ(rows_blocks({.rows = 16, .k = 17408, .is_whole = true}), 16);
  if (!cuda_limits()) {
    EXPECT_EQ(rows_blocks({.rows = 16, .k = 17408}), 16) << "without a GPU";
  }
}

}  // namespace
}  // namespace gapless::rows_test
