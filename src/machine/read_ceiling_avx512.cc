// SPDX-License-Identifier: Apache-2.0
//
// The read loop with 512-bit loads.

#include "machine/read_ceiling_loop.h"

namespace gapless::avx512 {

uint64_t read_block(const ReadBlock& block) {
  using Vector = uint64_t __attribute__((vector_size(64)));
  return read_block_in<Vector>(block);
}

}  // namespace gapless::avx512
