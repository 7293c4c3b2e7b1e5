// SPDX-License-Identifier: Apache-2.0

#include "model/layer_tasks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/kv_cache.h"
#include "kernels/packed_rows.h"
#include "kernels/sampling.h"

namespace gapless {
namespace {

template <typename Job>
const Job& job_of(const TaskContext& context) {
  return *std::bit_cast<const Job*>(context.scalar(0));
}

// Neighbouring rows are `stride` elements apart.
int64_t stride_of(const TaskContext& context, int argument) {
  return context.argument(argument).view.strides[0];
}

// Of `unit_count` units, those that this block takes.
struct BlockShare {
  int64_t begin = 0;
  int64_t end = 0;
};
BlockShare block_share(const TaskContext& context, int64_t unit_count) {
  const int64_t block = context.block_index();
  const int64_t block_count = context.block_count();
  return {unit_count * block / block_count, unit_count * (block + 1) / block_count};
}

const float* source_row(const TaskContext& context, const PackJob& job, int64_t row) {
  const int64_t from = job.source == nullptr ? row : (*job.source)[static_cast<size_t>(row)];
  return context.data<float>(0) + from * stride_of(context, 0);
}

PackedRows rows_in(const TaskContext& context, int argument, const MatmulJob& job) {
  return packed_rows_in(context.data<std::byte>(argument), job.weights->dtype(), job.level,
                        job.rows, job.weights->k());
}

// The rows of q and k, and where keys and values go.
struct HeadRows {
  float* q = nullptr;
  float* k = nullptr;
  const float* v = nullptr;
  KvPages pages = {};
};

HeadRows heads_of(const TaskContext& context, const LayerJob& job, int64_t row) {
  HeadRows heads = {.q = context.data<float>(0) + row * stride_of(context, 0),
                    .k = context.data<float>(1) + row * stride_of(context, 1)};
  if (context.argument_count() > 2) {
    heads.v = context.data<float>(2) + row * stride_of(context, 2);
    heads.pages = {
        .shape = job.kv, .data = context.data<std::byte>(3), .page_count = job.page_count};
  }
  return heads;
}

HeadNorm head_norm(const LayerJob& job, int head_count, const std::vector<float>& gamma) {
  return {.head_count = head_count,
          .head_dim = job.config->head_dim,
          .stride = job.config->head_dim,
          .gamma = gamma.data(),
          .eps = static_cast<float>(job.config->rms_eps)};
}

int64_t position_of(const LayerJob& job, int64_t row) {
  return job.state->lengths[static_cast<size_t>(row)] - 1;
}

void norm_row(const LayerJob& job, const HeadRows& heads, const float* cos, const float* sin) {
  HeadNorm q_norm = head_norm(job, job.config->q_heads, job.weights->q_norm);
  HeadNorm k_norm = head_norm(job, job.config->kv_heads, job.weights->k_norm);
  q_norm.cos = k_norm.cos = cos;
  q_norm.sin = k_norm.sin = sin;
  norm_heads(job.level, q_norm, heads.q, heads.q);
  norm_heads(job.level, k_norm, heads.k, heads.k);
}

void write_row(const LayerJob& job, const HeadRows& heads, int64_t row) {
  const int page_tokens = job.kv.page_tokens;
  const int32_t page = job.state->page_of(row, page_tokens);
  const int place = job.state->place_of(row, page_tokens);
  for (int head = 0; head < job.kv.kv_heads; ++head) {
    const int64_t at = int64_t{head} * job.kv.head_dim;
    write_kv(heads.pages, page, place, head, heads.k + at, heads.v + at);
  }
}

AttentionArgs attention_args(const LayerJob& job) {
  const StepState& state = *job.state;
  return {.pages = {.shape = job.kv, .page_count = job.page_count},
          .q_heads = job.config->q_heads,
          .chunk_tokens = job.chunk_tokens,
          .batch = job.rows,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(job.kv.head_dim))),
          .lengths = state.lengths.data(),
          .page_table = state.page_table.data(),
          .page_table_stride = state.page_table_stride,
          .first_partial = state.first_partial.data()};
}

}  // namespace

void pack_task(TaskContext& context) {
  const PackJob& job = job_of<PackJob>(context);
  const PackedRows packed =
      packed_rows_in(context.data<std::byte>(1), job.weights, job.level, job.rows, job.k);
  const BlockShare groups = block_share(context, (job.rows + job.block_rows - 1) / job.block_rows);
  const int64_t begin = groups.begin * job.block_rows;
  const int64_t end = std::min(groups.end * job.block_rows, job.rows);
  RowSource source = {.data = context.data<float>(0), .row_stride = stride_of(context, 0)};
  if (job.gamma != nullptr && !job.deferred) {
    float* normed = context.data<float>(2);
    for (int64_t row = begin; row < end; ++row)
      rms_norm(job.level, source_row(context, job, row), job.gamma, job.k, job.eps, DType::kF32,
               normed + row * job.k);
    source = {.data = normed, .row_stride = job.k};
  } else if (job.deferred) {
    source.gamma = job.gamma;
    for (int64_t row = begin; row < end; ++row)
      context.data<float>(2)[row] =
          inverse_rms(job.level, source_row(context, job, row), job.k, job.eps);
  }
  pack_rows(job.level, source, begin, end - begin, packed);
}

void matmul_task(TaskContext& context) {
  const MatmulJob& job = job_of<MatmulJob>(context);
  const int64_t first_panel = context.scalar(1);
  const bool is_pair = job.weights->interleave() == Interleave::kPairs;
  const int output = context.argument_count() - 1;
  MatmulArgs args = {.weights = job.weights, .rows = rows_in(context, 0, job), .output = {}};
  args.output = {.data = context.data<float>(output),
                 .row_stride = stride_of(context, output),
                 .first_column = (is_pair ? first_panel / 2 : first_panel) * kPanelRows};
  if (job.has_factor) args.output.row_factor = context.data<float>(1);
  if (job.has_residual) {
    args.output.residual = context.data<float>(output - 1);
    args.output.residual_stride = stride_of(context, output - 1);
  }
  matmul_tile(job.level, args, first_panel, context.scalar(2));
}

void qk_norm_task(TaskContext& context) {
  const LayerJob& job = job_of<LayerJob>(context);
  const BlockShare rows = block_share(context, job.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row)
    norm_row(job, heads_of(context, job, row), nullptr, nullptr);
}

void rope_task(TaskContext& context) {
  const LayerJob& job = job_of<LayerJob>(context);
  const int head_dim = job.config->head_dim;
  const BlockShare rows = block_share(context, job.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const HeadRows heads = heads_of(context, job, row);
    const float* cos = job.rope->cos(position_of(job, row));
    const float* sin = job.rope->sin(position_of(job, row));
    rope(job.level, heads.q, job.config->q_heads, head_dim, head_dim, cos, sin, heads.q);
    rope(job.level, heads.k, job.config->kv_heads, head_dim, head_dim, cos, sin, heads.k);
    write_row(job, heads, row);
  }
}

void qk_norm_rope_task(TaskContext& context) {
  const LayerJob& job = job_of<LayerJob>(context);
  const BlockShare rows = block_share(context, job.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const HeadRows heads = heads_of(context, job, row);
    const int64_t position = position_of(job, row);
    norm_row(job, heads, job.rope->cos(position), job.rope->sin(position));
    write_row(job, heads, row);
  }
}

void attention_task(TaskContext& context) {
  const LayerJob& job = job_of<LayerJob>(context);
  const StepState& state = *job.state;
  AttentionArgs args = attention_args(job);
  args.q = context.data<float>(0);
  args.pages.data = context.data<std::byte>(1);
  args.partials = context.data<float>(2);
  args.output = context.data<float>(3);
  const size_t block = static_cast<size_t>(context.block_index());
  const int32_t end = state.block_begins[block + 1];
  for (int32_t i = state.block_begins[block]; i < end; ++i) {
    const AttentionItem* item = &state.items[static_cast<size_t>(i)];
    attention_item(job.level, args, *item, i + 1 < end ? item + 1 : nullptr);
  }
}

void attention_combine_task(TaskContext& context) {
  const LayerJob& job = job_of<LayerJob>(context);
  AttentionArgs args = attention_args(job);
  args.partials = context.data<float>(0);
  args.output = context.data<float>(1);
  const BlockShare rows = block_share(context, job.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int32_t length = job.state->lengths[static_cast<size_t>(row)];
    if (chunk_count(length, job.chunk_tokens) == 1) continue;
    for (int head = 0; head < job.kv.kv_heads; ++head)
      attention_combine(job.level, args, row, head);
  }
}

void residual_task(TaskContext& context) {
  const RowsJob& job = job_of<RowsJob>(context);
  const BlockShare rows = block_share(context, job.rows);
  const int64_t first = rows.begin * job.columns;
  add_rows(job.level, context.data<float>(0) + first, context.data<float>(1) + first,
           (rows.end - rows.begin) * job.columns, context.data<float>(2) + first);
}

void silu_task(TaskContext& context) {
  const RowsJob& job = job_of<RowsJob>(context);
  const BlockShare rows = block_share(context, job.rows);
  const int64_t first = rows.begin * job.columns;
  silu_multiply(job.level, context.data<float>(0) + first, context.data<float>(1) + first, 1.0f,
                (rows.end - rows.begin) * job.columns, DType::kF32, context.data<float>(2) + first);
}

void embedding_task(TaskContext& context) {
  const EmbeddingJob& job = job_of<EmbeddingJob>(context);
  const BlockShare rows = block_share(context, job.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row)
    gather_embedding(job.level, job.table->dtype, job.table->rows,
                     job.state->tokens[static_cast<size_t>(row)], job.columns,
                     context.data<float>(0) + row * job.columns);
}

void head_top_task(TaskContext& context) {
  const HeadJob& job = job_of<HeadJob>(context);
  const MatmulArgs args = {.weights = job.weights,
                           .rows = packed_rows_in(context.data<std::byte>(0), job.weights->dtype(),
                                                  job.level, job.rows, job.weights->k()),
                           .output = {}};
  lm_head_tile(job.level, args, context.scalar(1), context.scalar(2), job.top_k,
               context.data<float>(1), context.data<Candidate>(2));
}

void merge_top_task(TaskContext& context) {
  const HeadJob& job = job_of<HeadJob>(context);
  const Candidate* tiles = context.data<Candidate>(0);
  Candidate* all = context.data<Candidate>(1);
  const size_t top_k = static_cast<size_t>(job.top_k);
  const size_t count = static_cast<size_t>(job.rows) * top_k;
  std::copy_n(tiles, count, all);
  for (size_t tile = 1; tile < static_cast<size_t>(job.tile_count); ++tile)
    for (size_t row = 0; row < static_cast<size_t>(job.rows); ++row)
      merge_top({all + row * top_k, top_k}, {tiles + tile * count + row * top_k, top_k});
}

}  // namespace gapless
