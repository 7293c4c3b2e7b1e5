// SPDX-License-Identifier: Apache-2.0
//
// The peers that need no library: the serial walk, which no runtime can beat on one worker, and a
// thread that waits at a condition variable. Also the list of all peers.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "bench/measurement.h"
#include "bench/task_peers.h"

namespace gapless {
namespace {

class SerialPeer final : public TaskPeer {
 public:
  explicit SerialPeer(const TaskPeerArgs& args)
      : shape_(*args.shape),
        body_(args.body),
        waiting_for_(shape_.task_count),
        ready_(shape_.task_count) {}

  std::string name() const override { return "serial walk"; }

  void run() override {
    std::copy(shape_.producer_count.begin(), shape_.producer_count.end(), waiting_for_.begin());
    uint32_t ready_count = 0;
    for (uint32_t task = 0; task < shape_.task_count; ++task) {
      if (shape_.producer_count[task] == 0) ready_[ready_count++] = task;
    }
    uint32_t done_count = 0;
    for (; done_count < ready_count; ++done_count) {
      const uint32_t task = ready_[done_count];
      body_.function(body_.state, task);
      const uint32_t end = shape_.successor_begin[task + size_t{1}];
      for (uint32_t i = shape_.successor_begin[task]; i < end; ++i) {
        const uint32_t successor = shape_.successors[i];
        if (--waiting_for_[successor] == 0) ready_[ready_count++] = successor;
      }
    }
    GAPLESS_CHECK(done_count == shape_.task_count);
  }

 private:
  const TaskShape& shape_;
  TaskBody body_;
  std::vector<uint32_t> waiting_for_;  // producers that have not run
  std::vector<uint32_t> ready_;        // in the order they became so; none leaves
};

// A thread that takes one submission at a time, as a program without a task library writes it.
class WaitingThread {
 public:
  WaitingThread() : thread_([this] { take_submissions(); }) {}
  WaitingThread(const WaitingThread&) = delete;
  WaitingThread& operator=(const WaitingThread&) = delete;
  ~WaitingThread() {
    change([this] { ending_ = true; });
    thread_.join();
  }

  void submit() {
    change([this] { submitted_ = true; });
  }

  // When the latest submission started; waits for that, and leaves 0 behind.
  int64_t take_start_ns() {
    int64_t start_ns = 0;
    while (start_ns == 0) start_ns = start_ns_.load(std::memory_order_acquire);
    start_ns_.store(0, std::memory_order_relaxed);
    return start_ns;
  }

 private:
  template <typename Change>
  void change(Change change) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      change();
    }
    changed_.notify_one();
  }

  void take_submissions() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return submitted_ || ending_; });
      if (ending_) return;
      submitted_ = false;
      start_ns_.store(wall_ns(), std::memory_order_release);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool submitted_ = false;
  bool ending_ = false;
  std::atomic<int64_t> start_ns_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<TaskPeer> make_serial_peer(const TaskPeerArgs& args) {
  GAPLESS_CHECK(args.worker_count == 1);
  return std::make_unique<SerialPeer>(args);
}

std::vector<std::unique_ptr<TaskPeer>> make_task_peers(const TaskPeerArgs& args) {
  std::vector<std::unique_ptr<TaskPeer>> peers;
  if (args.worker_count == 1) peers.push_back(make_serial_peer(args));
  peers.push_back(make_tbb_flow_graph_peer(args));
  peers.push_back(make_tbb_task_group_peer(args, ReadySuccessors::kSpawned));
  peers.push_back(make_tbb_task_group_peer(args, ReadySuccessors::kReturned));
  peers.push_back(make_tbb_task_group_peer(args, ReadySuccessors::kRunInline));
  peers.push_back(make_openmp_peer(args));
  std::erase(peers, nullptr);
  return peers;
}

std::vector<double> measure_condition_variable_latency_ns(int sample_count) {
  std::vector<double> latencies_ns;
  WaitingThread thread;
  for (int i = 0; i < sample_count; ++i) {
    const int64_t submit_ns = wall_ns();
    thread.submit();
    latencies_ns.push_back(static_cast<double>(thread.take_start_ns() - submit_ns));
    while (wall_ns() - submit_ns < kLatencyIntervalNs) compiler_barrier();
  }
  return latencies_ns;
}

}  // namespace gapless
