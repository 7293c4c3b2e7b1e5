// SPDX-License-Identifier: Apache-2.0
//
// The text between the quotes of a JSON string, to UTF-8 and back, and numbers as JSON writes them.
// What is written is always valid JSON: bytes that are not UTF-8 become U+FFFD.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gapless {

// The bytes of the UTF-8 sequence that `text` begins with; 0 when it does not begin with one.
size_t utf8_sequence_bytes(std::string_view text);

// Appends `text` as it stands between quotes, or with them.
void append_json_escaped(std::string& out, std::string_view text);
void append_json_string(std::string& out, std::string_view text);

// Appends what a string means whose text between the quotes is `raw`. Half a surrogate pair becomes
// U+FFFD; an escape that JSON does not know stands for its letter.
void append_json_unescaped(std::string& out, std::string_view raw);

// Writes the shortest number that reads back as `value`; returns one past it. Needs up to 32 bytes.
// JSON has no infinities: these and NaN are written as the strings "inf", "-inf" and "nan".
char* write_json_number(char* out, double value);

}  // namespace gapless
