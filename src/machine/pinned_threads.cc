// SPDX-License-Identifier: Apache-2.0

#include "machine/pinned_threads.h"

#include <ctime>
#include <utility>

#include <sched.h>

#include "base/check.h"

namespace gapless {
namespace {

int64_t clock_ns(clockid_t clock) {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

template <typename T>
void spin_until(const std::atomic<T>& value, T wanted) {
  while (value.load(std::memory_order_acquire) != wanted) {
  }
}

}  // namespace

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

Result<std::unique_ptr<PinnedThreads>> PinnedThreads::start(int thread_count) {
  std::vector<int> cores = usable_cores();
  if (thread_count < 1 || static_cast<size_t>(thread_count) > cores.size()) {
    return fail(ErrorCode::kInvalidInput, "{} pinned threads on {} cores", thread_count,
                cores.size());
  }
  cores.resize(static_cast<size_t>(thread_count));
  return std::unique_ptr<PinnedThreads>(new PinnedThreads(std::move(cores)));
}

PinnedThreads::PinnedThreads(std::vector<int> cores)
    : cores_(std::move(cores)), cores_before_(usable_cores()) {
  stay_on({cores_.front()});
  for (int thread = 1; thread < count(); ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

PinnedThreads::~PinnedThreads() {
  is_over_ = true;
  call_.fetch_add(1, std::memory_order_release);
  call_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  stay_on(cores_before_);
}

void PinnedThreads::work(int thread) {
  stay_on({cores_[static_cast<size_t>(thread)]});
  uint32_t seen = 0;
  while (true) {
    call_.wait(seen, std::memory_order_acquire);
    ++seen;
    if (is_over_) return;
    const bool is_active = thread < active_count_;
    awake_count_.fetch_add(1, std::memory_order_acq_rel);
    if (!is_active) continue;
    spin_until(go_, seen);
    (*body_)(thread);
    done_count_.fetch_add(1, std::memory_order_acq_rel);
  }
}

double PinnedThreads::run(int thread_count, const std::function<void(int)>& body) {
  GAPLESS_CHECK(thread_count >= 1);
  GAPLESS_CHECK(thread_count <= count());
  body_ = &body;
  active_count_ = thread_count;
  awake_count_.store(0, std::memory_order_relaxed);
  done_count_.store(0, std::memory_order_relaxed);
  const uint32_t call = call_.fetch_add(1, std::memory_order_acq_rel) + 1;
  call_.notify_all();
  // All of them, also those that go back to sleep: none may miss a call.
  spin_until(awake_count_, count() - 1);
  const int64_t begin_cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  const int64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
  go_.store(call, std::memory_order_release);
  body(0);
  spin_until(done_count_, thread_count - 1);
  const double elapsed_ns = static_cast<double>(clock_ns(CLOCK_MONOTONIC) - begin_ns);
  wall_sum_ns_ += elapsed_ns;
  cpu_sum_ns_ += static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_cpu_ns);
  return elapsed_ns;
}

double PinnedThreads::run_jobs(int thread_count, int64_t job_count,
                               const std::function<void(int64_t)>& job) {
  next_job_.store(0, std::memory_order_relaxed);
  return run(thread_count, [this, job_count, &job](int) {
    while (true) {
      const int64_t index = next_job_.fetch_add(1, std::memory_order_relaxed);
      if (index >= job_count) return;
      job(index);
    }
  });
}

}  // namespace gapless
