// SPDX-License-Identifier: Apache-2.0
//
// vpdpbusd on 256 bits, as it is without AVX-512.

#include <immintrin.h>

#include "machine/compute_ceiling_loop.h"

namespace gapless::avx2_vnni {

double multiply_add_int8(int64_t iterations) {
  using Vector = int32_t __attribute__((vector_size(32)));
  const __m256i factor = _mm256_set1_epi8(1);
  return run_chains<Vector>(iterations, [factor](Vector sum) {
    return reinterpret_cast<Vector>(
        _mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sum), factor, factor));
  });
}

}  // namespace gapless::avx2_vnni
