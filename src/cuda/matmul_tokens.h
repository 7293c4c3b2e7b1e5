// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a matmul as the copy engine of sm_90 takes them: one copy brings a stage's share of
// all tokens into shared memory, as matmul_launch.h says, with zeros where there are none.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "cuda/matmul_launch.h"

namespace gapless {

struct MatmulTokens {
  const void* x = nullptr;   // at 16 bytes
  int64_t stride_bytes = 0;  // from token to token, a multiple of 16
  int tokens = 0;
  int units = 0;          // of 64 bytes, of each
  int copied_tokens = 0;  // by one copy, at most 256
  int copied_units = 0;   // likewise, at most 256
};
// Writes kMatmulTokenMapBytes. An error where the driver knows no such copies.
Result<void> describe_matmul_tokens(const MatmulTokens& tokens, std::byte* token_map);

}  // namespace gapless
