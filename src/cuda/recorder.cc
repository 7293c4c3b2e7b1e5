// SPDX-License-Identifier: Apache-2.0

#include "cuda/recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <cuda_runtime.h>
#include <fmt/core.h>

#include "base/check.h"

namespace gapless {
namespace {

constexpr uint32_t kClockTries = 256;
constexpr int64_t kMaxAnswerNs = 2'000'000'000;
constexpr int64_t kMaxTasks = std::numeric_limits<uint32_t>::max();  // numbers of places

int64_t host_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct FreeHostMemory {
  void operator()(DeviceClockExchange* exchange) const {
    static_cast<void>(cudaFreeHost(exchange));
  }
};
using ExchangeMemory = std::unique_ptr<DeviceClockExchange, FreeHostMemory>;

struct DestroyStream {
  void operator()(void* stream) const {
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }
};
using OwnedStream = std::unique_ptr<void, DestroyStream>;

Result<ExchangeMemory> make_exchange() {
  void* memory = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&memory, sizeof(DeviceClockExchange), cudaHostAllocMapped);
  GAPLESS_TRY(check_cuda(status, "taking memory of the host for the GPU's clock"));
  return ExchangeMemory(new (memory) DeviceClockExchange{});
}

Result<OwnedStream> make_stream() {
  cudaStream_t stream = nullptr;
  GAPLESS_TRY(check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                         "making a stream for the GPU's clock"));
  return OwnedStream(stream);
}

// One question and its answer; nothing when the device is silent.
std::optional<DeviceClockOffset> ask(DeviceClockExchange& exchange, uint32_t request) {
  std::atomic_ref<uint32_t> answer(exchange.answer);
  const int64_t begin_ns = host_now_ns();
  std::atomic_ref<uint32_t>(exchange.request).store(request, std::memory_order_release);
  int64_t end_ns = begin_ns;
  bool is_answered = false;
  while (!is_answered) {
    is_answered = answer.load(std::memory_order_acquire) == request;
    end_ns = host_now_ns();
    if (!is_answered && end_ns - begin_ns > kMaxAnswerNs) return std::nullopt;
  }
  constexpr int64_t kTimerTickNs = 32;  // the timer is behind by up to a tick
  const int64_t device_ns = static_cast<int64_t>(exchange.device_ns);
  const int64_t half_ns = (end_ns - begin_ns + 1) / 2;
  return DeviceClockOffset{.offset_ns = device_ns - (begin_ns + half_ns),
                           .error_ns = half_ns + kTimerTickNs};
}

}  // namespace

Result<CudaRecorder> CudaRecorder::make(std::vector<RecordedLaunch> launches, int step_capacity,
                                        RecordLevel level) {
  GAPLESS_CHECK(level != RecordLevel::kNone);
  if (launches.empty() || step_capacity < 1)
    return fail(ErrorCode::kInvalidInput, "a recorder of {} launches and {} steps; needs 1 of each",
                launches.size(), step_capacity);
  CudaRecorder recorder;
  int64_t step_blocks = 0;
  for (const RecordedLaunch& launch : launches) {
    if (launch.blocks < 1)
      return fail(ErrorCode::kInvalidInput, "a recorder of launch {} with {} blocks; needs 1",
                  launch.name, launch.blocks);
    recorder.first_blocks_.push_back(static_cast<uint32_t>(step_blocks));
    step_blocks += launch.blocks;
    if (step_blocks > std::numeric_limits<int32_t>::max())
      return fail(ErrorCode::kInvalidInput, "a recorder of {} or more blocks a step", step_blocks);
  }
  int64_t bytes = step_blocks * device_block_bytes(level);
  const bool is_too_large = __builtin_mul_overflow(bytes, int64_t{step_capacity}, &bytes);
  const bool has_task_numbers = bytes / int64_t{sizeof(DeviceTask)} < kMaxTasks;
  if (is_too_large || (level == RecordLevel::kTasks && !has_task_numbers))
    return fail(ErrorCode::kInvalidInput, "a recorder of {} steps of {} blocks", step_capacity,
                step_blocks);
  const std::string what =
      fmt::format("records of {} steps of {} blocks", step_capacity, step_blocks);
  recorder.launches_ = std::move(launches);
  recorder.level_ = level;
  recorder.step_blocks_ = static_cast<uint32_t>(step_blocks);
  recorder.step_capacity_ = step_capacity;
  recorder.buffer_ = GAPLESS_TRY(DeviceBuffer::allocate(bytes, what.c_str()));
  const int64_t counters = level == RecordLevel::kTasks ? 2 : step_blocks * kDeviceRoleCount;
  recorder.steps_ = GAPLESS_TRY(DeviceBuffer::allocate(counters * int64_t{sizeof(uint32_t)},
                                                       "numbers of a recorder's steps"));
  GAPLESS_TRY(recorder.reset());
  return recorder;
}

RecorderLaunch CudaRecorder::launch(int index) const {
  GAPLESS_CHECK(index >= 0 && static_cast<size_t>(index) < launches_.size());
  return {.level = level_,
          .ends_step = static_cast<size_t>(index) + 1 == launches_.size(),
          .buffer = buffer_.data(),
          .steps = reinterpret_cast<uint32_t*>(steps_.data()),
          .step_capacity = static_cast<uint32_t>(step_capacity_),
          .step_blocks = step_blocks_,
          .first_block = first_blocks_[static_cast<size_t>(index)]};
}

Result<void> CudaRecorder::reset() {
  GAPLESS_TRY(buffer_.fill(0));
  GAPLESS_TRY(steps_.fill(0));
  GAPLESS_TRY(synchronize(nullptr));
  first_clock_ = GAPLESS_TRY(measure_device_clock());
  return {};
}

// Steps that have begun. At level kTasks what is in the low word are readers of one that has not
// ended.
Result<uint32_t> CudaRecorder::count_steps() const {
  std::vector<uint32_t> steps(static_cast<size_t>(steps_.bytes()) / sizeof(uint32_t));
  GAPLESS_TRY(steps_.copy_to_host(steps.data(), steps_.bytes()));
  if (level_ == RecordLevel::kTasks) return steps[1];
  return *std::max_element(steps.begin(), steps.end());
}

Result<DeviceRecording> CudaRecorder::read() const {
  GAPLESS_TRY(check_cuda(cudaDeviceSynchronize(), "waiting for recorded steps"));
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  const uint32_t step = GAPLESS_TRY(count_steps());
  DeviceRecording recording;
  recording.device_name = limits.name;
  recording.sm_count = limits.sm_count;
  recording.level = level_;
  recording.launches = launches_;
  recording.step_count = static_cast<int>(std::min(step, static_cast<uint32_t>(step_capacity_)));
  recording.lost_step_count = int64_t{step} - recording.step_count;
  const int64_t bytes = int64_t{recording.step_count} * step_blocks_ * device_block_bytes(level_);
  recording.blocks.resize(static_cast<size_t>(bytes));
  if (bytes > 0) GAPLESS_TRY(buffer_.copy_to_host(recording.blocks.data(), bytes));
  recording.clock = joined(first_clock_, GAPLESS_TRY(measure_device_clock()));
  return recording;
}

DeviceClockOffset joined(const DeviceClockOffset& first, const DeviceClockOffset& second) {
  const int64_t low =
      std::min(first.offset_ns - first.error_ns, second.offset_ns - second.error_ns);
  const int64_t high =
      std::max(first.offset_ns + first.error_ns, second.offset_ns + second.error_ns);
  return {.offset_ns = low + (high - low) / 2, .error_ns = (high - low + 1) / 2};
}

Result<DeviceClockOffset> measure_device_clock() {
  const ExchangeMemory exchange = GAPLESS_TRY(make_exchange());
  const OwnedStream stream = GAPLESS_TRY(make_stream());
  void* on_device = nullptr;
  GAPLESS_TRY(check_cuda(cudaHostGetDevicePointer(&on_device, exchange.get(), 0),
                         "sharing memory for the GPU's clock"));
  const int status = recorder_clock_kernel(static_cast<DeviceClockExchange*>(on_device),
                                           kClockTries, stream.get());
  GAPLESS_TRY(check_cuda(status, "launching the GPU's clock"));
  std::optional<DeviceClockOffset> best;
  uint32_t request = 1;
  for (; request <= kClockTries; ++request) {
    const std::optional<DeviceClockOffset> offset = ask(*exchange, request);
    if (!offset) break;
    if (!best || offset->error_ns < best->error_ns) best = offset;
  }
  GAPLESS_TRY(synchronize(stream.get()));  // it gives up by itself when it is not asked
  // A host that is stopped in the middle has good readings from before.
  if (!best)
    return fail(ErrorCode::kSystem, "the GPU did not say its time within {} ms, in try {} of {}",
                kMaxAnswerNs / 1'000'000, request, kClockTries);
  return *best;
}

}  // namespace gapless
