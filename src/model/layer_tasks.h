// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a decode step as tasks: what they share through scalar 0, and their arguments.
//
// A job is what all tasks of a kernel have in common; the graph that holds the tasks keeps it.
// Memory that a task writes, and everything it reads that another task writes, is an argument.
// Weights, tables and the StepState are reached through the job: nothing in a step writes them.

#pragma once

#include <cstdint>
#include <span>

#include "graph/task_context.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/packed_rows.h"
#include "model/model_config.h"
#include "model/step_state.h"
#include "model/weights.h"

namespace gapless {

// Rows that become the input of a matmul: normed when there is a gamma, then cast or quantised.
struct PackJob {
  CpuLevel level = CpuLevel::kPortable;
  DType weights = DType::kF32;
  int64_t rows = 0;
  int64_t k = 0;
  const float* gamma = nullptr;  // [k] or nothing
  float eps = 0.0f;
  bool deferred = false;  // the norm's factor is left for the matmul
  int64_t block_rows = kRowGroup;
  // Which row of x becomes row i, for a norm that is not deferred; nothing: row i.
  const std::vector<int32_t>* source = nullptr;
};
// Blocks take whole groups of block_rows rows.
// Arguments: x, packed rows; deferred: the factors [rows]; a norm that is not: normed rows
// [rows][k].
void pack_task(TaskContext& context);

struct MatmulJob {
  CpuLevel level = CpuLevel::kPortable;
  const PackedMatrix* weights = nullptr;
  int64_t rows = 0;
  bool has_factor = false;
  bool has_residual = false;
};
// Scalars: job, first panel, panel count. Arguments: packed rows, factors and the residual's
// columns where the job has them, the tile's columns of y.
void matmul_task(TaskContext& context);

// What the tasks between the matmuls of a layer need.
struct LayerJob {
  CpuLevel level = CpuLevel::kPortable;
  const ModelConfig* config = nullptr;
  const LayerWeights* weights = nullptr;
  const RopeTable* rope = nullptr;
  const StepState* state = nullptr;
  KvShape kv;
  int64_t page_count = 0;
  int chunk_tokens = 0;
  int64_t rows = 0;
};
// Arguments: q, k (both in and out). One block takes some rows.
void qk_norm_task(TaskContext& context);
// Arguments: q, k (both in and out), v, pages (in and out).
void rope_task(TaskContext& context);
void qk_norm_rope_task(TaskContext& context);
// Arguments: q, pages, partials (out), output (out). Block b takes the state's block b.
void attention_task(TaskContext& context);
// Arguments: partials, output (in and out). One block takes some rows.
void attention_combine_task(TaskContext& context);

struct RowsJob {
  CpuLevel level = CpuLevel::kPortable;
  int64_t rows = 0;
  int64_t columns = 0;
};
// Arguments: x, delta, y. y = x + delta.
void residual_task(TaskContext& context);
// Arguments: gate, up, y.
void silu_task(TaskContext& context);

struct EmbeddingJob {
  CpuLevel level = CpuLevel::kPortable;
  const EmbeddingTable* table = nullptr;
  const StepState* state = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};
// Arguments: x.
void embedding_task(TaskContext& context);

struct HeadJob {
  CpuLevel level = CpuLevel::kPortable;
  const PackedMatrix* weights = nullptr;
  int64_t rows = 0;
  int top_k = 1;
  int tile_count = 0;
};
// Scalars: job, first panel, panel count. Arguments: packed rows, scratch (out), the tile's
// candidates [rows][top_k] (out).
void head_top_task(TaskContext& context);
// Arguments: the candidates of all tiles [tile][rows][top_k], those of all [rows][top_k].
void merge_top_task(TaskContext& context);

}  // namespace gapless
