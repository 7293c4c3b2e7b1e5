// SPDX-License-Identifier: Apache-2.0

#include "model/deal.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

namespace gapless {
namespace {

// What the threads share.
struct Dealing {
  Dealing(const DealOptions& given, const std::function<Result<void>(int64_t)>& job_work)
      : options(given), work(job_work) {}

  const DealOptions& options;
  const std::function<Result<void>(int64_t)>& work;
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> done = 0;
  std::atomic<bool> has_failed = false;
  std::mutex mutex;
  int64_t failed_job = std::numeric_limits<int64_t>::max();
  Error error = {};

  // A job that was begun is finished, so all jobs before the one that failed have been seen.
  void run(bool is_caller) {
    while (!has_failed.load(std::memory_order_relaxed)) {
      const int64_t job = next.fetch_add(1, std::memory_order_relaxed);
      if (job >= options.count) return;
      Result<void> result = work(job);
      if (!result) keep(job, std::move(result).error());
      const int64_t done_now = done.fetch_add(1, std::memory_order_relaxed) + 1;
      if (is_caller && options.on_progress) options.on_progress(done_now);
    }
  }

  void keep(int64_t job, Error found) {
    const std::lock_guard<std::mutex> guard(mutex);
    has_failed.store(true, std::memory_order_relaxed);
    if (job >= failed_job) return;
    failed_job = job;
    error = std::move(found);
  }
};

}  // namespace

int usable_cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Result<void> deal(const DealOptions& options,
                  const std::function<Result<void>(int64_t job)>& work) {
  Dealing dealing(options, work);
  const int wanted = options.thread_count == 0 ? usable_cpu_count() : options.thread_count;
  const int64_t thread_count = std::min<int64_t>(wanted, options.count);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(std::max<int64_t>(0, thread_count - 1)));
  try {
    while (std::ssize(threads) + 1 < thread_count)
      threads.emplace_back([&dealing] { dealing.run(false); });
  } catch (const std::system_error&) {
    // The machine has no more threads: those that are there do the work.
  }
  dealing.run(true);
  for (std::thread& thread : threads) thread.join();
  if (dealing.has_failed.load()) return std::move(dealing.error);
  if (options.on_progress) options.on_progress(options.count);
  return {};
}

}  // namespace gapless
