// SPDX-License-Identifier: Apache-2.0
//
// Rows for a matmul against the CPU's kernels (bit for bit where the formula has no sum in it) and
// against double precision where it has. Rows in parts have a file of their own. Without a GPU
// these are skipped and say so; wrong arguments are found without one.

#include "cuda/rows.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/rows_run_test_support.h"

namespace gapless::rows_test {
namespace {

// ---- On the device.

TEST_F(CudaRowsOnDevice, RowsAgreeWithTheCpu) {
  for (const int64_t k : {48, 80, 2048, 5120, 17408}) {
    for (const int rows : {1, 3, 16, 64}) {
      if (rows == 64 && k == 17408) continue;  // a test takes well under a second
      for (const Norm norm : kNorms) {
        const DType dtype = kDTypes[(k / 16 + rows) % 2];
        expect_right({.rows = rows, .k = k, .norm = norm, .dtype = dtype});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaRowsOnDevice, RowsOfTheModelAgreeInBothTypes) {
  for (const DType dtype : kDTypes) {
    for (const Norm norm : kNorms) {
      expect_right({.rows = 16, .k = 5120, .norm = norm, .dtype = dtype, .is_gathered = true});
      expect_right({.rows = 2, .k = 17408, .norm = norm, .dtype = dtype});
      expect_right({.rows = 64, .k = 80, .x_gap = 4, .norm = norm, .dtype = dtype});
      if (HasFatalFailure()) return;
    }
  }
}

// Rows that do not begin at 16 bytes, and the largest that a block's registers hold.
TEST_F(CudaRowsOnDevice, RowsOfAnyLengthAndStrideAgree) {
  for (const DType dtype : kDTypes) {
    for (const Norm norm : kNorms) {
      for (const int64_t k : {1, 2, 47, 81, 2049, 5119, 6145, 17407}) {
        expect_right({.rows = 3, .k = k, .norm = norm, .dtype = dtype, .is_gathered = k == 81});
      }
      expect_right({.rows = 3, .k = 48, .x_gap = 3, .norm = norm, .dtype = dtype});
      expect_right({.rows = 2, .k = 5120, .x_gap = 1, .norm = norm, .dtype = dtype});
      expect_right({.rows = 2, .k = max_rows_k(), .norm = norm, .dtype = dtype});
      expect_right({.rows = 2, .k = max_rows_k() - 1, .norm = norm, .dtype = dtype});
      if (HasFatalFailure()) return;
    }
  }
}

// ---- Corner cases.

TEST_F(CudaRowsOnDevice, QuantisingRoundsTiesToEven) {
  const RowsCase c = {.rows = 1, .k = 48, .dtype = DType::kS8};
  RowsRun run(c);
  for (int64_t i = 0; i < c.k; ++i) run.at(0, i) = static_cast<float>(i - 24) + 0.5f;
  run.at(0, 47) = -127.0f;  // a step is 1
  const RowResult result = run.run()[0];
  EXPECT_EQ(result.factor, 1.0f);
  for (size_t i = 0; i < 47; ++i) {
    EXPECT_EQ(result.y[i], std::nearbyint(static_cast<float>(i) - 23.5f)) << i;
  }
  EXPECT_EQ(result.y[47], -127.0f);
}

// Row 1 has a NaN, row 2 an infinity; squares of row 3 have no finite sum; row 4 is nearly nothing.
RowsRun broken_rows(const RowsCase& c) {
  RowsRun run(c);
  run.at(1, 5) = kNan;
  run.at(2, 6) = -kInfinity;
  for (int64_t i = 0; i < c.k; ++i) {
    run.at(3, i) = i % 2 == 0 ? 1e20f : -2e20f;
    run.at(4, i) = 1e-12f;
  }
  return run;
}

TEST_F(CudaRowsOnDevice, BrokenRowsAreSeenInBf16) {
  for (const int64_t k : {80, 81, 5120, 17408}) {
    const RowsCase now = {.rows = 6, .k = k, .norm = Norm::kNow};
    const std::vector<RowResult> results = broken_rows(now).run();
    for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
      EXPECT_TRUE(std::isnan(results[1].y[i])) << i;
      EXPECT_TRUE(i == 6 ? std::isnan(results[2].y[i]) : results[2].y[i] == 0.0f) << i;
      EXPECT_EQ(results[3].y[i], 0.0f) << i;
    }
    RowsCase deferred = now;
    deferred.norm = Norm::kDeferred;
    const RowsRun run = broken_rows(deferred);
    const std::vector<RowResult> put_off = run.run();
    EXPECT_TRUE(std::isnan(put_off[1].factor));
    EXPECT_EQ(put_off[2].factor, 0.0f);
    EXPECT_EQ(put_off[3].factor, 0.0f);
    EXPECT_TRUE(std::isnan(put_off[1].y[5]));
    EXPECT_EQ(put_off[2].y[6], run.gamma()[6] > 0.0f ? -kInfinity : kInfinity);
    EXPECT_NEAR(put_off[4].factor, 1.0 / std::sqrt(static_cast<double>(kEps)), 0.01);
    for (const size_t row : {0u, 5u}) {
      expect_normed(now, run, results[row], static_cast<int64_t>(row));
      expect_cpu_elements(deferred, run, put_off[row], static_cast<int64_t>(row));
    }
  }
}

TEST_F(CudaRowsOnDevice, BrokenRowsHaveNoScale) {
  for (const Norm norm : kNorms) {
    for (const int64_t k : {80, 81, 17408}) {
      const RowsCase c = {.rows = 6, .k = k, .norm = norm, .dtype = DType::kS8};
      const RowsRun run = broken_rows(c);
      const std::vector<RowResult> results = run.run();
      for (const size_t row : {1u, 2u}) {
        EXPECT_TRUE(std::isnan(results[row].factor)) << name_of(c) << ": row " << row;
        EXPECT_EQ(results[row].y, std::vector<float>(static_cast<size_t>(k))) << name_of(c);
      }
      const float overflowed = norm == Norm::kNone  ? quantised(run.row(3), nullptr).factor
                               : norm == Norm::kNow ? 1e-4f / 127.0f
                                                    : 0.0f;
      EXPECT_EQ(results[3].factor, overflowed) << name_of(c);
      // 1e-12 is far below the smallest amax, normed or not.
      EXPECT_EQ(results[4].y, std::vector<float>(static_cast<size_t>(k))) << name_of(c);
      const double factor = norm == Norm::kDeferred ? 1e3 : 1.0;
      EXPECT_NEAR(results[4].factor, factor * 1e-4 / 127.0, factor * 1e-12) << name_of(c);
    }
  }
}

void expect_recorded(const RowsCase& c, RecordLevel level) {
  const RowsRun run(c);
  const CudaRowsArgs shape = {.rows = c.rows, .k = c.k, .is_whole = c.is_whole};
  const OneLaunchRecorder recorder(rows_blocks(shape), level);
  const std::vector<RowResult> recorded = run.run({.recorder = recorder.launch()});
  const std::vector<RowResult> expected = run.run();
  for (size_t row = 0; row < expected.size(); ++row) {
    EXPECT_TRUE(is_same(recorded[row], expected[row])) << name_of(c);
  }
  recorder.expect_all_phases();
}

TEST_F(CudaRowsOnDevice, RecordedRowsHaveTheSameBits) {
  for (const int64_t k : {2048, 5120, 8192, 17408, 24576}) {
    for (const DType dtype : kDTypes) {
      for (const Norm norm : kNorms) {
        for (const RecordLevel level : {RecordLevel::kTasks, RecordLevel::kPhases}) {
          expect_recorded({.rows = 3, .k = k, .norm = norm, .dtype = dtype}, level);
          expect_recorded({.rows = 1, .k = k, .norm = norm, .dtype = dtype, .is_whole = true},
                          level);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

// ---- On the host.

TEST(CudaRows, WrongArgumentsAreErrorsWithNumbers) {
  alignas(16) static float values[4096] = {};
  const CudaRowsArgs good = {.x = values,
                             .x_stride = 80,
                             .rows = 2,
                             .k = 80,
                             .gamma = values,
                             .is_deferred = true,
                             .dtype = DType::kS8,
                             .y = values,
                             .k_stride = 128,
                             .factors = values};
  CudaRowsArgs args = good;
  args.rows = 0;
  EXPECT_TRUE(launch_rows(args, {})) << "nothing to do is no error, with a GPU or without";
  args.rows = -1;
  EXPECT_EQ(rows_error(launch_rows(args, {})),
            "rows for a matmul of -1 rows; 0 to 2147483647 can be done");
  args = good;
  args.dtype = DType::kF16;
  EXPECT_EQ(rows_error(launch_rows(args, {})), "rows of f16 for a matmul; bf16 and s8 can be done");
  args = good;
  args.k = 32769;
  EXPECT_EQ(rows_error(launch_rows(args, {})),
            "rows for a matmul of 32769 columns; 1 to 32768 can be done");
  args = good;
  args.x_stride = 79;
  EXPECT_EQ(rows_error(launch_rows(args, {})),
            "the stride of x of rows for a matmul is 79 elements; a multiple of 1 and at least 80 "
            "is needed");
  args = good;
  args.k_stride = 88;
  EXPECT_EQ(rows_error(launch_rows(args, {})),
            "the stride of y of rows for a matmul is 88 elements; a multiple of 16 and at least 80 "
            "is needed");
  args = good;
  args.y = values + 1;
  EXPECT_EQ(rows_error(launch_rows(args, {})),
            "y of rows for a matmul does not begin at a multiple of 16 bytes");
  args = good;
  args.factors = nullptr;
  EXPECT_EQ(rows_error(launch_rows(args, {})), "rows for a matmul without factors");
  args.dtype = DType::kBf16;
  EXPECT_EQ(rows_error(launch_rows(args, {})), "rows for a matmul without factors");
  args.gamma = nullptr;
  args.rows = 0;
  EXPECT_TRUE(launch_rows(args, {})) << "without a norm nothing is put off";
}

}  // namespace
}  // namespace gapless::rows_test
