// SPDX-License-Identifier: Apache-2.0

#include "machine/compute_ceiling.h"

#include <atomic>

#include "base/check.h"
#include "machine/compute_ceiling_levels.h"

namespace gapless {
namespace {

struct Loop {
  double (*run)(int64_t iterations) = nullptr;
  int products = 0;  // multiply-adds of one instruction
};

std::optional<Loop> f32_loop(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return Loop{avx512::multiply_add_f32, 16};
  if (level >= CpuLevel::kAvx2) return Loop{avx2::multiply_add_f32, 8};
#else
  static_cast<void>(level);
#endif
  return Loop{portable::multiply_add_f32, portable::kF32Lanes};
}

std::optional<Loop> int8_loop(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return Loop{avx512::multiply_add_int8, 64};
  if (level >= CpuLevel::kAvx2Vnni) return Loop{avx2_vnni::multiply_add_int8, 32};
  if (level >= CpuLevel::kAvx2) return Loop{avx2::multiply_add_int16, 16};
#else
  static_cast<void>(level);
#endif
  return std::nullopt;
}

std::optional<Loop> bf16_loop(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512Bf16) {
    return Loop{avx512_bf16::multiply_add_bf16, 32};
  }
#else
  static_cast<void>(level);
#endif
  return std::nullopt;
}

std::optional<Loop> find_loop(CpuLevel level, Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return f32_loop(level);
    case Arithmetic::kInt8:
      return int8_loop(level);
    case Arithmetic::kBf16:
      return bf16_loop(level);
  }
  GAPLESS_CHECK(false);
}

}  // namespace

std::string_view arithmetic_name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return "f32";
    case Arithmetic::kInt8:
      return "int8";
    case Arithmetic::kBf16:
      return "bf16";
  }
  GAPLESS_CHECK(false);
}

std::optional<double> measure_compute(PinnedThreads& threads, int thread_count, CpuLevel level,
                                      Arithmetic arithmetic) {
  const std::optional<Loop> loop = find_loop(level, arithmetic);
  if (!loop) return std::nullopt;
  // In pieces, so that a thread that was put aside does not hold up the others.
  constexpr int64_t kPieces = 64;
  constexpr int64_t kIterations = 20'000;
  std::atomic<int> odd_count = 0;
  const double ns = threads.run_jobs(thread_count, kPieces, [&loop, &odd_count](int64_t) {
    // No loop can give zero: see there.
    if (loop->run(kIterations) == 0.0) ++odd_count;
  });
  GAPLESS_CHECK(odd_count == 0);
  const double products =
      static_cast<double>(kPieces * kIterations) * kChains * static_cast<double>(loop->products);
  return 2.0 * products / ns;
}

}  // namespace gapless
