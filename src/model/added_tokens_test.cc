// SPDX-License-Identifier: Apache-2.0

#include "model/added_tokens.h"

#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::string found(const AddedTokens& tokens, std::string_view text, size_t from = 0) {
  const std::optional<AddedTokens::Match> match = tokens.find(text, from);
  if (!match) return "nothing";
  return std::to_string(match->id) + " at " + std::to_string(match->begin) + " to " +
         std::to_string(match->end);
}

TEST(AddedTokens, TheLeftmostIsFound) {
  AddedTokens tokens;
  tokens.add("<b>", 1);
  tokens.add("{c}", 2);
  EXPECT_EQ(found(tokens, "a{c}<b>"), "2 at 1 to 4");
  EXPECT_EQ(found(tokens, "a{c}<b>", 2), "1 at 4 to 7");
  EXPECT_EQ(found(tokens, "a{c}<b>", 5), "nothing");
}

TEST(AddedTokens, OfThoseThatBeginThereTheLongest) {
  AddedTokens tokens;
  tokens.add("<a", 1);
  tokens.add("<a><b>", 2);
  tokens.add("<a>", 3);
  EXPECT_EQ(found(tokens, "x<a><b>"), "2 at 1 to 7");
  EXPECT_EQ(found(tokens, "x<a><c>"), "3 at 1 to 4");
  EXPECT_EQ(found(tokens, "x<a"), "1 at 1 to 3");
  EXPECT_EQ(found(tokens, "x<"), "nothing");
}

TEST(AddedTokens, OfTwoThatAreTheSameTheFirst) {
  AddedTokens tokens;
  tokens.add("<a>", 1);
  tokens.add("<a>", 2);
  EXPECT_EQ(found(tokens, "<a>"), "1 at 0 to 3");
}

TEST(AddedTokens, WithoutTokensNothingIsFound) {
  EXPECT_EQ(found(AddedTokens(), "text"), "nothing");
  AddedTokens tokens;
  tokens.add("x", 1);
  EXPECT_EQ(found(tokens, ""), "nothing");
}

}  // namespace
}  // namespace gapless
