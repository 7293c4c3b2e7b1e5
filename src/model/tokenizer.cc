// SPDX-License-Identifier: Apache-2.0

#include "model/tokenizer.h"

#include <array>
#include <utility>

#include "base/file.h"
#include "model/byte_letters.h"
#include "model/unicode_text.h"

namespace gapless {
namespace {

constexpr std::array<std::string_view, 2> kEndPieces{"<|im_end|>", "<|endoftext|>"};

// Calls encode_plain(part) for what lies between the tokens, and appends the tokens' ids.
template <typename EncodePlain>
Result<void> encode_between(const AddedTokens& tokens, std::string_view text,
                            std::vector<int32_t>& ids, EncodePlain encode_plain) {
  size_t from = 0;
  while (from < text.size()) {
    const std::optional<AddedTokens::Match> match = tokens.find(text, from);
    const size_t plain_end = match ? match->begin : text.size();
    GAPLESS_TRY(encode_plain(text.substr(from, plain_end - from)));
    if (!match) break;
    ids.push_back(match->id);
    from = match->end;
  }
  return {};
}

}  // namespace

struct Tokenizer::Encoding {
  std::vector<int32_t> ids;
  BytePairs::Workspace work;
  std::string normalized;  // the part at hand
};

Tokenizer::Tokenizer(TokenizerFile file, BytePairs pairs, TextSplit split)
    : vocabulary_(std::move(file.vocabulary)),
      pairs_(std::move(pairs)),
      split_(std::move(split)),
      composes_(file.composes) {
  const size_t count = static_cast<size_t>(vocabulary_.size());
  bytes_.reserve(count);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view piece = vocabulary_.piece(id);
    // A piece with other characters than letters stands for itself, as in `tokenizers`.
    bytes_.push_back(bytes_of_letters(piece).value_or(std::string(piece)));
  }
  is_special_.assign(count, false);
  add_tokens(file.added);
  for (const std::string_view piece : kEndPieces) {
    const std::optional<int32_t> id = vocabulary_.find(piece);
    if (id && is_special(*id)) end_ids_.push_back(*id);
  }
}

void Tokenizer::add_tokens(const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    // What is found as it stands decodes to what it was, even where its characters are letters.
    bytes_[static_cast<size_t>(token.id)] = token.content;
    if (token.is_special) is_special_[static_cast<size_t>(token.id)] = true;
    if (!token.is_normalized) {
      raw_tokens_.add(token.content, token.id);
      continue;
    }
    std::string storage;
    normalized_tokens_.add(std::string(normalize(token.content, storage)), token.id);
  }
}

Result<Tokenizer> Tokenizer::parse(const std::string& json) {
  TokenizerFile file = GAPLESS_TRY(parse_tokenizer_file(json));
  BytePairs pairs = GAPLESS_TRY(BytePairs::make(file.byte_ids, file.merges));
  TextSplit split = GAPLESS_TRY(TextSplit::compile(file.split_pattern));
  return Tokenizer(std::move(file), std::move(pairs), std::move(split));
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const std::string file = is_directory(path) ? path + "/tokenizer.json" : path;
  const std::string json = GAPLESS_TRY(read_text_file(file));
  Result<Tokenizer> tokenizer = parse(json);
  if (!tokenizer) tokenizer.error().message = file + ": " + tokenizer.error().message;
  return tokenizer;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) {
    return fail(ErrorCode::kInvalidInput, "a text of {} bytes; at most {} can be encoded at once",
                text.size(), kMaxTextBytes);
  }
  Encoding encoding;
  GAPLESS_TRY(encode_between(raw_tokens_, text, encoding.ids,
                             [&](std::string_view part) { return encode_bytes(part, encoding); }));
  return std::move(encoding.ids);
}

Result<void> Tokenizer::encode_bytes(std::string_view text, Encoding& encoding) const {
  while (!text.empty()) {
    const TextRun run = first_run(text);
    text.remove_prefix(run.text.size());
    if (!run.is_utf8) {
      pairs_.append_ids(run.text, encoding.work, encoding.ids);
      continue;
    }
    GAPLESS_TRY(encode_utf8(run.text, encoding));
  }
  return {};
}

std::string_view Tokenizer::normalize(std::string_view utf8, std::string& storage) const {
  return composes_ ? to_composed(utf8, storage) : utf8;
}

Result<void> Tokenizer::encode_utf8(std::string_view utf8, Encoding& encoding) const {
  const std::string_view normalized = normalize(utf8, encoding.normalized);
  return encode_between(normalized_tokens_, normalized, encoding.ids,
                        [&](std::string_view part) { return encode_words(part, encoding); });
}

Result<void> Tokenizer::encode_words(std::string_view utf8, Encoding& encoding) const {
  return split_.for_each_piece(
      utf8, [&](std::string_view word) { pairs_.append_ids(word, encoding.work, encoding.ids); });
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special) const {
  std::string text;
  for (const int32_t id : ids) {
    if (special == SpecialTokens::kSkip && is_special(id)) continue;
    text += bytes_of(id);
  }
  return text;
}

std::string_view Tokenizer::piece_of(int32_t id) const {
  return vocabulary_.contains(id) ? vocabulary_.piece(id) : std::string_view();
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  return vocabulary_.contains(id) ? bytes_[static_cast<size_t>(id)] : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  return vocabulary_.contains(id) && is_special_[static_cast<size_t>(id)];
}

std::string TextStream::push(int32_t id) {
  if (special_ == SpecialTokens::kSkip && tokenizer_.is_special(id)) return "";
  waiting_ += tokenizer_.bytes_of(id);
  const size_t ready = waiting_.size() - incomplete_utf8_bytes(waiting_);
  std::string text = waiting_.substr(0, ready);
  waiting_.erase(0, ready);
  return text;
}

std::string TextStream::finish() { return std::exchange(waiting_, std::string()); }

}  // namespace gapless
