// SPDX-License-Identifier: Apache-2.0
//
// What is said of a wait that did not end. wait_expires_test.cc has waits that do not, on a GPU.

#include "cuda/wait_report.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(CudaWaitReport, NamesTheKernelTheBlockTheWarpAndWhatWasWaitedFor) {
  EXPECT_EQ(describe({.block = 7, .warp = 3, .wait = DeviceWait::kMatmulSums}, 20'000),
            "block 7 of a matmul waited more than 20 s for sums of another block (warp 3)");
  EXPECT_EQ(
      describe({.block = ~0u, .warp = 11, .wait = DeviceWait::kAttentionKeys}, 1000),
      "block 4294967295 of an attention waited more than 1 s for keys to be copied (warp 11)");
}

TEST(CudaWaitReport, IsEmptyWhereNothingWasReported) { EXPECT_EQ(describe({}, 20'000), ""); }

TEST(CudaWaitReport, HasWordsOfItsOwnForEveryWait) {
  std::set<std::string> sentences;
  const int count = static_cast<int>(DeviceWait::kCount);
  for (int wait = 1; wait < count; ++wait) {
    const std::string sentence = describe({.wait = static_cast<DeviceWait>(wait)}, 20'000);
    EXPECT_EQ(sentence.find("nothing"), std::string::npos) << sentence;
    sentences.insert(sentence);
  }
  EXPECT_EQ(static_cast<int>(sentences.size()), count - 1);
}

// Of a number that no wait has, which only broken memory can hold.
TEST(CudaWaitReport, SurvivesANumberThatNoWaitHas) {
  EXPECT_EQ(describe({.block = 1, .wait = static_cast<DeviceWait>(255)}, 20'000),
            "block 1 of a kernel waited more than 20 s for nothing (warp 0)");
}

TEST(CudaWaitLimit, IsTwentySecondsOrWhatIsAskedFor) {
  for (const char* text : {static_cast<const char*>(nullptr), "", "20"}) {
    const Result<uint32_t> limit = wait_limit_ms_of(text);
    ASSERT_TRUE(limit);
    EXPECT_EQ(*limit, 20'000u);
  }
  EXPECT_EQ(*wait_limit_ms_of("1"), 1000u);
  EXPECT_EQ(*wait_limit_ms_of("3600"), 3'600'000u);
}

TEST(CudaWaitLimit, IsAWholeNumberOfSecondsUpToAnHour) {
  for (const std::string text : {"0", "-1", "3601", "1.5", "20s", " 20", "long"}) {
    const Result<uint32_t> limit = wait_limit_ms_of(text.c_str());
    ASSERT_FALSE(limit) << text;
    EXPECT_EQ(limit.error().message,
              "GAPLESS_CUDA_WAIT_S=" + text + ": a wait on the GPU can be given 1 to 3600 seconds");
  }
}

}  // namespace
}  // namespace gapless
