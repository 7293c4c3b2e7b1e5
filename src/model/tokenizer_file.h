// SPDX-License-Identifier: Apache-2.0
//
// What a tokenizer.json says, checked: everything that byte-level BPE needs is there, and nothing
// is asked for that we would do differently from Hugging Face's `tokenizers`. Such a kind of
// normalizer, pre-tokenizer, decoder or model is refused by its name.
//
// Not looked at: `truncation` and `padding` (they are about batches), `unk_token` (every byte has a
// piece, so nothing is unknown), `trim_offsets` (we give ids, not offsets).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/byte_pairs.h"
#include "model/vocabulary.h"

namespace gapless {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;     // left out of decoded text when asked for
  bool is_normalized = false;  // found in the composed text, not in the text as it came
};

struct TokenizerFile {
  Vocabulary vocabulary;      // with the added tokens
  std::vector<Merge> merges;  // the first is the first to be done
  ByteIds byte_ids{};
  std::vector<AddedToken> added;
  std::string split_pattern;
  bool composes = false;  // the text is brought into NFC first
};

// Errors do not name the file: the caller knows it.
Result<TokenizerFile> parse_tokenizer_file(const std::string& json);

}  // namespace gapless
