// SPDX-License-Identifier: Apache-2.0
//
// AttentionBatch: a batch of sequences with everything an attention needs, for tests.
//
// Keys, values and queries are N(0, 1) from a seed. Every array ends where memory does, and what is
// not a token of a sequence is NaN: pages beyond the length, partials and outputs before a run.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_reference.h"
#include "kernels/kernel_test_support.h"

namespace gapless {

struct AttentionBatchOptions {
  KvShape shape;
  int q_heads = 0;
  int chunk_tokens = kDefaultChunkTokens;
  DType output_dtype = DType::kF32;
  std::vector<int32_t> lengths;
  // 0: every sequence has pages of its own. Otherwise the tables go round this many pages.
  int shared_pages = 0;
  float q_deviation = 1.0f;
  uint32_t seed = 1;
};

class AttentionBatch {
 public:
  explicit AttentionBatch(const AttentionBatchOptions& options)
      : options_(options),
        batch_(static_cast<int64_t>(options.lengths.size())),
        stride_(pages_of(*std::max_element(options.lengths.begin(), options.lengths.end())) + 1),
        page_count_(options.shared_pages > 0 ? options.shared_pages : batch_ * stride_),
        pages_data_(page_count_ * kv_page_bytes(options.shape)),
        table_(batch_ * stride_),
        lengths_(std::span<const int32_t>(options.lengths)),
        q_(batch_ * options.q_heads * options.shape.head_dim),
        output_(q_.size() * dtype_bytes(options.output_dtype)),
        first_partial_(batch_),
        partials_(count_partials() * partial_floats(options.q_heads, options.shape)) {
    std::memset(pages_data_.data(), 0xff, static_cast<size_t>(pages_data_.size()));
    fill_normal(q_.span(), options.seed, options.q_deviation);
    fill_table();
    fill_pages();
  }

  KvPages pages() const { return {options_.shape, pages_data_.data(), page_count_}; }
  int group_heads() const { return options_.q_heads / options_.shape.kv_heads; }
  std::span<float> q() const { return q_.span(); }
  // Lengths and tables may be changed between runs, within what was there at first.
  GuardedArray<int32_t>& lengths() { return lengths_; }
  GuardedArray<int32_t>& table() { return table_; }
  int64_t table_stride() const { return stride_; }

  AttentionArgs args() const {
    return {.pages = pages(),
            .q_heads = options_.q_heads,
            .chunk_tokens = options_.chunk_tokens,
            .batch = batch_,
            .scale = 1.0f / std::sqrt(static_cast<float>(options_.shape.head_dim)),
            .q = q_.data(),
            .lengths = lengths_.data(),
            .page_table = table_.data(),
            .page_table_stride = stride_,
            .first_partial = first_partial_.data(),
            .partials = partials_.data(),
            .output_dtype = options_.output_dtype,
            .output = output_.data()};
  }

  // All items of a sequence and head, in the order of their chunks.
  std::vector<AttentionItem> items_of(int sequence, int kv_head) const {
    std::vector<AttentionItem> items;
    const int64_t chunks = chunk_count(lengths_[sequence], options_.chunk_tokens);
    for (int chunk = 0; chunk < chunks; ++chunk) items.push_back({sequence, kv_head, chunk});
    return items;
  }
  std::vector<AttentionItem> items() const {
    std::vector<AttentionItem> all;
    for (int sequence = 0; sequence < batch_; ++sequence) {
      for (int head = 0; head < options_.shape.kv_heads; ++head) {
        for (const AttentionItem& item : items_of(sequence, head)) all.push_back(item);
      }
    }
    return all;
  }

  void forget_results() {
    std::memset(output_.data(), 0xff, static_cast<size_t>(output_.size()));
    std::memset(partials_.data(), 0xff, static_cast<size_t>(partials_.size()) * sizeof(float));
  }
  void combine(CpuLevel level, int sequence, int kv_head) {
    if (chunk_count(lengths_[sequence], options_.chunk_tokens) == 1) return;
    attention_combine(level, args(), sequence, kv_head);
  }
  // One head of one sequence; its output as floats, [group][head_dim].
  std::vector<float> run(CpuLevel level, int sequence, int kv_head) {
    for (const AttentionItem& item : items_of(sequence, kv_head)) {
      attention_item(level, args(), item);
    }
    combine(level, sequence, kv_head);
    return output_of(sequence, kv_head);
  }
  void run_all(CpuLevel level) {
    forget_results();
    const std::vector<AttentionItem> all = items();
    for (size_t i = 0; i < all.size(); ++i) {
      attention_item(level, args(), all[i], i + 1 < all.size() ? &all[i + 1] : nullptr);
    }
    combine_all(level);
  }
  void combine_all(CpuLevel level) {
    for (int sequence = 0; sequence < batch_; ++sequence) {
      for (int head = 0; head < options_.shape.kv_heads; ++head) combine(level, sequence, head);
    }
  }

  std::vector<float> output_of(int sequence, int kv_head) const {
    const int64_t count = int64_t{group_heads()} * options_.shape.head_dim;
    const int64_t first = (int64_t{sequence} * options_.shape.kv_heads + kv_head) * count;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(load_as_float(options_.output_dtype, output_.data(), first + i));
    }
    return values;
  }

  std::vector<double> reference(int sequence, int kv_head) const {
    const int64_t head_dim = options_.shape.head_dim;
    const int64_t length = lengths_[sequence];
    std::vector<float> keys(static_cast<size_t>(length * head_dim));
    std::vector<float> values(keys.size());
    for (int64_t token = 0; token < length; ++token) {
      const int64_t page = table_[sequence * stride_ + token / options_.shape.page_tokens];
      read_kv(pages(), page, static_cast<int>(token % options_.shape.page_tokens), kv_head,
              keys.data() + token * head_dim, values.data() + token * head_dim);
    }
    const int64_t count = group_heads() * head_dim;
    std::vector<double> output(static_cast<size_t>(count));
    attention_reference({.kv_dtype = options_.shape.dtype,
                         .group_heads = group_heads(),
                         .head_dim = options_.shape.head_dim,
                         .length = length,
                         .scale = args().scale,
                         .q = q_.data() + (sequence * options_.shape.kv_heads + kv_head) * count,
                         .keys = keys.data(),
                         .values = values.data(),
                         .output = output.data()});
    return output;
  }

 private:
  int64_t pages_of(int64_t length) const {
    return (length + options_.shape.page_tokens - 1) / options_.shape.page_tokens;
  }
  int64_t count_partials() {
    int64_t count = 0;
    for (int64_t sequence = 0; sequence < batch_; ++sequence) {
      const int64_t chunks = chunk_count(lengths_[sequence], options_.chunk_tokens);
      first_partial_[sequence] = count;
      if (chunks > 1) count += chunks * options_.shape.kv_heads;
    }
    return count;
  }
  void fill_table() {
    std::vector<int32_t> pages(static_cast<size_t>(batch_ * stride_));
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i] = static_cast<int32_t>(static_cast<int64_t>(i) % page_count_);
    }
    std::mt19937 random(options_.seed);
    std::shuffle(pages.begin(), pages.end(), random);
    for (size_t i = 0; i < pages.size(); ++i) table_[static_cast<int64_t>(i)] = pages[i];
  }
  void fill_pages() {
    std::mt19937 random(options_.seed + 1);
    std::normal_distribution<float> normal;
    const size_t head_dim = static_cast<size_t>(options_.shape.head_dim);
    std::vector<float> row(2 * head_dim);
    std::set<std::pair<int32_t, int>> written;
    for (int64_t sequence = 0; sequence < batch_; ++sequence) {
      for (int64_t token = 0; token < lengths_[sequence]; ++token) {
        const int32_t page = table_[sequence * stride_ + token / options_.shape.page_tokens];
        const int in_page = static_cast<int>(token % options_.shape.page_tokens);
        if (options_.shared_pages > 0 && !written.insert({page, in_page}).second) continue;
        for (int head = 0; head < options_.shape.kv_heads; ++head) {
          for (float& value : row) value = normal(random);
          write_kv(pages(), page, in_page, head, row.data(), row.data() + head_dim);
        }
      }
    }
  }

  AttentionBatchOptions options_;
  int64_t batch_;
  int64_t stride_;
  int64_t page_count_;
  GuardedArray<std::byte> pages_data_;
  GuardedArray<int32_t> table_;
  GuardedArray<int32_t> lengths_;
  GuardedArray<float> q_;
  GuardedArray<std::byte> output_;
  GuardedArray<int64_t> first_partial_;
  GuardedArray<float> partials_;
};

}  // namespace gapless
