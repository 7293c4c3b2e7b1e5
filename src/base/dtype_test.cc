// SPDX-License-Identifier: Apache-2.0

#include "base/dtype.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("float"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DType, KnowsItsBytes) {
  EXPECT_EQ(dtype_bytes(DType::kS8), 1);
  EXPECT_EQ(dtype_bytes(DType::kBf16), 2);
  EXPECT_EQ(dtype_bytes(DType::kF16), 2);
  EXPECT_EQ(dtype_bytes(DType::kF32), 4);
  EXPECT_EQ(dtype_bytes(DType::kS64), 8);
  EXPECT_EQ(dtype_bytes(DType::kF64), 8);
}

}  // namespace
}  // namespace gapless
