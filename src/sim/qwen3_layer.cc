// SPDX-License-Identifier: Apache-2.0

#include "sim/qwen3_layer.h"

#include <algorithm>
#include <array>

#include "sim/layer_tasks.h"

namespace gapless {
namespace {

constexpr int64_t kClusters = 24;     // the kernels are written for that many
constexpr int64_t kMergeBlocks = 48;  // one a vector core
constexpr int64_t kMaxLayers = 128;
constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxLength = 1 << 20;
constexpr size_t kMaxBatch = 256;
constexpr int64_t kSoftmaxOperations = 20;  // a score: scale, maximum, exponential, sum, cast
constexpr int64_t kMixedSliceK = 1024;      // of a mixed matmul: vector cores add up these slices

Result<void> check_dimension(std::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return {};
  return fail(ErrorCode::kInvalidInput, "{} is {}; it must be 1 to {}", name, value, most);
}

Result<void> check_args(const LayerGraphArgs& args) {
  GAPLESS_TRY(check_dimension("the number of layers", args.layers, kMaxLayers));
  GAPLESS_TRY(check_dimension("hidden", args.hidden, kMaxSize));
  GAPLESS_TRY(check_dimension("intermediate", args.intermediate, kMaxSize));
  GAPLESS_TRY(check_dimension("the number of query heads", args.q_heads, 1024));
  GAPLESS_TRY(check_dimension("the number of key-value heads", args.kv_heads, 1024));
  GAPLESS_TRY(check_dimension("head_dim", args.head_dim, 1024));
  if (args.q_heads % args.kv_heads != 0) {
    return fail(ErrorCode::kInvalidInput, "{} query heads do not divide among {} key-value heads",
                args.q_heads, args.kv_heads);
  }
  if (args.lengths.empty() || args.lengths.size() > kMaxBatch) {
    return fail(ErrorCode::kInvalidInput, "a batch of {} sequences; it must be 1 to {}",
                args.lengths.size(), kMaxBatch);
  }
  for (const int64_t length : args.lengths) {
    GAPLESS_TRY(check_dimension("the length of a sequence", length, kMaxLength));
  }
  return {};
}

// The cube core leaves a sum of each slice of K in memory; two vector cores add them up and write
// the result.
void add_vector_part(SimTask& task, int64_t results, int64_t k) {
  const int64_t slices = (k + kMixedSliceK - 1) / kMixedSliceK;
  task.shape = SimShape::kMix;
  task.cube.bytes += results * 4 * (slices - 1);
  task.vector = {
      .bytes = results * 4 * (slices + 1) / 2, .flops = results * slices / 2, .dtype = DType::kF32};
}

TaskList add_attention_alone(LayerTasks& tasks, const TaskList& previous) {
  const LayerTiling tiling = tasks.args().tiling;
  const bool is_int8 = tiling == LayerTiling::kA8W8 || tiling == LayerTiling::kA8W8Split;
  const uint32_t table = tasks.add_vector(
      "fa_work_build", {tasks.page_count() * 8, tasks.page_count() * 8, 1}, previous);
  const uint32_t attention = tasks.add_attention("fa_fused", is_int8 ? 1 : 2, {table});
  return {tasks.add_merge("online_softmax", {attention})};
}

TaskList add_layer(LayerTasks& tasks, const TaskList& previous) {
  if (tasks.args().attention_only) return add_attention_alone(tasks, previous);
  if (tasks.args().tiling == LayerTiling::kBf16) return add_bf16_layer(tasks, previous);
  return add_a8w8_layer(tasks, previous);
}

}  // namespace

std::string_view layer_tiling_name(LayerTiling tiling) {
  constexpr std::array<std::string_view, kLayerTilingCount> kNames = {"bf16", "a8w8", "a8w8-int8",
                                                                      "a8w8-split", "a8w8-first"};
  return kNames[static_cast<size_t>(tiling)];
}

Result<SimGraph> make_layer_graph(const LayerGraphArgs& args) {
  GAPLESS_TRY(check_args(args));
  LayerTasks tasks(args);
  TaskList previous;
  for (int64_t layer = 0; layer < args.layers; ++layer) {
    previous = add_layer(tasks, previous);
  }
  return tasks.finish();
}

TaskList joined(std::initializer_list<TaskList> lists) {
  TaskList all;
  for (const TaskList& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

LayerTasks::LayerTasks(const LayerGraphArgs& args) : args_(args) {
  const int64_t batch = static_cast<int64_t>(args.lengths.size());
  rows_ = (batch + kRowPad - 1) / kRowPad * kRowPad;
  for (const int64_t length : args.lengths) {
    page_count_ += (length + kPageTokens - 1) / kPageTokens;
  }
}

uint32_t LayerTasks::add_matmul(std::string_view name, const MatmulTile& tile, uint32_t blocks,
                                const TaskList& producers) {
  const int64_t operand_bytes = dtype_bytes(tile.dtype);
  const int64_t columns = tile.n * tile.right_count;
  const int64_t result_bytes = rows_ * columns * 4 * (tile.adds ? 2 : 1);
  SimTask task{.kernel = builder_.add_kernel(name), .shape = SimShape::kCube};
  task.block_count = blocks;
  task.cube = {.bytes = (tile.k * columns + rows_ * tile.k) * operand_bytes + result_bytes,
               .flops = 2 * rows_ * tile.k * columns,
               .dtype = tile.dtype};
  if (args_.tiling == LayerTiling::kA8W8First) add_vector_part(task, rows_ * columns, tile.k);
  return builder_.add_task(task, producers);
}

uint32_t LayerTasks::add_vector(std::string_view name, const VectorWork& work,
                                const TaskList& producers, bool early_resolve) {
  SimTask task{.kernel = builder_.add_kernel(name), .shape = SimShape::kVector};
  task.block_count = work.blocks;
  task.early_resolve = early_resolve;
  task.vector = {.bytes = work.bytes / work.blocks,
                 .flops = work.operations / work.blocks,
                 .dtype = DType::kF32};
  return builder_.add_task(task, producers);
}

uint32_t LayerTasks::add_barrier(std::string_view name, const TaskList& producers) {
  return builder_.add_task({.kernel = builder_.add_kernel(name), .is_dummy = true}, producers);
}

VectorWork LayerTasks::row_work(int64_t columns, int64_t element_bytes, int64_t operations,
                                uint32_t blocks) const {
  const int64_t elements = rows_ * columns;
  return {elements * element_bytes, elements * operations, blocks};
}

// Cube cores read the pages and do both products for rows padded to 16 a head group; vector cores
// do the softmax and write one partial result a page and head. Pages go round the clusters, so one
// may have one page more than another; here all have the mean.
uint32_t LayerTasks::add_attention(std::string_view name, int64_t kv_bytes,
                                   const TaskList& producers) {
  const int64_t head_rows = args_.q_heads / args_.kv_heads;
  const int64_t padded = (head_rows + kRowPad - 1) / kRowPad * kRowPad;
  const int64_t scores = padded * kPageTokens * args_.kv_heads;
  const int64_t page_bytes = 2 * kPageTokens * kv_columns() * kv_bytes;
  const int64_t partial_bytes = args_.q_heads * args_.head_dim * 4;
  SimTask task{.kernel = builder_.add_kernel(name), .shape = SimShape::kMix};
  task.block_count = static_cast<uint32_t>(kClusters);
  task.cube = {.bytes = page_count_ * page_bytes / kClusters,
               .flops = page_count_ * 4 * scores * args_.head_dim / kClusters};
  task.vector = {.bytes = page_count_ * partial_bytes / kMergeBlocks,
                 .flops = page_count_ * scores * kSoftmaxOperations / kMergeBlocks,
                 .dtype = DType::kF32};
  std::vector<uint32_t> scales;
  for (int64_t cluster = 0; cluster < kClusters; ++cluster) {
    const int64_t pages = page_count_ / kClusters + (cluster < page_count_ % kClusters ? 1 : 0);
    scales.push_back(static_cast<uint32_t>(pages * kClusters * kWholeBlock / page_count_));
  }
  return builder_.add_task(task, producers, scales);
}

uint32_t LayerTasks::add_merge(std::string_view name, const TaskList& producers) {
  const int64_t partial_bytes = args_.q_heads * args_.head_dim * 4;
  const VectorWork work = {page_count_ * partial_bytes, page_count_ * partial_bytes,
                           static_cast<uint32_t>(kMergeBlocks)};
  return add_vector(name, work, producers);
}

}  // namespace gapless
