// SPDX-License-Identifier: Apache-2.0
//
// The read loop without any instruction of a particular machine.

#include <cstring>

#include "bench/read_ceiling_levels.h"

namespace gapless::portable {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int kLineWords = 8;

}  // namespace

uint64_t read_block(const ReadBlock& block) {
  uint64_t sums[kLineWords] = {};
  for (int64_t offset = 0; offset < block.stream_bytes; offset += kLineBytes) {
    const std::byte* line = block.data + offset;
    for (int stream = 0; stream < block.stream_count; ++stream) {
      if (block.prefetch_bytes != 0) __builtin_prefetch(line + block.prefetch_bytes);
      uint64_t words[kLineWords];
      std::memcpy(words, line, sizeof(words));
      for (int i = 0; i < kLineWords; ++i) sums[i] += words[i];
      line += block.stream_bytes;
    }
  }
  uint64_t sum = 0;
  for (const uint64_t one : sums) sum += one;
  return sum;
}

}  // namespace gapless::portable
