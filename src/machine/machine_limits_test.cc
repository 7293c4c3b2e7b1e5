// SPDX-License-Identifier: Apache-2.0
//
// That the figures are there and belong to what was asked for; how large they are is not tested.

#include "machine/machine_limits.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "machine/median.h"
#include "machine/pinned_threads.h"

namespace gapless {
namespace {

constexpr int64_t kSmallBytes = int64_t{2} << 20;

// "accepted", or the error's text.
std::string refusal(const MachineLimitsOptions& options) {
  const Result<MachineLimits> limits = measure_machine_limits(options);
  return limits ? "accepted" : limits.error().message;
}

TEST(MachineLimits, ArePositiveAtEveryLevel) {
  for (const CpuLevel level : usable_cpu_levels()) {
    const Result<MachineLimits> limits = measure_machine_limits(
        {.thread_count = 1, .level = level, .round_count = 2, .read_bytes = kSmallBytes});
    ASSERT_TRUE(limits) << limits.error().message;
    EXPECT_EQ(limits->thread_count, 1);
    EXPECT_GT(limits->read_bytes_per_s, 0.0) << cpu_level_name(level);
    EXPECT_GT(limits->s8_ops_per_s, 0.0) << cpu_level_name(level);
    EXPECT_GT(limits->bf16_ops_per_s, 0.0) << cpu_level_name(level);
    EXPECT_GT(limits->f32_ops_per_s, 0.0) << cpu_level_name(level);
  }
}

TEST(MachineLimits, TakeThoseOfF32WhereTheLevelHasNoInstruction) {
  const Result<MachineLimits> limits =
      measure_machine_limits({.thread_count = 1, .round_count = 1, .read_bytes = kSmallBytes});
  ASSERT_TRUE(limits) << limits.error().message;
  EXPECT_EQ(limits->s8_ops_per_s, limits->f32_ops_per_s) << "the portable level";
  EXPECT_EQ(limits->bf16_ops_per_s, limits->f32_ops_per_s);
}

TEST(MachineLimits, UseAllCoresUnlessToldOtherwise) {
  const std::vector<int> cores = usable_cores();
  for (int thread_count = 0; thread_count <= static_cast<int>(cores.size()); ++thread_count) {
    const Result<MachineLimits> limits = measure_machine_limits(
        {.thread_count = thread_count, .round_count = 1, .read_bytes = kSmallBytes});
    ASSERT_TRUE(limits) << limits.error().message;
    const size_t expected = thread_count == 0 ? cores.size() : static_cast<size_t>(thread_count);
    EXPECT_EQ(static_cast<size_t>(limits->thread_count), expected);
    if (thread_count == 2) break;  // many cores take long
  }
  EXPECT_EQ(usable_cores(), cores) << "the caller may go where it could before";
}

TEST(MachineLimits, BelongToTheTypeOfTheWeights) {
  const MachineLimits limits = {.s8_ops_per_s = 4.0, .bf16_ops_per_s = 2.0, .f32_ops_per_s = 1.0};
  EXPECT_EQ(limits.ops_per_s(DType::kS8), 4.0);
  EXPECT_EQ(limits.ops_per_s(DType::kBf16), 2.0);
  EXPECT_EQ(limits.ops_per_s(DType::kF16), 1.0);
  EXPECT_EQ(limits.ops_per_s(DType::kF32), 1.0);
}

TEST(MachineLimits, RefuseOptionsThatMeanNothing) {
  EXPECT_EQ(refusal({.thread_count = -1}), "machine limits: -1 threads");
  const int core_count = static_cast<int>(usable_cores().size());
  EXPECT_EQ(refusal({.thread_count = core_count + 1}), std::to_string(core_count + 1) +
                                                           " pinned threads on " +
                                                           std::to_string(core_count) + " cores");
  EXPECT_EQ(refusal({.round_count = 0}), "machine limits: 0 rounds; at least 1");
  EXPECT_EQ(refusal({.read_bytes = 1000}),
            "machine limits: 1000 bytes a thread; 1048576 to 1073741824");
  EXPECT_EQ(refusal({.read_bytes = int64_t{2} << 30}),
            "machine limits: 2147483648 bytes a thread; 1048576 to 1073741824");
  if (has_cpu_level(CpuLevel::kAvx512Bf16)) return;
  EXPECT_EQ(refusal({.level = CpuLevel::kAvx512Bf16}),
            "machine limits: this machine has no avx512-bf16");
}

TEST(CpuName, IsOneLineOfText) {
  const std::string name = cpu_name();
  EXPECT_FALSE(name.empty());
  EXPECT_EQ(name.find('\n'), std::string::npos);
}

TEST(MedianOf, IsTheMiddleOrTheMeanOfTheTwo) {
  EXPECT_EQ(median_of({3.0}), 3.0);
  EXPECT_EQ(median_of({9.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median_of({9.0, 1.0, 2.0, 4.0}), 3.0);
}

}  // namespace
}  // namespace gapless
