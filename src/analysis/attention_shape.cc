// SPDX-License-Identifier: Apache-2.0

#include "analysis/attention_shape.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

namespace gapless {
namespace {

// The first whose word is in the type. The last inputs of FusedInferAttentionScore are 24 and 25,
// the rotary parts of MLA, which say nothing new.
constexpr AttentionInputs kKernels[] = {
    {.word = "FusedInferAttentionScore", .query_lengths = 5, .key_lengths = 6, .block_table = 14},
    {.word = "SparseFlashAttention",
     .query_lengths = 5,
     .key_lengths = 6,
     .block_table = 4,
     .is_always_paged = true},
    {.word = "LightningIndexer",
     .query_lengths = 3,
     .key_lengths = 4,
     .block_table = 5,
     .is_always_paged = true},
    {.word = "PromptFlashAttention",
     .query_lengths = 5,
     .key_lengths = 6,
     .use = AttentionUse::kPrefillOnly},
    {.word = "IncreFlashAttention", .use = AttentionUse::kDecodeOnly},
    {.word = "RINGMLAPrefill", .query_lengths = 6, .use = AttentionUse::kPrefillOnly},
    {.word = "PagedAttention",
     .block_table = 3,
     .use = AttentionUse::kDecodeOnly,
     .is_always_paged = true},
    {.word = "FlashAttentionScore", .use = AttentionUse::kPrefillOnly},
    // Kernels of PyTorch: the inputs are those of the operator, query, key and value.
    {.word = "sdpa"},
    {.word = "fmha"},
    {.word = "flash_fwd"},
};

// Heads are no wider than this; a wider last dimension is that of all heads together.
constexpr int64_t kWidestHead = 576;
constexpr int64_t kMostHeads = 256;
constexpr size_t kMostDimensions = 8;

struct Dimensions {
  std::array<int64_t, kMostDimensions> sizes = {};
  size_t count = 0;

  int64_t last() const { return sizes[count - 1]; }
};

// The dimensions of tensor `slot`; none: it is absent, or no list of numbers.
Dimensions dimensions_at(std::string_view shapes, int slot) {
  Dimensions dimensions;
  if (slot < 0) return dimensions;
  for (; slot > 0; --slot) {
    const size_t end = shapes.find(';');
    if (end == std::string_view::npos) return dimensions;
    shapes.remove_prefix(end + 1);
  }
  const std::string_view tensor = shapes.substr(0, shapes.find(';'));
  const char* at = tensor.data();
  const char* const end = tensor.data() + tensor.size();
  while (at != end) {
    int64_t size = 0;
    const std::from_chars_result read = std::from_chars(at, end, size);
    const bool is_number = read.ec == std::errc() && size > 0 && size <= INT32_MAX;
    const bool is_ended = read.ptr == end || *read.ptr == ',';
    if (!is_number || !is_ended || dimensions.count == kMostDimensions) return {};
    dimensions.sizes[dimensions.count++] = size;
    at = read.ptr == end ? end : read.ptr + 1;
  }
  return dimensions;
}

// A list of lengths has one entry a sequence, in one row or in two (of queries and of keys).
int64_t sequences_of(const AttentionInputs& inputs, std::string_view shapes) {
  const Dimensions keys = dimensions_at(shapes, inputs.key_lengths);
  if (keys.count > 0) return keys.last();
  const Dimensions table = dimensions_at(shapes, inputs.block_table);
  if (table.count == 2) return table.sizes[0];
  const Dimensions queries = dimensions_at(shapes, inputs.query_lengths);
  return queries.count > 0 ? queries.last() : -1;
}

// Of two dimensions in the middle of four the one that counts tokens. Heads come first (BNSD) but
// where that would be more heads than there are.
int64_t tokens_of_four(const Dimensions& query) {
  const int64_t second = query.sizes[1];
  const int64_t third = query.sizes[2];
  if (second == 1 || third == 1) return 1;
  return second > kMostHeads && third <= kMostHeads ? second : third;
}

// Tokens, heads, width; or sequences, tokens of each, width of all heads.
void read_three(const Dimensions& query, bool has_query_lengths, AttentionShape& shape) {
  const int64_t first = query.sizes[0];
  const bool is_wide = query.last() > kWidestHead;
  const bool is_first_sequences = shape.sequences < 0 || first == shape.sequences;
  const bool is_by_sequence = is_first_sequences && (is_wide || !has_query_lengths);
  shape.tokens = is_by_sequence ? first * query.sizes[1] : first;
  if (shape.sequences < 0 && is_by_sequence) shape.sequences = std::min(first, query.sizes[1]);
}

}  // namespace

const AttentionInputs* attention_inputs(std::string_view type) {
  for (const AttentionInputs& inputs : kKernels) {
    if (type.find(inputs.word) != std::string_view::npos) return &inputs;
  }
  return nullptr;
}

AttentionShape attention_shape(const AttentionInputs& inputs, std::string_view shapes) {
  AttentionShape shape;
  const Dimensions query = dimensions_at(shapes, 0);
  if (query.count < 2 || query.count > 4) return shape;
  shape.sequences = sequences_of(inputs, shapes);
  shape.has_block_table =
      inputs.is_always_paged || dimensions_at(shapes, inputs.block_table).count > 0;
  const bool has_query_lengths = dimensions_at(shapes, inputs.query_lengths).count > 0;
  if (query.count == 4) {
    shape.tokens = query.sizes[0] * tokens_of_four(query);
    if (shape.sequences < 0) shape.sequences = query.sizes[0];
  } else if (query.count == 3 && inputs.word != "PagedAttention") {
    // A narrow last dimension and no lists at all: packed tokens whose lengths are attributes.
    const bool is_packed = shape.sequences < 0 && query.last() <= kWidestHead &&
                           query.sizes[1] <= kMostHeads && query.sizes[0] > 1 &&
                           inputs.use == AttentionUse::kPrefillOnly;
    if (is_packed) {
      shape.tokens = query.sizes[0];
    } else {
      read_three(query, has_query_lengths, shape);
    }
  } else {
    shape.tokens = query.sizes[0];
  }
  if (inputs.word == "IncreFlashAttention") {
    shape.sequences = query.sizes[0];
    shape.tokens = query.sizes[0];
  }
  return shape;
}

}  // namespace gapless
