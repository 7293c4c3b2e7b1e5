// SPDX-License-Identifier: Apache-2.0
//
// qwen3_tokenizer_test FOLDER TOKEN_IDS: the tokenizer.json in FOLDER gives the ids in TOKEN_IDS,
// which Hugging Face `tokenizers` made (tests/data/make_token_ids.py), and gives the texts back.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/test_effort.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "model/unicode_text.h"

namespace gapless {
namespace {

using Ids = std::vector<int32_t>;

std::string folder;
std::string token_ids_path;

struct Expected {
  std::string text;
  Ids ids;
  std::string decoded;
};

class Qwen3Tokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<Tokenizer> loaded = Tokenizer::load(folder);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    tokenizer = new Tokenizer(std::move(loaded).value());
    const Result<std::string> text = read_text_file(token_ids_path);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    for (const nlohmann::json& entry : nlohmann::json::parse(*text)) {
      expected.push_back({entry.at("text"), entry.at("ids"), entry.at("decoded")});
    }
  }
  static void TearDownTestSuite() {
    delete tokenizer;
    tokenizer = nullptr;
  }
  void SetUp() override { ASSERT_NE(tokenizer, nullptr); }

  static Ids encode(std::string_view text) {
    Result<Ids> ids = tokenizer->encode(text);
    EXPECT_TRUE(ids.has_value());
    return ids ? std::move(ids).value() : Ids();
  }
  static std::string decode(const Ids& ids) { return tokenizer->decode(ids, SpecialTokens::kKeep); }
  // `is_text`: all of it is UTF-8, so each part must be.
  static std::string stream(const Ids& ids, bool is_text) {
    TextStream text_stream(*tokenizer, SpecialTokens::kKeep);
    std::string text;
    for (const int32_t id : ids) {
      text += text_stream.push(id);
      const TextRun run = first_run(text);
      EXPECT_TRUE(!is_text || (run.is_utf8 && run.text.size() == text.size()));
    }
    return text + text_stream.finish();
  }

  static inline Tokenizer* tokenizer = nullptr;
  static inline std::vector<Expected> expected;
};

TEST_F(Qwen3Tokenizer, IsTheWholeVocabulary) {
  EXPECT_EQ(tokenizer->id_count(), 151'669);
  EXPECT_EQ(tokenizer->id_of("<|im_start|>"), 151'644);
  EXPECT_EQ(tokenizer->id_of("\xc4\xa0the"), 279);
  EXPECT_EQ(tokenizer->bytes_of(279), " the");
  const std::span<const int32_t> ends = tokenizer->end_ids();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), (Ids{151'645, 151'643}));
}

TEST_F(Qwen3Tokenizer, GivesTheIdsThatHuggingFaceGives) {
  ASSERT_EQ(expected.size(), 430u);
  for (const Expected& entry : expected) EXPECT_EQ(encode(entry.text), entry.ids) << entry.text;
}

TEST_F(Qwen3Tokenizer, DecodesToWhatHuggingFaceDecodesTo) {
  for (const Expected& entry : expected) {
    EXPECT_EQ(decode(entry.ids), entry.decoded);
    EXPECT_EQ(stream(entry.ids, true), entry.decoded);
  }
}

TEST_F(Qwen3Tokenizer, DecodedTextIsTheComposedText) {
  for (const Expected& entry : expected) {
    std::string storage;
    EXPECT_EQ(entry.decoded, to_composed(entry.text, storage));
    EXPECT_EQ(decode(encode(entry.decoded)), entry.decoded);
  }
}

TEST_F(Qwen3Tokenizer, EveryPieceIsReachable) {
  // By its own bytes, unless a split or another order of merges takes them apart: rare.
  int apart_count = 0;
  for (int32_t id = 0; id < tokenizer->id_count(); ++id) {
    const std::string bytes(tokenizer->bytes_of(id));
    ASSERT_FALSE(bytes.empty()) << id;
    const Ids ids = encode(bytes);
    if (first_run(bytes).text.size() < bytes.size()) {
      ASSERT_EQ(decode(ids), bytes) << id;
    } else if (ids != Ids{id}) {
      ++apart_count;
    }
  }
  EXPECT_LT(apart_count, tokenizer->id_count() / 50);
}

TEST_F(Qwen3Tokenizer, LosesNoByteOfRandomStrings) {
  std::mt19937 random(31);
  for (uint32_t round = 0; round < test_effort(2000); ++round) {
    std::string bytes;
    for (size_t i = 0; i < random() % 60; ++i) {
      const Expected& entry = expected[random() % expected.size()];
      if (random() % 3 != 0 || entry.decoded.size() > 40) {
        bytes += static_cast<char>(random() % 256);
      } else {
        bytes += entry.decoded;
      }
    }
    const Ids ids = encode(bytes);
    ASSERT_EQ(stream(ids, false), decode(ids));
    std::string composed;
    std::string storage;
    for (std::string_view rest = bytes; !rest.empty();) {
      const TextRun run = first_run(rest);
      composed += run.is_utf8 ? to_composed(run.text, storage) : run.text;
      rest.remove_prefix(run.text.size());
    }
    ASSERT_EQ(decode(encode(composed)), composed);
  }
}

TEST_F(Qwen3Tokenizer, LongWordsAndLongTextsEnd) {
  const size_t bytes = test_effort(1 << 18);
  for (const char letter : {'a', ' ', '\n', '!', '\xff'}) {
    const std::string text(bytes, letter);
    EXPECT_TRUE(decode(encode(text)) == text) << letter;
  }
}

TEST_F(Qwen3Tokenizer, AChatIsMadeOfItsSpecialTokens) {
  const std::vector<ChatMessage> messages = {{ChatRole::kUser, "Hi"}};
  const Result<std::string> text = render_chat(messages, {.enable_thinking = false});
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(encode(*text), (Ids{151'644, 872, 198, 13'048, 151'645, 198, 151'644, 77'091, 198,
                                151'667, 271, 151'668, 271}));
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: qwen3_tokenizer_test FOLDER TOKEN_IDS\n");
    return 2;
  }
  gapless::folder = argv[1];
  gapless::token_ids_path = argv[2];
  return RUN_ALL_TESTS();
}
