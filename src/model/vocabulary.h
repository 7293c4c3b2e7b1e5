// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary: pieces and their ids, both ways. Ids are 0 to size() - 1 without holes, since they
// are the rows of an embedding.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace gapless {

class Vocabulary {
 public:
  struct Entry {
    std::string piece;
    int32_t id = 0;
  };

  // An entry may be there twice, as added tokens often are; a piece or an id that means two things
  // may not.
  static Result<Vocabulary> make(std::vector<Entry> entries);
  Vocabulary(Vocabulary&& other) noexcept = default;
  Vocabulary& operator=(Vocabulary&& other) noexcept = default;
  Vocabulary(const Vocabulary&) = delete;  // ids_ points into entries_
  Vocabulary& operator=(const Vocabulary&) = delete;
  ~Vocabulary() = default;

  int size() const { return static_cast<int>(by_id_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  std::optional<int32_t> find(std::string_view piece) const;
  // The id must be one of ours.
  std::string_view piece(int32_t id) const {
    return entries_[by_id_[static_cast<size_t>(id)]].piece;
  }

 private:
  Vocabulary() = default;

  std::vector<Entry> entries_;
  std::vector<size_t> by_id_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

// A piece for an error message: in quotes, and cut when it is long.
std::string quoted_piece(std::string_view piece);

}  // namespace gapless
