// SPDX-License-Identifier: Apache-2.0

#include "cuda/ceiling.h"

#include <gtest/gtest.h>

#include "cuda/ceiling_launch.h"
#include "cuda/gpu_test_support.h"

namespace gapless {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(CudaCeiling, ReadsWhatIsWantedOrHalfOfWhatIsFree) {
  EXPECT_EQ(cuda_ceiling_bytes(4096 * kMiB, 80000 * kMiB, 50 * kMiB).value(), 4096 * kMiB);
  EXPECT_EQ(cuda_ceiling_bytes(4096 * kMiB, 2001 * kMiB, 50 * kMiB).value(), 1000 * kMiB);
  EXPECT_EQ(cuda_ceiling_bytes(400 * kMiB, 80000 * kMiB, 50 * kMiB).value(), 400 * kMiB);
}

TEST(CudaCeiling, AReadThatTheCacheHoldsIsAnError) {
  const Result<int64_t> bytes = cuda_ceiling_bytes(4096 * kMiB, 700 * kMiB, 50 * kMiB);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().message,
            "reading 367001600 bytes does not measure GPU memory behind a cache of 52428800; "
            "734003200 are free and half of them can be read (a profile can do without: "
            "--no-limits)");
  EXPECT_FALSE(cuda_ceiling_bytes(0, 700 * kMiB, 0));
}

// 2 blocks of 8 warps on each SM, 8 products a round: of 16 x 8 x 32 and 16 x 8 x 16.
TEST(CudaCeiling, CountsMultipliesAndAdds) {
  EXPECT_EQ(ceiling_ops(CeilingArithmetic::kS8, 1, 1), 16.0 * 8.0 * 8192.0);
  EXPECT_EQ(ceiling_ops(CeilingArithmetic::kBf16, 132, 10), 132.0 * 16.0 * 10.0 * 8.0 * 4096.0);
  EXPECT_EQ(ceiling_ops(CeilingArithmetic::kF32, 1, 3), 512.0 * 3.0 * 16.0 * 2.0);
}

TEST(CudaCeiling, OpsAreThoseOfTheWeightsType) {
  const CudaMachineLimits limits = {
      .read_bytes_per_s = 1.0, .s8_ops_per_s = 2.0, .bf16_ops_per_s = 3.0, .f32_ops_per_s = 4.0};
  EXPECT_EQ(limits.ops_per_s(DType::kS8), 2.0);
  EXPECT_EQ(limits.ops_per_s(DType::kBf16), 3.0);
  EXPECT_EQ(limits.ops_per_s(DType::kF16), 3.0);
  EXPECT_EQ(limits.ops_per_s(DType::kF32), 4.0);
}

TEST(CudaCeiling, NoRoundsAreAnError) {
  const Result<CudaMachineLimits> limits = measure_cuda_limits({.round_count = 0});
  ASSERT_FALSE(limits);
  EXPECT_EQ(limits.error().message, "0 rounds measure nothing");
}

class CudaCeilingOnGpu : public GpuTest {};

// Orders of magnitude that every GPU of these kinds keeps to, however busy it is: a loop that the
// compiler took away, or counted twice, is outside.
TEST_F(CudaCeilingOnGpu, IsThatOfAGpu) {
  const Result<CudaMachineLimits> limits =
      measure_cuda_limits({.round_count = 3, .read_bytes = 1024 * kMiB});
  ASSERT_TRUE(limits) << limits.error().message;
  EXPECT_GT(limits->read_bytes_per_s, 1e11);
  EXPECT_LT(limits->read_bytes_per_s, 2e13);
  const double sm_count = limits_.sm_count;
  EXPECT_GT(limits->f32_ops_per_s, 1e10 * sm_count);
  EXPECT_LT(limits->f32_ops_per_s, 2e12 * sm_count);
  EXPECT_GT(limits->bf16_ops_per_s, limits->f32_ops_per_s);
  EXPECT_LT(limits->bf16_ops_per_s, 3e13 * sm_count);
  EXPECT_GT(limits->s8_ops_per_s, limits->f32_ops_per_s);
  EXPECT_LT(limits->s8_ops_per_s, 6e13 * sm_count);
}

}  // namespace
}  // namespace gapless
