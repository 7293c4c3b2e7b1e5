// SPDX-License-Identifier: Apache-2.0

#include "model/byte_letters.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(ByteLetters, EveryByteHasALetterOfItsOwn) {
  std::set<std::string> letters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string letter = letter_of_byte(static_cast<uint8_t>(byte));
    letters.insert(letter);
    EXPECT_EQ(bytes_of_letters(letter), std::string(1, static_cast<char>(byte))) << byte;
  }
  EXPECT_EQ(letters.size(), 256u);
}

TEST(ByteLetters, AreThoseOfPublishedVocabularies) {
  EXPECT_EQ(letter_of_byte('a'), "a");
  EXPECT_EQ(letter_of_byte(' '), "\xc4\xa0");   // U+0120
  EXPECT_EQ(letter_of_byte('\n'), "\xc4\x8a");  // U+010A
  EXPECT_EQ(letter_of_byte(0), "\xc4\x80");     // U+0100
  EXPECT_EQ(letter_of_byte(0xad), "\xc5\x83");  // U+0143, the last of the numbered ones
  EXPECT_EQ(letter_of_byte(0xff), "\xc3\xbf");  // U+00FF
  EXPECT_EQ(bytes_of_letters("\xc4\xa0you"), " you");
}

TEST(ByteLetters, OtherCharactersAreNone) {
  EXPECT_EQ(bytes_of_letters(""), "");
  EXPECT_FALSE(bytes_of_letters("a b").has_value()) << "a space is written as U+0120";
  EXPECT_FALSE(bytes_of_letters("\xc5\x84").has_value()) << "U+0144 is one too many";
  EXPECT_FALSE(bytes_of_letters("\xe4\xbd\xa0").has_value());
  EXPECT_FALSE(bytes_of_letters("\xc4").has_value());
  EXPECT_FALSE(bytes_of_letters("\xc4z").has_value());
}

}  // namespace
}  // namespace gapless
