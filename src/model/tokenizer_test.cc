// SPDX-License-Identifier: Apache-2.0

#include "model/tokenizer.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/temporary_directory.h"
#include "base/test_effort.h"
#include "model/tokenizer_test_support.h"
#include "model/unicode_text.h"

namespace gapless {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kHello = 259;
constexpr int32_t kSpaceW = 260;
constexpr int32_t kEAcute = 261;
constexpr int32_t kEndOfText = 264;
constexpr int32_t kTurnEnd = 265;
constexpr int32_t kThink = 266;

Tokenizer make_tokenizer(const SmallTokenizer& small = {}) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(small.json());
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Result<Ids> ids = tokenizer.encode(text);
  EXPECT_TRUE(ids.has_value());
  return std::move(ids).value();
}

TEST(Tokenizer, EncodesWordsAndAddedTokens) {
  const Tokenizer tokenizer = make_tokenizer();
  EXPECT_EQ(encode(tokenizer, "hello world"), (Ids{kHello, kSpaceW, 'o', 'r', 'l', 'd'}));
  EXPECT_EQ(encode(tokenizer, "hello<|im_end|>hello"), (Ids{kHello, kTurnEnd, kHello}));
  EXPECT_EQ(encode(tokenizer, "<think><|endoftext|>"), (Ids{kThink, kEndOfText}));
  EXPECT_EQ(encode(tokenizer, "<think"), (Ids{'<', 't', 'h', 'i', 'n', 'k'}));
  EXPECT_TRUE(encode(tokenizer, "").empty());
}

TEST(Tokenizer, MergesDoNotCrossWords) {
  const Tokenizer tokenizer = make_tokenizer();
  EXPECT_EQ(encode(tokenizer, "he'll"), (Ids{256, '\'', 257})) << "cut before the apostrophe";
  EXPECT_EQ(encode(tokenizer, "hell o"), (Ids{258, ' ', 'o'}));
}

TEST(Tokenizer, ComposesWhenTheFileSaysSo) {
  EXPECT_EQ(encode(make_tokenizer(), "e\xcc\x81"), (Ids{kEAcute}));
  SmallTokenizer small;
  small.normalizer = "null";
  EXPECT_EQ(encode(make_tokenizer(small), "e\xcc\x81"), (Ids{'e', 0xcc, 0x81}));
}

TEST(Tokenizer, AddedTokensAreFoundBeforeOrAfterComposition) {
  SmallTokenizer small;
  small.added = {{"<\xc3\xa9>", ", \"normalized\": true"},
                 {"[\xc3\xa9]", ", \"normalized\": false"}};
  const Tokenizer tokenizer = make_tokenizer(small);
  EXPECT_EQ(encode(tokenizer, "<e\xcc\x81>"), (Ids{264}));
  EXPECT_EQ(encode(tokenizer, "[\xc3\xa9]"), (Ids{265}));
  EXPECT_EQ(encode(tokenizer, "[e\xcc\x81]"), (Ids{'[', kEAcute, ']'}));
  EXPECT_EQ(tokenizer.decode(Ids{264, 265}, SpecialTokens::kKeep), "<\xc3\xa9>[\xc3\xa9]")
      << "their letters are not letters of bytes";
}

TEST(Tokenizer, BytesThatAreNotUtf8AreKept) {
  const Tokenizer tokenizer = make_tokenizer();
  EXPECT_EQ(encode(tokenizer, "hello\xff\xfehello"), (Ids{kHello, 0xff, 0xfe, kHello}));
  EXPECT_EQ(encode(tokenizer, "\xc3"), (Ids{0xc3}));
  EXPECT_EQ(encode(tokenizer, "\xff<|im_end|>\xff"), (Ids{0xff, kTurnEnd, 0xff}));
}

// Goal: nothing is lost.
// Method: random bytes, and random pieces of text with a few bytes changed; decoded, they are what
// they were, after composition of the parts that are UTF-8.
TEST(Tokenizer, DecodingGivesEveryStringOfBytesBack) {
  const Tokenizer tokenizer = make_tokenizer();
  const std::vector<std::string> parts = {"hello",
                                          " w",
                                          "aaa",
                                          "\n",
                                          "'s",
                                          "e\xcc\x81",
                                          "\xe4\xbd\xa0",
                                          "<think>",
                                          "<|im_end|>",
                                          "<",
                                          "\xf0\x9f\x98\x80",
                                          "1",
                                          "  "};
  std::mt19937 random(23);
  for (uint32_t round = 0; round < test_effort(3000); ++round) {
    std::string text;
    for (size_t i = 0; i < random() % 12; ++i) {
      text += random() % 4 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                : parts[random() % parts.size()];
    }
    if (!text.empty() && random() % 2 == 0)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    std::string expected;
    std::string storage;
    for (std::string_view rest = text; !rest.empty();) {
      const TextRun run = first_run(rest);
      expected += run.is_utf8 ? to_composed(run.text, storage) : run.text;
      rest.remove_prefix(run.text.size());
    }
    // Tokens are cut out before; only U+0338 behind their ">" would compose, and none is here.
    ASSERT_EQ(tokenizer.decode(encode(tokenizer, text), SpecialTokens::kKeep), expected);
    ASSERT_EQ(tokenizer.decode(encode(tokenizer, expected), SpecialTokens::kKeep), expected);
  }
}

TEST(Tokenizer, DecodesWithOrWithoutSpecialTokens) {
  const Tokenizer tokenizer = make_tokenizer();
  const Ids ids = {kThink, kHello, kTurnEnd, kEndOfText};
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kKeep), "<think>hello<|im_end|><|endoftext|>");
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kSkip), "<think>hello");
}

TEST(Tokenizer, IdsWithoutAPieceDecodeToNothing) {
  const Tokenizer tokenizer = make_tokenizer();
  const Ids ids = {-1, kHello, 267, INT32_MAX, INT32_MIN};
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kKeep), "hello");
  EXPECT_EQ(tokenizer.piece_of(267), "");
  EXPECT_EQ(tokenizer.bytes_of(-1), "");
  EXPECT_FALSE(tokenizer.is_special(267));
}

TEST(Tokenizer, FindsPiecesAndIds) {
  const Tokenizer tokenizer = make_tokenizer();
  EXPECT_EQ(tokenizer.id_count(), 267);
  EXPECT_EQ(tokenizer.id_of("\xc4\xa0w"), kSpaceW);
  EXPECT_EQ(tokenizer.piece_of(kSpaceW), "\xc4\xa0w");
  EXPECT_EQ(tokenizer.bytes_of(kSpaceW), " w");
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), kTurnEnd);
  EXPECT_EQ(tokenizer.id_of("missing"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(kTurnEnd));
  EXPECT_FALSE(tokenizer.is_special(kThink));
  const std::span<const int32_t> ends = tokenizer.end_ids();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), (Ids{kTurnEnd, kEndOfText}));
}

TEST(Tokenizer, EndsOnlyWithSpecialTokens) {
  SmallTokenizer small;
  small.added = {{"<|im_end|>", ""}, {"<|endoftext|>", ", \"special\": true"}};
  const Tokenizer tokenizer = make_tokenizer(small);
  const std::span<const int32_t> ends = tokenizer.end_ids();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), (Ids{265}));
}

TEST(Tokenizer, AMegabyteWordIsEncoded) {
  const Tokenizer tokenizer = make_tokenizer();
  const size_t bytes = test_effort(1 << 20) & ~3u;
  EXPECT_EQ(encode(tokenizer, std::string(bytes, 'a')), Ids(bytes / 4, 263));
}

TEST(Tokenizer, LoadsAFileOrAFolder) {
  const TemporaryDirectory folder;
  const std::string path = folder.path("tokenizer.json");
  ASSERT_TRUE(write_text_file(path, SmallTokenizer().json()).has_value());
  for (const std::string& from : {path, folder.path()}) {
    const Result<Tokenizer> tokenizer = Tokenizer::load(from);
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_EQ(encode(*tokenizer, "hello"), (Ids{kHello}));
  }
}

TEST(Tokenizer, ErrorsNameTheFile) {
  const TemporaryDirectory folder;
  const std::string path = folder.path("tokenizer.json");
  const Result<Tokenizer> missing = Tokenizer::load(folder.path());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message, path + ": cannot open: No such file or directory");

  SmallTokenizer small;
  small.pattern = "(a";
  ASSERT_TRUE(write_text_file(path, small.json()).has_value());
  const Result<Tokenizer> wrong = Tokenizer::load(path);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message,
            path + ": the split pattern does not compile: missing closing parenthesis");

  small = {};
  small.merges.emplace_back("h", "e");
  const Result<Tokenizer> twice = Tokenizer::parse(small.json());
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().message, "merge 8 is the same as merge 0");
}

TEST(Tokenizer, APatternThatTriesForeverIsAnErrorOfTheText) {
  SmallTokenizer small;
  small.pattern = "(?:a|aa)+(?:a|aa)+(?<=c)";
  const Result<Ids> ids = make_tokenizer(small).encode(std::string(60, 'a'));
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().message,
            "the split pattern fails at byte 0 of a text of 60 bytes: match limit exceeded");
}

TEST(TextStream, HoldsCharactersBackUntilTheyAreWhole) {
  const Tokenizer tokenizer = make_tokenizer();
  TextStream stream(tokenizer, SpecialTokens::kSkip);
  EXPECT_EQ(stream.push(kHello), "hello");
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.push(kTurnEnd), "") << "a special token that is left out disturbs nothing";
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.push(0x80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(stream.push(0xe4), "");
  EXPECT_EQ(stream.push('x'), "\xe4x") << "what cannot become whole any more is given as it is";
  EXPECT_EQ(stream.push(0xe4), "");
  EXPECT_EQ(stream.finish(), "\xe4");
  EXPECT_EQ(stream.finish(), "");
}

// True when `position` lies inside a character of `text`.
bool is_inside_character(std::string_view text, size_t position) {
  size_t at = 0;
  while (at < position) at += std::max<size_t>(utf8_sequence_bytes(text.substr(at)), 1);
  return at != position;
}

TEST(TextStream, GivesTheSameTextAsDecodingAtOnce) {
  const Tokenizer tokenizer = make_tokenizer();
  std::mt19937 random(29);
  for (uint32_t round = 0; round < test_effort(2000); ++round) {
    Ids ids;
    for (size_t i = 0; i < random() % 30; ++i) ids.push_back(static_cast<int32_t>(random() % 270));
    for (const SpecialTokens special : {SpecialTokens::kKeep, SpecialTokens::kSkip}) {
      const std::string expected = tokenizer.decode(ids, special);
      TextStream stream(tokenizer, special);
      std::string text;
      for (const int32_t id : ids) {
        text += stream.push(id);
        ASSERT_FALSE(is_inside_character(expected, text.size()));
      }
      ASSERT_EQ(text + stream.finish(), expected);
    }
  }
}

}  // namespace
}  // namespace gapless
