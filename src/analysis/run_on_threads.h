// SPDX-License-Identifier: Apache-2.0
//
// run_on_threads: independent jobs, as many at once as the machine has threads.
//
// Each job is done once, by one thread, and writes only what is its own: so the results are the
// same on any number of threads. The calling thread works too, and alone where there are no others.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace gapless {

// Calls job(0) to job(job_count - 1), which must not throw. `thread_limit`: 0: no other limit than
// the machine's.
template <typename Job>
void run_on_threads(size_t job_count, Job job, size_t thread_limit = 0) {
  std::atomic<size_t> next = 0;
  const auto work = [&job, &next, job_count] {
    for (size_t i = next++; i < job_count; i = next++) job(i);
  };
  size_t thread_count = std::min<size_t>(std::thread::hardware_concurrency(), job_count);
  if (thread_limit > 0) thread_count = std::min(thread_count, thread_limit);
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < thread_count) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // The machine gives no more threads: those that there are do it all.
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gapless
