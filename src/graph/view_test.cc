// SPDX-License-Identifier: Apache-2.0

#include "graph/view.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(View, OfADenseBufferCountsStridesFromTheInside) {
  const View view = dense_view(BufferId{7}, DType::kBf16, {3, 4, 5});
  EXPECT_EQ(view.buffer, BufferId{7});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.offset, 0);
  EXPECT_EQ(view.shape, (std::array<int32_t, kMaxRank>{3, 4, 5, 0}));
  EXPECT_EQ(view.strides, (std::array<int64_t, kMaxRank>{20, 5, 1, 0}));
  EXPECT_EQ(element_count(view), 60);
}

TEST(View, OfRankZeroIsOneElement) {
  const View view = dense_view(BufferId{0}, DType::kF32, {});
  EXPECT_EQ(view.rank, 0);
  EXPECT_EQ(element_count(view), 1);
}

TEST(View, CountsNoFurtherThanItCan) {
  View view = dense_view(BufferId{0}, DType::kU8, {1, 1, 1, 1});
  view.shape = {65536, 65536, 65536, 65536};  // broadcast: all of them are the same byte
  view.strides = {};
  EXPECT_EQ(element_count(view), std::numeric_limits<int64_t>::max());
  view.shape[2] = 0;
  EXPECT_EQ(element_count(view), 0);
}

TEST(View, WithAnExtentOfZeroHasNoElements) {
  EXPECT_EQ(element_count(dense_view(BufferId{0}, DType::kF32, {4, 0, 2})), 0);
}

TEST(View, OfASliceKeepsStridesAndMovesTheOffset) {
  const View whole = dense_view(BufferId{1}, DType::kF32, {8, 16});
  const View columns = slice(whole, 1, 4, 3);
  EXPECT_EQ(columns.offset, 4);
  EXPECT_EQ(columns.shape[0], 8);
  EXPECT_EQ(columns.shape[1], 3);
  EXPECT_EQ(columns.strides, whole.strides);
  const View part = slice(columns, 0, 2, 6);
  EXPECT_EQ(part.offset, 2 * 16 + 4);
  EXPECT_EQ(part.shape[0], 6);
}

TEST(View, OfATileCutsTheLastTwoDimensions) {
  const View whole = dense_view(BufferId{1}, DType::kF32, {2, 8, 16});
  const View part = tile(slice(whole, 0, 1, 1), {.row = 2, .rows = 3, .column = 8, .columns = 4});
  EXPECT_EQ(part.offset, 128 + 2 * 16 + 8);
  EXPECT_EQ(part.shape, (std::array<int32_t, kMaxRank>{1, 3, 4, 0}));
}

TEST(View, CutInTwoWaysToTheSamePlaceIsTheSameBytes) {
  const View whole = dense_view(BufferId{1}, DType::kF32, {8, 16});
  const View one = slice(slice(whole, 1, 4, 8), 0, 2, 2);
  const View other = tile(whole, {.row = 2, .rows = 2, .column = 4, .columns = 8});
  EXPECT_EQ(std::memcmp(&one, &other, sizeof(View)), 0);
}

TEST(View, IsSaidWithShapeStridesAndOffset) {
  const View whole = dense_view(BufferId{1}, DType::kBf16, {16, 5120});
  EXPECT_EQ(view_text(slice(whole, 1, 512, 256)), "bf16[16,256] strides [5120,1] at 512");
  EXPECT_EQ(view_text(dense_view(BufferId{1}, DType::kF32, {})), "f32[] strides [] at 0");
}

TEST(ViewDeathTest, RefusesWhatLiesOutside) {
  const View whole = dense_view(BufferId{1}, DType::kF32, {8, 16});
  EXPECT_DEATH(slice(whole, 2, 0, 1), "dimension < view.rank");
  EXPECT_DEATH(slice(whole, 1, 10, 7), "check failed");
  EXPECT_DEATH(slice(whole, 1, -1, 1), "begin >= 0");
  EXPECT_DEATH(dense_view(BufferId{1}, DType::kU8, {1, 1, 1, 1, 1}), "kMaxRank");
  EXPECT_DEATH(dense_view(BufferId{1}, DType::kU8, {int64_t{1} << 31}), "max");
}

}  // namespace
}  // namespace gapless
