// SPDX-License-Identifier: Apache-2.0

#include "model/vocabulary.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::string error_of(std::vector<Vocabulary::Entry> entries) {
  const Result<Vocabulary> vocabulary = Vocabulary::make(std::move(entries));
  return vocabulary ? "" : vocabulary.error().message;
}

TEST(Vocabulary, FindsPiecesAndIds) {
  Result<Vocabulary> made = Vocabulary::make({{"b", 1}, {"", 2}, {"a", 0}, {"b", 1}});
  ASSERT_TRUE(made.has_value());
  const Vocabulary vocabulary = std::move(made).value();
  EXPECT_EQ(vocabulary.size(), 3) << "an entry may be repeated";
  EXPECT_EQ(vocabulary.find("a"), 0);
  EXPECT_EQ(vocabulary.find("b"), 1);
  EXPECT_EQ(vocabulary.find(""), 2);
  EXPECT_EQ(vocabulary.find("c"), std::nullopt);
  EXPECT_EQ(vocabulary.piece(0), "a");
  EXPECT_EQ(vocabulary.piece(2), "");
  EXPECT_FALSE(vocabulary.contains(-1));
  EXPECT_FALSE(vocabulary.contains(3));
}

TEST(Vocabulary, RefusesWhatMeansTwoThingsOrLeavesHoles) {
  EXPECT_EQ(error_of({{"a", 0}, {"a", 1}}), "\"a\" has two ids, 0 and 1");
  EXPECT_EQ(error_of({{"a", 0}, {"b", 1}, {"c", 0}}), "\"a\" and \"c\" both have id 0");
  EXPECT_EQ(error_of({{"a", 0}, {"b", 3}}), "\"b\" has id 3; the ids of 2 pieces are 0 to 1");
  EXPECT_EQ(error_of({{"a", -1}}), "\"a\" has id -1; the ids of 1 pieces are 0 to 0");
}

TEST(Vocabulary, QuotesPiecesForMessages) {
  EXPECT_EQ(quoted_piece("a\"\n"), "\"a\\\"\\n\"");
  EXPECT_EQ(quoted_piece(std::string(50, 'x')), "\"" + std::string(40, 'x') + "...\"");
  EXPECT_EQ(quoted_piece(std::string(39, 'x') + "\xe4\xbd\xa0y"),
            "\"" + std::string(39, 'x') + "\xe4\xbd\xa0...\"")
      << "characters are not cut";
}

}  // namespace
}  // namespace gapless
