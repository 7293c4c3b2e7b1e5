// SPDX-License-Identifier: Apache-2.0
//
// Goal: a region is the bytes of its view; overlap is never missed, cover is never claimed wrongly,
// and both are right for rectangles.
// Method: every byte of random views is entered by hand into a set, and the sets are compared.

#include "graph/region.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

constexpr int64_t kOrigin = 4096;  // so that negative strides stay within the set
using Bytes = std::vector<bool>;

int pick(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

Bytes bytes_of(const View& view) {
  Bytes bytes(2 * kOrigin, false);
  const int64_t size = dtype_bytes(view.dtype);
  const int64_t count = element_count(view);
  for (int64_t i = 0; i < count; ++i) {
    int64_t left = i;
    int64_t element = view.offset;
    for (size_t dimension = view.rank; dimension-- > 0;) {
      element += left % view.shape[dimension] * view.strides[dimension];
      left /= view.shape[dimension];
    }
    for (int64_t byte = 0; byte < size; ++byte) {
      bytes.at(static_cast<size_t>(kOrigin + element * size + byte)) = true;
    }
  }
  return bytes;
}

void enter_bytes(const Region& region, size_t level, int64_t begin, Bytes& bytes) {
  if (level == static_cast<size_t>(region.level_count)) {
    for (int64_t i = 0; i < region.run; ++i) {
      bytes.at(static_cast<size_t>(kOrigin + begin + i)) = true;
    }
    return;
  }
  for (int64_t i = 0; i < region.levels[level].count; ++i) {
    enter_bytes(region, level + 1, begin + i * region.levels[level].stride, bytes);
  }
}

Bytes bytes_of(const Region& region) {
  Bytes bytes(2 * kOrigin, false);
  enter_bytes(region, 0, region.begin, bytes);
  return bytes;
}

bool share_bytes(const Bytes& a, const Bytes& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && b[i]) return true;
  }
  return false;
}

bool is_within(const Bytes& inner, const Bytes& outer) {
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] && !outer[i]) return false;
  }
  return true;
}

// Any strides, also zero, negative and such that elements coincide.
View random_view(std::mt19937& random) {
  View view;
  view.dtype = pick(random, 0, 2) == 0 ? DType::kF32 : DType::kU8;
  view.rank = static_cast<uint8_t>(pick(random, 0, kMaxRank));
  view.offset = pick(random, 0, 120);
  for (size_t i = 0; i < view.rank; ++i) {
    view.shape[i] = pick(random, 0, 19) == 0 ? 0 : pick(random, 1, 5);
    view.strides[i] = pick(random, -12, 40);
  }
  return view;
}

// A box of a dense buffer of four dimensions.
View random_box(std::mt19937& random, DType dtype, std::initializer_list<int64_t> shape) {
  View view = dense_view(BufferId{0}, dtype, shape);
  for (int dimension = 0; dimension < view.rank; ++dimension) {
    const int extent = view.shape[static_cast<size_t>(dimension)];
    if (pick(random, 0, 2) == 0) continue;  // all of it
    const int begin = pick(random, 0, extent - 1);
    view = slice(view, dimension, begin, pick(random, 1, extent - begin));
  }
  return view;
}

TEST(Region, OfARowBlockIsOneRun) {
  const View whole = dense_view(BufferId{0}, DType::kBf16, {16, 256});
  const Region region = region_of(slice(whole, 0, 4, 8));
  EXPECT_EQ(region, (Region{.begin = 2048, .end = 6144, .run = 4096}));
}

TEST(Region, OfATileRepeatsAtTheRowPitch) {
  const View whole = dense_view(BufferId{0}, DType::kBf16, {16, 256});
  const Region region = region_of(tile(whole, {.row = 1, .rows = 3, .column = 8, .columns = 4}));
  Region expected{.begin = 528, .end = 528 + 2 * 512 + 8, .run = 8, .level_count = 1};
  expected.levels[0] = {512, 3};
  EXPECT_EQ(region, expected);
  EXPECT_EQ(byte_count(region), 24);
}

TEST(Region, OfANegativeStrideIsTurnedRound) {
  View view = dense_view(BufferId{0}, DType::kF32, {8});
  const Region forward = region_of(view);
  view.offset = 7;
  view.strides[0] = -1;
  EXPECT_EQ(region_of(view), forward);
}

TEST(Region, OfSlidingWindowsIsExact) {
  View view = dense_view(BufferId{0}, DType::kU8, {6, 4});
  view.strides = {1, 1, 0, 0};
  EXPECT_EQ(region_of(view), (Region{.begin = 0, .end = 9, .run = 9}));
}

TEST(Region, OfAnyViewHasItsBytes) {
  std::mt19937 random(1);
  int exact_count = 0;
  for (uint32_t i = 0; i < test_effort(20000); ++i) {
    const View view = random_view(random);
    const Region region = region_of(view);
    const Bytes expected = bytes_of(view);
    const Bytes bytes = bytes_of(region);
    ASSERT_EQ(region.begin == region.end, element_count(view) == 0) << view_text(view);
    ASSERT_TRUE(is_within(expected, bytes)) << view_text(view);
    const int64_t count = std::count(bytes.begin(), bytes.end(), true);
    ASSERT_EQ(byte_count(region), count) << view_text(view);
    for (int level = 0; level < region.level_count; ++level) {
      ASSERT_GE(region.levels[static_cast<size_t>(level)].count, 2) << view_text(view);
    }
    if (!region.exact) continue;
    ++exact_count;
    ASSERT_EQ(bytes, expected) << view_text(view);
  }
  EXPECT_GT(exact_count, static_cast<int>(test_effort(10000)));
}

TEST(Region, NeverMissesAnOverlapAndNeverClaimsACover) {
  std::mt19937 random(2);
  int overlap_count = 0;
  int cover_count = 0;
  int safe_overlap_count = 0;
  int safe_cover_count = 0;
  for (uint32_t i = 0; i < test_effort(30000); ++i) {
    const View one = random_view(random);
    const View other = random_view(random);
    const Region a = region_of(one);
    const Region b = region_of(other);
    const bool overlap = share_bytes(bytes_of(one), bytes_of(other));
    const bool cover = is_within(bytes_of(other), bytes_of(one));
    overlap_count += overlap ? 1 : 0;
    cover_count += cover ? 1 : 0;
    ASSERT_TRUE(overlaps(a, b) || !overlap) << view_text(one) << " " << view_text(other);
    ASSERT_TRUE(cover || !covers(a, b)) << view_text(one) << " " << view_text(other);
    ASSERT_EQ(overlaps(a, b), overlaps(b, a)) << view_text(one) << " " << view_text(other);
    if (!a.exact || !b.exact) continue;
    safe_overlap_count += overlaps(a, b) && !overlap ? 1 : 0;
    safe_cover_count += cover && !covers(a, b) ? 1 : 0;
  }
  EXPECT_GT(overlap_count, static_cast<int>(test_effort(3000)));
  EXPECT_GT(cover_count, static_cast<int>(test_effort(300)));
  EXPECT_EQ(safe_overlap_count, 0);  // so few blocks are always enumerated
  EXPECT_LT(safe_cover_count, cover_count / 20);
  RecordProperty("undecided_covers", safe_cover_count);
}

TEST(Region, IsRightForRectanglesOfOneBuffer) {
  std::mt19937 random(3);
  int overlap_count = 0;
  int cover_count = 0;
  for (uint32_t i = 0; i < test_effort(30000); ++i) {
    const int kind = i % 3;
    const auto box = [&random, kind] {
      if (kind == 0) return random_box(random, DType::kF32, {9, 12});
      if (kind == 1) return random_box(random, DType::kBf16, {5, 6, 7});
      return random_box(random, DType::kU8, {3, 4, 5, 6});
    };
    const View one = box();
    const View other = box();
    const bool overlap = share_bytes(bytes_of(one), bytes_of(other));
    const bool cover = is_within(bytes_of(other), bytes_of(one));
    overlap_count += overlap ? 1 : 0;
    cover_count += cover ? 1 : 0;
    const Region a = region_of(one);
    const Region b = region_of(other);
    ASSERT_TRUE(a.exact);
    ASSERT_EQ(overlaps(a, b), overlap) << view_text(one) << " and " << view_text(other);
    ASSERT_EQ(covers(a, b), cover) << view_text(one) << " and " << view_text(other);
  }
  EXPECT_GT(overlap_count, static_cast<int>(test_effort(5000)));
  EXPECT_GT(cover_count, static_cast<int>(test_effort(1000)));
}

TEST(Region, SeesRectanglesOfDifferentElementTypesAsBytes) {
  std::mt19937 random(4);
  for (uint32_t i = 0; i < test_effort(10000); ++i) {
    const View one = random_box(random, DType::kF32, {8, 6});
    const View other = random_box(random, DType::kU8, {8, 24});
    const bool overlap = share_bytes(bytes_of(one), bytes_of(other));
    ASSERT_EQ(overlaps(region_of(one), region_of(other)), overlap)
        << view_text(one) << " and " << view_text(other);
  }
}

// Combs of which one has the finer teeth, and need not begin or end with a tooth of the other.
TEST(Region, IsRightWhereOneStrideDividesTheOther) {
  std::mt19937 random(5);
  int overlap_count = 0;
  int cover_count = 0;
  for (uint32_t i = 0; i < test_effort(30000); ++i) {
    const int stride = pick(random, 2, 8);
    const auto comb = [&random, stride](int steps) {
      View view = dense_view(BufferId{0}, DType::kU8, {pick(random, 1, 90 / steps), 1, 1});
      view.shape[1] = pick(random, 1, std::max(1, steps - 1));
      view.shape[2] = pick(random, 1, stride - 1);
      view.strides = {steps * stride, stride, 1, 0};
      view.offset = pick(random, 0, 300);
      return view;
    };
    const View coarse = comb(pick(random, 2, 6));
    const View fine = comb(1);
    const Bytes coarse_bytes = bytes_of(coarse);
    const Bytes fine_bytes = bytes_of(fine);
    const bool overlap = share_bytes(coarse_bytes, fine_bytes);
    const bool cover = is_within(coarse_bytes, fine_bytes);
    overlap_count += overlap ? 1 : 0;
    cover_count += cover ? 1 : 0;
    const Region a = region_of(coarse);
    const Region b = region_of(fine);
    ASSERT_EQ(overlaps(a, b), overlap) << view_text(coarse) << " and " << view_text(fine);
    ASSERT_EQ(overlaps(b, a), overlap) << view_text(coarse) << " and " << view_text(fine);
    ASSERT_EQ(covers(b, a), cover) << view_text(fine) << " and " << view_text(coarse);
  }
  EXPECT_GT(overlap_count, static_cast<int>(test_effort(5000)));
  EXPECT_LT(overlap_count, static_cast<int>(test_effort(25000)));
  EXPECT_GT(cover_count, static_cast<int>(test_effort(300)));
}

// Too many blocks to go over one by one: the strides divide each other, so that is not needed.
TEST(Region, IsRightForLargeRectangles) {
  const View whole = dense_view(BufferId{0}, DType::kBf16, {100000, 8, 128});
  const View low = slice(whole, 2, 0, 64);     // of all tokens and heads
  const View low_heads = slice(low, 1, 2, 4);  // repeats at two strides
  const View high = slice(whole, 2, 64, 64);
  const View high_odd = slice(slice(high, 0, 1, 99998), 1, 3, 5);
  EXPECT_TRUE(overlaps(region_of(low), region_of(low_heads)));
  EXPECT_TRUE(covers(region_of(low), region_of(low_heads)));
  EXPECT_FALSE(covers(region_of(low_heads), region_of(low)));
  EXPECT_FALSE(overlaps(region_of(high), region_of(low_heads)));
  EXPECT_FALSE(overlaps(region_of(low_heads), region_of(high_odd)));
  EXPECT_FALSE(overlaps(region_of(low), region_of(high_odd)));
  EXPECT_TRUE(covers(region_of(high), region_of(high_odd)));
}

TEST(Region, TakesTheSafeAnswerWhereStridesHaveNothingInCommon) {
  View one = dense_view(BufferId{0}, DType::kU8, {100000});
  View other = one;
  one.strides[0] = 2 * 10007;
  other.strides[0] = 2 * 10009;
  other.offset = 1;  // odd, so that they never meet
  EXPECT_TRUE(overlaps(region_of(one), region_of(other)));
  EXPECT_FALSE(covers(region_of(one), region_of(other)));
}

TEST(Region, ThatTouchesNothingOverlapsNothing) {
  const Region nothing = region_of(dense_view(BufferId{0}, DType::kU8, {4, 0}));
  const Region all = region_of(dense_view(BufferId{0}, DType::kU8, {100}));
  EXPECT_EQ(byte_count(nothing), 0);
  EXPECT_FALSE(overlaps(nothing, all));
  EXPECT_FALSE(overlaps(all, nothing));
  EXPECT_FALSE(overlaps(nothing, nothing));
  EXPECT_TRUE(covers(all, nothing));
}

TEST(Region, ThatIsAHullCoversNothing) {
  View view = dense_view(BufferId{0}, DType::kU8, {3, 3});
  view.strides = {7, 5, 0, 0};
  const Region hull = region_of(view);
  EXPECT_FALSE(hull.exact);
  EXPECT_FALSE(covers(hull, region_of(dense_view(BufferId{0}, DType::kU8, {1}))));
  EXPECT_TRUE(overlaps(hull, region_of(dense_view(BufferId{0}, DType::kU8, {100}))));
}

}  // namespace
}  // namespace gapless
