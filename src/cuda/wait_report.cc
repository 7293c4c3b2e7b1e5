// SPDX-License-Identifier: Apache-2.0

#include "cuda/wait_report.h"

#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>

#include <cuda_runtime.h>

#include "cuda/device.h"

namespace gapless {
namespace {

constexpr const char* kWaitVariable = "GAPLESS_CUDA_WAIT_S";
constexpr int kMostWaitSeconds = 3600;

struct WaitText {
  const char* kernel;
  const char* what;
};

constexpr std::array<WaitText, static_cast<size_t>(DeviceWait::kCount)> kWaitTexts = {{
    {"a kernel", "nothing"},
    {"a matmul", "weights and tokens to be copied"},
    {"a matmul", "a stage of its ring to be free"},
    {"a matmul", "the number of the launch"},
    {"a matmul", "sums of another block"},
    {"an attention", "queries to be copied"},
    {"an attention", "keys to be copied"},
    {"an attention", "values to be copied"},
    {"an attention", "what its warps found in a chunk"},
    {"an attention", "a place for what its warps found"},
    {"an attention", "partial results of other blocks to be copied"},
    {"rows for a matmul", "the other parts of its row"},
    {"a recorded launch", "the end of its other warps"},
    {"a test", "nobody"},
}};

// Of the process, as CUDA's context is. check_cuda() reads it whenever something fails.
std::mutex preparation;
std::atomic<uint64_t*> present_report = nullptr;
std::atomic<uint32_t> present_limit_ms = WaitLimit{}.limit_ms;

}  // namespace

std::string describe(const WaitReport& report, uint32_t limit_ms) {
  if (report.wait == DeviceWait::kNone) return "";
  const size_t wait = static_cast<size_t>(report.wait);
  const WaitText text = wait < kWaitTexts.size() ? kWaitTexts[wait] : kWaitTexts[0];
  return fmt::format("block {} of {} waited more than {} s for {} (warp {})", report.block,
                     text.kernel, limit_ms / 1000, text.what, report.warp);
}

Result<uint32_t> wait_limit_ms_of(const char* seconds_text) {
  const std::string_view text = seconds_text == nullptr ? "" : seconds_text;
  if (text.empty()) return WaitLimit{}.limit_ms;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || seconds < 1 ||
      seconds > kMostWaitSeconds)
    return fail(ErrorCode::kInvalidInput, "{}={}: a wait on the GPU can be given 1 to {} seconds",
                kWaitVariable, text, kMostWaitSeconds);
  return static_cast<uint32_t>(seconds) * 1000;
}

Result<void> prepare_wait_limit() {
  const std::scoped_lock lock(preparation);
  if (present_report != nullptr) return {};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody here writes the environment
  present_limit_ms = GAPLESS_TRY(wait_limit_ms_of(std::getenv(kWaitVariable)));
  void* memory = nullptr;
  GAPLESS_TRY(check_cuda(
      cudaHostAlloc(&memory, sizeof(WaitReport), cudaHostAllocMapped | cudaHostAllocPortable),
      "allocating host memory for reports of waits"));
  // Never given back: a kernel may write to it as long as the process lives.
  present_report = new (memory) uint64_t(std::bit_cast<uint64_t>(WaitReport{}));
  return {};
}

WaitLimit present_wait_limit() { return {.report = present_report, .limit_ms = present_limit_ms}; }

std::string expired_wait() {
  const WaitLimit limit = present_wait_limit();
  if (limit.report == nullptr) return "";
  const uint64_t bits = std::atomic_ref(*limit.report).load();  // the device writes it as a whole
  return describe(std::bit_cast<WaitReport>(bits), limit.limit_ms);
}

}  // namespace gapless
