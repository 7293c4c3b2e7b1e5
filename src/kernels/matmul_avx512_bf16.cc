// SPDX-License-Identifier: Apache-2.0
//
// bf16 weights by vdpbf16ps: two k an instruction, sums in f32. Denormal bf16 count as zero there.

#include "kernels/matmul_block_avx512.h"

namespace gapless::avx512_bf16 {
namespace {

struct Bf16Line {
  using Sum = __m512;
  using Weights = __m512i;
  static constexpr int kSteps = 1;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum load(const std::byte* from) { return _mm512_load_ps(from); }
  static void store(std::byte* to, Sum sum) { _mm512_store_ps(to, sum); }
  template <int kStep>
  static Weights weights(const std::byte* line) {
    return _mm512_load_si512(line);
  }
  static Weights broadcast(const std::byte* row) {
    return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(row));
  }
  static Sum add(Sum sum, Weights weights, Weights elements) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(weights),
                            reinterpret_cast<__m512bh>(elements));
  }
};

}  // namespace

void sum_panels(const PanelSums& job) { sum_panels_with<Bf16Line>(job); }

}  // namespace gapless::avx512_bf16
