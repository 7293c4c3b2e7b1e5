// SPDX-License-Identifier: Apache-2.0
//
// The read loop with 128-bit loads, which every 64-bit machine has.

#include "machine/read_ceiling_loop.h"

namespace gapless::portable {

uint64_t read_block(const ReadBlock& block) {
  using Vector = uint64_t __attribute__((vector_size(16)));
  return read_block_in<Vector>(block);
}

}  // namespace gapless::portable
