// SPDX-License-Identifier: Apache-2.0
//
// The forms of the read loop by CpuLevel. Only for read_ceiling.cc and its test.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless {

// What one thread reads: `stream_count` streams of `stream_bytes` (a multiple of 64) that lie one
// behind the other, a line of each in turn.
struct ReadBlock {
  const std::byte* data = nullptr;  // at 64 bytes
  int64_t stream_bytes = 0;
  int stream_count = 1;        // 1, 4, 8 or 16
  int64_t prefetch_bytes = 0;  // how far ahead; 0: not at all
};

// The sum of all 64-bit words, wrapping: what nobody could know without having read them.
namespace portable {
uint64_t read_block(const ReadBlock& block);
}
namespace avx2 {
uint64_t read_block(const ReadBlock& block);
}
namespace avx512 {
uint64_t read_block(const ReadBlock& block);
}

}  // namespace gapless
