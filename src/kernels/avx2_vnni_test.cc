// SPDX-License-Identifier: Apache-2.0
//
// The s8 loops for AVX-VNNI against the portable ones, on machines that have the instruction as
// part of AVX-512 (evex_vnni_avx512.cc). Where AVX-VNNI itself is there, matmul_test.cc runs them.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/matmul_levels.h"
#include "kernels/matmul_test_support.h"

namespace gapless {
namespace evex_vnni {
void sum_panels(const PanelSums& job);
}

namespace {

std::vector<int32_t> sums_by(void (*sum_panels)(const PanelSums&), const MatmulCase& of_case,
                             const PackedRows& rows, int panel_count) {
  const PackedMatrix& weights = *of_case.matrix;
  std::vector<int32_t> sums(static_cast<size_t>(panel_count * rows.m * kPanelRows), -1);
  sum_panels({.panels = weights.panel(0),
              .panel_stride = weights.panel_stride(),
              .panel_count = panel_count,
              .line_count = weights.line_count(),
              .panel_lines = weights.line_count(),
              .weights = DType::kS8,
              .m = rows.m,
              .rows = rows.data,
              .sums = sums.data()});
  return sums;
}

TEST(Avx2Vnni, SumsAreThoseOfThePortableForm) {
  if (!has_cpu_level(CpuLevel::kAvx512)) GTEST_SKIP() << "no AVX-512 VNNI here";
  for (int64_t m = 1; m <= 9; ++m) {
    for (const int64_t k : {1, 5, 64, 515, 1031}) {
      const MatmulCase of_case({.weights = DType::kS8, .m = m, .k = k, .n = 16 * 6, .seed = 7});
      const GuardedRows rows(DType::kS8, CpuLevel::kPortable, m, k);
      pack_rows(CpuLevel::kPortable, {.data = of_case.x.data(), .row_stride = k}, 0, m, rows.rows);
      for (const int panel_count : {1, 2, 4, 6}) {
        EXPECT_EQ(sums_by(evex_vnni::sum_panels, of_case, rows.rows, panel_count),
                  sums_by(portable::sum_panels, of_case, rows.rows, panel_count))
            << "m " << m << " k " << k << " panels " << panel_count;
      }
    }
  }
}

}  // namespace
}  // namespace gapless
