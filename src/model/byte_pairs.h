// SPDX-License-Identifier: Apache-2.0
//
// Byte pair encoding: a word starts as one id a byte; the adjacent pair that comes first in the
// list of merges becomes one id, the leftmost where it is there twice, until no pair is in the
// list.
//
// Pairs wait in a heap by their place in the list, so a word of n bytes costs n log n however long
// it is: a megabyte of one letter is a word like any other. A lookup of a pair is one
// multiplication and, nearly always, one cache line of a flat table that is at most half full.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gapless {

struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

using ByteIds = std::array<int32_t, 256>;

// The place of each pair in the list of merges.
class MergeRanks {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // An error when a pair is in the list twice.
  static Result<MergeRanks> make(std::span<const Merge> merges);

  uint32_t find(int32_t left, int32_t right) const {
    const uint64_t pair = pair_of(left, right);
    size_t at = first_slot(pair);
    while (slots_[at].rank != kNone && slots_[at].pair != pair) at = (at + 1) & mask_;
    return slots_[at].rank;
  }

 private:
  struct Slot {
    uint64_t pair = 0;
    uint32_t rank = kNone;
  };

  MergeRanks() = default;
  static uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t first_slot(uint64_t pair) const {
    return static_cast<size_t>((pair * 0x9e3779b97f4a7c15u) >> shift_);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

class BytePairs {
 public:
  // Words must be shorter than this.
  static constexpr size_t kMaxWordBytes = size_t{1} << 31;

  // The memory of one caller, kept from word to word.
  class Workspace {
    friend class BytePairs;
    struct Symbol {
      int32_t id;
      uint32_t previous;
      uint32_t next;
      uint32_t rank;  // of the pair with `next`; kNone as well when this symbol is merged away
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // rank in the high half, position in the low
  };

  static Result<BytePairs> make(const ByteIds& byte_ids, std::span<const Merge> merges);

  // Appends the ids of `word` to `ids`.
  void append_ids(std::string_view word, Workspace& work, std::vector<int32_t>& ids) const;

 private:
  BytePairs(const ByteIds& byte_ids, MergeRanks ranks)
      : byte_ids_(byte_ids), ranks_(std::move(ranks)) {}
  uint32_t update_rank(Workspace& work, uint32_t position) const;
  void merge_all(Workspace& work) const;

  ByteIds byte_ids_;
  MergeRanks ranks_;
  std::vector<int32_t> merged_;  // by rank
};

}  // namespace gapless
