// SPDX-License-Identifier: Apache-2.0
//
// CoreSet: some of up to 256 cores, as bits, walked from the lowest.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gapless {

class CoreSet {
 public:
  static constexpr uint32_t kCapacity = 256;

  void add(uint32_t core) { words_[core / 64] |= bit(core); }
  void remove(uint32_t core) { words_[core / 64] &= ~bit(core); }
  bool has(uint32_t core) const { return (words_[core / 64] & bit(core)) != 0; }
  bool is_empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  uint32_t count() const {
    uint32_t sum = 0;
    for (const uint64_t word : words_) sum += static_cast<uint32_t>(std::popcount(word));
    return sum;
  }
  // How many members are below `core`.
  uint32_t rank(uint32_t core) const {
    uint32_t sum = static_cast<uint32_t>(std::popcount(words_[core / 64] & (bit(core) - 1)));
    for (uint32_t word = 0; word < core / 64; ++word) {
      sum += static_cast<uint32_t>(std::popcount(words_[word]));
    }
    return sum;
  }
  // Takes out `core` and all below it.
  void remove_through(uint32_t core) {
    for (uint32_t word = 0; word < core / 64; ++word) words_[word] = 0;
    words_[core / 64] &= ~(bit(core) | (bit(core) - 1));
  }
  CoreSet operator&(const CoreSet& other) const {
    CoreSet both = *this;
    for (size_t word = 0; word < words_.size(); ++word) both.words_[word] &= other.words_[word];
    return both;
  }
  // Members that are not in `other`.
  CoreSet without(const CoreSet& other) const {
    CoreSet rest = *this;
    for (size_t word = 0; word < words_.size(); ++word) rest.words_[word] &= ~other.words_[word];
    return rest;
  }
  // Calls visit(core) for each member from the lowest, until it returns false.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (uint32_t word = 0; word < words_.size(); ++word) {
      for (uint64_t left = words_[word]; left != 0; left &= left - 1) {
        if (!visit(word * 64 + static_cast<uint32_t>(std::countr_zero(left)))) return;
      }
    }
  }
  bool operator==(const CoreSet&) const = default;

 private:
  static uint64_t bit(uint32_t core) { return uint64_t{1} << (core % 64); }

  std::array<uint64_t, kCapacity / 64> words_ = {};
};

}  // namespace gapless
