// SPDX-License-Identifier: Apache-2.0
//
// s8 weights by the 256-bit vpdpbusd of AVX-VNNI.

#include "kernels/matmul_block_avx2.h"

namespace gapless::avx2_vnni {
namespace {

struct S8Line {
  using Sum = __m256i;
  using Weights = __m256i;
  using Element = __m256i;
  static constexpr int kSteps = 1;
  static Sum zero() { return _mm256_setzero_si256(); }
  static Sum load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::byte* to, Sum sum) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sum);
  }
  template <int kStep, int kHalf>
  static Weights weights(const std::byte* line, std::integral_constant<int, kHalf>) {
    return load(line + kHalf * kHalfLine);
  }
  static Element element(const std::byte* row) {
    return _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(row));
  }
  static Sum add(Sum sum, Weights weights, Element element) {
    return _mm256_dpbusd_avx_epi32(sum, weights, element);
  }
};

}  // namespace

void sum_panels(const PanelSums& job) { sum_panels_with<S8Line>(job); }

}  // namespace gapless::avx2_vnni
