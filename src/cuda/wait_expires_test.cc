// SPDX-License-Identifier: Apache-2.0
//
// Goal: a wait that does not end becomes an error that names it, not long after the time that it
// was given. Method: the kernel stops and the process loses the GPU, so each case runs in a process
// of its own (a death test that starts this program again), whose waits may take a second. What it
// prints is the error of the wait for the stream and that of the call after it.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "cuda/gpu_test_support.h"
#include "cuda/matmul_test_support.h"
#include "cuda/wait_test_kernel.h"

namespace gapless {
namespace {

constexpr int kFailedAsItShould = 3;
constexpr int kFailedLate = 4;
constexpr std::chrono::seconds kLate(10);  // the timer is not looked at all the time

class CudaExpiredWait : public GpuTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    GpuTest::SetUp();  // with the limit of this process, which stays
    if (const char* text = std::getenv(kVariable)) given_ = text;
    setenv(kVariable, "1", 1);  // of processes that the test starts
  }
  void TearDown() override { given_ ? setenv(kVariable, given_->c_str(), 1) : unsetenv(kVariable); }

 private:
  static constexpr const char* kVariable = "GAPLESS_CUDA_WAIT_S";
  std::optional<std::string> given_;
};

[[noreturn]] void end_with_errors() {
  const auto begin = std::chrono::steady_clock::now();
  const Result<void> done = synchronize(nullptr);
  const bool is_late = std::chrono::steady_clock::now() - begin > kLate;
  const Result<DeviceBuffer> after = DeviceBuffer::allocate(256, "a buffer");
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  if (!after) std::fprintf(stderr, "%s\n", after.error().message.c_str());
  if (done || after) std::_Exit(0);
  std::_Exit(is_late ? kFailedLate : kFailedAsItShould);
}

[[noreturn]] void wait_in_vain(TestWait wait) {
  const WaitTestLaunch launch = {.wait = wait, .blocks = 5, .waiting_warp = 2};
  const Result<void> started = check_cuda(wait_test_launch_kernel(launch, nullptr), "a test");
  if (!started) std::_Exit(1);
  end_with_errors();
}

// As if a block of another launch had been counted among those of this one. The last block takes
// itself for one of the next launch, then: it begins when another has ended, since there is one
// more than there are SMs, and waits for sums of the others that have the number of that launch.
[[noreturn]] void multiply_with_a_wrong_count(int sm_count) {
  CudaMatmulCase c = case_of(DType::kBf16, 5120, 2048, false, 16);
  c.tuning = {.blocks = sm_count + 1, .takes_sm = true};
  Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
  if (!run) std::_Exit(1);
  const CudaMatmulArgs args = run->args();
  const uint64_t counted = 1;
  if (!copy_to_device(args.workspace, &counted, sizeof(counted), nullptr)) std::_Exit(1);
  if (!run->matmul().launch(args, nullptr)) std::_Exit(1);
  end_with_errors();
}

constexpr const char* kTwice =
    "waiting for the GPU: block 4 of a test waited more than 1 s for nobody .warp 2.; the GPU can "
    "do nothing more for this process .cudaError[A-Za-z]*.\n"
    "a buffer: block 4 of a test waited";

TEST_F(CudaExpiredWait, OfABarrierIsAnErrorThatNamesIt) {
  EXPECT_EXIT(wait_in_vain(TestWait::kPhase), testing::ExitedWithCode(kFailedAsItShould), kTwice);
}

TEST_F(CudaExpiredWait, OfOneOfTwoBarriersIsAnErrorThatNamesIt) {
  EXPECT_EXIT(wait_in_vain(TestWait::kEither), testing::ExitedWithCode(kFailedAsItShould), kTwice);
}

TEST_F(CudaExpiredWait, OfAMatmulForAnotherBlockIsAnErrorThatNamesIt) {
  EXPECT_EXIT(multiply_with_a_wrong_count(limits_.sm_count),
              testing::ExitedWithCode(kFailedAsItShould),
              "waiting for the GPU: block [0-9]+ of a matmul waited more than 1 s for sums of "
              "another block .warp [0-9]+.; the GPU can do nothing more for this process");
}

}  // namespace
}  // namespace gapless
