// SPDX-License-Identifier: Apache-2.0
//
// A small pool of workers passing tasks, recorded: spans on each thread, arrows from the submit of
// a task to its run, a counter for the queue. Nothing here starts the recorder; run it under
// `gapless record -o pool.gapless -- worker_pool`, or with GAPLESS_TRACE_FILE set.

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gapless/trace.h"

namespace {

struct Task {
  uint32_t id;
  uint32_t size;
};

class Pool {
 public:
  void submit(Task task) {
    GAPLESS_TRACE_SCOPE("submit");
    gapless::flow_out(task.id);
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(task);
      GAPLESS_TRACE_COUNTER("queue length", tasks_.size());
    }
    not_empty_.notify_one();
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    not_empty_.notify_all();
  }

  // False when there will be no more.
  bool take(Task& task) {
    GAPLESS_TRACE_SCOPE("wait for a task");
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return false;
    task = tasks_.front();
    tasks_.pop_front();
    GAPLESS_TRACE_COUNTER("queue length", tasks_.size());
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<Task> tasks_;
  bool closed_ = false;
};

// Something to do: a sum that the compiler cannot skip.
double work(uint32_t size) {
  volatile double sum = 0.0;
  for (uint32_t i = 1; i <= size; ++i) sum = sum + 1.0 / i;
  return sum;
}

void run_worker(Pool& pool, int number) {
  gapless::name_thread("worker " + std::to_string(number));
  const gapless::NameId run = gapless::intern_name("run");
  const gapless::NameId sum = gapless::intern_name("sum");
  Task task = {};
  while (pool.take(task)) {
    const gapless::ScopedSpan run_span(run, task.id);
    gapless::flow_in(task.id);
    const gapless::ScopedSpan sum_span(sum);
    work(task.size);
  }
}

}  // namespace

int main() {
  constexpr uint32_t kTasks = 2000;
  constexpr int kWorkers = 3;
  Pool pool;
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) workers.emplace_back([&pool, i] { run_worker(pool, i); });
  for (uint32_t id = 0; id < kTasks; ++id) {
    pool.submit({id, 2000 + id * 7919 % 20000});
    if (id % 50 == 49) work(200000);  // submit in bursts, as an orchestrator does
  }
  pool.close();
  for (std::thread& worker : workers) worker.join();
  std::printf("worker_pool: %u tasks on %d workers, recording %s\n", kTasks, kWorkers,
              gapless::is_recording() ? "on" : "off");
  return 0;
}
