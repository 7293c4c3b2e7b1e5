// SPDX-License-Identifier: Apache-2.0

#include "model/kv_page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace gapless {
namespace {

constexpr int kMaxSequences = 1 << 16;
constexpr int kMaxPages = 1 << 28;
constexpr int64_t kMaxTableEntries = int64_t{1} << 28;  // 1 GiB
constexpr int kMinPageTokens = 16;
constexpr int kMaxPageTokens = 256;

Result<void> check_count(const char* what, int value, int high) {
  if (value >= 1 && value <= high) return {};
  return fail(ErrorCode::kInvalidInput, "kv cache: {} {}; it must be from 1 to {}", what, value,
              high);
}

Result<void> check_shape(const KvPagePoolShape& shape) {
  GAPLESS_TRY(check_count("page count", shape.page_count, kMaxPages));
  GAPLESS_TRY(check_count("sequence count", shape.max_sequences, kMaxSequences));
  GAPLESS_TRY(check_count("pages of a sequence", shape.max_sequence_pages, kMaxPages));
  if (shape.page_tokens < kMinPageTokens || shape.page_tokens > kMaxPageTokens ||
      shape.page_tokens % kMinPageTokens != 0) {
    return fail(ErrorCode::kInvalidInput,
                "kv cache: pages of {} tokens; it must be a multiple of {} from {} to {}",
                shape.page_tokens, kMinPageTokens, kMinPageTokens, kMaxPageTokens);
  }
  const int64_t entries = int64_t{shape.max_sequences} * shape.max_sequence_pages;
  const int64_t tokens = int64_t{shape.page_tokens} * shape.max_sequence_pages;
  if (entries > kMaxTableEntries || tokens > INT32_MAX) {
    return fail(ErrorCode::kInvalidInput,
                "kv cache: {} sequences of up to {} pages of {} tokens; ask for fewer or shorter "
                "sequences",
                shape.max_sequences, shape.max_sequence_pages, shape.page_tokens);
  }
  return {};
}

}  // namespace

KvPagePool::KvPagePool(const KvPagePoolShape& shape) : shape_(shape) {
  free_pages_.resize(static_cast<size_t>(shape.page_count));
  for (int i = 0; i < shape.page_count; ++i) {
    free_pages_[static_cast<size_t>(i)] = shape.page_count - 1 - i;
  }
  holder_counts_.resize(free_pages_.size());
  sequences_.resize(static_cast<size_t>(shape.max_sequences));
  table_.resize(sequences_.size() * static_cast<size_t>(shape.max_sequence_pages));
}

Result<KvPagePool> KvPagePool::create(const KvPagePoolShape& shape) {
  GAPLESS_TRY(check_shape(shape));
  return KvPagePool(shape);
}

bool KvPagePool::is_live(int sequence) const {
  return sequence >= 0 && sequence < shape_.max_sequences &&
         sequences_[static_cast<size_t>(sequence)].is_live;
}

int KvPagePool::holder_count(int page) const {
  GAPLESS_CHECK(page >= 0 && page < shape_.page_count);
  return holder_counts_[static_cast<size_t>(page)];
}

int KvPagePool::length(int sequence) const {
  GAPLESS_CHECK(is_live(sequence));
  return sequences_[static_cast<size_t>(sequence)].length;
}

std::span<const int32_t> KvPagePool::pages(int sequence) const {
  return {row(sequence), static_cast<size_t>(page_count_for(length(sequence)))};
}

int32_t KvPagePool::take_page() {
  const int32_t page = free_pages_.back();
  free_pages_.pop_back();
  holder_counts_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvPagePool::drop_page(int32_t page) {
  int32_t& holder_count = holder_counts_[static_cast<size_t>(page)];
  GAPLESS_DCHECK(holder_count > 0);
  if (--holder_count == 0) free_pages_.push_back(page);
}

Result<int> KvPagePool::add_sequence() {
  for (int sequence = 0; sequence < shape_.max_sequences; ++sequence) {
    Sequence& entry = sequences_[static_cast<size_t>(sequence)];
    if (entry.is_live) continue;
    entry = {.is_live = true, .length = 0};
    ++sequence_count_;
    return sequence;
  }
  return fail(ErrorCode::kInvalidInput,
              "kv cache: all {} sequences are in use; release one, or make the cache for more",
              shape_.max_sequences);
}

Result<int> KvPagePool::fork(int source, int length) {
  GAPLESS_CHECK(is_live(source));
  GAPLESS_CHECK(length >= 0 && length <= this->length(source));
  const int sequence = GAPLESS_TRY(add_sequence());
  const std::span<const int32_t> shared =
      pages(source).first(static_cast<size_t>(page_count_for(length)));
  std::copy(shared.begin(), shared.end(), row(sequence));
  for (const int32_t page : shared) ++holder_counts_[static_cast<size_t>(page)];
  sequences_[static_cast<size_t>(sequence)].length = length;
  return sequence;
}

void KvPagePool::release(int sequence) {
  truncate(sequence, 0);
  sequences_[static_cast<size_t>(sequence)].is_live = false;
  --sequence_count_;
}

Error KvPagePool::no_free_page(int sequence) const {
  return fail(ErrorCode::kInvalidInput,
              "kv cache: no page is left for token {} of sequence {}: {} pages of {} tokens are in "
              "use by {} sequences; release one, or make the cache larger",
              length(sequence), sequence, shape_.page_count, shape_.page_tokens, sequence_count_);
}

Result<KvSlot> KvPagePool::append(int sequence) {
  GAPLESS_CHECK(is_live(sequence));
  Sequence& entry = sequences_[static_cast<size_t>(sequence)];
  const int index = entry.length / shape_.page_tokens;
  const int token = entry.length % shape_.page_tokens;
  if (index == shape_.max_sequence_pages) {
    return fail(ErrorCode::kInvalidInput,
                "kv cache: sequence {} has {} tokens, the most that its {} pages of {} tokens "
                "hold; ask for a longer context",
                sequence, entry.length, shape_.max_sequence_pages, shape_.page_tokens);
  }
  int32_t& page = row(sequence)[index];
  KvSlot slot{.page = page, .token = token};
  const bool is_shared = token != 0 && holder_counts_[static_cast<size_t>(page)] > 1;
  if (token == 0 || is_shared) {
    if (free_pages_.empty()) return no_free_page(sequence);
    slot.page = take_page();
    if (is_shared) {
      slot.copy_from = page;
      drop_page(page);
    }
    page = slot.page;
  }
  ++entry.length;
  return slot;
}

void KvPagePool::undo_append(int sequence, const KvSlot& slot) {
  truncate(sequence, length(sequence) - 1);
  if (slot.copy_from < 0) return;
  // Others hold it still: nobody was given a page since.
  int32_t& page = row(sequence)[length(sequence) / shape_.page_tokens];
  GAPLESS_CHECK(page == slot.page);
  drop_page(page);
  page = slot.copy_from;
  ++holder_counts_[static_cast<size_t>(page)];
}

int64_t KvPagePool::appendable_tokens(int sequence) const {
  const int tokens = length(sequence);
  const int64_t longest = int64_t{shape_.max_sequence_pages} * shape_.page_tokens;
  const int token = tokens % shape_.page_tokens;
  int64_t room = int64_t{free_page_count()} * shape_.page_tokens;
  if (token != 0) {
    const bool is_shared = holder_count(row(sequence)[tokens / shape_.page_tokens]) > 1;
    // A shared page costs one of the free ones, of which only the rest is new.
    room = is_shared ? room - token : room + shape_.page_tokens - token;
  }
  return std::clamp<int64_t>(room, 0, longest - tokens);
}

void KvPagePool::truncate(int sequence, int length) {
  GAPLESS_CHECK(is_live(sequence));
  GAPLESS_CHECK(length >= 0 && length <= this->length(sequence));
  // From the last page on, so that they are given out again in the order of the sequence.
  const int32_t* pages_of_row = row(sequence);
  for (int i = page_count_for(this->length(sequence)); i > page_count_for(length); --i) {
    drop_page(pages_of_row[i - 1]);
  }
  sequences_[static_cast<size_t>(sequence)].length = length;
}

void KvPagePool::write_page_table(std::span<const int> batch, std::span<int32_t> table,
                                  int64_t stride, std::span<int32_t> lengths) const {
  GAPLESS_CHECK(lengths.size() >= batch.size());
  GAPLESS_CHECK(std::ssize(table) >= std::ssize(batch) * stride);
  int32_t* out = table.data();
  for (size_t i = 0; i < batch.size(); ++i, out += stride) {
    const std::span<const int32_t> source = pages(batch[i]);
    GAPLESS_CHECK(std::ssize(source) <= stride);
    std::fill(std::copy(source.begin(), source.end(), out), out + stride, 0);
    lengths[i] = length(batch[i]);
  }
}

}  // namespace gapless
