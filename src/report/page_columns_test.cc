// SPDX-License-Identifier: Apache-2.0

#include "report/page_columns.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "report/page_test_support.h"

namespace gapless {
namespace {

std::string base64(std::string_view bytes) {
  std::string out;
  append_base64(out, bytes);
  return out;
}

// The examples of RFC 4648.
TEST(PageColumns, WritesBase64WithPadding) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfb"), "//77");
}

TEST(PageColumns, AppendsBase64BehindWhatIsThere) {
  std::string out = "data: ";
  append_base64(out, "fo");
  EXPECT_EQ(out, "data: Zm8=");
}

TEST(PageColumns, WritesVarintsOfSevenBitsABitMeansMore) {
  PageColumns columns;
  for (const uint64_t number : {0, 1, 127, 128, 300}) columns.add(number);
  EXPECT_EQ(columns.bytes(), std::string_view("\x00\x01\x7f\x80\x01\xac\x02", 7));
}

TEST(PageColumns, NumbersSignedOnesAroundZero) {
  EXPECT_EQ(zigzag(0), 0u);
  EXPECT_EQ(zigzag(-1), 1u);
  EXPECT_EQ(zigzag(1), 2u);
  EXPECT_EQ(zigzag(-2), 3u);
  EXPECT_EQ(zigzag(std::numeric_limits<int64_t>::max()), UINT64_MAX - 1);
  EXPECT_EQ(zigzag(std::numeric_limits<int64_t>::min()), UINT64_MAX);
}

TEST(PageColumns, ReadsBackAllSizes) {
  std::vector<uint64_t> numbers = {0, UINT64_MAX};
  for (int bit = 0; bit < 64; ++bit) {
    numbers.push_back(uint64_t{1} << bit);
    numbers.push_back((uint64_t{1} << bit) - 1);
  }
  PageColumns columns;
  for (const uint64_t number : numbers) columns.add(number);
  for (const uint64_t number : numbers) columns.add_signed(static_cast<int64_t>(number));
  const std::string compressed = compress_bytes(columns.bytes(), 1).value();
  ColumnReader reader(inflate_bytes(compressed, columns.bytes().size()));
  for (const uint64_t number : numbers) EXPECT_EQ(reader.next(), number);
  for (const uint64_t number : numbers) {
    EXPECT_EQ(static_cast<uint64_t>(reader.next_signed()), number);
  }
  EXPECT_TRUE(reader.is_at_end());
}

TEST(PageColumns, RefusesALevelThatZlibDoesNotHave) {
  const Result<std::string> compressed = compress_bytes("text", 10);
  ASSERT_FALSE(compressed.has_value());
  EXPECT_EQ(compressed.error().message, "zlib cannot compress 4 bytes at level 10: error -2");
}

}  // namespace
}  // namespace gapless
