// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu_level.h"

#include <array>
#include <cstddef>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gapless {
namespace {

constexpr std::array<std::string_view, kCpuLevelCount> kNames = {"portable", "avx2", "avx2-vnni",
                                                                 "avx512", "avx512-bf16"};
using LevelSet = std::array<bool, kCpuLevelCount>;

#if defined(__x86_64__)

struct CpuidLeaf {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

// Zeros for a leaf that the processor does not have.
CpuidLeaf read_leaf(unsigned leaf, unsigned subleaf) {
  CpuidLeaf result;
  if (__get_cpuid_count(leaf, subleaf, &result.eax, &result.ebx, &result.ecx, &result.edx) == 0) {
    return {};
  }
  return result;
}

constexpr bool has_bit(unsigned word, int bit) { return ((word >> bit) & 1u) != 0; }

// __builtin_cpu_supports also asks whether the system saves the wide registers (XCR0); the cpuid
// bits are those of features that not every compiler of ours knows by name.
LevelSet find_levels() {
  __builtin_cpu_init();
  const CpuidLeaf basic = read_leaf(1, 0);
  const CpuidLeaf extended = read_leaf(7, 0);
  const CpuidLeaf more = extended.eax >= 1 ? read_leaf(7, 1) : CpuidLeaf{};
  const bool has_f16c = has_bit(basic.ecx, 29);
  const bool has_avx_vnni = has_bit(more.eax, 4);
  const bool has_avx512_vnni = has_bit(extended.ecx, 11);
  const bool has_avx512_bf16 = has_bit(more.eax, 5);

  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c;
  const bool avx512 = avx2 && has_avx512_vnni && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return {true, avx2, avx2 && has_avx_vnni, avx512, avx512 && has_avx512_bf16};
}

#else

LevelSet find_levels() { return {true, false, false, false, false}; }

#endif

std::string names_of_usable_levels() {
  std::string names;
  for (const CpuLevel level : usable_cpu_levels()) {
    if (!names.empty()) names += ", ";
    names += cpu_level_name(level);
  }
  return names;
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<CpuLevel> parse_cpu_level(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CpuLevel>(i);
  }
  return std::nullopt;
}

bool has_cpu_level(CpuLevel level) {
  static const LevelSet levels = find_levels();
  return levels[static_cast<size_t>(level)];
}

std::vector<CpuLevel> usable_cpu_levels() {
  std::vector<CpuLevel> usable;
  for (int i = 0; i < kCpuLevelCount; ++i) {
    const CpuLevel level = static_cast<CpuLevel>(i);
    if (has_cpu_level(level)) usable.push_back(level);
  }
  return usable;
}

Result<CpuLevel> choose_cpu_level(std::string_view option) {
  std::string_view name = option;
  std::string_view source = "cpu level";
  if (name.empty()) {
    const char* const variable = std::getenv("GAPLESS_CPU_LEVEL");  // NOLINT(concurrency-mt-unsafe)
    if (variable != nullptr) name = variable;
    source = "GAPLESS_CPU_LEVEL";
  }
  if (name.empty()) return usable_cpu_levels().back();

  const std::optional<CpuLevel> level = parse_cpu_level(name);
  if (!level.has_value()) {
    return fail(ErrorCode::kInvalidInput, "{} '{}': no such level; this machine can run {}", source,
                name, names_of_usable_levels());
  }
  if (!has_cpu_level(*level)) {
    return fail(ErrorCode::kInvalidInput, "{} '{}': this machine can only run {}", source, name,
                names_of_usable_levels());
  }
  return *level;
}

}  // namespace gapless
