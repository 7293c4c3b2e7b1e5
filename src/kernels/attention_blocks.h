// SPDX-License-Identifier: Apache-2.0
//
// The way of one chunk through the attention, for any kernel: block by block of 128 tokens, first
// scores, then probabilities, then weighted values.
//
// Scores and weighted values are the same sum: rows of the page (K: dims, V: tokens) times one
// coefficient a head and row (q, or the probabilities), over columns side by side (K: tokens, V:
// dims). Nothing is transposed and nothing is summed across a vector. Meanwhile the next block is
// prefetched, each line once: while the keys are multiplied most of its keys, during the softmax
// the rest of them and some values, while the values are multiplied the rest. A core has buffers
// for some 24 misses (Zen 4): memory must be kept busy all the time, since no burst makes up for a
// pause.
//
// For level files only: everything is in an anonymous namespace.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_levels.h"

namespace gapless {
namespace {

constexpr int kBlockTokens = 128;
constexpr int kMaxHeadDim = 256;
constexpr int kMinPageTokens = 16;
constexpr int kMaxSegments = kBlockTokens / kMinPageTokens;
constexpr int kLineBytes = 64;

// Tokens of a block that lie in one page.
struct Segment {
  const std::byte* keys = nullptr;  // the head's K block
  int first = 0;                    // token in the page, a multiple of 16
  int count = 0;
};

struct Block {
  Segment segments[kMaxSegments];
  int segment_count = 0;
  int token_count = 0;
};

// Memory that is read soon: lines that are handed out one by one, a line of each row before the
// next line of any.
struct LineStream {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;  // of the rows
  int64_t stride = 0;              // from row to row
  int64_t back = 0;                // from behind the last row to the next line of the first
  int64_t lines_left = 0;
};

LineStream stream_rows(const std::byte* at, int64_t row_count, int64_t stride, int64_t width) {
  return {.at = at,
          .end = at + row_count * stride,
          .stride = stride,
          .back = row_count * stride - kLineBytes,
          .lines_left = row_count * ((width + kLineBytes - 1) / kLineBytes)};
}
LineStream stream_block(const std::byte* at, int64_t bytes) {
  return stream_rows(at, 1, bytes, bytes);
}

// Into L2 only: a block is read one block later, when L1 has long lost it, and prefetches into L1
// keep the buffers busy that loads from L2 need (16 instead of 13 GB/s on a Zen 4 core, bf16). The
// instruction is spelled out since GCC deletes calls whose only effect is _mm_prefetch.
[[gnu::always_inline]] inline void prefetch_line(const std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*line));
#else
  __builtin_prefetch(line, 0, 2);
#endif
}

[[gnu::always_inline]] inline void prefetch_next(LineStream& lines) {
  if (lines.lines_left <= 0) return;
  --lines.lines_left;
  prefetch_line(lines.at);
  lines.at += lines.stride;
  if (lines.at >= lines.end) lines.at -= lines.back;
}

// Multiply-adds over part of a page: out[head][column] = out * rescale[head] + sum over rows.
template <typename Coefficient>
struct RowsJob {
  const std::byte* rows = nullptr;  // the first column of row 0
  int64_t row_bytes = 0;            // from row to row (rows that lie together are one)
  int row_count = 0;
  int column_count = 0;  // a multiple of 16
  int head_count = 0;
  const Coefficient* coefficients = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* rescale = nullptr;  // [head], or nullptr: begin at zero
};

// One head's probabilities of a block, and what they do to its maximum and total. Arrays by token
// have room for whole vectors.
template <typename Coefficient>
struct SoftmaxJob {
  float scale = 0.0f;
  int token_count = 0;
  float* scores = nullptr;              // before the scale; overwritten
  const float* key_scales = nullptr;    // s8 pages only
  const float* value_scales = nullptr;  // s8 pages only
  Coefficient* probabilities = nullptr;
  float* maximum = nullptr;
  float* total = nullptr;
  float* rescale = nullptr;  // what the sums so far have to be multiplied by
};

// `Kernel` knows the page's elements: kElementBytes, kGroup of them together, kHasScales; the
// Coefficient that rows are multiplied by, which holds kCoefficientElements rows of one head, and
// the kCoefficientStride from head to head. It has take_coefficients (of q), add_rows and softmax.
template <typename Kernel>
class ChunkWalk {
  using Coefficient = typename Kernel::Coefficient;

 public:
  ChunkWalk(const AttentionChunk& chunk, const AttentionChunk* next) : chunk_(chunk), next_(next) {}

  void run() {
    block_at(chunk_, 0, next_block_);
    start();
    for (int64_t token = 0; token < chunk_.token_count; token += kBlockTokens) {
      block_ = next_block_;
      find_next_block(token + kBlockTokens);
      add_scores();
      take_probabilities();
      add_values();
    }
  }

 private:
  static void block_at(const AttentionChunk& chunk, int64_t token, Block& block) {
    const int64_t left = chunk.token_count - token;
    block.token_count = left < kBlockTokens ? static_cast<int>(left) : kBlockTokens;
    block.segment_count = 0;
    int64_t at = chunk.first_token + token;
    for (int taken = 0; taken < block.token_count;) {
      Segment& segment = block.segments[block.segment_count++];
      const int64_t page = chunk.page_table[at / chunk.page_tokens];
      segment.keys = chunk.heads + page * chunk.page_bytes;
      segment.first = static_cast<int>(at % chunk.page_tokens);
      const int in_page = chunk.page_tokens - segment.first;
      const int wanted = block.token_count - taken;
      segment.count = wanted < in_page ? wanted : in_page;
      taken += segment.count;
      at += segment.count;
    }
  }

  void find_next_block(int64_t token) {
    next_block_.segment_count = 0;
    if (token < chunk_.token_count) {
      block_at(chunk_, token, next_block_);
    } else if (next_ != nullptr) {
      block_at(*next_, 0, next_block_);
    }
    for (int i = 0; i < kMaxSegments; ++i) {
      const bool is_there = i < next_block_.segment_count;
      keys_ahead_[i] = is_there ? key_lines(next_block_.segments[i]) : LineStream{};
      values_ahead_[i] = is_there ? value_lines(next_block_.segments[i]) : LineStream{};
    }
  }

  // The first token of a segment in its K block and in its V block.
  const std::byte* first_key(const Segment& segment) const {
    return segment.keys + segment.first * int64_t{Kernel::kGroup * Kernel::kElementBytes};
  }
  const std::byte* first_value(const Segment& segment) const {
    return segment.keys + chunk_.block_bytes +
           segment.first * int64_t{chunk_.head_dim} * Kernel::kElementBytes;
  }
  int64_t key_row_bytes() const {
    return int64_t{chunk_.page_tokens} * Kernel::kGroup * Kernel::kElementBytes;
  }
  int64_t value_row_bytes() const {
    return int64_t{chunk_.head_dim} * Kernel::kGroup * Kernel::kElementBytes;
  }

  LineStream key_lines(const Segment& segment) const {
    const int rows = chunk_.head_dim / Kernel::kGroup;
    const int64_t width = int64_t{segment.count} * Kernel::kGroup * Kernel::kElementBytes;
    const std::byte* at = first_key(segment);
    const int64_t stride = key_row_bytes();
    if (width == stride) return stream_block(at, rows * stride);
    return stream_rows(at, rows, stride, width);
  }
  LineStream value_lines(const Segment& segment) const {
    const int rows = (segment.count + Kernel::kGroup - 1) / Kernel::kGroup;
    return stream_block(first_value(segment), rows * value_row_bytes());
  }

  void start() {
    for (int head = 0; head < chunk_.group_heads; ++head) {
      const float* q = chunk_.q + int64_t{head} * chunk_.head_dim;
      Kernel::take_coefficients(q, chunk_.head_dim, q_ + head * Kernel::kCoefficientStride);
      chunk_.maxima[head] = -__builtin_inff();
      chunk_.totals[head] = 0.0f;
      ones_[head] = 1.0f;
    }
    for (int token = 0; token < kBlockTokens; ++token) key_scales_[token] = 0.0f;
    for (int token = 0; token < kBlockTokens; ++token) value_scales_[token] = 0.0f;
    const int64_t count = int64_t{chunk_.group_heads} * chunk_.head_dim;
    for (int64_t i = 0; i < count; ++i) chunk_.sums[i] = 0.0f;
  }

  void add_scores() {
    int done = 0;
    for (int i = 0; i < block_.segment_count; ++i) {
      const Segment& segment = block_.segments[i];
      Kernel::add_rows({.rows = first_key(segment),
                        .row_bytes = key_row_bytes(),
                        .row_count = chunk_.head_dim,
                        .column_count = (segment.count + 15) / 16 * 16,
                        .head_count = chunk_.group_heads,
                        .coefficients = q_,
                        .out = scores_ + done,
                        .out_stride = kBlockTokens,
                        .rescale = nullptr},
                       keys_ahead_[i]);
      done += segment.count;
    }
  }

  void take_probabilities() {
    if constexpr (Kernel::kHasScales) gather_scales();
    int64_t lines = lines_left(keys_ahead_) + lines_left(values_ahead_) / 4;
    for (int head = 0; head < chunk_.group_heads; ++head) {
      const int64_t share = lines / (chunk_.group_heads - head);
      lines -= share;
      prefetch_some(values_ahead_, prefetch_some(keys_ahead_, share));
      Kernel::softmax({.scale = chunk_.scale,
                       .token_count = block_.token_count,
                       .scores = scores_ + head * kBlockTokens,
                       .key_scales = key_scales_,
                       .value_scales = value_scales_,
                       .probabilities = probabilities_ + head * Kernel::kCoefficientStride,
                       .maximum = chunk_.maxima + head,
                       .total = chunk_.totals + head,
                       .rescale = rescale_ + head});
    }
  }

  void gather_scales() {
    int done = 0;
    for (int i = 0; i < block_.segment_count; ++i) {
      const Segment& segment = block_.segments[i];
      const float* scales =
          reinterpret_cast<const float*>(segment.keys + 2 * chunk_.block_bytes) + segment.first;
      for (int token = 0; token < segment.count; ++token) {
        key_scales_[done + token] = scales[token];
        value_scales_[done + token] = scales[chunk_.page_tokens + token];
      }
      done += segment.count;
    }
  }

  void add_values() {
    int done = 0;
    for (int i = 0; i < block_.segment_count; ++i) {
      const Segment& segment = block_.segments[i];
      Kernel::add_rows({.rows = first_value(segment),
                        .row_bytes = value_row_bytes(),
                        .row_count = segment.count,
                        .column_count = chunk_.head_dim,
                        .head_count = chunk_.group_heads,
                        .coefficients = probabilities_ + done / Kernel::kCoefficientElements,
                        .out = chunk_.sums,
                        .out_stride = chunk_.head_dim,
                        .rescale = i == 0 ? rescale_ : ones_},
                       values_ahead_[i]);
      done += segment.count;
    }
    prefetch_some(values_ahead_, lines_left(values_ahead_));
  }

  static int64_t lines_left(const LineStream (&streams)[kMaxSegments]) {
    int64_t lines = 0;
    for (const LineStream& stream : streams) lines += stream.lines_left;
    return lines;
  }
  // Returns how many of the lines there were not.
  static int64_t prefetch_some(LineStream (&streams)[kMaxSegments], int64_t lines) {
    for (LineStream& stream : streams) {
      for (; lines > 0 && stream.lines_left > 0; --lines) prefetch_next(stream);
    }
    return lines;
  }

  const AttentionChunk& chunk_;
  const AttentionChunk* next_;
  Block block_;
  Block next_block_;
  LineStream keys_ahead_[kMaxSegments];  // of the next block
  LineStream values_ahead_[kMaxSegments];
  alignas(64) Coefficient q_[kMaxGroupHeads * Kernel::kCoefficientStride];
  alignas(64) Coefficient probabilities_[kMaxGroupHeads * Kernel::kCoefficientStride];
  alignas(64) float scores_[kMaxGroupHeads * kBlockTokens];
  alignas(64) float key_scales_[kBlockTokens];
  alignas(64) float value_scales_[kBlockTokens];
  alignas(64) float rescale_[kMaxGroupHeads];
  alignas(64) float ones_[kMaxGroupHeads];
};

template <typename Kernel>
void walk(const AttentionChunk& chunk, const AttentionChunk* next) {
  ChunkWalk<Kernel>(chunk, next).run();
}

}  // namespace
}  // namespace gapless
