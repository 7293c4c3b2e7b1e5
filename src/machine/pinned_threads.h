// SPDX-License-Identifier: Apache-2.0
//
// PinnedThreads: threads on cores of their own that begin together, and jobs dealt from a counter.
//
// The threads spin only while something is about to begin. Between two runs they sleep, so that
// something with threads of its own, or a run on fewer threads, has the machine to itself.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"

namespace gapless {

// The cores this thread may use, smallest number first.
std::vector<int> usable_cores();

class PinnedThreads {
 public:
  // The caller becomes thread 0 and stays on the first usable core until this is destroyed; thread
  // i is on the i-th. Error when there are fewer cores.
  static Result<std::unique_ptr<PinnedThreads>> start(int thread_count);
  ~PinnedThreads();
  PinnedThreads(const PinnedThreads&) = delete;
  PinnedThreads& operator=(const PinnedThreads&) = delete;

  int count() const { return static_cast<int>(cores_.size()); }
  const std::vector<int>& cores() const { return cores_; }

  // body(thread) on threads 0 .. thread_count - 1, all at once. The wall time in nanoseconds, from
  // when all of them are awake until the last one is through.
  double run(int thread_count, const std::function<void(int)>& body);
  // The same for jobs 0 .. job_count - 1, each given to whoever is free.
  double run_jobs(int thread_count, int64_t job_count, const std::function<void(int64_t)>& job);

  // How much of its core thread 0 has had during all runs so far: below 1, other programs ran.
  double core_share() const { return wall_sum_ns_ > 0.0 ? cpu_sum_ns_ / wall_sum_ns_ : 1.0; }

 private:
  explicit PinnedThreads(std::vector<int> cores);
  void work(int thread);

  std::vector<int> cores_;
  std::vector<int> cores_before_;
  std::vector<std::thread> workers_;
  const std::function<void(int)>* body_ = nullptr;
  int active_count_ = 0;
  bool is_over_ = false;
  double cpu_sum_ns_ = 0.0;  // of thread 0
  double wall_sum_ns_ = 0.0;
  std::atomic<uint32_t> call_ = 0;  // workers sleep on it
  alignas(64) std::atomic<int> awake_count_ = 0;
  alignas(64) std::atomic<uint32_t> go_ = 0;
  alignas(64) std::atomic<int> done_count_ = 0;
  alignas(64) std::atomic<int64_t> next_job_ = 0;
};

}  // namespace gapless
