// SPDX-License-Identifier: Apache-2.0
//
// What a tokenizer must know of Unicode: where UTF-8 ends and other bytes begin, and the composed
// form of a text (NFC: "e" and an accent after it become one character).
//
// Almost all text is composed already and consists of characters that nothing can change; a table
// of their ranges spares it the work. The rest goes through utf8proc's tables. Time is linear in
// the text, but for runs of accents on one character, which are sorted: n log n.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gapless {

// The longest run of UTF-8 at the start of a text; where there is none, of bytes that are not.
struct TextRun {
  std::string_view text;
  bool is_utf8 = true;
};
TextRun first_run(std::string_view text);

// How many bytes at the end of a text begin a UTF-8 sequence whose other bytes are still to come:
// 0 to 3.
size_t incomplete_utf8_bytes(std::string_view text);

// True when no character of `utf8` can change or be changed by composition. False says nothing.
bool is_surely_composed(std::string_view utf8);

// `utf8` in composed form: itself, or a view of `storage`, which is overwritten then. The text must
// be UTF-8.
std::string_view to_composed(std::string_view utf8, std::string& storage);

}  // namespace gapless
