// SPDX-License-Identifier: Apache-2.0

#include "model/unicode_text.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

constexpr int32_t kCodeEnd = 0x110000;

bool is_surrogate(int32_t code) { return code >= 0xd800 && code < 0xe000; }

std::string utf8_of(int32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t length = utf8proc_encode_char(code, bytes.data());
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length)};
}

// utf8proc's own way, whole.
std::string composed_by_utf8proc(const std::string& text) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(length, 0);
  std::string result(reinterpret_cast<const char*>(composed), static_cast<size_t>(length));
  std::free(composed);
  return result;
}

std::string composed(std::string_view text) {
  std::string storage;
  return std::string(to_composed(text, storage));
}

TEST(UnicodeText, SeparatesUtf8FromOtherBytes) {
  const std::string text = "ab\xe4\xbd\xa0\xff\xc0\x80z\xe4\xbd";
  std::string_view rest = text;
  std::vector<std::pair<std::string, bool>> runs;
  while (!rest.empty()) {
    const TextRun run = first_run(rest);
    runs.emplace_back(run.text, run.is_utf8);
    rest.remove_prefix(run.text.size());
  }
  const std::vector<std::pair<std::string, bool>> expected = {
      {"ab\xe4\xbd\xa0", true}, {"\xff\xc0\x80", false}, {"z", true}, {"\xe4\xbd", false}};
  EXPECT_EQ(runs, expected);
  EXPECT_TRUE(first_run("").text.empty());
}

TEST(UnicodeText, CountsTheBytesThatWaitForMore) {
  for (const int32_t code :
       {0x41, 0x7ff, 0x800, 0x4f60, 0xd7ff, 0xffff, 0x10000, 0x1f600, 0x10ffff}) {
    const std::string whole = "x" + utf8_of(code);
    EXPECT_EQ(incomplete_utf8_bytes(whole), 0u) << code;
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      EXPECT_EQ(incomplete_utf8_bytes(std::string_view(whole).substr(0, cut)), cut - 1) << code;
    }
  }
  EXPECT_EQ(incomplete_utf8_bytes(""), 0u);
  EXPECT_EQ(incomplete_utf8_bytes("\x80\x80\x80\x80"), 0u) << "nothing can make these whole";
  EXPECT_EQ(incomplete_utf8_bytes("\xff"), 0u);
  EXPECT_EQ(incomplete_utf8_bytes("\xed\xa0"), 0u) << "half of a surrogate is not UTF-8";
  EXPECT_EQ(incomplete_utf8_bytes("\xe0\x80"), 0u) << "neither is a sequence longer than needed";
  EXPECT_EQ(incomplete_utf8_bytes("\xe4\xc3"), 1u);
}

// Goal: what the table lets pass needs no composition, in any company.
// Method: by utf8proc's data, each character of it is a starter that composition leaves alone, and
// is not the second half of any composed character.
TEST(UnicodeText, TableHoldsOnlyCharactersThatNothingChanges) {
  std::set<int32_t> second_halves;
  for (int32_t code = 0; code < kCodeEnd; ++code) {
    if (is_surrogate(code)) continue;
    std::array<utf8proc_int32_t, 8> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code, parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    ASSERT_GE(count, 1);
    ASSERT_LE(count, 4);
    if (count > 1) second_halves.insert(parts[static_cast<size_t>(count - 1)]);
  }
  int passed_count = 0;
  for (int32_t code = 0; code < kCodeEnd; ++code) {
    if (is_surrogate(code)) continue;
    const std::string text = utf8_of(code);
    if (!is_surely_composed(text)) continue;
    ++passed_count;
    ASSERT_EQ(utf8proc_get_property(code)->combining_class, 0) << code;
    ASSERT_FALSE(second_halves.contains(code)) << code;
    ASSERT_EQ(composed_by_utf8proc(text), text) << code;
  }
  EXPECT_GT(passed_count, 80'000) << "the table is there to be used";
  EXPECT_FALSE(is_surely_composed("\xcc\x81"));
}

TEST(UnicodeText, ComposesAsUnicodeSays) {
  EXPECT_EQ(composed("plain"), "plain");
  EXPECT_EQ(composed("e\xcc\x81"), "\xc3\xa9") << "e and acute";
  EXPECT_EQ(composed("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8"), "\xea\xb0\x81") << "Hangul";
  EXPECT_EQ(composed("q\xcc\x87\xcc\xa3"), "q\xcc\xa3\xcc\x87") << "accents below come first";
  EXPECT_EQ(composed("\xe0\xa5\x98"), "\xe0\xa4\x95\xe0\xa4\xbc") << "one that is never composed";
  EXPECT_EQ(composed("\xe2\x84\xab"), "\xc3\x85") << "the Angstrom sign is a letter";
  EXPECT_EQ(composed(std::string("a\0e\xcc\x81", 5)), std::string("a\0\xc3\xa9", 4));
}

TEST(UnicodeText, ComposesRandomTextAsUtf8procDoes) {
  std::mt19937 random(7);
  const std::array<std::pair<int32_t, int32_t>, 6> ranges{{{0x20, 0x24f},
                                                           {0x300, 0x36f},
                                                           {0x370, 0x3ff},
                                                           {0x900, 0x9ff},
                                                           {0x1100, 0x11ff},
                                                           {0x3040, 0x30ff}}};
  for (uint32_t round = 0; round < test_effort(3000); ++round) {
    std::string text;
    for (size_t i = 0; i < random() % 20; ++i) {
      const auto [low, high] = ranges[random() % ranges.size()];
      text += utf8_of(low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1)));
    }
    ASSERT_EQ(composed(text), composed_by_utf8proc(text));
    ASSERT_EQ(composed(composed(text)), composed(text));
  }
}

// Swapping neighbours, as utf8proc does, would need 10^10 steps here.
TEST(UnicodeText, SortsHundredsOfThousandsOfAccents) {
  constexpr int kPairs = 200'000;
  std::string text = "x";
  for (int i = 0; i < kPairs; ++i) text += "\xcc\x81\xcc\xa3";  // acute, dot below
  std::string expected = "x";
  for (int i = 0; i < kPairs; ++i) expected += "\xcc\xa3";
  for (int i = 0; i < kPairs; ++i) expected += "\xcc\x81";
  EXPECT_TRUE(composed(text) == expected);
}

}  // namespace
}  // namespace gapless
