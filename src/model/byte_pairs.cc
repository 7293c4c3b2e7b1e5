// SPDX-License-Identifier: Apache-2.0

#include "model/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace gapless {

Result<MergeRanks> MergeRanks::make(std::span<const Merge> merges) {
  GAPLESS_CHECK(merges.size() < kNone);
  MergeRanks ranks;
  const size_t slot_count = std::bit_ceil(std::max<size_t>(2 * merges.size(), 2));
  ranks.slots_.resize(slot_count);
  ranks.mask_ = slot_count - 1;
  ranks.shift_ = 64 - std::countr_zero(slot_count);
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    size_t at = ranks.first_slot(pair);
    while (ranks.slots_[at].rank != kNone) {
      if (ranks.slots_[at].pair == pair) {
        return fail(ErrorCode::kInvalidInput, "merge {} is the same as merge {}", rank,
                    ranks.slots_[at].rank);
      }
      at = (at + 1) & ranks.mask_;
    }
    ranks.slots_[at] = {pair, rank};
  }
  return ranks;
}

Result<BytePairs> BytePairs::make(const ByteIds& byte_ids, std::span<const Merge> merges) {
  BytePairs pairs(byte_ids, GAPLESS_TRY(MergeRanks::make(merges)));
  pairs.merged_.reserve(merges.size());
  for (const Merge& merge : merges) pairs.merged_.push_back(merge.merged);
  return pairs;
}

// Looks the pair at `position` up and notes its rank, which it returns.
uint32_t BytePairs::update_rank(Workspace& work, uint32_t position) const {
  Workspace::Symbol& symbol = work.symbols_[position];
  symbol.rank = symbol.next == work.symbols_.size()
                    ? MergeRanks::kNone
                    : ranks_.find(symbol.id, work.symbols_[symbol.next].id);
  return symbol.rank;
}

// An entry of the heap counts only while its rank is that of the pair now at its position: a symbol
// only grows, so a pair that has changed never comes back.
void BytePairs::merge_all(Workspace& work) const {
  const auto offer = [&](uint32_t position) {
    const uint32_t rank = update_rank(work, position);
    if (rank == MergeRanks::kNone) return;
    work.heap_.push_back(uint64_t{rank} << 32 | position);
    std::push_heap(work.heap_.begin(), work.heap_.end(), std::greater<>());
  };
  while (!work.heap_.empty()) {
    std::pop_heap(work.heap_.begin(), work.heap_.end(), std::greater<>());
    const uint64_t entry = work.heap_.back();
    work.heap_.pop_back();
    const uint32_t rank = static_cast<uint32_t>(entry >> 32);
    const uint32_t position = static_cast<uint32_t>(entry);
    Workspace::Symbol& left = work.symbols_[position];
    if (left.rank != rank) continue;

    Workspace::Symbol& right = work.symbols_[left.next];
    right.rank = MergeRanks::kNone;
    left.id = merged_[rank];
    left.next = right.next;
    if (left.next < work.symbols_.size()) work.symbols_[left.next].previous = position;
    if (position > 0) offer(left.previous);
    offer(position);
  }
}

void BytePairs::append_ids(std::string_view word, Workspace& work,
                           std::vector<int32_t>& ids) const {
  GAPLESS_CHECK(word.size() < kMaxWordBytes);
  const uint32_t count = static_cast<uint32_t>(word.size());
  work.symbols_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    // Position 0 has no previous one; what it says there is never read.
    work.symbols_[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1, MergeRanks::kNone};
  }
  work.heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t rank = update_rank(work, i);
    if (rank != MergeRanks::kNone) work.heap_.push_back(uint64_t{rank} << 32 | i);
  }
  std::make_heap(work.heap_.begin(), work.heap_.end(), std::greater<>());
  merge_all(work);
  for (uint32_t i = 0; i < count; i = work.symbols_[i].next) ids.push_back(work.symbols_[i].id);
}

}  // namespace gapless
