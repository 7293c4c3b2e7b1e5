// SPDX-License-Identifier: Apache-2.0
//
// The letters of byte-level vocabularies. A tokenizer.json cannot hold bytes, so each of the 256
// has a printable character: those that are printable in Latin-1 stand for themselves, the others
// are numbered from U+0100 on. A space is U+0120.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gapless {

// The letter that stands for `byte`, in UTF-8.
std::string letter_of_byte(uint8_t byte);

// The bytes that the letters of `piece` stand for; nothing when a character of it is no letter.
std::optional<std::string> bytes_of_letters(std::string_view piece);

}  // namespace gapless
