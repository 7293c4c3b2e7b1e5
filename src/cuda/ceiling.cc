// SPDX-License-Identifier: Apache-2.0

#include "cuda/ceiling.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/ceiling_launch.h"
#include "cuda/device.h"
#include "cuda/stream.h"

namespace gapless {
namespace {

constexpr int64_t kReadStep = int64_t{1} << 20;
constexpr int64_t kCachesToRead = 8;  // at most an eighth of a read can come from the cache
constexpr int kWarmUps = 2;           // until clocks are up
// A launch of a few milliseconds on a large GPU.
constexpr int kMatrixRounds = 16384;
constexpr int kF32Rounds = 65536;

// Seconds that a launch takes: the median of several.
Result<double> time_launch(int round_count, const char* what, const std::function<int()>& launch) {
  const CudaEvent begin = GAPLESS_TRY(CudaEvent::make());
  const CudaEvent end = GAPLESS_TRY(CudaEvent::make());
  for (int i = 0; i < kWarmUps; ++i) GAPLESS_TRY(check_cuda(launch(), what));
  std::vector<double> seconds;
  for (int i = 0; i < round_count; ++i) {
    GAPLESS_TRY(begin.record(nullptr));
    GAPLESS_TRY(check_cuda(launch(), what));
    GAPLESS_TRY(end.record(nullptr));
    GAPLESS_TRY(synchronize(nullptr));
    seconds.push_back(GAPLESS_TRY(end.seconds_since(begin)));
  }
  const std::ptrdiff_t middle = std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), seconds.begin() + middle, seconds.end());
  return seconds[static_cast<size_t>(middle)];
}

}  // namespace

double CudaMachineLimits::ops_per_s(DType weights) const {
  if (weights == DType::kS8) return s8_ops_per_s;
  return weights == DType::kF32 ? f32_ops_per_s : bf16_ops_per_s;
}

Result<int64_t> cuda_ceiling_bytes(int64_t wanted_bytes, int64_t free_bytes, int64_t l2_bytes) {
  const int64_t bytes = std::min(wanted_bytes, free_bytes / 2) / kReadStep * kReadStep;
  if (bytes < std::max(kCachesToRead * l2_bytes, kReadStep))
    return fail(ErrorCode::kSystem,
                "reading {} bytes does not measure GPU memory behind a cache of {}; {} are free "
                "and half of them can be read (a profile can do without: --no-limits)",
                bytes, l2_bytes, free_bytes);
  return bytes;
}

Result<CudaMachineLimits> measure_cuda_limits(const CudaMachineLimitsOptions& options) {
  if (options.round_count < 1)
    return fail(ErrorCode::kInvalidInput, "{} rounds measure nothing", options.round_count);
  const CudaLimits device = GAPLESS_TRY(cuda_limits());
  const CudaMemory memory = GAPLESS_TRY(cuda_memory());
  const int64_t bytes =
      GAPLESS_TRY(cuda_ceiling_bytes(options.read_bytes, memory.free_bytes, device.l2_bytes));
  const DeviceBuffer never_written = GAPLESS_TRY(DeviceBuffer::allocate(16, "measurements"));
  CudaMachineLimits limits;
  {
    const DeviceBuffer data = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "measurements"));
    GAPLESS_TRY(check_cuda(ceiling_fill_kernel(data.data(), bytes, nullptr), "filling memory"));
    const double seconds = GAPLESS_TRY(time_launch(options.round_count, "reading GPU memory", [&] {
      return ceiling_read_kernel(data.data(), bytes, device.sm_count, never_written.data(),
                                 nullptr);
    }));
    limits.read_bytes_per_s = static_cast<double>(bytes) / seconds;
  }
  const auto measure = [&](CeilingArithmetic arithmetic, int rounds) -> Result<double> {
    const double seconds =
        GAPLESS_TRY(time_launch(options.round_count, "multiplying on the GPU", [&] {
          return ceiling_multiply_kernel(arithmetic, device.sm_count, rounds, never_written.data(),
                                         nullptr);
        }));
    return ceiling_ops(arithmetic, device.sm_count, rounds) / seconds;
  };
  limits.s8_ops_per_s = GAPLESS_TRY(measure(CeilingArithmetic::kS8, kMatrixRounds));
  limits.bf16_ops_per_s = GAPLESS_TRY(measure(CeilingArithmetic::kBf16, kMatrixRounds));
  limits.f32_ops_per_s = GAPLESS_TRY(measure(CeilingArithmetic::kF32, kF32Rounds));
  return limits;
}

}  // namespace gapless
