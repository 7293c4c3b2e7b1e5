// SPDX-License-Identifier: Apache-2.0
//
// ReadCeiling: how fast this machine can read memory right now, which is the limit of every kernel
// that streams weights or KV pages.
//
// The best way to read depends on the machine: a calibration tries several numbers of streams a
// thread and prefetch distances, for each number of threads, and keeps the best. After that one
// measurement is one pass over the whole buffer (20 .. 60 ms), short enough to put one before and
// one after everything that is compared with it: on a shared host the bandwidth changes by a third
// within minutes. A pass also empties the caches of what the kernels left there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/huge_buffer.h"
#include "base/result.h"
#include "kernels/cpu_level.h"
#include "machine/pinned_threads.h"

namespace gapless {

struct ReadForm {
  int stream_count = 1;
  int64_t prefetch_bytes = 0;
  bool operator==(const ReadForm&) const = default;
};
// "16 streams, prefetch 512 B ahead".
std::string form_text(const ReadForm& form);

struct ReadCeilingOptions {
  CpuLevel level = CpuLevel::kPortable;
  int repeat_count = 1;            // how often the calibration tries each form
  int min_thread_count = 1;        // it is for this many threads and more
  size_t bytes = size_t{1} << 30;  // of the buffer
};

class ReadCeiling {
 public:
  static constexpr size_t kMinBytes = size_t{1} << 20;

  // Takes and fills the buffer; calibrates for min_thread_count .. threads.count() threads.
  // `threads` must live as long as this.
  static Result<ReadCeiling> create(PinnedThreads& threads, const ReadCeilingOptions& options);

  // One pass with the best form, in GB/s. That every byte was read is checked.
  double measure(int thread_count);

  // The best form. These take thread counts that were calibrated.
  const ReadForm& form(int thread_count) const;
  // The median that each tried form reached in the calibration.
  struct Trial {
    ReadForm form;
    double gb_per_s = 0.0;
  };
  const std::vector<Trial>& trials(int thread_count) const;
  double huge_share() const;  // of the buffer, in huge pages

 private:
  ReadCeiling() = default;
  double pass(int thread_count, const ReadForm& form);
  void calibrate(int thread_count, int repeat_count);

  PinnedThreads* threads_ = nullptr;
  CpuLevel level_ = CpuLevel::kPortable;
  HugeBuffer buffer_;
  int64_t chunk_bytes_ = 0;  // what a thread takes at a time
  int64_t chunk_count_ = 0;
  uint64_t expected_sum_ = 0;
  struct Calibration {
    std::vector<Trial> trials;
    ReadForm best;
  };
  const Calibration& calibration(int thread_count) const;
  int min_thread_count_ = 1;
  std::vector<Calibration> calibrations_;  // by thread count, the first for min_thread_count_
};

}  // namespace gapless
