// SPDX-License-Identifier: Apache-2.0

#include "bench/kernel_bench_support.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include <fmt/core.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mix_bits.h"

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

}  // namespace

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
  const uint64_t bits = mix_bits(state_);
  state_ += kMixIncrement;
  return bits;
}

float RandomBits::next_float() {
  return static_cast<float>(static_cast<int64_t>(next() >> 40)) * 0x1p-23f - 1.0f;
}

}  // namespace gapless
