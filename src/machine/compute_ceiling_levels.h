// SPDX-License-Identifier: Apache-2.0
//
// The loops of compute_ceiling.cc by CpuLevel. Each does `iterations` rounds of multiply-adds on
// registers alone and returns a value made of all of them, never zero, so that none can be left
// out.

#pragma once

#include <cstdint>

namespace gapless {

// Independent chains of multiply-adds: enough for any latency x throughput that is sold.
inline constexpr int kChains = 12;

namespace portable {
inline constexpr int kF32Lanes = 4;
double multiply_add_f32(int64_t iterations);
}  // namespace portable

// 8 lanes of f32; 16 products a vpmaddwd and 32 a vpdpbusd.
namespace avx2 {
double multiply_add_f32(int64_t iterations);
double multiply_add_int16(int64_t iterations);
}  // namespace avx2
namespace avx2_vnni {
double multiply_add_int8(int64_t iterations);
}  // namespace avx2_vnni

// 16 lanes of f32; 64 products a vpdpbusd and 32 a vdpbf16ps.
namespace avx512 {
double multiply_add_f32(int64_t iterations);
double multiply_add_int8(int64_t iterations);
}  // namespace avx512
namespace avx512_bf16 {
double multiply_add_bf16(int64_t iterations);
}  // namespace avx512_bf16

}  // namespace gapless
