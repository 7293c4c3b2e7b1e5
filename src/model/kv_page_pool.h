// SPDX-License-Identifier: Apache-2.0
//
// KvPagePool: which page of the KV cache holds which tokens of which sequence.
//
// A page holds page_tokens tokens of every layer. Sequences take pages from a free list as they
// grow. A fork shares the pages of its source, each with a count of its holders; a page is written
// by one holder only. Who appends to a page that others hold too gets a page of its own and is told
// which one to copy: full pages of a common prefix are never copied. The pool knows numbers, not
// memory: the caller owns the pages (kernels/kv_cache.h) and makes the copies.
//
// All memory is taken by create(). append() costs a few loads and stores.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace gapless {

struct KvPagePoolShape {
  int page_count = 0;
  int page_tokens = 0;         // 16 .. 256, a multiple of 16
  int max_sequences = 0;       // at the same time
  int max_sequence_pages = 0;  // of one sequence: the width of the page table
};

// Where a token goes.
struct KvSlot {
  int32_t page = 0;
  int32_t token = 0;  // in the page
  // A page whose first `token` tokens must be copied to `page`, in every layer, before the step in
  // which the token is written and before the pool is changed by anything but append(); or -1.
  int32_t copy_from = -1;
  bool operator==(const KvSlot&) const = default;
};

class KvPagePool {
 public:
  static Result<KvPagePool> create(const KvPagePoolShape& shape);

  // An empty sequence, or one that begins with the first `length` tokens of `source`. The number
  // that is returned is the smallest free one; it is free again after release().
  Result<int> add_sequence();
  Result<int> fork(int source, int length);
  void release(int sequence);

  // Makes room for one token at the end. On an error nothing has changed.
  Result<KvSlot> append(int sequence);
  // Takes back the newest append() of a sequence, with a page whose copy could not be made.
  void undo_append(int sequence, const KvSlot& slot);
  // How many times append() would succeed now if no other sequence changed.
  int64_t appendable_tokens(int sequence) const;
  // Takes tokens back from the end: after a step that failed halfway, or tokens that were refused.
  void truncate(int sequence, int length);

  const KvPagePoolShape& shape() const { return shape_; }
  bool is_live(int sequence) const;
  int sequence_count() const { return sequence_count_; }
  int free_page_count() const { return static_cast<int>(free_pages_.size()); }
  // Sequences that hold the page.
  int holder_count(int page) const;
  int length(int sequence) const;
  std::span<const int32_t> pages(int sequence) const;

  // For kernels/attention.h: row i of `table` ([batch][stride]) gets the pages of sequence i of the
  // batch and zeros behind them, lengths[i] its tokens. The stride must hold the longest of them.
  void write_page_table(std::span<const int> batch, std::span<int32_t> table, int64_t stride,
                        std::span<int32_t> lengths) const;

 private:
  struct Sequence {
    bool is_live = false;
    int length = 0;
  };
  explicit KvPagePool(const KvPagePoolShape& shape);

  int page_count_for(int length) const {
    return (length + shape_.page_tokens - 1) / shape_.page_tokens;
  }
  int32_t* row(int sequence) {
    return table_.data() + int64_t{sequence} * shape_.max_sequence_pages;
  }
  const int32_t* row(int sequence) const {
    return table_.data() + int64_t{sequence} * shape_.max_sequence_pages;
  }
  Error no_free_page(int sequence) const;
  int32_t take_page();
  void drop_page(int32_t page);

  KvPagePoolShape shape_;
  int sequence_count_ = 0;
  std::vector<int32_t> free_pages_;     // the next one is last
  std::vector<int32_t> holder_counts_;  // [page]
  std::vector<Sequence> sequences_;
  std::vector<int32_t> table_;  // [sequence][max_sequence_pages]
};

}  // namespace gapless
