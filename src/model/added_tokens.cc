// SPDX-License-Identifier: Apache-2.0

#include "model/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gapless {

void AddedTokens::add(std::string content, int32_t id) {
  GAPLESS_CHECK(!content.empty());
  std::vector<Token>& tokens = by_first_byte_[static_cast<uint8_t>(content.front())];
  const auto place = std::find_if(tokens.begin(), tokens.end(), [&](const Token& token) {
    return token.content.size() < content.size();
  });
  tokens.insert(place, {std::move(content), id});
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const Token& token : by_first_byte_[static_cast<uint8_t>(text[at])]) {
      if (!text.substr(at).starts_with(token.content)) continue;
      return Match{at, at + token.content.size(), token.id};
    }
  }
  return std::nullopt;
}

}  // namespace gapless
