// SPDX-License-Identifier: Apache-2.0

#include "report/text_table.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(TextTable, AlignsLeftAndRight) {
  EXPECT_EQ(align_columns({{"lane", "spans"}, {"a", "1"}, {"longer", "1000000"}}, "lr"),
            "lane      spans\n"
            "a             1\n"
            "longer  1000000\n");
}

TEST(TextTable, LeavesNoTrailingSpaceAndIndents) {
  EXPECT_EQ(align_columns({{"a", "b"}, {"longer", ""}}, "ll", "  "), "  a       b\n  longer\n");
}

TEST(TextTable, CountsCodePointsNotBytes) {
  EXPECT_EQ(align_columns({{"größe", "1"}, {"width", "2"}}, "lr"), "größe  1\nwidth  2\n");
}

TEST(TextTable, OfNothingIsEmpty) { EXPECT_EQ(align_columns({}, "lr"), ""); }

TEST(TextTable, PrintableKeepsOneLineAndTheTerminal) {
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f"), "a\\x0ab\\x1b[2J\\x7f");
  EXPECT_EQ(printable("größe"), "größe");
}

TEST(TextTable, ShortensLongNamesInTheMiddle) {
  EXPECT_EQ(table_name("MatMulV2"), "MatMulV2");
  EXPECT_EQ(table_name(std::string(52, 'a')), std::string(52, 'a'));
  const std::string name = std::string(60, 'a') + std::string(16, 'z');
  EXPECT_EQ(table_name(name), std::string(33, 'a') + "..." + std::string(16, 'z'));
  EXPECT_EQ(table_name("a\nb"), "a\\x0ab");
}

}  // namespace
}  // namespace gapless
