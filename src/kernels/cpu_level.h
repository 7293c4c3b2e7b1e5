// SPDX-License-Identifier: Apache-2.0
//
// CpuLevel: which instructions the kernels may use.
//
// Each kernel has a portable form and forms for the levels above; a level without a form of its own
// takes the next one below. Nothing here is chosen at compile time: a binary built for plain x86-64
// runs everywhere and uses what it finds. The portable form is the one that aarch64 gets.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gapless {

// Each level includes the ones before it, but for AVX-VNNI: processors with AVX-512 may lack that
// encoding of what AVX-512 VNNI does. A kernel with an avx2-vnni form has an avx512 form too.
enum class CpuLevel : uint8_t {
  kPortable = 0,
  kAvx2,        // AVX2, FMA, F16C
  kAvx2Vnni,    // and AVX-VNNI: vpdpbusd on 256 bits
  kAvx512,      // AVX-512 F, BW, DQ, VL and VNNI
  kAvx512Bf16,  // and vdpbf16ps
};
inline constexpr int kCpuLevelCount = 5;

// "portable", "avx2", "avx2-vnni", "avx512", "avx512-bf16".
std::string_view cpu_level_name(CpuLevel level);
std::optional<CpuLevel> parse_cpu_level(std::string_view name);

// Whether this machine can run it (and this build has it).
bool has_cpu_level(CpuLevel level);
// All that this machine can run, portable first. Tests go through them.
std::vector<CpuLevel> usable_cpu_levels();

// `option` when it is not empty, otherwise the environment's GAPLESS_CPU_LEVEL when it is not
// empty, otherwise the best one. A name that does not exist or that this machine cannot run is an
// error that lists what it can.
Result<CpuLevel> choose_cpu_level(std::string_view option = {});

}  // namespace gapless
