// SPDX-License-Identifier: Apache-2.0

#include "base/quantity.h"

#include <limits>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(Quantity, DurationsTakeTheUnitThatFits) {
  EXPECT_EQ(format_duration(0), "0 ns");
  EXPECT_EQ(format_duration(999), "999 ns");
  EXPECT_EQ(format_duration(1000), "1.000 us");
  EXPECT_EQ(format_duration(12'345), "12.345 us");
  EXPECT_EQ(format_duration(999'999), "999.999 us");
  EXPECT_EQ(format_duration(1'500'000), "1.500 ms");
  EXPECT_EQ(format_duration(62'000'000'000), "62.000 s");
  EXPECT_EQ(format_duration(-12'345), "-12.345 us");
}

TEST(Quantity, DurationsNeverRoundUpToAThousandOfAUnit) {
  EXPECT_EQ(format_duration(999'999'499), "999.999 ms");
  EXPECT_EQ(format_duration(999'999'999), "1.000 s");
}

TEST(Quantity, BytesAreBinary) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(3ull << 30), "3.0 GiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "16384.0 PiB");
}

TEST(Quantity, CountsKeepThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 k");
  EXPECT_EQ(format_count(12'345), "12.3 k");
  EXPECT_EQ(format_count(999'900), "1.00 M");
  EXPECT_EQ(format_count(4'840'000), "4.84 M");
}

TEST(Quantity, SmallSharesKeepTwoDigits) {
  EXPECT_EQ(format_share(0), "0.0 %");
  EXPECT_EQ(format_share(0.451), "45.1 %");
  EXPECT_EQ(format_share(1), "100.0 %");
  EXPECT_EQ(format_share(0.00012), "0.012 %");
  EXPECT_EQ(format_share(0.0094), "0.94 %");
  EXPECT_EQ(format_share(1e-9), "<0.0001 %");
}

TEST(Quantity, UtcHasNanoseconds) {
  EXPECT_EQ(format_utc(0), "1970-01-01 00:00:00.000000000 UTC");
  EXPECT_EQ(format_utc(1'700'000'000'123'456'789), "2023-11-14 22:13:20.123456789 UTC");
  EXPECT_EQ(format_utc(-1), "1969-12-31 23:59:59.999999999 UTC");
}

TEST(Quantity, CountsWithAnSForAllButOne) {
  EXPECT_EQ(counted(0, "item"), "0 items");
  EXPECT_EQ(counted(1, "item"), "1 item");
  EXPECT_EQ(counted(2, "item"), "2 items");
}

}  // namespace
}  // namespace gapless
