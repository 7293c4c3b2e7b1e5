// SPDX-License-Identifier: Apache-2.0
//
// How many tokens of how many sequences an attention kernel works on, told from its type and the
// shapes of its inputs.
//
// Each kernel has its own list of inputs, and some take the query in several layouts that no column
// names. What the shapes leave open stays open: -1.

#pragma once

#include <cstdint>
#include <string_view>

namespace gapless {

// Which sequences a kernel is made for, whatever its shapes.
enum class AttentionUse : uint8_t { kAny = 0, kPrefillOnly = 1, kDecodeOnly = 2 };

// Where a kernel has its inputs; -1: it has no such input.
struct AttentionInputs {
  std::string_view word;  // part of the type
  int query_lengths = -1;
  int key_lengths = -1;
  int block_table = -1;
  AttentionUse use = AttentionUse::kAny;
  bool is_always_paged = false;
};
// Null: no attention kernel that is known.
const AttentionInputs* attention_inputs(std::string_view type);

struct AttentionShape {
  int64_t tokens = -1;
  int64_t sequences = -1;
  bool has_block_table = false;  // keys come from a paged cache
};
// `shapes` as in CaptureTable: tensors separated by ';', dimensions by ','.
AttentionShape attention_shape(const AttentionInputs& inputs, std::string_view shapes);

}  // namespace gapless
