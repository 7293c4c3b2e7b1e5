// SPDX-License-Identifier: Apache-2.0

#include "model/vocabulary.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/json_text.h"

namespace gapless {
namespace {

constexpr size_t kNoEntry = std::numeric_limits<size_t>::max();
constexpr size_t kMaxQuotedBytes = 40;

}  // namespace

std::string quoted_piece(std::string_view piece) {
  size_t shown = 0;
  while (shown < std::min(piece.size(), kMaxQuotedBytes)) {
    shown += std::max<size_t>(utf8_sequence_bytes(piece.substr(shown)), 1);
  }
  std::string quoted = "\"";
  append_json_escaped(quoted, piece.substr(0, shown));
  return quoted + (shown < piece.size() ? "...\"" : "\"");
}

Result<Vocabulary> Vocabulary::make(std::vector<Entry> entries) {
  Vocabulary vocabulary;
  vocabulary.entries_ = std::move(entries);
  vocabulary.ids_.reserve(vocabulary.entries_.size());
  for (const Entry& entry : vocabulary.entries_) {
    const auto [known, is_new] = vocabulary.ids_.emplace(entry.piece, entry.id);
    if (!is_new && known->second != entry.id) {
      return fail(ErrorCode::kInvalidInput, "{} has two ids, {} and {}", quoted_piece(entry.piece),
                  known->second, entry.id);
    }
  }
  const int64_t count = static_cast<int64_t>(vocabulary.ids_.size());
  vocabulary.by_id_.assign(vocabulary.ids_.size(), kNoEntry);
  for (size_t i = 0; i < vocabulary.entries_.size(); ++i) {
    const Entry& entry = vocabulary.entries_[i];
    if (entry.id < 0 || entry.id >= count) {
      return fail(ErrorCode::kInvalidInput, "{} has id {}; the ids of {} pieces are 0 to {}",
                  quoted_piece(entry.piece), entry.id, count, count - 1);
    }
    size_t& place = vocabulary.by_id_[static_cast<size_t>(entry.id)];
    if (place == kNoEntry) place = i;
    const Entry& first = vocabulary.entries_[place];
    if (first.piece != entry.piece) {
      return fail(ErrorCode::kInvalidInput, "{} and {} both have id {}", quoted_piece(first.piece),
                  quoted_piece(entry.piece), entry.id);
    }
  }
  return vocabulary;
}

std::optional<int32_t> Vocabulary::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace gapless
