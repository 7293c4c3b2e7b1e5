// SPDX-License-Identifier: Apache-2.0

#include "runtime/cpu_device.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>

#include "base/check.h"
#include "runtime/spin.h"

namespace gapless {
namespace {

constexpr int kMaxWorkers = 1024;

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

bool pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set) == 0;
}

LaneKind lane_kind(WorkerKind kind) {
  if (kind == WorkerKind::kCube) return LaneKind::kCubeCore;
  if (kind == WorkerKind::kVector) return LaneKind::kVectorCore;
  return LaneKind::kWorker;
}

std::string worker_name(const Worker& worker) {
  if (worker.cluster < 0) return fmt::format("worker {}", worker.index);
  const char* const part = worker.role == MixedRole::kCube      ? "cube"
                           : worker.role == MixedRole::kVector0 ? "vector 0"
                                                                : "vector 1";
  return fmt::format("worker {} ({} of cluster {})", worker.index, part, worker.cluster);
}

}  // namespace

std::string worker_text(const Worker& worker, const std::string& task_text) {
  std::string name = worker_name(worker);
  switch (worker.activity.load(std::memory_order_relaxed)) {
    case Activity::kOutside:
      return fmt::format("{}: outside the run", name);
    case Activity::kSearching:
      return fmt::format("{}: searches for a ready task", name);
    case Activity::kRunning:
      return fmt::format("{}: runs {}", name, task_text);
    case Activity::kGathering:
      return fmt::format("{}: waits for the other workers of {}", name, task_text);
    case Activity::kSubmitting:
      return fmt::format("{}: submits tasks", name);
  }
  return name;
}

CpuDevice::CpuDevice(const CpuDeviceOptions& options) : options_(options) {}

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(const CpuDeviceOptions& options) {
  CpuDeviceOptions chosen = options;
  const std::vector<int> cpus = allowed_cpus();
  if (chosen.cluster_count < 0 || chosen.worker_count < 0) {
    return fail(ErrorCode::kInvalidInput, "cpu device: {} workers in {} clusters; none is negative",
                chosen.worker_count, chosen.cluster_count);
  }
  if (chosen.cluster_count > 0) {
    const int64_t wanted = int64_t{chosen.cluster_count} * kClusterWorkers;
    if (chosen.worker_count != 0 && chosen.worker_count != wanted) {
      return fail(ErrorCode::kInvalidInput,
                  "cpu device: {} workers do not make {} clusters; a cluster has {}",
                  chosen.worker_count, chosen.cluster_count, kClusterWorkers);
    }
    if (wanted > kMaxWorkers) {
      return fail(ErrorCode::kInvalidInput, "cpu device: {} workers in {} clusters; the most is {}",
                  wanted, chosen.cluster_count, kMaxWorkers);
    }
    chosen.worker_count = static_cast<int>(wanted);
  }
  if (chosen.worker_count == 0)
    chosen.worker_count = std::max<int>(1, static_cast<int>(cpus.size()));
  if (chosen.worker_count > kMaxWorkers) {
    return fail(ErrorCode::kInvalidInput, "cpu device: {} workers; the most is {}",
                chosen.worker_count, kMaxWorkers);
  }
  // More workers than cores: pinning two to one core would only tie their hands.
  if (static_cast<size_t>(chosen.worker_count) > cpus.size()) chosen.pin_workers = false;

  std::unique_ptr<CpuDevice> device(new CpuDevice(chosen));
  device->cpu_count_ = std::max<size_t>(cpus.size(), 1);
  DeviceLimits& limits = device->limits_;
  limits.name = "cpu";
  device->orchestrator_lane_ = add_lane(
      {.name = "orchestrator", .kind = LaneKind::kOrchestrator, .number = 0, .device = "cpu"});
  for (int i = 0; i < chosen.worker_count; ++i) {
    std::unique_ptr<Worker> worker = std::make_unique<Worker>();
    worker->index = i;
    if (chosen.cluster_count > 0) {
      const int place = i % kClusterWorkers;
      worker->cluster = i / kClusterWorkers;
      worker->kind = place == 0 ? WorkerKind::kCube : WorkerKind::kVector;
      worker->role = static_cast<MixedRole>(static_cast<int>(MixedRole::kCube) + place);
    }
    if (chosen.pin_workers && i > 0) worker->cpu = cpus[static_cast<size_t>(i)];
    worker->lane = add_lane({.name = worker_name(*worker),
                             .kind = lane_kind(worker->kind),
                             .number = i,
                             .device = "cpu"});
    device->workers_.push_back(std::move(worker));
  }
  limits.clusters = chosen.cluster_count;
  limits.cube_cores = chosen.cluster_count;
  limits.vector_cores = chosen.cluster_count * 2;
  limits.any_cores = chosen.cluster_count > 0 ? 0 : chosen.worker_count;
  GAPLESS_TRY(device->start_threads());
  return device;
}

Result<void> CpuDevice::start_threads() {
  // The one place where the library throws at us: a machine that has no threads left.
  try {
    for (size_t i = 1; i < workers_.size(); ++i) {
      threads_.emplace_back([this, i] { thread_main(*workers_[i]); });
    }
    if (options_.on_stall && options_.stall_after_ns > 0) {
      watch_thread_ = std::thread([this] { watch(); });
    }
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kSystem, "cpu device: cannot start thread {} of {}: {}",
                threads_.size() + 1, workers_.size() - 1, error.what());
  }
  return {};
}

CpuDevice::~CpuDevice() {
  closing_.store(true, std::memory_order_release);
  run_number_.fetch_add(1, std::memory_order_release);
  run_number_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (watch_thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> guard(watch_mutex_);
      watch_ends_ = true;
    }
    watch_wakes_.notify_all();
    watch_thread_.join();
  }
}

void CpuDevice::wait_for_run(uint32_t& seen) {
  const int64_t begin_ns = now_ns();
  for (uint32_t poll = 0; run_number_.load(std::memory_order_acquire) == seen; ++poll) {
    pause_core();
    if (poll % 64 != 63) continue;
    if (now_ns() - begin_ns > options_.park_after_ns) {
      run_number_.wait(seen, std::memory_order_acquire);
    } else if (workers_.size() > cpu_count_) {
      ::sched_yield();
    }
  }
  seen = run_number_.load(std::memory_order_acquire);
}

void CpuDevice::thread_main(Worker& worker) {
  if (worker.cpu >= 0 && !pin_to(worker.cpu)) worker.cpu = -1;
  // For debuggers and top; at most 15 characters fit.
  ::pthread_setname_np(::pthread_self(), fmt::format("gapless {}", worker.index).c_str());
  uint32_t seen = 0;
  for (;;) {
    wait_for_run(seen);
    if (closing_.load(std::memory_order_acquire)) return;
    program_.load(std::memory_order_acquire)->work(worker);
    worker.set_activity(Activity::kOutside);
    working_.fetch_sub(1, std::memory_order_release);
  }
}

std::vector<Worker*> CpuDevice::workers() {
  std::vector<Worker*> all;
  for (const std::unique_ptr<Worker>& worker : workers_) all.push_back(worker.get());
  return all;
}

Result<void> CpuDevice::enter() {
  if (in_use_.exchange(true, std::memory_order_acquire)) {
    return fail(ErrorCode::kInvalidInput, "cpu device: in use by another run; one at a time");
  }
  return {};
}

void CpuDevice::start(Program& program) {
  program_.store(&program, std::memory_order_release);
  if (threads_.empty()) return;
  working_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  run_number_.fetch_add(1, std::memory_order_release);
  run_number_.notify_all();
}

void CpuDevice::join() {
  program_.load(std::memory_order_relaxed)->work(*workers_[0]);
  workers_[0]->set_activity(Activity::kOutside);
  SpinWait wait;
  while (working_.load(std::memory_order_acquire) != 0) wait.poll();
  // The watch thread looks at the program under this lock.
  if (watch_thread_.joinable()) {
    const std::lock_guard<std::mutex> guard(watch_mutex_);
    program_.store(nullptr, std::memory_order_release);
  }
}

uint64_t CpuDevice::total_progress() const {
  uint64_t total = run_number_.load(std::memory_order_relaxed);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    total += worker->progress.load(std::memory_order_relaxed);
  }
  return total;
}

// Looks four times in the time after which a stall is one, and reports each stall once.
void CpuDevice::watch() {
  const std::chrono::nanoseconds interval(
      std::max<int64_t>(options_.stall_after_ns / 4, 1'000'000));
  uint64_t seen = 0;
  int64_t since_ns = now_ns();
  bool is_told = false;
  std::unique_lock<std::mutex> guard(watch_mutex_);
  while (!watch_wakes_.wait_for(guard, interval, [this] { return watch_ends_; })) {
    const uint64_t progress = total_progress();
    Program* const program = program_.load(std::memory_order_acquire);
    if (progress != seen || program == nullptr) {
      seen = progress;
      since_ns = now_ns();
      is_told = false;
      continue;
    }
    const int64_t still_ns = now_ns() - since_ns;
    if (is_told || still_ns < options_.stall_after_ns) continue;
    const std::string text = program->describe_stall();
    if (text.empty()) {
      since_ns = now_ns();
      continue;
    }
    is_told = true;
    options_.on_stall(
        fmt::format("no task ended for {:.1f} s\n{}", static_cast<double>(still_ns) * 1e-9, text));
  }
}

uint32_t CpuDevice::reserve_trace_ids(uint32_t count) {
  static std::atomic<uint32_t> next = 0;
  return next.fetch_add(count, std::memory_order_relaxed);
}

}  // namespace gapless
