// SPDX-License-Identifier: Apache-2.0
//
// Cuts a text into words by the regular expression of a tokenizer.json, through PCRE2.
//
// Each match is a piece and so is what lies between two matches. The pattern was written for
// Oniguruma; the one difference that matters is \s, which means Unicode's White_Space there and is
// translated. A match that takes too many steps is an error, never a hang.

#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace gapless {

class TextSplit {
 public:
  static Result<TextSplit> compile(std::string_view pattern);
  TextSplit(TextSplit&& other) noexcept;
  TextSplit& operator=(TextSplit&& other) noexcept;
  ~TextSplit();

  // Calls visit(piece) from front to back; the pieces are not empty and together they are `utf8`,
  // which must be UTF-8.
  Result<void> for_each_piece(std::string_view utf8,
                              const std::function<void(std::string_view)>& visit) const;

 private:
  struct Compiled;
  explicit TextSplit(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace gapless
