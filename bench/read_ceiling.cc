// SPDX-License-Identifier: Apache-2.0

#include "bench/read_ceiling.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "bench/read_ceiling_levels.h"

namespace gapless {
namespace {

constexpr int kStreamCounts[] = {1, 4, 8, 16};
constexpr int64_t kPrefetchBytes[] = {0, 1024, 2048, 4096, 8192};
constexpr int kMaxStreams = 16;
constexpr int64_t kChunkCount = 32;
constexpr int64_t kLineBytes = 64;

uint64_t read_block(CpuLevel level, const ReadBlock& block) {
#if defined(__x86_64__)
  switch (level) {
    case CpuLevel::kAvx512Bf16:
    case CpuLevel::kAvx512:
      return avx512::read_block(block);
    case CpuLevel::kAvx2Vnni:
    case CpuLevel::kAvx2:
      return avx2::read_block(block);
    case CpuLevel::kPortable:
      break;
  }
#else
  static_cast<void>(level);
#endif
  return portable::read_block(block);
}

// An odd number of lines for each of 16 streams, so that lines which are read together never fall
// into the same set of a cache, for 8 and 4 streams either.
int64_t chunk_bytes_of(size_t buffer_bytes) {
  int64_t lines = static_cast<int64_t>(buffer_bytes) / (kLineBytes * kMaxStreams * kChunkCount);
  if (lines % 2 == 0) lines -= 11;
  return lines * kLineBytes * kMaxStreams;
}

// Returns the sum of the words.
uint64_t fill(std::byte* data, int64_t bytes, uint64_t seed) {
  RandomBits random(seed);
  uint64_t sum = 0;
  for (int64_t offset = 0; offset < bytes; offset += 8) {
    const uint64_t word = random.next();
    std::memcpy(data + offset, &word, sizeof(word));
    sum += word;
  }
  return sum;
}

}  // namespace

std::string form_text(const ReadForm& form) {
  const std::string streams =
      fmt::format("{} {}", form.stream_count, form.stream_count == 1 ? "stream" : "streams");
  if (form.prefetch_bytes == 0) return streams + ", no prefetch";
  return fmt::format("{}, prefetch {} B ahead", streams, form.prefetch_bytes);
}

Result<ReadCeiling> ReadCeiling::create(PinnedThreads& threads, CpuLevel level, int repeat_count,
                                        size_t bytes) {
  if (bytes < kMinBytes || repeat_count < 1) {
    return fail(ErrorCode::kInvalidInput, "read ceiling: {} bytes read {} times; at least {} once",
                bytes, repeat_count, kMinBytes);
  }
  ReadCeiling ceiling;
  ceiling.threads_ = &threads;
  ceiling.level_ = level;
  ceiling.buffer_ = GAPLESS_TRY(HugeBuffer::allocate(bytes));
  ceiling.chunk_bytes_ = chunk_bytes_of(bytes);
  std::atomic<uint64_t> sum = 0;
  threads.run_jobs(threads.count(), kChunkCount, [&ceiling, &sum](int64_t chunk) {
    std::byte* data = ceiling.buffer_.data() + chunk * ceiling.chunk_bytes_;
    sum += fill(data, ceiling.chunk_bytes_, static_cast<uint64_t>(chunk));
  });
  ceiling.expected_sum_ = sum;
  for (int count = 1; count <= threads.count(); ++count) ceiling.calibrate(count, repeat_count);
  return ceiling;
}

double ReadCeiling::pass(int thread_count, const ReadForm& form) {
  std::atomic<uint64_t> sum = 0;
  const double ns = threads_->run_jobs(thread_count, kChunkCount, [&](int64_t chunk) {
    sum += read_block(level_, {.data = buffer_.data() + chunk * chunk_bytes_,
                               .stream_bytes = chunk_bytes_ / form.stream_count,
                               .stream_count = form.stream_count,
                               .prefetch_bytes = form.prefetch_bytes});
  });
  GAPLESS_CHECK(sum == expected_sum_);
  return static_cast<double>(kChunkCount * chunk_bytes_) / ns;
}

void ReadCeiling::calibrate(int thread_count, int repeat_count) {
  std::vector<ReadForm> forms;
  for (const int streams : kStreamCounts) {
    for (const int64_t prefetch : kPrefetchBytes) forms.push_back({streams, prefetch});
  }
  std::vector<std::vector<double>> figures(forms.size());
  for (int repeat = 0; repeat < repeat_count; ++repeat) {
    for (size_t i = 0; i < forms.size(); ++i) figures[i].push_back(pass(thread_count, forms[i]));
  }
  std::vector<Trial>& trials = trials_.emplace_back();
  for (size_t i = 0; i < forms.size(); ++i) trials.push_back({forms[i], median(figures[i])});
  const auto best =
      std::max_element(trials.begin(), trials.end(),
                       [](const Trial& a, const Trial& b) { return a.gb_per_s < b.gb_per_s; });
  forms_.push_back(best->form);
}

double ReadCeiling::measure(int thread_count) { return pass(thread_count, form(thread_count)); }

const ReadForm& ReadCeiling::form(int thread_count) const {
  return forms_.at(static_cast<size_t>(thread_count - 1));
}

const std::vector<ReadCeiling::Trial>& ReadCeiling::trials(int thread_count) const {
  return trials_.at(static_cast<size_t>(thread_count - 1));
}

double ReadCeiling::huge_share() const {
  return static_cast<double>(buffer_.huge_bytes()) / static_cast<double>(buffer_.size());
}

}  // namespace gapless
