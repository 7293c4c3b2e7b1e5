// SPDX-License-Identifier: Apache-2.0

#include "model/step_rows.h"

#include <limits>
#include <utility>

#include "kernels/packed_rows.h"

namespace gapless {

Result<void> check_step(const StepRequest& request, const ModelConfig& config, bool has_head) {
  if (!has_head)
    return fail(ErrorCode::kInvalidInput,
                "model '{}' was made without embedding and head, so it takes no tokens",
                config.name);
  for (const StepRow& row : request.rows)
    if (row.token < 0 || row.token >= config.vocabulary)
      return fail(ErrorCode::kInvalidInput,
                  "token {} of sequence {}; model '{}' has tokens 0 to {}", row.token, row.sequence,
                  config.name, config.vocabulary - 1);
  int last = -1;
  for (const int row : request.head_rows) {
    if (row <= last || row >= std::ssize(request.rows))
      return fail(ErrorCode::kInvalidInput,
                  "head rows must rise and be less than {}; found {} after {}", request.rows.size(),
                  row, last);
    last = row;
  }
  if (request.head == HeadOutput::kTop && (request.top_k < 1 || request.top_k > kMaxTopK))
    return fail(ErrorCode::kInvalidInput, "the {} largest logits of a row; must be 1 to {}",
                request.top_k, kMaxTopK);
  return {};
}

int64_t CacheRequest::pages() const {
  if (page_count > 0) return page_count;
  return int64_t{max_sequences} * ((int64_t{max_length} + page_tokens - 1) / page_tokens);
}

Result<void> check_cache(const CacheRequest& request, const ModelConfig& config) {
  if (request.max_length < 1 || request.max_length > config.max_positions)
    return fail(ErrorCode::kInvalidInput,
                "a context of {} tokens; model '{}' has positions for 1 to {}", request.max_length,
                config.name, config.max_positions);
  if (request.max_sequences < 1)
    return fail(ErrorCode::kInvalidInput, "a cache for {} sequences; must be at least 1",
                request.max_sequences);
  if (request.page_count < 0)
    return fail(ErrorCode::kInvalidInput, "a cache of {} pages; must be at least 1, or 0 for all",
                request.page_count);
  if (request.pages() > std::numeric_limits<int>::max())
    return fail(ErrorCode::kInvalidInput, "a cache of {} pages of {} tokens; at most {}",
                request.pages(), request.page_tokens, std::numeric_limits<int>::max());
  return {};
}

Result<void> check_packing(bool weights_are_dual, bool wants_dual) {
  if (weights_are_dual == wants_dual) return {};
  return fail(ErrorCode::kInvalidInput,
              "the weights were packed for gate and up {}, the decoder wants them {}",
              weights_are_dual ? "in one" : "apart", wants_dual ? "in one" : "apart");
}

Result<void> check_row_count(size_t rows) {
  if (rows >= 1 && rows <= static_cast<size_t>(kMaxMatmulRows)) return {};
  return fail(ErrorCode::kInvalidInput, "a step of {} rows; must be 1 to {}", rows, kMaxMatmulRows);
}

Result<void> check_fork(const KvPagePool& pool, int source, int length) {
  if (!pool.is_live(source))
    return fail(ErrorCode::kInvalidInput, "there is no sequence {} to fork", source);
  if (length < 0 || length > pool.length(source))
    return fail(ErrorCode::kInvalidInput, "a fork of {} tokens of sequence {}, which has {}",
                length, source, pool.length(source));
  return {};
}

Result<void> append_row(KvPagePool& pool, int sequence, int max_length, const CopyPage& copy_page) {
  if (!pool.is_live(sequence))
    return fail(ErrorCode::kInvalidInput, "there is no sequence {}", sequence);
  if (pool.length(sequence) >= max_length)
    return fail(ErrorCode::kInvalidInput,
                "sequence {} has {} tokens, as many as the cache was made for", sequence,
                pool.length(sequence));
  const KvSlot slot = GAPLESS_TRY(pool.append(sequence));
  if (slot.copy_from < 0) return {};
  Result<void> copied = copy_page(slot.copy_from, slot.page);
  if (!copied) pool.undo_append(sequence, slot);
  return copied;
}

Result<std::vector<int32_t>> append_rows(KvPagePool& pool, std::span<const StepRow> rows,
                                         int max_length, const CopyPage& copy_page) {
  GAPLESS_TRY(check_row_count(rows.size()));
  std::vector<int32_t> lengths;
  for (const StepRow& row : rows) {
    Result<void> appended = append_row(pool, row.sequence, max_length, copy_page);
    if (!appended) {
      take_back_rows(pool, rows.first(lengths.size()));
      return std::move(appended).error();
    }
    lengths.push_back(pool.length(row.sequence));
  }
  return lengths;
}

void take_back_rows(KvPagePool& pool, std::span<const StepRow> rows) {
  for (const StepRow& row : rows) pool.truncate(row.sequence, pool.length(row.sequence) - 1);
}

}  // namespace gapless
