// SPDX-License-Identifier: Apache-2.0
//
// What of the device needs no GPU.

#include "cuda/device.h"

#include <string>

#include <gtest/gtest.h>

#include "cuda/device_test_support.h"

namespace gapless {
namespace {

TEST(CudaLimits, HaveLessSharedMemoryWhereThatIsAskedFor) {
  const CudaLimits h200 = test_device("H200", 90, 132, 227);
  for (const char* text : {static_cast<const char*>(nullptr), "", "227"}) {
    CudaLimits limits = h200;
    ASSERT_TRUE(cap_shared_memory(limits, text));
    EXPECT_EQ(limits.shared_block_bytes, 227 << 10);
    EXPECT_EQ(limits.shared_sm_bytes, 228 << 10);
  }
  CudaLimits limits = h200;
  ASSERT_TRUE(cap_shared_memory(limits, "99"));
  EXPECT_EQ(limits.shared_block_bytes, 99 << 10);
  EXPECT_EQ(limits.shared_sm_bytes, 100 << 10);
}

TEST(CudaLimits, CannotHaveMoreSharedMemoryThanThereIs) {
  for (const std::string text : {"228", "0", "-1", "99k", " 99", "many"}) {
    CudaLimits limits = test_device("H200", 90, 132, 227);
    const Result<void> capped = cap_shared_memory(limits, text.c_str());
    ASSERT_FALSE(capped) << text;
    EXPECT_EQ(capped.error().message, "GAPLESS_CUDA_SHARED_KIB=" + text +
                                          ": H200 has 1 to 227 KiB of shared memory a block");
    EXPECT_EQ(limits.shared_block_bytes, 227 << 10);
  }
}

TEST(CudaLimits, AreOfADeviceThatHasOurInstructions) {
  EXPECT_TRUE(check_capability(test_device("A100", 80, 108, 163)));
  const Result<void> refused = check_capability(test_device("Tesla T4", 75, 40, 64));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "Tesla T4 has compute capability 7.5; 8.0 is needed");
}

TEST(CudaErrors, NameTheDriverThatIsMissing) {
  EXPECT_EQ(driver_text(0, 13000), "there is no NVIDIA driver");
  EXPECT_EQ(driver_text(12040, 13020),
            "the NVIDIA driver is of CUDA 12.4; 13.0 or newer is needed");
}

}  // namespace
}  // namespace gapless
