// SPDX-License-Identifier: Apache-2.0

#include "base/json_text.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  append_json_escaped(out, text);
  return out;
}

std::string unescaped(std::string_view raw) {
  std::string out;
  append_json_unescaped(out, raw);
  return out;
}

std::string number(double value) {
  char text[32];
  return std::string(text, write_json_number(text, value));
}

TEST(JsonText, EscapesWhatJsonDoesNotAllow) {
  EXPECT_EQ(escaped("plain"), "plain");
  EXPECT_EQ(escaped("a\"b\\c"), "a\\\"b\\\\c");
  EXPECT_EQ(escaped("\n\t\r"), "\\n\\t\\r");
  EXPECT_EQ(escaped(std::string_view("\0\x1f", 2)), "\\u0000\\u001f");
  std::string quoted;
  append_json_string(quoted, "x");
  EXPECT_EQ(quoted, "\"x\"");
}

TEST(JsonText, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(escaped("µs → 🚀"), "µs → 🚀");
  const std::string replacement = "\xef\xbf\xbd";
  EXPECT_EQ(escaped("a\xff"), "a" + replacement);
  EXPECT_EQ(escaped("\xc0\x80"), replacement + replacement);                    // overlong zero
  EXPECT_EQ(escaped("\xed\xa0\x80"), replacement + replacement + replacement);  // half a pair
  EXPECT_EQ(escaped("\xf0\x9f\x9a"), replacement + replacement + replacement);  // cut short
  EXPECT_EQ(escaped("\xf4\x90\x80\x80x").substr(12), "x");                      // above U+10FFFF
}

TEST(JsonText, CountsTheBytesOfASequence) {
  EXPECT_EQ(utf8_sequence_bytes(""), 0u);
  EXPECT_EQ(utf8_sequence_bytes("a"), 1u);
  EXPECT_EQ(utf8_sequence_bytes("µ"), 2u);
  EXPECT_EQ(utf8_sequence_bytes("→"), 3u);
  EXPECT_EQ(utf8_sequence_bytes("🚀"), 4u);
  EXPECT_EQ(utf8_sequence_bytes("\x80"), 0u);
  EXPECT_EQ(utf8_sequence_bytes("\xe0\x80\x80"), 0u);
  EXPECT_EQ(utf8_sequence_bytes("\xf0\x80\x80\x80"), 0u);
  EXPECT_EQ(utf8_sequence_bytes("\xf5\x80\x80\x80"), 0u);
}

TEST(JsonText, UnescapesEveryEscape) {
  EXPECT_EQ(unescaped(R"(a\"b\\c\/d)"), "a\"b\\c/d");
  EXPECT_EQ(unescaped(R"(\n\t\r\b\f)"), "\n\t\r\b\f");
  EXPECT_EQ(unescaped(R"(\u0041\u00b5\u2192)"), "Aµ→");
  EXPECT_EQ(unescaped(R"(\ud83d\ude80!)"), "🚀!");
  EXPECT_EQ(unescaped(R"(\u0000)"), std::string(1, '\0'));
}

TEST(JsonText, SurvivesEscapesThatAreNone) {
  const std::string replacement = "\xef\xbf\xbd";
  EXPECT_EQ(unescaped(R"(\ud83d!)"), replacement + "!");
  EXPECT_EQ(unescaped(R"(\ude80!)"), replacement + "!");
  EXPECT_EQ(unescaped(R"(\ud83d\u0041)"), replacement + "A");
  EXPECT_EQ(unescaped(R"(\u12)"), "u12");
  EXPECT_EQ(unescaped(R"(\x)"), "x");
  EXPECT_EQ(unescaped("a\\"), "a");
}

TEST(JsonText, EscapingAndBackGivesEveryByteBack) {
  for (int c = 0; c < 128; ++c) {
    const std::string text = "x" + std::string(1, static_cast<char>(c)) + "y";
    EXPECT_EQ(unescaped(escaped(text)), text) << c;
  }
}

TEST(JsonText, NumbersReadBackExactly) {
  for (const double value : {0.0, -1.5, 0.1, 1e300, 5e-324, 123456789012345.0}) {
    const std::string text = number(value);
    double back = 0;
    std::from_chars(text.data(), text.data() + text.size(), back);
    EXPECT_EQ(back, value) << text;
  }
  EXPECT_EQ(number(1800), "1800");
  EXPECT_EQ(number(std::nan("")), "\"nan\"");
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "\"inf\"");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "\"-inf\"");
  EXPECT_LE(number(-std::numeric_limits<double>::denorm_min()).size(), 32u);
  EXPECT_LE(number(-1.7976931348623157e308).size(), 32u);
}

}  // namespace
}  // namespace gapless
