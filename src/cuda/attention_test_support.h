// SPDX-License-Identifier: Apache-2.0
//
// CudaAttentionBatch: a batch of sequences on the GPU with everything an attention needs, for
// tests.
//
// Keys, values and queries are random with mean 0 and deviation 1. What is not a token of a
// sequence is NaN: pages beyond the length, partials and outputs before a run.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/half.h"
#include "cuda/attention.h"
#include "cuda/kv_pages.h"
#include "cuda/late_copy_test_support.h"
#include "kernels/attention_reference.h"

namespace gapless {

// Sums of four uniform values: close to normal, and quick to draw by the hundred million.
class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    int64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int64_t>((state_ >> (16 * i)) & 0xffff) - 0x8000;
    return static_cast<float>(sum) * (1.0f / (65536.0f * 0.57735f));
  }

 private:
  uint64_t state_;
};

inline uint16_t element_bits(DType dtype, float value) {
  return dtype == DType::kBf16 ? to_bf16(value).bits : to_f16(value).bits;
}
inline float element_value(DType dtype, uint16_t bits) {
  return dtype == DType::kBf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
}

struct CudaBatchOptions {
  CudaAttentionShape shape;  // max_batch and max_tokens are filled in
  CudaAttentionTuning tuning;
  std::vector<int32_t> lengths;
  float q_deviation = 1.0f;
  uint32_t seed = 1;
  int64_t workspace_bytes = -1;  // -1: what the lengths need
};

// What the blocks of one launch record, without a recorder (cuda/recorder.h) around them.
class AttentionRecords {
 public:
  static Result<AttentionRecords> make(int blocks) {
    AttentionRecords recorded;
    recorded.bytes_.resize(static_cast<size_t>(blocks) * kDeviceBlockBytes);
    recorded.buffer_ = GAPLESS_TRY(
        DeviceBuffer::allocate(static_cast<int64_t>(recorded.bytes_.size()), "records"));
    constexpr int64_t kCounterBytes = kDeviceRoleCount * sizeof(uint32_t);
    recorded.steps_ =
        GAPLESS_TRY(DeviceBuffer::allocate(blocks * kCounterBytes, "numbers of steps"));
    GAPLESS_TRY(recorded.buffer_.fill(0));
    GAPLESS_TRY(recorded.steps_.fill(0));
    return recorded;
  }
  RecorderLaunch launch() const {
    return {.level = RecordLevel::kPhases,
            .buffer = buffer_.data(),
            .steps = reinterpret_cast<uint32_t*>(steps_.data()),
            .step_capacity = 1,
            .step_blocks = static_cast<uint32_t>(bytes_.size() / kDeviceBlockBytes),
            .first_block = 0};
  }
  Result<void> read() { return buffer_.copy_to_host(bytes_.data(), buffer_.bytes()); }
  DeviceBlockHeader header(int block) const {
    DeviceBlockHeader header;
    std::memcpy(&header, place(block), sizeof(header));
    return header;
  }
  std::vector<DeviceRecord> records(int block, DeviceRole role) const {
    const int index = static_cast<int>(role);
    std::vector<DeviceRecord> records;
    for (int i = 0; i < record_count(place(block), index); ++i) {
      records.push_back(record_at(place(block), index, i));
    }
    return records;
  }
  std::vector<DevicePhase> phases(int block, DeviceRole role) const {
    std::vector<DevicePhase> phases;
    for (const DeviceRecord& record : records(block, role)) phases.push_back(record.phase());
    return phases;
  }

 private:
  const std::byte* place(int block) const {
    return bytes_.data() + static_cast<size_t>(block) * kDeviceBlockBytes;
  }

  std::vector<std::byte> bytes_;
  DeviceBuffer buffer_;
  DeviceBuffer steps_;
};

class CudaAttentionBatch {
 public:
  static Result<CudaAttentionBatch> make(CudaBatchOptions options) {
    const int32_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
    options.shape.max_batch = static_cast<int>(options.lengths.size());
    options.shape.max_tokens = std::max(longest, 1);
    CudaAttentionBatch batch(options,
                             GAPLESS_TRY(CudaAttention::make(options.shape, options.tuning)));
    batch.fill_host();
    GAPLESS_TRY(batch.fill_device());
    return batch;
  }

  const CudaAttention& attention() const { return attention_; }
  CudaAttentionArgs args() const {
    return {.pages = device_pages_.data(),
            .page_count = page_count_,
            .batch = static_cast<int>(options_.lengths.size()),
            .scale = scale(),
            .q = device_q_.data(),
            .lengths = reinterpret_cast<const int32_t*>(device_lengths_.data()),
            .page_table = reinterpret_cast<const int32_t*>(device_table_.data()),
            .page_table_stride = stride_,
            .workspace = device_workspace_.data(),
            .workspace_bytes = device_workspace_.bytes(),
            .output = device_output_.data(),
            .schedules = schedules_,
            .has_schedules = has_schedules_,
            .recorder = recorder_};
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(options_.shape.kv.head_dim)); }
  int group_heads() const { return options_.shape.q_heads / options_.shape.kv.kv_heads; }
  std::vector<int32_t>& table() { return table_; }
  std::vector<int32_t>& lengths() { return options_.lengths; }

  // After a change of lengths() or table().
  Result<void> upload_lengths() {
    return device_lengths_.copy_from_host(options_.lengths.data(), bytes_of(options_.lengths));
  }
  Result<void> upload_table() {
    return device_table_.copy_from_host(table_.data(), bytes_of(table_));
  }

  DeviceSpan output() const { return {device_output_.data(), device_output_.bytes()}; }
  // What the launch before an attention may write: q, and behind it each sequence's newest token,
  // key and value of every head.
  std::vector<DeviceSpan> newest() const {
    const KvShape& kv = options_.shape.kv;
    const int64_t row_bytes = cuda_kv_row_bytes(kv.head_dim);
    std::vector<DeviceSpan> spans = {{device_q_.data(), device_q_.bytes()}};
    for (int sequence = 0; sequence < static_cast<int>(options_.lengths.size()); ++sequence) {
      const int32_t length = options_.lengths[static_cast<size_t>(sequence)];
      for (int head = 0; length > 0 && head < kv.kv_heads; ++head) {
        const size_t element = element_at(sequence, length - 1, head, 0);
        const int64_t row = static_cast<int64_t>(element) / kv.head_dim;
        std::byte* key = device_pages_.data() + row * row_bytes;
        spans.push_back({key, row_bytes});
        spans.push_back({key + cuda_kv_block_bytes(kv.head_dim, kv.page_tokens), row_bytes});
      }
    }
    return spans;
  }

  Result<void> forget_results() {
    GAPLESS_TRY(device_output_.fill(0xff));
    GAPLESS_TRY(device_workspace_.fill(0xff));
    GAPLESS_TRY(attention_.prepare(device_workspace_.data(), device_workspace_.bytes(), nullptr));
    return poison_partials();
  }
  // One run from forgotten results; the raw bytes of the output.
  Result<std::vector<std::byte>> run(bool starts_early = false) {
    GAPLESS_TRY(forget_results());
    return run_again(starts_early);
  }
  Result<std::vector<std::byte>> run_again(bool starts_early = false) {
    GAPLESS_TRY(device_output_.fill(0xff));
    CudaAttentionArgs launch_args = args();
    launch_args.starts_early = starts_early;
    GAPLESS_TRY(attention_.launch(launch_args, nullptr));
    GAPLESS_TRY(attention_.check_launches(launch_args, nullptr));
    std::vector<std::byte> output(static_cast<size_t>(device_output_.bytes()));
    GAPLESS_TRY(device_output_.copy_to_host(output.data(), device_output_.bytes()));
    return output;
  }
  Result<std::vector<std::byte>> run_recorded(const RecorderLaunch& recorder) {
    GAPLESS_TRY(forget_results());
    recorder_ = recorder;
    Result<std::vector<std::byte>> output = run_again();
    recorder_ = {};
    return output;
  }
  // Leaves schedules there, or has them from there.
  Result<std::vector<std::byte>> run_scheduled(const DeviceBuffer& schedules, bool has_schedules) {
    GAPLESS_TRY(forget_results());
    schedules_ = schedules.data();
    has_schedules_ = has_schedules;
    Result<std::vector<std::byte>> output = run_again();
    schedules_ = nullptr;
    has_schedules_ = false;
    return output;
  }
  Result<void> forget_lengths() { return device_lengths_.fill(0); }
  // The counters behind the partials.
  Result<std::vector<uint32_t>> counters() const {
    const int64_t count = partial_capacity();
    std::vector<uint32_t> values(static_cast<size_t>(count));
    if (count == 0) return values;
    GAPLESS_TRY(
        device_workspace_.copy_to_host(values.data(), count * 4, 256 + count * partial_bytes()));
    return values;
  }

  std::vector<float> output_of(const std::vector<std::byte>& output, int sequence,
                               int kv_head) const {
    const int64_t count = int64_t{group_heads()} * options_.shape.kv.head_dim;
    const int64_t first = (int64_t{sequence} * options_.shape.kv.kv_heads + kv_head) * count;
    std::vector<float> values;
    for (int64_t i = first; i < first + count; ++i) values.push_back(value_at(output, i));
    return values;
  }

  // The same as they are in memory: 0 and -0 differ.
  std::vector<std::byte> output_bits(const std::vector<std::byte>& output, int sequence,
                                     int kv_head) const {
    const int64_t bytes = int64_t{group_heads()} * options_.shape.kv.head_dim *
                          dtype_bytes(options_.shape.output_dtype);
    const int64_t first = (int64_t{sequence} * options_.shape.kv.kv_heads + kv_head) * bytes;
    return {output.begin() + first, output.begin() + first + bytes};
  }

  // In double, without casts of the probabilities.
  std::vector<double> reference(int sequence, int kv_head) const {
    const KvShape& kv = options_.shape.kv;
    const int64_t length = options_.lengths[static_cast<size_t>(sequence)];
    std::vector<float> keys;
    std::vector<float> values;
    for (int token = 0; token < length; ++token) {
      for (int dim = 0; dim < kv.head_dim; ++dim) {
        const size_t at = element_at(sequence, token, kv_head, dim);
        keys.push_back(element_value(kv.dtype, pages_[at]));
        values.push_back(element_value(kv.dtype, pages_[at + block_elements()]));
      }
    }
    const int64_t count = int64_t{group_heads()} * kv.head_dim;
    const int64_t first = (int64_t{sequence} * kv.kv_heads + kv_head) * count;
    std::vector<float> q;
    for (int64_t i = first; i < first + count; ++i) {
      q.push_back(element_value(kv.dtype, q_[static_cast<size_t>(i)]));
    }
    std::vector<double> output(static_cast<size_t>(count));
    attention_reference({.kv_dtype = DType::kF32,
                         .group_heads = group_heads(),
                         .head_dim = kv.head_dim,
                         .length = length,
                         .chunk_tokens = options_.shape.chunk_tokens,
                         .scale = scale(),
                         .q = q.data(),
                         .keys = keys.data(),
                         .values = values.data(),
                         .output = output.data()});
    return output;
  }

  // Before fill_device(): key and value of a token in one dim; queries that look at one dim only.
  void set_token(int sequence, int token, int kv_head, int dim, float key, float value) {
    const size_t at = element_at(sequence, token, kv_head, dim);
    pages_[at] = element_bits(options_.shape.kv.dtype, key);
    pages_[at + block_elements()] = element_bits(options_.shape.kv.dtype, value);
  }
  void set_queries(int dim, float value) {
    const size_t head_dim = static_cast<size_t>(options_.shape.kv.head_dim);
    for (size_t i = 0; i < q_.size(); ++i) {
      const bool is_there = i % head_dim == static_cast<size_t>(dim);
      q_[i] = element_bits(options_.shape.kv.dtype, is_there ? value : 0.0f);
    }
  }
  // Makes sequence `to` of this batch a copy of sequence `from` of another one.
  void copy_sequence(const CudaAttentionBatch& other, int from, int to) {
    const KvShape& kv = options_.shape.kv;
    const int64_t count = int64_t{options_.shape.q_heads} * kv.head_dim;
    std::copy_n(other.q_.begin() + from * count, count, q_.begin() + to * count);
    for (int token = 0; token < options_.lengths[static_cast<size_t>(to)]; ++token) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        for (int dim = 0; dim < kv.head_dim; ++dim) {
          const size_t target = element_at(to, token, head, dim);
          const size_t source = other.element_at(from, token, head, dim);
          pages_[target] = other.pages_[source];
          pages_[target + block_elements()] = other.pages_[source + other.block_elements()];
        }
      }
    }
  }
  Result<void> fill_device() {
    GAPLESS_TRY(upload(device_pages_, pages_, "kv pages"));
    GAPLESS_TRY(upload(device_table_, table_, "page tables"));
    GAPLESS_TRY(upload(device_lengths_, options_.lengths, "lengths"));
    GAPLESS_TRY(upload(device_q_, q_, "queries"));
    const int64_t output_bytes =
        static_cast<int64_t>(q_.size()) * dtype_bytes(options_.shape.output_dtype);
    device_output_ = GAPLESS_TRY(DeviceBuffer::allocate(output_bytes, "outputs"));
    const int64_t needed = cuda_attention_workspace_bytes(options_.shape, options_.lengths);
    const int64_t bytes = options_.workspace_bytes < 0 ? needed : options_.workspace_bytes;
    device_workspace_ = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "workspaces"));
    return forget_results();
  }

 private:
  CudaAttentionBatch(CudaBatchOptions options, CudaAttention attention)
      : options_(std::move(options)), attention_(std::move(attention)) {}

  template <typename T>
  static int64_t bytes_of(const std::vector<T>& values) {
    return static_cast<int64_t>(values.size() * sizeof(T));
  }
  template <typename T>
  static Result<void> upload(DeviceBuffer& buffer, const std::vector<T>& values, const char* what) {
    buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes_of(values), what));
    return buffer.copy_from_host(values.data(), bytes_of(values));
  }

  int64_t partial_bytes() const {
    return partial_floats(options_.shape.q_heads, options_.shape.kv) * 4;
  }
  int64_t partial_capacity() const {
    return (device_workspace_.bytes() - 256) / (partial_bytes() + 4);
  }
  Result<void> poison_partials() {
    const std::vector<uint8_t> nan(static_cast<size_t>(partial_capacity() * partial_bytes()), 0xff);
    return device_workspace_.copy_from_host(nan.data(), bytes_of(nan), 256);
  }
  size_t block_elements() const {
    const KvShape& kv = options_.shape.kv;
    return static_cast<size_t>(kv.head_dim) * static_cast<size_t>(kv.page_tokens);
  }
  // Of a key; the value lies block_elements() behind it.
  size_t element_at(int sequence, int token, int kv_head, int dim) const {
    const KvShape& kv = options_.shape.kv;
    const int64_t page = table_[static_cast<size_t>(sequence * stride_ + token / kv.page_tokens)];
    const int64_t block =
        (page * kv.kv_heads + kv_head) * 2 * static_cast<int64_t>(block_elements());
    return static_cast<size_t>(block + cuda_kv_element(kv.head_dim, token % kv.page_tokens, dim));
  }
  float value_at(const std::vector<std::byte>& output, int64_t element) const {
    const DType dtype = options_.shape.output_dtype;
    const std::byte* at = output.data() + element * dtype_bytes(dtype);
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return element_value(dtype, bits);
  }

  void fill_host() {
    const KvShape& kv = options_.shape.kv;
    const int64_t batch = static_cast<int64_t>(options_.lengths.size());
    stride_ = (options_.shape.max_tokens + kv.page_tokens - 1) / kv.page_tokens + 1;
    for (const int32_t length : options_.lengths) {
      page_count_ += (length + kv.page_tokens - 1) / kv.page_tokens;
    }
    page_count_ += 3;  // that nobody has
    fill_table(batch);
    pages_.assign(
        static_cast<size_t>(page_count_ *
                            cuda_kv_page_bytes(kv.kv_heads, kv.head_dim, kv.page_tokens) / 2),
        uint16_t{0xffff});
    RandomValues random(options_.seed);
    for (int sequence = 0; sequence < batch; ++sequence) fill_sequence(sequence, random);
    for (int64_t i = 0; i < batch * options_.shape.q_heads * kv.head_dim; ++i) {
      q_.push_back(element_bits(kv.dtype, random.next() * options_.q_deviation));
    }
  }
  // Entries beyond a sequence name no page at all.
  void fill_table(int64_t batch) {
    std::vector<int32_t> pages(static_cast<size_t>(page_count_));
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    std::mt19937 shuffle_random(options_.seed);
    std::shuffle(pages.begin(), pages.end(), shuffle_random);
    table_.assign(static_cast<size_t>(batch * stride_), -1);
    size_t next = 0;
    const int page_tokens = options_.shape.kv.page_tokens;
    for (int64_t sequence = 0; sequence < batch; ++sequence) {
      const int32_t length = options_.lengths[static_cast<size_t>(sequence)];
      for (int i = 0; i * page_tokens < length; ++i) {
        table_[static_cast<size_t>(sequence * stride_ + i)] = pages[next++];
      }
    }
  }
  void fill_sequence(int sequence, RandomValues& random) {
    const KvShape& kv = options_.shape.kv;
    for (int token = 0; token < options_.lengths[static_cast<size_t>(sequence)]; ++token) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        for (int dim = 0; dim < kv.head_dim; ++dim) {
          const size_t at = element_at(sequence, token, head, dim);
          pages_[at] = element_bits(kv.dtype, random.next());
          pages_[at + block_elements()] = element_bits(kv.dtype, random.next());
        }
      }
    }
  }

  CudaBatchOptions options_;
  CudaAttention attention_;
  RecorderLaunch recorder_;
  void* schedules_ = nullptr;
  bool has_schedules_ = false;
  int64_t stride_ = 0;
  int64_t page_count_ = 0;
  std::vector<uint16_t> pages_;
  std::vector<int32_t> table_;
  std::vector<uint16_t> q_;
  DeviceBuffer device_pages_;
  DeviceBuffer device_table_;
  DeviceBuffer device_lengths_;
  DeviceBuffer device_q_;
  DeviceBuffer device_output_;
  DeviceBuffer device_workspace_;
};

}  // namespace gapless
