// SPDX-License-Identifier: Apache-2.0
//
// Tokens that are found in a text as they stand, before it is cut into words: <|im_start|>, <think>
// and so on. The leftmost wins, of those that begin there the longest.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gapless {

class AddedTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = 0;
  };

  // `content` must not be empty. Of two that are the same the first counts.
  void add(std::string content, int32_t id);

  // The first one in `text` at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Token {
    std::string content;
    int32_t id = 0;
  };
  std::array<std::vector<Token>, 256> by_first_byte_;  // the longest first
};

}  // namespace gapless
