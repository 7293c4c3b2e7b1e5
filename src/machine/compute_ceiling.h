// SPDX-License-Identifier: Apache-2.0
//
// How many multiply-adds a second this machine can do right now, on registers alone: the limit of
// kernels that are not bound by memory.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/cpu_level.h"
#include "machine/pinned_threads.h"

namespace gapless {

enum class Arithmetic : uint8_t {
  kF32,   // FMA; multiply and add at the portable level
  kInt8,  // vpdpbusd; at the level of AVX2 without it, vpmaddwd and vpaddd
  kBf16,  // vdpbf16ps
};
inline constexpr Arithmetic kAllArithmetic[] = {Arithmetic::kF32, Arithmetic::kInt8,
                                                Arithmetic::kBf16};
// "f32", "int8", "bf16".
std::string_view arithmetic_name(Arithmetic arithmetic);

// Billions of operations a second of all threads together, a multiply-add being two; a few
// milliseconds. Nothing where the level has no instruction for it.
std::optional<double> measure_compute(PinnedThreads& threads, int thread_count, CpuLevel level,
                                      Arithmetic arithmetic);

}  // namespace gapless
