// SPDX-License-Identifier: Apache-2.0

#include "machine/compute_ceiling.h"

#include <memory>
#include <optional>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// Every level that has an instruction for it reports a peak; a level below does not invent one.
TEST(ComputeCeiling, IsThereWhereTheInstructionIs) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const Arithmetic arithmetic : kAllArithmetic) {
      const std::optional<double> peak = measure_compute(**threads, 1, level, arithmetic);
      const bool is_expected = arithmetic == Arithmetic::kF32 ||
                               (arithmetic == Arithmetic::kInt8 && level >= CpuLevel::kAvx2) ||
                               (arithmetic == Arithmetic::kBf16 && level >= CpuLevel::kAvx512Bf16);
      EXPECT_EQ(peak.has_value(), is_expected) << cpu_level_name(level);
      EXPECT_GE(peak.value_or(1.0), 0.01);
    }
  }
}

}  // namespace
}  // namespace gapless
