// SPDX-License-Identifier: Apache-2.0

#include "machine/machine_limits.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "machine/compute_ceiling.h"
#include "machine/median.h"
#include "machine/pinned_threads.h"
#include "machine/read_ceiling.h"

namespace gapless {
namespace {

constexpr int64_t kMaxReadBytes = int64_t{1} << 30;
constexpr double kGiga = 1e9;  // the ceilings are in billions a second

Result<void> check_options(const MachineLimitsOptions& options) {
  if (options.thread_count < 0) {
    return fail(ErrorCode::kInvalidInput, "machine limits: {} threads", options.thread_count);
  }
  if (!has_cpu_level(options.level)) {
    return fail(ErrorCode::kInvalidInput, "machine limits: this machine has no {}",
                cpu_level_name(options.level));
  }
  if (options.round_count < 1) {
    return fail(ErrorCode::kInvalidInput, "machine limits: {} rounds; at least 1",
                options.round_count);
  }
  constexpr int64_t kMinBytes = int64_t{ReadCeiling::kMinBytes};
  if (options.read_bytes < kMinBytes || options.read_bytes > kMaxReadBytes) {
    return fail(ErrorCode::kInvalidInput, "machine limits: {} bytes a thread; {} to {}",
                options.read_bytes, kMinBytes, kMaxReadBytes);
  }
  return {};
}

// The median of the rounds; nothing where the level has no such instruction.
std::optional<double> measure_ops_per_s(PinnedThreads& threads, const MachineLimitsOptions& options,
                                        Arithmetic arithmetic) {
  std::vector<double> rounds;
  for (int round = 0; round < options.round_count; ++round) {
    const std::optional<double> giga_ops =
        measure_compute(threads, threads.count(), options.level, arithmetic);
    if (!giga_ops) return std::nullopt;
    rounds.push_back(*giga_ops * kGiga);
  }
  return median_of(rounds);
}

// The calibration tries each form once: disturbances make a pass slower, never quicker, so the best
// of single passes is a good form, and the rounds with it say what it reaches.
Result<double> measure_read_bytes_per_s(PinnedThreads& threads,
                                        const MachineLimitsOptions& options) {
  const int64_t bytes = std::min(options.read_bytes * threads.count(), kMaxReadBytes);
  ReadCeiling ceiling =
      GAPLESS_TRY(ReadCeiling::create(threads, {.level = options.level,
                                                .repeat_count = 1,
                                                .min_thread_count = threads.count(),
                                                .bytes = static_cast<size_t>(bytes)}));
  std::vector<double> rounds;
  for (int round = 0; round < options.round_count; ++round) {
    rounds.push_back(ceiling.measure(threads.count()) * kGiga);
  }
  return median_of(rounds);
}

}  // namespace

double MachineLimits::ops_per_s(DType weights) const {
  switch (weights) {
    case DType::kS8:
      return s8_ops_per_s;
    case DType::kBf16:
      return bf16_ops_per_s;
    case DType::kF16:
    case DType::kF32:
      return f32_ops_per_s;
    default:
      GAPLESS_CHECK(false);
  }
}

Result<MachineLimits> measure_machine_limits(const MachineLimitsOptions& options) {
  GAPLESS_TRY(check_options(options));
  const int thread_count =
      options.thread_count > 0 ? options.thread_count : static_cast<int>(usable_cores().size());
  const std::unique_ptr<PinnedThreads> threads = GAPLESS_TRY(PinnedThreads::start(thread_count));
  MachineLimits limits;
  limits.thread_count = thread_count;
  limits.read_bytes_per_s = GAPLESS_TRY(measure_read_bytes_per_s(*threads, options));
  const std::optional<double> f32 = measure_ops_per_s(*threads, options, Arithmetic::kF32);
  GAPLESS_CHECK(f32.has_value());
  limits.f32_ops_per_s = *f32;
  limits.s8_ops_per_s = measure_ops_per_s(*threads, options, Arithmetic::kInt8).value_or(*f32);
  limits.bf16_ops_per_s = measure_ops_per_s(*threads, options, Arithmetic::kBf16).value_or(*f32);
  return limits;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace gapless
