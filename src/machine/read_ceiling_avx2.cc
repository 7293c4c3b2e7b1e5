// SPDX-License-Identifier: Apache-2.0
//
// The read loop with 256-bit loads.

#include "machine/read_ceiling_loop.h"

namespace gapless::avx2 {

uint64_t read_block(const ReadBlock& block) {
  using Vector = uint64_t __attribute__((vector_size(32)));
  return read_block_in<Vector>(block);
}

}  // namespace gapless::avx2
