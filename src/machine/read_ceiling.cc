// SPDX-License-Identifier: Apache-2.0

#include "machine/read_ceiling.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "machine/median.h"
#include "machine/read_ceiling_levels.h"

namespace gapless {
namespace {

constexpr int kStreamCounts[] = {1, 4, 8, 16};
constexpr int64_t kPrefetchBytes[] = {0, 1024, 2048, 4096, 8192};
constexpr int kMaxStreams = 16;
constexpr int64_t kMinChunkCount = 32;
constexpr int64_t kThreadChunkCount = 16;
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

// Enough for each thread that the last ones to end do not wait long, and not too short.
int64_t chunk_count_of(int64_t buffer_bytes, int thread_count) {
  constexpr int64_t kMinChunkBytes = 32 * kMaxStreams * kLineBytes;
  const int64_t count = std::max(kMinChunkCount, kThreadChunkCount * thread_count);
  return std::min(count, buffer_bytes / kMinChunkBytes);
}

// An odd number of lines for each of 16 streams, so that lines which are read together never fall
// into the same set of a cache, for 8 and 4 streams either.
int64_t chunk_bytes_of(int64_t buffer_bytes, int64_t chunk_count) {
  int64_t lines = buffer_bytes / (kLineBytes * kMaxStreams * chunk_count);
  if (lines % 2 == 0) lines -= 11;
  return lines * kLineBytes * kMaxStreams;
}

// Writes words that all differ, from the `first`-th on. Returns their sum.
uint64_t fill(std::byte* data, int64_t bytes, int64_t first) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  uint64_t word = static_cast<uint64_t>(first) * kOdd;
  uint64_t sum = 0;
  for (int64_t offset = 0; offset < bytes; offset += 8) {
    word += kOdd;
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

Result<ReadCeiling> ReadCeiling::create(PinnedThreads& threads, const ReadCeilingOptions& options) {
  if (options.bytes < kMinBytes || options.repeat_count < 1) {
    return fail(ErrorCode::kInvalidInput, "read ceiling: {} bytes read {} times; at least {} once",
                options.bytes, options.repeat_count, kMinBytes);
  }
  if (options.min_thread_count < 1 || options.min_thread_count > threads.count()) {
    return fail(ErrorCode::kInvalidInput, "read ceiling: from {} threads on, of {}",
                options.min_thread_count, threads.count());
  }
  ReadCeiling ceiling;
  ceiling.threads_ = &threads;
  ceiling.level_ = options.level;
  ceiling.min_thread_count_ = options.min_thread_count;
  ceiling.buffer_ = GAPLESS_TRY(HugeBuffer::allocate(options.bytes));
  const int64_t bytes = static_cast<int64_t>(options.bytes);
  ceiling.chunk_count_ = chunk_count_of(bytes, threads.count());
  ceiling.chunk_bytes_ = chunk_bytes_of(bytes, ceiling.chunk_count_);
  std::atomic<uint64_t> sum = 0;
  threads.run_jobs(threads.count(), ceiling.chunk_count_, [&ceiling, &sum](int64_t chunk) {
    const int64_t offset = chunk * ceiling.chunk_bytes_;
    sum += fill(ceiling.buffer_.data() + offset, ceiling.chunk_bytes_, offset / 8);
  });
  ceiling.expected_sum_ = sum;
  for (int count = options.min_thread_count; count <= threads.count(); ++count) {
    ceiling.calibrate(count, options.repeat_count);
  }
  return ceiling;
}

double ReadCeiling::pass(int thread_count, const ReadForm& form) {
  std::atomic<uint64_t> sum = 0;
  const double ns = threads_->run_jobs(thread_count, chunk_count_, [&](int64_t chunk) {
    sum += read_block(level_, {.data = buffer_.data() + chunk * chunk_bytes_,
                               .stream_bytes = chunk_bytes_ / form.stream_count,
                               .stream_count = form.stream_count,
                               .prefetch_bytes = form.prefetch_bytes});
  });
  GAPLESS_CHECK(sum == expected_sum_);
  return static_cast<double>(chunk_count_ * chunk_bytes_) / ns;
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
  Calibration& calibration = calibrations_.emplace_back();
  for (size_t i = 0; i < forms.size(); ++i) {
    calibration.trials.push_back({forms[i], median_of(figures[i])});
  }
  calibration.best =
      std::max_element(calibration.trials.begin(), calibration.trials.end(),
                       [](const Trial& a, const Trial& b) { return a.gb_per_s < b.gb_per_s; })
          ->form;
}

const ReadCeiling::Calibration& ReadCeiling::calibration(int thread_count) const {
  return calibrations_.at(static_cast<size_t>(thread_count - min_thread_count_));
}

double ReadCeiling::measure(int thread_count) { return pass(thread_count, form(thread_count)); }

const ReadForm& ReadCeiling::form(int thread_count) const { return calibration(thread_count).best; }

const std::vector<ReadCeiling::Trial>& ReadCeiling::trials(int thread_count) const {
  return calibration(thread_count).trials;
}

double ReadCeiling::huge_share() const {
  return static_cast<double>(buffer_.huge_bytes()) / static_cast<double>(buffer_.size());
}

}  // namespace gapless
