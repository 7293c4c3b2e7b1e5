// SPDX-License-Identifier: Apache-2.0
//
// A tokenizer.json of some 270 pieces for tests: byte b has id b, the results of the merges follow,
// then the added tokens. Every part of it can be replaced.

#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/json_text.h"
#include "model/byte_letters.h"

namespace gapless {

// Qwen3's.
inline constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

struct SmallTokenizer {
  struct Added {
    std::string content;
    std::string flags;  // more members, each with a comma before it
  };

  std::string normalizer = R"({"type": "NFC"})";
  std::string pattern{kQwenPattern};
  std::string behavior = "Isolated";
  std::string pre_tokenizer;  // empty: Split by the pattern, then ByteLevel
  std::string post_processor = "null";
  std::string decoder = R"({"type": "ByteLevel", "add_prefix_space": false})";
  std::string model_type = "BPE";
  std::string model_members;      // more of them, each with a comma after it
  bool merges_are_texts = false;  // "a b" instead of ["a", "b"]
  std::vector<std::pair<std::string, std::string>> merges = {  // as bytes
      {"h", "e"}, {"l", "l"},       {"he", "ll"}, {"hell", "o"},
      {" ", "w"}, {"\xc3", "\xa9"}, {"a", "a"},   {"aa", "aa"}};
  std::vector<Added> added = {{"<|endoftext|>", R"(, "special": true)"},
                              {"<|im_end|>", R"(, "special": true)"},
                              {"<think>", ""}};

  static std::string letters(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) text += letter_of_byte(static_cast<uint8_t>(byte));
    return text;
  }
  static std::string in_quotes(std::string_view text) {
    std::string json;
    append_json_string(json, text);
    return json;
  }

  std::string vocab_json(int& count) const {
    std::string json;
    std::set<std::string> pieces;
    const auto add = [&](const std::string& bytes) {
      if (!pieces.insert(bytes).second) return;
      json += fmt::format("{}{}: {}", count == 0 ? "" : ", ", in_quotes(letters(bytes)), count);
      ++count;
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (const auto& [left, right] : merges) add(left + right);
    return json;
  }

  std::string merges_json() const {
    std::string json;
    for (const auto& [left, right] : merges) {
      json += json.empty() ? "" : ", ";
      json += merges_are_texts
                  ? in_quotes(letters(left) + " " + letters(right))
                  : fmt::format("[{}, {}]", in_quotes(letters(left)), in_quotes(letters(right)));
    }
    return json;
  }

  std::string pre_tokenizer_json() const {
    if (!pre_tokenizer.empty()) return pre_tokenizer;
    return fmt::format(R"({{"type": "Sequence", "pretokenizers": [{{"type": "Split", )"
                       R"("pattern": {{"Regex": {}}}, "behavior": "{}", "invert": false}}, )"
                       R"({{"type": "ByteLevel", "add_prefix_space": false, )"
                       R"("use_regex": false}}]}})",
                       in_quotes(pattern), behavior);
  }

  std::string json() const {
    int count = 0;
    const std::string vocab = vocab_json(count);
    std::string added_json;
    for (const Added& token : added) {
      added_json +=
          fmt::format(R"({}{{"id": {}, "content": {}{}}})", added_json.empty() ? "" : ", ", count++,
                      in_quotes(token.content), token.flags);
    }
    return fmt::format(R"({{"version": "1.0", "added_tokens": [{}], "normalizer": {}, )"
                       R"("pre_tokenizer": {}, "post_processor": {}, "decoder": {}, )"
                       R"("model": {{"type": "{}", {}"vocab": {{{}}}, "merges": [{}]}}}})",
                       added_json, normalizer, pre_tokenizer_json(), post_processor, decoder,
                       model_type, model_members, vocab, merges_json());
  }
};

}  // namespace gapless
