// SPDX-License-Identifier: Apache-2.0

#include "bench/kernel_bench_support.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include "base/check.h"

namespace gapless {
namespace {

// Whether a thread other than the caller runs or would if it had a core: the letter after the name
// in its line of /proc, which stands in brackets and may have brackets itself.
bool has_running_thread() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (std::atoi(entry.path().filename().c_str()) == ::gettid()) continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;  // it has ended meanwhile
    const size_t end_of_name = line.rfind(") ");
    if (end_of_name != std::string::npos && line[end_of_name + 2] == 'R') return true;
  }
  return false;
}

void stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
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
    while (go_.load(std::memory_order_acquire) != seen) compiler_barrier();
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
  while (awake_count_.load(std::memory_order_acquire) != count() - 1) compiler_barrier();
  const int64_t begin_cpu_ns = thread_cpu_ns();
  const int64_t begin_ns = wall_ns();
  go_.store(call, std::memory_order_release);
  body(0);
  while (done_count_.load(std::memory_order_acquire) != thread_count - 1) compiler_barrier();
  const double elapsed_ns = static_cast<double>(wall_ns() - begin_ns);
  wall_sum_ns_ += elapsed_ns;
  cpu_sum_ns_ += static_cast<double>(thread_cpu_ns() - begin_cpu_ns);
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

Result<void> wait_until_quiet() {
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    if (!has_running_thread()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fail(ErrorCode::kSystem, "other threads of this process still run after {} ms", kTries);
}

void print_core_share(const PinnedThreads& threads) {
  constexpr double kQuietShare = 0.98;
  if (threads.core_share() >= kQuietShare) return;
  fmt::print("NOTE: other programs ran: thread 0 had {:.0f} % of its core; figures mean little\n",
             100.0 * threads.core_share());
}

std::string threads_text(int thread_count) {
  return fmt::format("{} {}", thread_count, thread_count == 1 ? "thread" : "threads");
}

Row& expect_ratio_at_least(Row& row, double bound) {
  GAPLESS_CHECK(row.limit.has_value());
  row.goal = fmt::format(">= {}x", bound);
  row.met = ratio(row.figure, *row.limit) >= bound;
  return row;
}

uint64_t RandomBits::next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float RandomBits::next_float() {
  return static_cast<float>(static_cast<int64_t>(next() >> 40)) * 0x1p-23f - 1.0f;
}

}  // namespace gapless
