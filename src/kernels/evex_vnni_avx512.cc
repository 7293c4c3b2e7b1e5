// SPDX-License-Identifier: Apache-2.0
//
// For the tests: the AVX-VNNI form of the matmul with the same instruction as AVX-512 machines have
// it, so that its loops run on those too.

#define _mm256_dpbusd_avx_epi32 _mm256_dpbusd_epi32
#define avx2_vnni evex_vnni
#include "kernels/matmul_avx2_vnni.cc"  // NOLINT: compiled a second time on purpose
