// SPDX-License-Identifier: Apache-2.0
//
// Waiting without sleeping: a lock for a few nanoseconds, and a wait that first spins and then lets
// others run, because a machine may have fewer cores than we have threads.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gapless {

inline void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Spins for some microseconds, then gives the core away between polls.
class SpinWait {
 public:
  void poll() {
    if (++polls_ < kSpins) {
      pause_core();
    } else {
      ::sched_yield();
    }
  }
  void reset() { polls_ = 0; }

 private:
  static constexpr uint32_t kSpins = 4096;
  uint32_t polls_ = 0;
};

// Held for tens of nanoseconds. Taking it uncontended is one atomic exchange.
class SpinLock {
 public:
  void lock() {
    SpinWait wait;
    while (held_.exchange(true, std::memory_order_acquire)) {
      while (held_.load(std::memory_order_relaxed)) wait.poll();
    }
  }
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_ = false;
};

}  // namespace gapless
