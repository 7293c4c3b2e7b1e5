// SPDX-License-Identifier: Apache-2.0
//
// GpuTest: the fixture of every test that runs code on a GPU. Without one that could the test is
// skipped, and the end of `make test` says how many were, and why. Where there is one and it cannot
// be used, the test fails.

#pragma once

#include <utility>

#include <gtest/gtest.h>

#include "cuda/device.h"

namespace gapless {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<CudaLimits> limits = cuda_limits();
    if (limits) {
      limits_ = std::move(*limits);
      return;
    }
    if (has_capable_gpu()) FAIL() << "the GPU cannot be used: " << limits.error().message;
    GTEST_SKIP() << "NO GPU CODE WAS RUN: " << limits.error().message;
  }

  CudaLimits limits_;
};

}  // namespace gapless
