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

}  // namespace
}  // namespace gapless
