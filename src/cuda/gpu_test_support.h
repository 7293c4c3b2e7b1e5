// SPDX-License-Identifier: Apache-2.0
//
// GpuTest: the fixture of every test that runs code on a GPU. Without one the test is skipped, and
// the end of `make test` says how many were, and why.

#pragma once

#include <utility>

#include <gtest/gtest.h>

#include "cuda/device.h"

namespace gapless {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<CudaLimits> limits = cuda_limits();
    if (!limits) GTEST_SKIP() << "NO GPU CODE WAS RUN: " << limits.error().message;
    limits_ = std::move(*limits);
  }

  CudaLimits limits_;
};

}  // namespace gapless
