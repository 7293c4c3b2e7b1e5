// SPDX-License-Identifier: Apache-2.0
//
// The read loop with 256-bit loads.

#include <immintrin.h>

#include "bench/read_ceiling_levels.h"

namespace gapless::avx2 {
namespace {

constexpr int64_t kLineBytes = 64;

// A function that only prefetches is taken for one without effect; an asm statement is not.
inline __attribute__((always_inline)) void prefetch(const std::byte* address) {
  asm volatile("prefetcht1 %0" ::"m"(*address));
}

template <int kStreams, bool kPrefetch>
uint64_t read_streams(const ReadBlock& block) {
  // Two sums, so that no addition waits for the one before.
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int64_t offset = 0; offset < block.stream_bytes; offset += kLineBytes) {
    const std::byte* line = block.data + offset;
#pragma GCC unroll 16
    for (int stream = 0; stream < kStreams; ++stream) {
      if (kPrefetch) prefetch(line + block.prefetch_bytes);
      const __m256i* halves = reinterpret_cast<const __m256i*>(line);
      sums[0] = _mm256_add_epi64(sums[0], _mm256_load_si256(halves));
      sums[1] = _mm256_add_epi64(sums[1], _mm256_load_si256(halves + 1));
      line += block.stream_bytes;
    }
  }
  alignas(64) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_add_epi64(sums[0], sums[1]));
  uint64_t sum = 0;
  for (const uint64_t word : words) sum += word;
  return sum;
}

template <int kStreams>
uint64_t read_streams(const ReadBlock& block) {
  if (block.prefetch_bytes == 0) return read_streams<kStreams, false>(block);
  return read_streams<kStreams, true>(block);
}

}  // namespace

uint64_t read_block(const ReadBlock& block) {
  switch (block.stream_count) {
    case 4:
      return read_streams<4>(block);
    case 8:
      return read_streams<8>(block);
    case 16:
      return read_streams<16>(block);
    default:
      return read_streams<1>(block);
  }
}

}  // namespace gapless::avx2
