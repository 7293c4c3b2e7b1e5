// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer: text to ids and back, by a Hugging Face tokenizer.json with byte-level BPE (Qwen3's).
//
// A text goes through five steps: added tokens are found in it as they stand; what is left is
// composed (NFC), searched for the added tokens that want that, cut into words by the file's
// pattern, and each word merged into ids. Bytes that are not UTF-8 are no word of any pattern, but
// every byte has an id: a run of them is encoded as it is. So nothing is lost:
// decode(encode(x)) == x for every string of bytes whose UTF-8 is in composed form.
//
// Added tokens are found wherever they stand: text of strangers that must not end a turn has to be
// searched for them by the caller.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/added_tokens.h"
#include "model/byte_pairs.h"
#include "model/text_split.h"
#include "model/tokenizer_file.h"
#include "model/vocabulary.h"

namespace gapless {

enum class SpecialTokens { kKeep, kSkip };

class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{512} << 20;

  // `path`: a tokenizer.json, or a folder with one.
  static Result<Tokenizer> load(const std::string& path);
  // The text of such a file.
  static Result<Tokenizer> parse(const std::string& json);

  // Several threads may encode and decode with one tokenizer.
  Result<std::vector<int32_t>> encode(std::string_view text) const;
  // The bytes of all ids, which need not be UTF-8. Ids that no piece has are nothing: the embedding
  // of a model has more rows than its tokenizer has pieces, and may choose one of them.
  std::string decode(std::span<const int32_t> ids, SpecialTokens special) const;

  // Ids are 0 to id_count() - 1.
  int id_count() const { return vocabulary_.size(); }
  // By the piece as it is written in the file: a space is U+0120 there.
  std::optional<int32_t> id_of(std::string_view piece) const { return vocabulary_.find(piece); }
  // As in the file, and as bytes; empty when there is no such id.
  std::string_view piece_of(int32_t id) const;
  std::string_view bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;
  // <|im_end|> and <|endoftext|>, those that are special tokens here. A checkpoint's
  // generation_config.json knows better where there is one.
  std::span<const int32_t> end_ids() const { return end_ids_; }

 private:
  struct Encoding;
  Tokenizer(TokenizerFile file, BytePairs pairs, TextSplit split);
  void add_tokens(const std::vector<AddedToken>& added);
  std::string_view normalize(std::string_view utf8, std::string& storage) const;
  Result<void> encode_bytes(std::string_view text, Encoding& encoding) const;
  Result<void> encode_utf8(std::string_view utf8, Encoding& encoding) const;
  Result<void> encode_words(std::string_view utf8, Encoding& encoding) const;

  Vocabulary vocabulary_;
  BytePairs pairs_;
  TextSplit split_;
  AddedTokens raw_tokens_;          // found in the text as it came
  AddedTokens normalized_tokens_;   // found in the normalized text
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> is_special_;    // by id
  std::vector<int32_t> end_ids_;
  bool composes_;
};

// Ids that come one by one, as text that can be shown: a character whose bytes are spread over
// several ids waits until it is whole. Bytes that are not UTF-8 are given as they are.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, SpecialTokens special)
      : tokenizer_(tokenizer), special_(special) {}

  // The text that this id makes complete; may be empty.
  std::string push(int32_t id);
  // What still waited; the stream starts anew. All texts together are what decode() gives.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  SpecialTokens special_;
  std::string waiting_;
};

}  // namespace gapless
