// SPDX-License-Identifier: Apache-2.0
//
// The read loop of read_ceiling_levels.h for vectors of any width.
//
// For level files only: everything is in an anonymous namespace, or the linker would take one
// level's code for another's.

#pragma once

#include <cstring>

#include "machine/read_ceiling_levels.h"

namespace gapless {
namespace {

// Vector holds 64-bit words.
template <typename Vector, int kStreams, bool kPrefetch>
uint64_t read_streams(const ReadBlock& block) {
  constexpr int64_t kLineBytes = 64;
  constexpr int kVectorBytes = sizeof(Vector);
  constexpr int kLineVectors = kLineBytes / kVectorBytes;
  constexpr int kPrefetchToL2 = 2;
  // Two sums, so that no addition waits for the one before.
  Vector sums[2] = {};
  for (int64_t offset = 0; offset < block.stream_bytes; offset += kLineBytes) {
    const std::byte* line = block.data + offset;
#pragma GCC unroll 16
    for (int stream = 0; stream < kStreams; ++stream) {
      if (kPrefetch) __builtin_prefetch(line + block.prefetch_bytes, 0, kPrefetchToL2);
#pragma GCC unroll 4
      for (int i = 0; i < kLineVectors; ++i) {
        Vector value;
        std::memcpy(&value, line + i * kVectorBytes, sizeof(value));
        sums[(stream * kLineVectors + i) % 2] += value;
      }
      line += block.stream_bytes;
    }
  }
  const Vector both = sums[0] + sums[1];
  uint64_t sum = 0;
  for (int i = 0; i < kVectorBytes / 8; ++i) sum += both[i];
  return sum;
}

template <typename Vector, int kStreams>
uint64_t read_streams(const ReadBlock& block) {
  if (block.prefetch_bytes == 0) return read_streams<Vector, kStreams, false>(block);
  return read_streams<Vector, kStreams, true>(block);
}

template <typename Vector>
uint64_t read_block_in(const ReadBlock& block) {
  switch (block.stream_count) {
    case 4:
      return read_streams<Vector, 4>(block);
    case 8:
      return read_streams<Vector, 8>(block);
    case 16:
      return read_streams<Vector, 16>(block);
    default:
      return read_streams<Vector, 1>(block);
  }
}

}  // namespace
}  // namespace gapless
