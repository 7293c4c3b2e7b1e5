// SPDX-License-Identifier: Apache-2.0

#include "model/tokenizer_file.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "model/tokenizer_test_support.h"

namespace gapless {
namespace {

std::string error_of(const std::string& json) {
  const Result<TokenizerFile> file = parse_tokenizer_file(json);
  return file ? "" : file.error().message;
}

// The error when `change` was made to a file that is right.
std::string error_after(const std::function<void(SmallTokenizer&)>& change) {
  SmallTokenizer small;
  change(small);
  return error_of(small.json());
}

// The error when `before`, which must be there, is replaced.
std::string error_replacing(const std::string& before, const std::string& after) {
  std::string json = SmallTokenizer().json();
  const size_t at = json.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  if (at == std::string::npos) return "";
  return error_of(json.replace(at, before.size(), after));
}

TEST(TokenizerFile, HoldsWhatTheFileSays) {
  for (const bool merges_are_texts : {false, true}) {
    SmallTokenizer small;
    small.merges_are_texts = merges_are_texts;
    const Result<TokenizerFile> parsed = parse_tokenizer_file(small.json());
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    const TokenizerFile& file = *parsed;
    EXPECT_EQ(file.vocabulary.size(), 267);
    EXPECT_EQ(file.vocabulary.find("hello"), 259);
    EXPECT_EQ(file.byte_ids[' '], ' ');
    EXPECT_EQ(file.byte_ids[255], 255);
    ASSERT_EQ(file.merges.size(), 8u);
    EXPECT_EQ(file.merges[2].left, 256);
    EXPECT_EQ(file.merges[2].right, 257);
    EXPECT_EQ(file.merges[2].merged, 258);
    ASSERT_EQ(file.added.size(), 3u);
    EXPECT_EQ(file.added[1].content, "<|im_end|>");
    EXPECT_EQ(file.added[1].id, 265);
    EXPECT_TRUE(file.added[1].is_special);
    EXPECT_FALSE(file.added[2].is_special);
    EXPECT_EQ(file.split_pattern, kQwenPattern);
    EXPECT_TRUE(file.composes);
  }
}

TEST(TokenizerFile, PartsThatMayBeMissing) {
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.normalizer = "null"; }), "");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.merges.clear(); }), "");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.added.clear(); }), "");
  EXPECT_EQ(error_after([](SmallTokenizer& s) {
              s.post_processor = R"({"type": "ByteLevel", "trim_offsets": false})";
            }),
            "");
  EXPECT_EQ(error_after([](SmallTokenizer& s) {
              s.model_members = R"("dropout": null, "continuing_subword_prefix": "",)";
            }),
            "");
}

TEST(TokenizerFile, RefusesWhatIsNotJson) {
  EXPECT_EQ(error_of(""), "cut short: the JSON goes on after its 0 bytes");
  EXPECT_EQ(error_of("hello, world"), "not JSON from byte 0 on");
  EXPECT_EQ(error_of("{} x"), "not JSON from byte 3 on");
  EXPECT_EQ(error_of("{\"a\": \"\xff\"}"), "not JSON: byte 7 is not UTF-8");
  EXPECT_EQ(error_of("\xff"), "not JSON: byte 0 is not UTF-8");
  EXPECT_EQ(error_of("[1]"), "not a tokenizer: the JSON is not an object");
  EXPECT_EQ(error_of("{}"), "model is missing; only \"BPE\" is supported");
}

TEST(TokenizerFile, NamesTheKindItDoesNotSupport) {
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.model_type = "Unigram"; }),
            "model is \"Unigram\"; only \"BPE\" is supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.normalizer = R"({"type": "NFKC"})"; }),
            "normalizer is \"NFKC\"; only \"NFC\" or none is supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.normalizer = "5"; }),
            "normalizer is of no type; only \"NFC\" or none is supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.pre_tokenizer = R"({"type": "Metaspace"})"; }),
            "pre_tokenizer is \"Metaspace\"; only a \"Sequence\" of \"Split\" and \"ByteLevel\" is "
            "supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) {
              s.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}]})";
            }),
            "pre_tokenizer has 1 steps; only \"Split\" then \"ByteLevel\" is supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) {
              s.pre_tokenizer =
                  R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {}]})";
            }),
            "the first pre_tokenizer is \"Digits\"; only \"Split\" is supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.behavior = "Removed"; }),
            "the Split pre_tokenizer must be \"Isolated\" and not inverted");
  EXPECT_EQ(error_replacing("\"invert\": false", "\"invert\": true"),
            "the Split pre_tokenizer must be \"Isolated\" and not inverted");
  EXPECT_EQ(error_replacing("\"Regex\"", "\"String\""),
            "the Split pre_tokenizer has no pattern \"Regex\"");
  EXPECT_EQ(error_replacing("{\"type\": \"ByteLevel\"", "{\"type\": \"Digits\""),
            "the second pre_tokenizer is \"Digits\"; only \"ByteLevel\" is supported");
  EXPECT_EQ(error_replacing("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
            "the second pre_tokenizer: add_prefix_space is not supported");
  EXPECT_EQ(error_replacing("\"use_regex\": false", "\"use_regex\": true"),
            "the second pre_tokenizer: only use_regex = false is supported");
  EXPECT_EQ(error_after([](SmallTokenizer& s) { s.decoder = "null"; }),
            "decoder is missing; only \"ByteLevel\" is supported");
  EXPECT_EQ(error_after(
                [](SmallTokenizer& s) { s.post_processor = R"({"type": "TemplateProcessing"})"; }),
            "post_processor is \"TemplateProcessing\"; only \"ByteLevel\" is supported");
}

TEST(TokenizerFile, RefusesOptionsThatWouldGiveOtherIds) {
  const std::vector<std::pair<std::string, std::string>> options = {
      {"byte_fallback", "true"},
      {"ignore_merges", "true"},
      {"continuing_subword_prefix", "\"##\""},
      {"dropout", "0.1"},
      {"end_of_word_suffix", "\"_\""}};
  for (const auto& option : options) {
    const std::string member = fmt::format("\"{}\": {},", option.first, option.second);
    EXPECT_EQ(error_after([&](SmallTokenizer& s) { s.model_members = member; }),
              "model: " + option.first + " is not supported");
  }
  for (const std::string flag : {"single_word", "lstrip", "rstrip"}) {
    EXPECT_EQ(error_after([&](SmallTokenizer& s) {
                s.added.push_back({"<x>", fmt::format(", \"{}\": true", flag)});
              }),
              "added token \"<x>\": " + flag + " is not supported");
  }
}

TEST(TokenizerFile, RefusesVocabulariesAndMergesThatDoNotFit) {
  EXPECT_EQ(error_replacing("\"vocab\"", "\"words\""), "model has no vocab");
  EXPECT_EQ(error_replacing("\"merges\"", "\"pairs\""), "model has no merges");
  EXPECT_EQ(error_replacing("\"A\": 65", "\"A\": 6.5"), "vocab: \"A\" has no id");
  EXPECT_EQ(error_replacing("\"A\": 65", "\"A\": \"65\""), "vocab: \"A\" has no id");
  EXPECT_EQ(error_replacing("\"A\": 65", "\"A\": 99999999999"), "vocab: \"A\" has no id");
  EXPECT_EQ(error_replacing("\"A\": 65", "\"A\": 66"), "\"A\" and \"B\" both have id 66");
  EXPECT_EQ(error_replacing("\"A\": 65", "\"A\": 300"),
            "\"A\" has id 300; the ids of 267 pieces are 0 to 266");
  EXPECT_EQ(error_replacing("\"A\": 65", "\"AA\": 65"), "vocab has no piece \"A\" for byte 0x41");
  EXPECT_EQ(error_replacing("[\"h\", \"e\"]", "[\"h\"]"), "merge 0 is not a pair of pieces");
  EXPECT_EQ(error_replacing("[\"h\", \"e\"]", "[\"h\", 1]"), "merge 0 is not a pair of pieces");
  EXPECT_EQ(error_replacing("[\"l\", \"l\"]", "\"l l l\""), "merge 1 is not a pair of pieces");
  EXPECT_EQ(error_replacing("[\"l\", \"l\"]", "\"ll\""), "merge 1 is not a pair of pieces");
  EXPECT_EQ(error_replacing("[\"l\", \"l\"]", "[\"l\", \"zz\"]"),
            "merge 1 needs \"zz\", which the vocabulary has not");
  EXPECT_EQ(error_replacing("[\"l\", \"l\"]", "[\"l\", \"z\"]"),
            "merge 1 needs \"lz\", which the vocabulary has not");
  EXPECT_EQ(error_replacing("\"id\": 266", "\"id\": 265"),
            "\"<|im_end|>\" and \"<think>\" both have id 265");
  EXPECT_EQ(error_replacing("\"id\": 266", "\"id\": null"),
            "added token 2 has no content or no id");
  EXPECT_EQ(error_replacing("\"<think>\"", "\"\""), "added token 2 has no content or no id");
}

TEST(TokenizerFile, AFileCutAnywhereIsRefused) {
  const std::string json = SmallTokenizer().json();
  const size_t step = kSanitized ? 61 : 7;
  for (size_t cut = 0; cut < json.size(); cut += step) {
    ASSERT_NE(error_of(json.substr(0, cut)), "") << cut;
  }
  ASSERT_NE(error_of(json.substr(0, json.size() - 1)), "");
  EXPECT_EQ(error_of(json), "");
}

}  // namespace
}  // namespace gapless
