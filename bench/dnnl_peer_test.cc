// SPDX-License-Identifier: Apache-2.0
//
// That the peer computes what we compare ourselves with, in the layout it chose.

#include "bench/dnnl_peer.h"

#include <gtest/gtest.h>

#include "bench/kernel_bench_support.h"

namespace gapless {
namespace {

constexpr size_t kMemoryBytes = size_t{2} << 20;

TEST(DnnlMatmul, GivesExactSumsOfSmallNumbers) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  Result<DnnlWeights> memory = make_dnnl_weights(kMemoryBytes);
  ASSERT_TRUE(memory) << memory.error().message;
  for (const DType weights : {DType::kS8, DType::kBf16}) {
    for (const int64_t m : {1, 4, 16}) {
      Result<std::unique_ptr<DnnlMatmul>> matmul = make_dnnl_matmul({.weights = weights,
                                                                     .m = m,
                                                                     .k = 160,
                                                                     .n = 96,
                                                                     .cores = (*threads)->cores(),
                                                                     .memory = &*memory});
      ASSERT_TRUE(matmul) << matmul.error().message;
      if (*matmul == nullptr) GTEST_SKIP() << "built without oneDNN";
      EXPECT_EQ((*matmul)->count_errors(), 0) << (*matmul)->name() << ", m " << m;
      EXPECT_GE((*matmul)->weight_bytes(), 160 * 96 * dtype_bytes(weights));
    }
  }
}

TEST(DnnlMatmul, RefusesMemoryThatIsTooSmall) {
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(1);
  ASSERT_TRUE(threads) << threads.error().message;
  Result<DnnlWeights> memory = make_dnnl_weights(4096);
  ASSERT_TRUE(memory) << memory.error().message;
  const Result<std::unique_ptr<DnnlMatmul>> matmul = make_dnnl_matmul({.weights = DType::kS8,
                                                                       .m = 1,
                                                                       .k = 160,
                                                                       .n = 96,
                                                                       .cores = (*threads)->cores(),
                                                                       .memory = &*memory});
  if (matmul && *matmul == nullptr) GTEST_SKIP() << "built without oneDNN";
  EXPECT_FALSE(matmul);
}

// Its threads spin for a while after a run; measurements of ours must not begin before they sleep.
TEST(DnnlMatmul, ThreadsComeToRest) {
  if (usable_cores().size() < 2) GTEST_SKIP() << "needs two cores";
  const Result<std::unique_ptr<PinnedThreads>> threads = PinnedThreads::start(2);
  ASSERT_TRUE(threads) << threads.error().message;
  Result<DnnlWeights> memory = make_dnnl_weights(kMemoryBytes);
  ASSERT_TRUE(memory) << memory.error().message;
  Result<std::unique_ptr<DnnlMatmul>> matmul = make_dnnl_matmul({.weights = DType::kS8,
                                                                 .m = 4,
                                                                 .k = 1024,
                                                                 .n = 1024,
                                                                 .cores = (*threads)->cores(),
                                                                 .memory = &*memory});
  ASSERT_TRUE(matmul) << matmul.error().message;
  if (*matmul == nullptr) GTEST_SKIP() << "built without oneDNN";
  EXPECT_GT((*matmul)->run(), 0.0);
  EXPECT_TRUE(wait_until_quiet());
}

}  // namespace
}  // namespace gapless
