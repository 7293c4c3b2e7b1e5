// SPDX-License-Identifier: Apache-2.0
//
// CpuDevice: CPU cores as a device that runs tasks.
//
// The thread that calls is worker 0; the others are threads of the device, each pinned to one of
// the cores that the thread which creates the device may use: do not create it from a pinned one.
// Inside a run workers spin; between runs they spin a little longer and then park. A device with
// clusters gives its workers kinds: one cube and two vector workers each.
//
//   std::unique_ptr<CpuDevice> device = GAPLESS_TRY(CpuDevice::create({.worker_count = 2}));
//   Replay replay = GAPLESS_TRY(Replay::prepare(*device, std::move(graph)));
//   GAPLESS_TRY(replay.run());

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "graph/validate.h"
#include "runtime/worker.h"

namespace gapless {

struct CpuDeviceOptions {
  int worker_count = 0;   // the calling thread included; 0: one for each CPU we may use
  int cluster_count = 0;  // > 0: three workers each (1 cube + 2 vector); then no worker_count
  bool pin_workers = true;
  int64_t park_after_ns = 50'000;  // workers spin this long after a run before they park
  // No task ended for so long: on_stall is called, once a stall, from a thread of the
  // device, with what every unfinished task, ring and worker waits for. 0 or no function: never.
  int64_t stall_after_ns = 10'000'000'000;
  std::function<void(const std::string& report)> on_stall = {};
};

class CpuDevice {
 public:
  static Result<std::unique_ptr<CpuDevice>> create(const CpuDeviceOptions& options);
  ~CpuDevice();
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  int worker_count() const { return static_cast<int>(workers_.size()); }
  const DeviceLimits& limits() const { return limits_; }
  Worker& worker(int index) { return *workers_[static_cast<size_t>(index)]; }
  const Worker& worker(int index) const { return *workers_[static_cast<size_t>(index)]; }
  std::vector<Worker*> workers();
  int64_t park_after_ns() const { return options_.park_after_ns; }
  // The lane of the thread that submits.
  LaneId orchestrator_lane() const { return orchestrator_lane_; }

  // A run, in four parts. enter() takes the device; an error when it is in use. start() lets the
  // other workers in. join() takes part in the work as worker 0 until all workers have left.
  // leave() gives the device back: what the workers counted must have been read by then.
  Result<void> enter();
  void start(Program& program);
  void join();
  void leave() { in_use_.store(false, std::memory_order_release); }

  // Task numbers for the recorder, unique over all programs of this process.
  static uint32_t reserve_trace_ids(uint32_t count);

 private:
  explicit CpuDevice(const CpuDeviceOptions& options);
  Result<void> start_threads();
  void thread_main(Worker& worker);
  void wait_for_run(uint32_t& seen);
  void watch();
  uint64_t total_progress() const;

  CpuDeviceOptions options_;
  DeviceLimits limits_;
  size_t cpu_count_ = 1;  // that we may use
  LaneId orchestrator_lane_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;

  alignas(128) std::atomic<uint32_t> run_number_ = 0;
  std::atomic<Program*> program_ = nullptr;
  std::atomic<bool> in_use_ = false;
  std::atomic<bool> closing_ = false;
  alignas(128) std::atomic<int> working_ = 0;  // device threads inside the present run

  std::thread watch_thread_;
  std::mutex watch_mutex_;
  std::condition_variable watch_wakes_;
  bool watch_ends_ = false;
};

// "worker 1 (cube of cluster 0): running task 17 (gate_up)": a line of a stall report.
std::string worker_text(const Worker& worker, const std::string& task_text);

}  // namespace gapless
