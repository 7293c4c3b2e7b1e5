// SPDX-License-Identifier: Apache-2.0

#include "model/unicode_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <utf8proc.h>

#include "base/check.h"
#include "base/json_text.h"

namespace gapless {
namespace {

constexpr uint64_t kHighBits = 0x8080808080808080;
constexpr int kMaxDecomposition = 8;  // Unicode promises 4 for canonical ones

struct CodeRange {
  int32_t first;
  int32_t last;
};

// Characters that stay as they are whatever stands beside them: starters that have no canonical
// decomposition or are the composed form of theirs, and that compose with nothing before them. Not
// all of them, only the ranges that texts are made of. A test proves the table by utf8proc's.
constexpr std::array<CodeRange, 20> kComposed{{
    {0x0000, 0x02ff},    // Latin
    {0x0388, 0x03ff},    // Greek
    {0x0400, 0x0482},    // Cyrillic
    {0x048a, 0x052f},    //
    {0x05d0, 0x05ea},    // Hebrew
    {0x0621, 0x064a},    // Arabic
    {0x2010, 0x2027},    // punctuation
    {0x2030, 0x205e},    //
    {0x2190, 0x21ff},    // arrows
    {0x2500, 0x27bf},    // boxes, dingbats
    {0x3000, 0x3029},    // CJK punctuation
    {0x3041, 0x3096},    // Hiragana
    {0x30a0, 0x30ff},    // Katakana
    {0x3400, 0x4dbf},    // Han
    {0x4e00, 0x9fff},    //
    {0xac00, 0xd7a3},    // Hangul syllables; not the letters they are made of
    {0xff00, 0xffef},    // half and full width
    {0x1f300, 0x1f64f},  // emoji
    {0x1f680, 0x1faff},  //
    {0x20000, 0x2a6df},  // Han
}};

bool is_composed_code(int32_t code) {
  if (code <= kComposed.front().last) return true;
  const auto after =
      std::upper_bound(kComposed.begin(), kComposed.end(), code,
                       [](int32_t value, const CodeRange& range) { return value < range.first; });
  return code <= std::prev(after)->last;
}

bool is_ascii8(const char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return (word & kHighBits) == 0;
}

// Bytes of UTF-8 at the start of `text`.
size_t utf8_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && is_ascii8(text.data() + at)) {
      at += 8;
      continue;
    }
    const size_t bytes = utf8_sequence_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

// The code point at the start of `utf8`, which it is taken from.
int32_t take_code(std::string_view& utf8) {
  int32_t code = 0;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()),
                       static_cast<utf8proc_ssize_t>(utf8.size()), &code);
  GAPLESS_CHECK(bytes > 0);
  utf8.remove_prefix(static_cast<size_t>(bytes));
  return code;
}

// Accents of one character in the order Unicode fixes. utf8proc sorts them too, but by swapping
// neighbours: a million accents in a row would take hours.
void sort_accents(std::vector<int32_t>& codes) {
  const auto combining_class = [](int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  const auto is_accent = [&](int32_t code) { return combining_class(code) != 0; };
  auto begin = codes.begin();
  while (begin != codes.end()) {
    begin = std::find_if(begin, codes.end(), is_accent);
    const auto end = std::find_if_not(begin, codes.end(), is_accent);
    std::stable_sort(begin, end,
                     [&](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

std::vector<int32_t> decompose(std::string_view utf8) {
  std::vector<int32_t> codes;
  codes.reserve(utf8.size());
  while (!utf8.empty()) {
    const int32_t code = take_code(utf8);
    std::array<utf8proc_int32_t, kMaxDecomposition> parts{};
    int unused_boundary = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code, parts.data(), kMaxDecomposition,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &unused_boundary);
    GAPLESS_CHECK(count > 0);
    GAPLESS_CHECK(count <= kMaxDecomposition);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  return codes;
}

}  // namespace

TextRun first_run(std::string_view text) {
  const size_t valid = utf8_bytes(text);
  if (valid > 0 || text.empty()) return {text.substr(0, valid), true};
  size_t wrong = 1;
  while (wrong < text.size() && utf8_sequence_bytes(text.substr(wrong)) == 0) ++wrong;
  return {text.substr(0, wrong), false};
}

size_t incomplete_utf8_bytes(std::string_view text) {
  // What would complete a sequence decides: the lowest and the highest continuation byte are both
  // tried, since some lead bytes allow only a part of them.
  for (size_t tail = 1; tail <= std::min<size_t>(text.size(), 3); ++tail) {
    const std::string_view end = text.substr(text.size() - tail);
    for (const char filler : {'\x80', '\xbf'}) {
      std::string completed(end);
      completed.append(4 - tail, filler);
      if (utf8_sequence_bytes(completed) > tail) return tail;
    }
  }
  return 0;
}

bool is_surely_composed(std::string_view utf8) {
  while (!utf8.empty()) {
    if (utf8.size() >= 8 && is_ascii8(utf8.data())) {
      utf8.remove_prefix(8);
      continue;
    }
    if (static_cast<uint8_t>(utf8.front()) < 0x80) {
      utf8.remove_prefix(1);
      continue;
    }
    if (!is_composed_code(take_code(utf8))) return false;
  }
  return true;
}

std::string_view to_composed(std::string_view utf8, std::string& storage) {
  if (is_surely_composed(utf8)) return utf8;
  std::vector<int32_t> codes = decompose(utf8);
  sort_accents(codes);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  GAPLESS_CHECK(count >= 0);
  codes.resize(static_cast<size_t>(count));
  storage.clear();
  storage.reserve(utf8.size());
  for (const int32_t code : codes) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const utf8proc_ssize_t length = utf8proc_encode_char(code, bytes.data());
    storage.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
  }
  return storage;
}

}  // namespace gapless
