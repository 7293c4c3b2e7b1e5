// SPDX-License-Identifier: Apache-2.0

#include "model/tokenizer_file.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json_scanner.h"
#include "base/json_text.h"
#include "model/byte_letters.h"
#include "model/unicode_text.h"

namespace gapless {
namespace {

std::string text_of(const JsonValue& value) {
  std::string text;
  append_json_unescaped(text, value.text);
  return text;
}

bool is_null(const JsonValue& value) {
  return !value.is_present() || (value.kind == JsonKind::kLiteral && value.text == "null");
}
bool is_true(const JsonValue& value) {
  return value.kind == JsonKind::kLiteral && value.text == "true";
}
bool is_string(const JsonValue& value, std::string_view text) {
  return value.kind == JsonKind::kString && text_of(value) == text;
}

std::optional<int32_t> id_of(const JsonValue& value) {
  int32_t id = 0;
  const char* end = value.text.data() + value.text.size();
  if (value.kind != JsonKind::kNumber) return std::nullopt;
  const auto [stop, error] = std::from_chars(value.text.data(), end, id);
  if (error != std::errc() || stop != end) return std::nullopt;
  return id;
}

// The members of an object, taken apart once. Anything but an object has none.
class Members {
 public:
  explicit Members(const JsonValue& object) {
    if (object.kind != JsonKind::kObject) return;
    for_each_member(object.text, [this](const JsonValue& key, const JsonValue& value) {
      list_.emplace_back(text_of(key), value);
    });
  }

  // kNone when there is no such member.
  JsonValue operator[](std::string_view name) const {
    for (const auto& [key, value] : list_) {
      if (key == name) return value;
    }
    return {};
  }

 private:
  std::vector<std::pair<std::string, JsonValue>> list_;
};

std::vector<JsonValue> elements_of(const JsonValue& array) {
  std::vector<JsonValue> elements;
  JsonCursor cursor{array.text.data(), array.text.data() + array.text.size()};
  if (array.kind != JsonKind::kArray || cursor.take('[') != JsonStatus::kOk) return elements;
  JsonValue element;
  while (cursor.read_value(element) == JsonStatus::kOk) {
    elements.push_back(element);
    if (cursor.take(',') != JsonStatus::kOk) break;
  }
  return elements;
}

Result<JsonValue> read_whole_object(const std::string& json) {
  const TextRun run = first_run(json);
  const size_t utf8_bytes = run.is_utf8 ? run.text.size() : 0;
  if (utf8_bytes < json.size()) {
    return fail(ErrorCode::kInvalidInput, "not JSON: byte {} is not UTF-8", utf8_bytes);
  }
  JsonCursor cursor{json.data(), json.data() + json.size()};
  JsonValue value;
  const JsonStatus status = cursor.read_value(value);
  if (status == JsonStatus::kNeedMore) {
    return fail(ErrorCode::kInvalidInput, "cut short: the JSON goes on after its {} bytes",
                json.size());
  }
  if (status == JsonStatus::kOk) cursor.skip_space();
  if (status != JsonStatus::kOk || cursor.at != cursor.end || value.is_too_deep) {
    return fail(ErrorCode::kInvalidInput, "not JSON from byte {} on", cursor.at - json.data());
  }
  if (value.kind != JsonKind::kObject) {
    return fail(ErrorCode::kInvalidInput, "not a tokenizer: the JSON is not an object");
  }
  return value;
}

// The name of what stands at `where`, for a message: its "type", or that there is none.
std::string kind_name(const JsonValue& value) {
  if (is_null(value)) return "missing";
  const JsonValue type = Members(value)["type"];
  return type.kind == JsonKind::kString ? quoted_piece(text_of(type)) : "of no type";
}

Result<void> check_byte_level(const JsonValue& value, std::string_view where) {
  const Members members(value);
  if (!is_string(members["type"], "ByteLevel")) {
    return fail(ErrorCode::kInvalidInput, "{} is {}; only \"ByteLevel\" is supported", where,
                kind_name(value));
  }
  if (is_true(members["add_prefix_space"])) {
    return fail(ErrorCode::kInvalidInput, "{}: add_prefix_space is not supported", where);
  }
  return {};
}

Result<bool> read_normalizer(const JsonValue& normalizer) {
  if (is_null(normalizer)) return false;
  if (is_string(Members(normalizer)["type"], "NFC")) return true;
  return fail(ErrorCode::kInvalidInput, "normalizer is {}; only \"NFC\" or none is supported",
              kind_name(normalizer));
}

Result<std::string> read_split(const JsonValue& value) {
  const Members split(value);
  if (!is_string(split["type"], "Split")) {
    return fail(ErrorCode::kInvalidInput,
                "the first pre_tokenizer is {}; only \"Split\" is supported", kind_name(value));
  }
  const JsonValue pattern = Members(split["pattern"])["Regex"];
  if (pattern.kind != JsonKind::kString) {
    return fail(ErrorCode::kInvalidInput, "the Split pre_tokenizer has no pattern \"Regex\"");
  }
  if (!is_string(split["behavior"], "Isolated") || is_true(split["invert"])) {
    return fail(ErrorCode::kInvalidInput,
                "the Split pre_tokenizer must be \"Isolated\" and not inverted");
  }
  return text_of(pattern);
}

Result<std::string> read_pre_tokenizer(const JsonValue& value) {
  const Members sequence(value);
  if (!is_string(sequence["type"], "Sequence")) {
    return fail(ErrorCode::kInvalidInput,
                "pre_tokenizer is {}; only a \"Sequence\" of \"Split\" and \"ByteLevel\" is "
                "supported",
                kind_name(value));
  }
  const std::vector<JsonValue> steps = elements_of(sequence["pretokenizers"]);
  if (steps.size() != 2) {
    return fail(ErrorCode::kInvalidInput,
                "pre_tokenizer has {} steps; only \"Split\" then \"ByteLevel\" is supported",
                steps.size());
  }
  std::string pattern = GAPLESS_TRY(read_split(steps[0]));
  GAPLESS_TRY(check_byte_level(steps[1], "the second pre_tokenizer"));
  const JsonValue use_regex = Members(steps[1])["use_regex"];
  if (use_regex.kind != JsonKind::kLiteral || use_regex.text != "false") {
    return fail(ErrorCode::kInvalidInput,
                "the second pre_tokenizer: only use_regex = false is supported");
  }
  return pattern;
}

// Options of the model that would give other ids.
Result<void> check_model(const JsonValue& value) {
  const Members model(value);
  if (!is_string(model["type"], "BPE")) {
    return fail(ErrorCode::kInvalidInput, "model is {}; only \"BPE\" is supported",
                kind_name(value));
  }
  for (const std::string_view flag : {"byte_fallback", "ignore_merges"}) {
    if (!is_true(model[flag])) continue;
    return fail(ErrorCode::kInvalidInput, "model: {} is not supported", flag);
  }
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (is_null(model[name]) || is_string(model[name], "")) continue;
    return fail(ErrorCode::kInvalidInput, "model: {} is not supported", name);
  }
  if (!is_null(model["dropout"])) {
    return fail(ErrorCode::kInvalidInput, "model: dropout is not supported");
  }
  if (model["vocab"].kind != JsonKind::kObject) {
    return fail(ErrorCode::kInvalidInput, "model has no vocab");
  }
  if (model["merges"].kind != JsonKind::kArray) {
    return fail(ErrorCode::kInvalidInput, "model has no merges");
  }
  return {};
}

Result<std::vector<Vocabulary::Entry>> read_vocab(const JsonValue& vocab) {
  std::vector<Vocabulary::Entry> entries;
  std::optional<std::string> wrong;
  for_each_member(vocab.text, [&](const JsonValue& key, const JsonValue& value) {
    const std::optional<int32_t> id = id_of(value);
    if (!id && !wrong) wrong = text_of(key);
    entries.push_back({text_of(key), id.value_or(0)});
  });
  if (wrong) {
    return fail(ErrorCode::kInvalidInput, "vocab: {} has no id", quoted_piece(*wrong));
  }
  return entries;
}

Result<AddedToken> read_added_token(const JsonValue& value, size_t index) {
  const Members members(value);
  const JsonValue content = members["content"];
  const std::optional<int32_t> id = id_of(members["id"]);
  if (content.kind != JsonKind::kString || content.text.empty() || !id) {
    return fail(ErrorCode::kInvalidInput, "added token {} has no content or no id", index);
  }
  AddedToken token{text_of(content), *id, is_true(members["special"]),
                   is_true(members["normalized"])};
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip"}) {
    if (!is_true(members[flag])) continue;
    return fail(ErrorCode::kInvalidInput, "added token {}: {} is not supported",
                quoted_piece(token.content), flag);
  }
  return token;
}

// "left right" or ["left", "right"].
std::optional<std::pair<std::string, std::string>> read_pair(const JsonValue& value) {
  if (value.kind == JsonKind::kString) {
    const std::string text = text_of(value);
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return {};
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  const std::vector<JsonValue> parts = elements_of(value);
  if (parts.size() != 2) return {};
  if (parts[0].kind != JsonKind::kString || parts[1].kind != JsonKind::kString) return {};
  return std::pair(text_of(parts[0]), text_of(parts[1]));
}

Result<std::vector<Merge>> read_merges(const JsonValue& array, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (const JsonValue& value : elements_of(array)) {
    const size_t index = merges.size();
    const std::optional<std::pair<std::string, std::string>> pair = read_pair(value);
    if (!pair) return fail(ErrorCode::kInvalidInput, "merge {} is not a pair of pieces", index);
    const std::array<std::string, 3> pieces = {pair->first, pair->second,
                                               pair->first + pair->second};
    std::array<int32_t, 3> ids{};
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::optional<int32_t> id = vocabulary.find(pieces[i]);
      if (!id) {
        return fail(ErrorCode::kInvalidInput, "merge {} needs {}, which the vocabulary has not",
                    index, quoted_piece(pieces[i]));
      }
      ids[i] = *id;
    }
    merges.push_back({ids[0], ids[1], ids[2]});
  }
  return merges;
}

Result<ByteIds> find_byte_ids(const Vocabulary& vocabulary) {
  ByteIds ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const std::string letter = letter_of_byte(static_cast<uint8_t>(byte));
    const std::optional<int32_t> id = vocabulary.find(letter);
    if (!id) {
      return fail(ErrorCode::kInvalidInput, "vocab has no piece {} for byte 0x{:02x}",
                  quoted_piece(letter), byte);
    }
    ids[byte] = *id;
  }
  return ids;
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(const std::string& json) {
  const Members root(GAPLESS_TRY(read_whole_object(json)));
  GAPLESS_TRY(check_model(root["model"]));
  const bool composes = GAPLESS_TRY(read_normalizer(root["normalizer"]));
  std::string pattern = GAPLESS_TRY(read_pre_tokenizer(root["pre_tokenizer"]));
  GAPLESS_TRY(check_byte_level(root["decoder"], "decoder"));
  if (!is_null(root["post_processor"])) {
    GAPLESS_TRY(check_byte_level(root["post_processor"], "post_processor"));
  }

  const Members model(root["model"]);
  std::vector<Vocabulary::Entry> entries = GAPLESS_TRY(read_vocab(model["vocab"]));
  std::vector<AddedToken> added;
  for (const JsonValue& value : elements_of(root["added_tokens"])) {
    added.push_back(GAPLESS_TRY(read_added_token(value, added.size())));
    entries.push_back({added.back().content, added.back().id});
  }
  Vocabulary vocabulary = GAPLESS_TRY(Vocabulary::make(std::move(entries)));
  std::vector<Merge> merges = GAPLESS_TRY(read_merges(model["merges"], vocabulary));
  const ByteIds byte_ids = GAPLESS_TRY(find_byte_ids(vocabulary));
  return TokenizerFile{std::move(vocabulary), std::move(merges),  byte_ids,
                       std::move(added),      std::move(pattern), composes};
}

}  // namespace gapless
