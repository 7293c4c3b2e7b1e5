// SPDX-License-Identifier: Apache-2.0
//
// GpuTest: the fixture of every test that runs code on a GPU. Without one that could the test is
// skipped, and the end of `make test` says how many were, and why. Where there is one and it cannot
// be used, the test fails.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
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

// Whether a kernel has written every element of what was filled with 0xff before, which is a NaN
// that none of them writes. Where results are held against each other, those of a kernel that does
// nothing would be the same.
inline bool is_written(std::span<const std::byte> output, int64_t element_bytes) {
  const size_t step = static_cast<size_t>(element_bytes);
  for (size_t at = 0; at < output.size(); at += step) {
    const std::span<const std::byte> element = output.subspan(at, step);
    if (std::ranges::all_of(element, [](std::byte value) { return value == std::byte{0xff}; }))
      return false;
  }
  return !output.empty();
}

}  // namespace gapless
