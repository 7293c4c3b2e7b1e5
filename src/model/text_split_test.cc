// SPDX-License-Identifier: Apache-2.0

#include "model/text_split.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "model/tokenizer_test_support.h"

namespace gapless {
namespace {

using Pieces = std::vector<std::string>;

TextSplit compiled(std::string_view pattern) {
  Result<TextSplit> split = TextSplit::compile(pattern);
  EXPECT_TRUE(split.has_value());
  return std::move(split).value();
}

Result<Pieces> pieces_of(const TextSplit& split, std::string_view text) {
  Pieces pieces;
  GAPLESS_TRY(
      split.for_each_piece(text, [&](std::string_view piece) { pieces.emplace_back(piece); }));
  return pieces;
}

Pieces qwen_pieces(std::string_view text) {
  Result<Pieces> pieces = pieces_of(compiled(kQwenPattern), text);
  EXPECT_TRUE(pieces.has_value());
  return std::move(pieces).value();
}

TEST(TextSplit, CutsTextAsQwenDoes) {
  EXPECT_EQ(qwen_pieces("Hello, world!"), (Pieces{"Hello", ",", " world", "!"}));
  EXPECT_EQ(qwen_pieces("I'm we'LL"), (Pieces{"I", "'m", " we", "'LL"}));
  EXPECT_EQ(qwen_pieces("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(qwen_pieces("12 x"), (Pieces{"1", "2", " x"}));
  EXPECT_EQ(qwen_pieces("a \n\n b"), (Pieces{"a", " \n\n", " b"}));
  EXPECT_EQ(qwen_pieces("x   "), (Pieces{"x", "   "}));
  EXPECT_EQ(qwen_pieces("(f)\n"), (Pieces{"(f", ")\n"}));
  EXPECT_TRUE(qwen_pieces("").empty());
}

TEST(TextSplit, KnowsTheCharactersOfUnicode) {
  EXPECT_EQ(qwen_pieces("\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c"),
            (Pieces{"\xe4\xbd\xa0\xe5\xa5\xbd", "\xef\xbc\x8c"}));
  EXPECT_EQ(qwen_pieces("\xc2\xbd\xc2\xb2"), (Pieces{"\xc2\xbd", "\xc2\xb2"}))
      << "numbers are single";
  EXPECT_EQ(qwen_pieces("'\xc5\xbfx"), (Pieces{"'\xc5\xbf", "x"})) << "the long s is an s";
}

TEST(TextSplit, SpaceIsWhatUnicodeCallsWhiteSpace) {
  const TextSplit split = compiled("\\s+|[\\S]+");
  const Result<Pieces> pieces = pieces_of(split,
                                          "a\xc2\x85\xe3\x80\x80"
                                          "b\xe1\xa0\x8e"
                                          "c");
  ASSERT_TRUE(pieces.has_value());
  EXPECT_EQ(*pieces, (Pieces{"a", "\xc2\x85\xe3\x80\x80",
                             "b\xe1\xa0\x8e"
                             "c"}))
      << "U+0085 and U+3000 are; U+180E was once and is not";
  const Result<Pieces> literal = pieces_of(compiled("\\\\s"), "a\\sb s");
  ASSERT_TRUE(literal.has_value());
  EXPECT_EQ(*literal, (Pieces{"a", "\\s", "b s"})) << "an escaped backslash and an s";
}

TEST(TextSplit, WhatDoesNotMatchIsAPieceToo) {
  const Result<Pieces> pieces = pieces_of(compiled("b+"), "abbcbb");
  ASSERT_TRUE(pieces.has_value());
  EXPECT_EQ(*pieces, (Pieces{"a", "bb", "c", "bb"}));
  const Result<Pieces> none = pieces_of(compiled("x*"), "abc");
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(*none, (Pieces{"abc"})) << "matches of nothing cut nothing";
}

TEST(TextSplit, PiecesTogetherAreTheText) {
  const TextSplit split = compiled(kQwenPattern);
  std::mt19937 random(17);
  const std::vector<std::string> parts = {" ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "a",
                                          "Bc",
                                          "7",
                                          "'s",
                                          "'",
                                          "!",
                                          "\xc3\xa9",
                                          "\xe4\xbd\xa0",
                                          "\xf0\x9f\x98\x80",
                                          "\xe2\x80\x83"};
  for (uint32_t round = 0; round < test_effort(2000); ++round) {
    std::string text;
    for (size_t i = 0; i < random() % 30; ++i) text += parts[random() % parts.size()];
    const Result<Pieces> pieces = pieces_of(split, text);
    ASSERT_TRUE(pieces.has_value());
    std::string together;
    for (const std::string& piece : *pieces) {
      ASSERT_FALSE(piece.empty());
      together += piece;
    }
    ASSERT_EQ(together, text);
  }
}

TEST(TextSplit, AMegabyteOfSpacesIsTwoPieces) {
  const size_t count = 1 << 20;
  std::string text(count, ' ');
  text += 'x';
  const Pieces pieces = qwen_pieces(text);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].size(), count - 1);
  EXPECT_EQ(pieces[1], " x");
}

TEST(TextSplit, SaysWhyAPatternDoesNotCompile) {
  const Result<TextSplit> split = TextSplit::compile("(a");
  ASSERT_FALSE(split.has_value());
  EXPECT_EQ(split.error().message,
            "the split pattern does not compile: missing closing parenthesis");
  EXPECT_FALSE(TextSplit::compile("\\C").has_value()) << "would cut characters in two";
}

TEST(TextSplit, APatternThatTriesForeverIsStopped) {
  const Result<Pieces> pieces =
      pieces_of(compiled("(?:a|aa)+(?:a|aa)+(?<=c)"), std::string(60, 'a'));
  ASSERT_FALSE(pieces.has_value());
  EXPECT_EQ(pieces.error().message,
            "the split pattern fails at byte 0 of a text of 60 bytes: match limit exceeded");
}

TEST(TextSplit, APatternThatMatchesBackwardsIsStopped) {
  const Result<Pieces> pieces = pieces_of(compiled("(?(DEFINE)(?<x>bc\\K))a(?=(?&x))"), "xabc");
  ASSERT_FALSE(pieces.has_value());
  EXPECT_EQ(pieces.error().message, "the split pattern matches backwards at byte 0");
}

TEST(TextSplit, APatternThatNeedsADeepStackStillMatches) {
  // Each repetition of the group is remembered, more than the machine code's stack holds.
  const std::string text(100'000, 'a');
  const Result<Pieces> pieces = pieces_of(compiled("(?:(a)|b)*a"), text);
  ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
  EXPECT_EQ(*pieces, (Pieces{text}));
}

}  // namespace
}  // namespace gapless
