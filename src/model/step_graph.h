// SPDX-License-Identifier: Apache-2.0
//
// A decode step as a graph of tasks: embedding or given rows, the layers, then the last norm and
// the head, or the rows as they are.
//
// One graph serves every step of its form: a number of rows, and what is wanted of them. Lengths,
// pages and tokens are read from the StepState.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "kernels/norm.h"
#include "kernels/packed_rows.h"
#include "kernels/sampling.h"
#include "model/decoder.h"
#include "model/fusions.h"
#include "model/layer_plan.h"
#include "model/layer_tasks.h"
#include "model/step_state.h"
#include "model/weights.h"

namespace gapless {

// What all graphs of a decoder share; it outlives them.
struct StepModel {
  const ModelWeights* weights = nullptr;
  Fusions fusions;
  CpuLevel level = CpuLevel::kPortable;
  int core_count = 1;
  int pack_rows = kRowGroup;  // that one block packs: LayerProblem
  KvShape kv;
  int64_t page_count = 0;
  int chunk_tokens = kDefaultChunkTokens;
  RopeTable rope;
  StepState state;
  // The caller's memory.
  std::vector<std::byte*> pages;  // of each layer
  float* partials = nullptr;
  int64_t partial_bytes = 0;
  float* hidden_in = nullptr;   // [rows][hidden]
  float* hidden_out = nullptr;  // [rows][hidden]
  Candidate* top = nullptr;     // [head rows][top_k]
  float* logits = nullptr;      // [head rows][vocabulary]
};

struct StepForm {
  int rows = 1;
  int layers = 0;            // the first so many; 0: all
  bool takes_tokens = true;  // false: hidden_in holds the rows
  int head_rows = 0;         // 0: the rows are left in hidden_out
  HeadOutput head = HeadOutput::kTop;
  int top_k = 1;
  auto operator<=>(const StepForm&) const = default;  // NOLINT: its own literal 0
};

// What the tasks point at. Stays where it is.
struct StepJobs {
  std::deque<PackJob> packs;
  std::deque<MatmulJob> matmuls;
  std::deque<LayerJob> layers;
  std::deque<RowsJob> rows;
  std::deque<EmbeddingJob> embeddings;
  std::deque<HeadJob> heads;
};

struct StepGraph {
  Graph graph;
  std::unique_ptr<StepJobs> jobs;
};

// The layer's plan is the one that `gapless plan layer` prints for these rows.
Result<StepGraph> build_step_graph(const StepModel& model, const StepForm& form);

}  // namespace gapless
