// SPDX-License-Identifier: Apache-2.0
//
// What every decoder does with the rows of a step before the device sees them: checks them, and
// gives each a place at the end of its sequence.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/decoder.h"
#include "model/kv_page_pool.h"

namespace gapless {

inline constexpr int kMaxTopK = 1024;

// Tokens in the vocabulary, head rows that rise, a top_k that can be had.
Result<void> check_step(const StepRequest& request, const ModelConfig& config, bool has_head);

// A cache that a decoder is asked for, and pages for it: page_count of them, or with 0 as many as
// max_sequences of max_length need. Error where they make no sense for the model.
struct CacheRequest {
  int max_sequences = 1;
  int max_length = 0;
  int page_tokens = 0;
  int page_count = 0;
  int64_t pages() const;
};
Result<void> check_cache(const CacheRequest& request, const ModelConfig& config);
// Gate and up must be packed as the decoder multiplies them.
Result<void> check_packing(bool weights_are_dual, bool wants_dual);

// 1 .. kMaxMatmulRows.
Result<void> check_row_count(size_t rows);

// What a fork is refused for, before the pool is asked.
Result<void> check_fork(const KvPagePool& pool, int source, int length);

// Copies the page `from` to the page `to` in every layer.
using CopyPage = std::function<Result<void>(int32_t from, int32_t to)>;

// Room for one token at the end of a sequence of fewer than max_length.
Result<void> append_row(KvPagePool& pool, int sequence, int max_length, const CopyPage& copy_page);

// Room for all rows, in their order. Gives the length of each row's sequence behind it: what the
// row attends to. On an error no sequence has changed.
Result<std::vector<int32_t>> append_rows(KvPagePool& pool, std::span<const StepRow> rows,
                                         int max_length, const CopyPage& copy_page);
void take_back_rows(KvPagePool& pool, std::span<const StepRow> rows);

}  // namespace gapless
