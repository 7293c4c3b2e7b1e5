// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/attention_levels.h"

namespace gapless {

namespace {

constexpr int kMaxHeadDim = 256;
constexpr int64_t kMaxPartialFloats = kMaxGroupHeads * (kMaxHeadDim + 2) + 16;

using AttendChunk = void (*)(const AttentionChunk& chunk, const AttentionChunk* next);
using MergePartials = void (*)(const AttentionMerge& merge);

AttendChunk attend_chunk_at(CpuLevel level, DType dtype) {
#if defined(__x86_64__)
  switch (level) {
    case CpuLevel::kAvx512Bf16:
      return dtype == DType::kBf16 ? avx512_bf16::attend_chunk : avx512::attend_chunk;
    case CpuLevel::kAvx512:
      return avx512::attend_chunk;
    case CpuLevel::kAvx2Vnni:
    case CpuLevel::kAvx2:
      return avx2::attend_chunk;
    case CpuLevel::kPortable:
      break;
  }
#else
  static_cast<void>(level);
  static_cast<void>(dtype);
#endif
  return portable::attend_chunk;
}

MergePartials merge_partials_at(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return avx512::merge_partials;
  if (level >= CpuLevel::kAvx2) return avx2::merge_partials;
#else
  static_cast<void>(level);
#endif
  return portable::merge_partials;
}

int group_heads(const AttentionArgs& args) { return args.q_heads / args.pages.shape.kv_heads; }

// Where the query heads of a kv head begin in q and in the output, in elements.
int64_t first_element(const AttentionArgs& args, int64_t sequence, int kv_head) {
  const int64_t head = sequence * args.q_heads + int64_t{kv_head} * group_heads(args);
  return head * args.pages.shape.head_dim;
}

float* partial_of(const AttentionArgs& args, int64_t sequence, int kv_head, int64_t chunk) {
  const int64_t chunks = chunk_count(args.lengths[sequence], args.chunk_tokens);
  const int64_t number = args.first_partial[sequence] + kv_head * chunks + chunk;
  return args.partials + number * partial_floats(args.q_heads, args.pages.shape);
}

AttentionChunk chunk_of(const AttentionArgs& args, const AttentionItem& item) {
  const KvShape& shape = args.pages.shape;
  const int64_t first = int64_t{item.chunk} * args.chunk_tokens;
  const int64_t left = args.lengths[item.sequence] - first;
  return {.dtype = shape.dtype,
          .group_heads = group_heads(args),
          .head_dim = shape.head_dim,
          .page_tokens = shape.page_tokens,
          .heads = kv_head_block(args.pages, 0, item.kv_head),
          .page_bytes = kv_page_bytes(shape),
          .block_bytes = kv_block_bytes(shape),
          .page_table = args.page_table + item.sequence * args.page_table_stride,
          .first_token = first,
          .token_count = std::min<int64_t>(left, args.chunk_tokens),
          .scale = args.scale,
          .q = args.q + first_element(args, item.sequence, item.kv_head)};
}

void set_partial(AttentionChunk& chunk, float* partial) {
  chunk.sums = partial;
  chunk.maxima = partial + int64_t{chunk.group_heads} * chunk.head_dim;
  chunk.totals = chunk.maxima + chunk.group_heads;
}

void merge(CpuLevel level, const AttentionArgs& args, int64_t sequence, int kv_head,
           const float* partials, int64_t partial_count) {
  const int64_t offset = first_element(args, sequence, kv_head) * dtype_bytes(args.output_dtype);
  merge_partials_at(level)({.group_heads = group_heads(args),
                            .head_dim = args.pages.shape.head_dim,
                            .partial_count = partial_count,
                            .partials = partials,
                            .partial_stride = partial_floats(args.q_heads, args.pages.shape),
                            .output_dtype = args.output_dtype,
                            .output = static_cast<std::byte*>(args.output) + offset});
}

Result<void> check_numbers(const AttentionArgs& args) {
  const KvShape& shape = args.pages.shape;
  if (args.q_heads < 1 || args.q_heads % shape.kv_heads != 0) {
    return fail(ErrorCode::kInvalidInput, "{} query heads are not a multiple of {} kv heads",
                args.q_heads, shape.kv_heads);
  }
  if (group_heads(args) > kMaxGroupHeads) {
    return fail(ErrorCode::kInvalidInput,
                "{} query heads share a kv head ({} over {}): at most {} can", group_heads(args),
                args.q_heads, shape.kv_heads, kMaxGroupHeads);
  }
  if (args.chunk_tokens < 16 || args.chunk_tokens % 16 != 0) {
    return fail(ErrorCode::kInvalidInput, "chunks of {} tokens: a multiple of 16 is needed",
                args.chunk_tokens);
  }
  if (args.batch < 0) {
    return fail(ErrorCode::kInvalidInput, "a batch of {} sequences", args.batch);
  }
  const DType dtype = args.output_dtype;
  if (dtype != DType::kF32 && dtype != DType::kBf16 && dtype != DType::kF16) {
    return fail(ErrorCode::kInvalidInput, "attention output of {}: f32, bf16 and f16 are known",
                dtype_name(dtype));
  }
  return {};
}

Result<void> check_pointers(const AttentionArgs& args) {
  if (reinterpret_cast<uintptr_t>(args.pages.data) % 64 != 0) {
    return fail(ErrorCode::kInvalidInput, "kv pages do not begin at a multiple of 64 bytes");
  }
  if (reinterpret_cast<uintptr_t>(args.partials) % 64 != 0) {
    return fail(ErrorCode::kInvalidInput,
                "attention partials do not begin at a multiple of 64 bytes");
  }
  if (args.batch == 0) return {};
  const bool is_missing = args.q == nullptr || args.lengths == nullptr || args.output == nullptr;
  if (is_missing) {
    return fail(ErrorCode::kInvalidInput, "attention without q, lengths or output");
  }
  return {};
}

Result<void> check_sequence(const AttentionArgs& args, int64_t sequence) {
  const int64_t length = args.lengths[sequence];
  if (length < 0) {
    return fail(ErrorCode::kInvalidInput, "sequence {} has {} tokens", sequence, length);
  }
  const int64_t page_tokens = args.pages.shape.page_tokens;
  const int64_t pages = (length + page_tokens - 1) / page_tokens;
  if (pages > args.page_table_stride) {
    return fail(ErrorCode::kInvalidInput,
                "sequence {} has {} tokens in {} pages, but its page table has room for {}",
                sequence, length, pages, args.page_table_stride);
  }
  if (pages > 0 && (args.page_table == nullptr || args.pages.data == nullptr)) {
    return fail(ErrorCode::kInvalidInput,
                "sequence {} has {} tokens, but there is no page table or there are no pages",
                sequence, length);
  }
  for (int64_t i = 0; i < pages; ++i) {
    const int64_t page = args.page_table[sequence * args.page_table_stride + i];
    if (page < 0 || page >= args.pages.page_count) {
      return fail(ErrorCode::kInvalidInput, "page {} of sequence {} is number {} of {} pages", i,
                  sequence, page, args.pages.page_count);
    }
  }
  if (length > args.chunk_tokens && (args.partials == nullptr || args.first_partial == nullptr)) {
    return fail(ErrorCode::kInvalidInput,
                "sequence {} has {} tokens, more than a chunk of {}, but there are no partials",
                sequence, length, args.chunk_tokens);
  }
  return {};
}

}  // namespace

int64_t partial_floats(int q_heads, const KvShape& shape) {
  const int64_t group = q_heads / shape.kv_heads;
  return (group * (shape.head_dim + 2) + 15) / 16 * 16;
}

int64_t chunk_count(int64_t length, int chunk_tokens) {
  return (length + chunk_tokens - 1) / chunk_tokens;
}

Result<void> check_attention(const AttentionArgs& args) {
  GAPLESS_TRY(check_kv_shape(args.pages.shape));
  GAPLESS_TRY(check_numbers(args));
  GAPLESS_TRY(check_pointers(args));
  for (int64_t sequence = 0; sequence < args.batch; ++sequence) {
    GAPLESS_TRY(check_sequence(args, sequence));
  }
  return {};
}

void attention_item(CpuLevel level, const AttentionArgs& args, const AttentionItem& item,
                    const AttentionItem* next) {
  const int64_t chunks = chunk_count(args.lengths[item.sequence], args.chunk_tokens);
  GAPLESS_DCHECK(item.chunk < chunks);
  AttentionChunk chunk = chunk_of(args, item);
  AttentionChunk next_chunk;
  if (next != nullptr) next_chunk = chunk_of(args, *next);
  const AttendChunk attend_chunk = attend_chunk_at(level, chunk.dtype);
  const AttentionChunk* expected = next == nullptr ? nullptr : &next_chunk;
  if (chunks > 1) {
    set_partial(chunk, partial_of(args, item.sequence, item.kv_head, item.chunk));
    return attend_chunk(chunk, expected);
  }
  alignas(64) float partial[kMaxPartialFloats];
  set_partial(chunk, partial);
  attend_chunk(chunk, expected);
  merge(level, args, item.sequence, item.kv_head, partial, 1);
}

void attention_combine(CpuLevel level, const AttentionArgs& args, int64_t sequence, int kv_head) {
  const int64_t chunks = chunk_count(args.lengths[sequence], args.chunk_tokens);
  GAPLESS_DCHECK(chunks != 1);
  if (chunks > 0) {
    return merge(level, args, sequence, kv_head, partial_of(args, sequence, kv_head, 0), chunks);
  }
  const int64_t element_bytes = dtype_bytes(args.output_dtype);
  const int64_t count = int64_t{group_heads(args)} * args.pages.shape.head_dim;
  std::memset(
      static_cast<std::byte*>(args.output) + first_element(args, sequence, kv_head) * element_bytes,
      0, static_cast<size_t>(count * element_bytes));
}

}  // namespace gapless
