// SPDX-License-Identifier: Apache-2.0
//
// Kernels as tasks of a graph: what they give must not depend on who runs them and in which order.
//
// Each graph names what its tasks read and write and nothing else; it is run in many legal orders
// and by one and two workers, and the bits are compared with those of direct calls.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/kv_cache.h"
#include "kernels/matmul_plan.h"
#include "kernels/matmul_test_support.h"
#include "runtime/serial_run.h"
#include "runtime/test_graphs.h"

namespace gapless {
namespace {

// ---- Matmul.

// What all tasks of a matmul share; reached through scalar 0.
struct MatmulJob {
  CpuLevel level = CpuLevel::kPortable;
  const PackedMatrix* weights = nullptr;
  int64_t m = 0;
};

PackedRows rows_of(const TaskContext& context, const MatmulJob& job, int argument) {
  return packed_rows_in(context.data<std::byte>(argument), job.weights->dtype(), job.level, job.m,
                        job.weights->k());
}

// Arguments: x, packed rows. One block a row.
void pack_rows_task(TaskContext& context) {
  const MatmulJob& job = object_at<const MatmulJob>(context, 0);
  pack_rows(job.level, {.data = context.data<float>(0), .row_stride = job.weights->k()},
            context.block_index(), 1, rows_of(context, job, 1));
}

int64_t column_of(const PackedMatrix& weights, int64_t panel) {
  return panel / (weights.interleave() == Interleave::kPairs ? 2 : 1) * kPanelRows;
}

// Arguments: packed rows, ..., the tile's columns of y. Scalars: job, first panel, panel count.
MatmulArgs args_of(const TaskContext& context) {
  const MatmulJob& job = object_at<const MatmulJob>(context, 0);
  const int last = context.argument_count() - 1;
  return {.weights = job.weights,
          .rows = rows_of(context, job, 0),
          .output = {.data = context.data<float>(last),
                     .row_stride = context.argument(last).view.strides[0],
                     .first_column = column_of(*job.weights, context.scalar(1))}};
}

void matmul_tile_task(TaskContext& context) {
  const MatmulJob& job = object_at<const MatmulJob>(context, 0);
  matmul_tile(job.level, args_of(context), context.scalar(1), context.scalar(2));
}

// Arguments: packed rows, sums. Scalars: job, first panel, panel count, first line, line count.
void matmul_slice_task(TaskContext& context) {
  const MatmulJob& job = object_at<const MatmulJob>(context, 0);
  const MatmulArgs args = {.weights = job.weights, .rows = rows_of(context, job, 0), .output = {}};
  matmul_slice(job.level, args, context.scalar(1), context.scalar(2), context.scalar(3),
               context.scalar(4), context.data<std::byte>(1));
}

// Arguments: packed rows, the sums of each slice, the tile's columns of y.
void matmul_combine_task(TaskContext& context) {
  const MatmulJob& job = object_at<const MatmulJob>(context, 0);
  std::vector<const void*> sums;
  for (int i = 1; i < context.argument_count() - 1; ++i) sums.push_back(context.data<std::byte>(i));
  matmul_combine(job.level, args_of(context), context.scalar(1), context.scalar(2),
                 static_cast<int>(sums.size()), sums.data());
}

// A matmul on its way into a graph, and the memory of its x and y.
class MatmulGraph {
 public:
  MatmulGraph(CpuLevel level, const MatmulCase& of_case)
      : job_{.level = level, .weights = of_case.matrix.get(), .m = of_case.shape.m},
        shape_(of_case.shape),
        x_(of_case.x),
        y_(static_cast<size_t>(shape_.m * shape_.n), -1.0f) {
    const BufferId x = graph_.add_buffer({.name = "x",
                                          .kind = BufferKind::kExternal,
                                          .bytes = shape_.m * shape_.k * 4,
                                          .data = x_.data()});
    const BufferId y = graph_.add_buffer({.name = "y",
                                          .kind = BufferKind::kExternal,
                                          .bytes = shape_.m * shape_.n * 4,
                                          .data = y_.data()});
    y_view_ = dense_view(y, DType::kF32, {shape_.m, shape_.n});
    rows_view_ = add_bytes(packed_rows_block_bytes(shape_.weights, level, shape_.m, shape_.k));
    graph_.add(
        {.name = "pack_rows",
         .run = pack_rows_task,
         .scalars = {pointer_to(job_)},
         .arguments = {in(dense_view(x, DType::kF32, {shape_.m, shape_.k})), out(rows_view_)},
         .block_count = static_cast<int32_t>(shape_.m)});
  }

  void add_tile(const MatmulTilePlan& tile) {
    graph_.add({.name = "matmul_tile",
                .run = matmul_tile_task,
                .scalars = {pointer_to(job_), Scalar::fixed(tile.first_panel),
                            Scalar::fixed(tile.panel_count)},
                .arguments = {in(rows_view_), out(columns_of(tile))}});
  }

  void add_slice(const MatmulTilePlan& tile) {
    const View sums = add_bytes(matmul_sums_bytes(shape_.m, tile.panel_count));
    graph_.add({.name = "matmul_slice",
                .run = matmul_slice_task,
                .scalars = {pointer_to(job_), Scalar::fixed(tile.first_panel),
                            Scalar::fixed(tile.panel_count), Scalar::fixed(tile.first_line),
                            Scalar::fixed(tile.line_count)},
                .arguments = {in(rows_view_), out(sums)}});
    sums_[tile.first_panel].insert({tile.slice, sums});
    ranges_[tile.first_panel] = tile;
  }

  void add_combines() {
    for (const auto& [first_panel, tile] : ranges_) {
      std::vector<Argument> arguments = {in(rows_view_)};
      for (const auto& [slice, sums] : sums_[first_panel]) arguments.push_back(in(sums));
      arguments.push_back(out(columns_of(tile)));
      graph_.add({.name = "matmul_combine",
                  .run = matmul_combine_task,
                  .scalars = {pointer_to(job_), Scalar::fixed(tile.first_panel),
                              Scalar::fixed(tile.panel_count)},
                  .arguments = arguments});
    }
  }

  Graph finish() { return graph_.finish(); }
  std::vector<float>& y() { return y_; }

 private:
  View add_bytes(int64_t bytes) {
    return dense_view(graph_.add_buffer({.bytes = bytes}), DType::kU8, {bytes});
  }
  View columns_of(const MatmulTilePlan& tile) const {
    const int64_t first = column_of(*job_.weights, tile.first_panel);
    const int64_t end = column_of(*job_.weights, tile.first_panel + tile.panel_count);
    return gapless::slice(y_view_, 1, first, std::min(end, shape_.n) - first);
  }

  MatmulJob job_;
  MatmulShape shape_;
  std::vector<float> x_;
  std::vector<float> y_;
  TestGraph graph_;
  View y_view_;
  View rows_view_;
  std::map<int64_t, std::map<int, View>> sums_;  // by first panel and slice
  std::map<int64_t, MatmulTilePlan> ranges_;
};

// Runs the graph in many orders in memory of its own, then by one and by two workers into `y`.
void expect_in_any_order(const Graph& graph, std::vector<float>& y,
                         std::span<const float> expected) {
  must(run_in_many_orders(graph, 10, 1));
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Replay replay = must(Replay::prepare(*device, Graph(graph)));
    for (int step = 0; step < 3; ++step) {
      std::fill(y.begin(), y.end(), -1.0f);
      must(replay.run());
      ASSERT_TRUE(all_same(y, expected)) << worker_count << " workers, step " << step;
    }
  }
}

MatmulPlan plan_of(const MatmulCase& of_case, CpuLevel level, int64_t k_slices) {
  const MatmulShape& shape = of_case.shape;
  return must(plan_matmul({.weights = shape.weights,
                           .m = shape.m,
                           .k = shape.k,
                           .n = shape.n,
                           .interleave = shape.interleave,
                           .core_count = 2,
                           .level = level,
                           .panels_per_tile = 2,
                           .k_slices = k_slices}));
}

MatmulShape task_shape(DType dtype, Interleave interleave) {
  return {.weights = dtype, .m = 3, .k = 771, .n = 115, .interleave = interleave, .seed = 70};
}

TEST(Tasks, TilesOfAMatmulGiveTheBitsOfOneCall) {
  for (const Interleave interleave : {Interleave::kNone, Interleave::kPairs}) {
    for (const DType dtype : kWeightTypes) {
      const MatmulCase of_case(task_shape(dtype, interleave));
      for (const CpuLevel level : usable_cpu_levels()) {
        SCOPED_TRACE(shape_text(of_case.shape, level));
        const MatmulPlan plan = plan_of(of_case, level, 1);
        ASSERT_GT(plan.tiles.size(), 3u);
        MatmulGraph graph(level, of_case);
        for (const MatmulTilePlan& tile : plan.tiles) graph.add_tile(tile);
        const std::vector<float> expected = run_matmul(level, of_case);
        expect_in_any_order(graph.finish(), graph.y(), expected);
      }
    }
  }
}

// The same slices, one after the other.
std::vector<float> run_planned_slices(CpuLevel level, const MatmulCase& of_case,
                                      const MatmulPlan& plan) {
  const MatmulShape& shape = of_case.shape;
  std::vector<std::byte> block(
      static_cast<size_t>(packed_rows_block_bytes(shape.weights, level, shape.m, shape.k)));
  const PackedRows rows = packed_rows_in(block.data(), shape.weights, level, shape.m, shape.k);
  pack_rows(level, {.data = of_case.x.data(), .row_stride = shape.k}, 0, shape.m, rows);
  const GuardedOutput y(DType::kF32, shape.m, shape.n, 0);
  const MatmulArgs args = {.weights = of_case.matrix.get(), .rows = rows, .output = y.output()};
  const size_t slice_bytes = static_cast<size_t>(matmul_sums_bytes(shape.m, plan.panel_count));
  const size_t slice_count = static_cast<size_t>(plan.k_slices);
  const GuardedArray<std::byte> sums(static_cast<int64_t>(slice_bytes * slice_count));
  std::vector<const void*> slices;
  for (size_t i = 0; i < slice_count; ++i) slices.push_back(sums.data() + i * slice_bytes);
  for (const MatmulTilePlan& tile : plan.tiles) {
    std::byte* to = sums.data() + static_cast<size_t>(tile.slice) * slice_bytes +
                    matmul_sums_bytes(shape.m, tile.first_panel);
    matmul_slice(level, args, tile.first_panel, tile.panel_count, tile.first_line, tile.line_count,
                 to);
  }
  matmul_combine(level, args, 0, plan.panel_count, plan.k_slices, slices.data());
  return y.values();
}

TEST(Tasks, SlicesOfAMatmulAddUpInTheirOrder) {
  for (const Interleave interleave : {Interleave::kNone, Interleave::kPairs}) {
    for (const DType dtype : kWeightTypes) {
      const MatmulCase of_case(task_shape(dtype, interleave));
      for (const CpuLevel level : usable_cpu_levels()) {
        SCOPED_TRACE(shape_text(of_case.shape, level));
        const MatmulPlan plan = plan_of(of_case, level, 3);
        ASSERT_EQ(plan.k_slices, 3);
        MatmulGraph graph(level, of_case);
        for (const MatmulTilePlan& tile : plan.tiles) graph.add_slice(tile);
        graph.add_combines();
        const std::vector<float> expected = run_planned_slices(level, of_case, plan);
        if (dtype == DType::kS8) {
          EXPECT_TRUE(all_same(expected, run_matmul(level, of_case)));
        }
        expect_in_any_order(graph.finish(), graph.y(), expected);
      }
    }
  }
}

// ---- Attention.

constexpr int kPageTokens = 16;
constexpr int kChunkTokens = 32;
constexpr int kQHeads = 10;
constexpr KvShape kKvShape = {
    .dtype = DType::kBf16, .kv_heads = 2, .head_dim = 64, .page_tokens = kPageTokens};

// A decode step: the newest token of each sequence is written, then all of them are attended to.
struct AttentionStep {
  CpuLevel level = CpuLevel::kPortable;
  std::vector<int32_t> lengths = {70, 1, 0, 33, 16, 32, 131};
  std::vector<int32_t> page_table;
  int64_t page_table_stride = 9;
  int64_t page_count = 0;
  std::vector<float> q;
  std::vector<float> new_kv;  // [batch][K, V][kv head][dim]
  std::unique_ptr<GuardedArray<std::byte>> pages;
  std::vector<float> output;
  AttentionPlan plan;

  AttentionStep() {
    const int64_t batch = static_cast<int64_t>(lengths.size());
    q = normal_values(batch * kQHeads * kKvShape.head_dim, 80);
    new_kv = normal_values(batch * 2 * kKvShape.kv_heads * kKvShape.head_dim, 81);
    output.assign(q.size(), -1.0f);
    // Pages are dealt out in an order of their own.
    page_count = batch * page_table_stride;
    page_table.resize(static_cast<size_t>(page_count));
    std::iota(page_table.begin(), page_table.end(), 0);
    std::shuffle(page_table.begin(), page_table.end(), std::mt19937(82));
    pages = std::make_unique<GuardedArray<std::byte>>(page_count * kv_page_bytes(kKvShape));
    fill_pages();
    plan = must(plan_attention({.kv = kKvShape,
                                .q_heads = kQHeads,
                                .core_count = 2,
                                .chunk_tokens = kChunkTokens,
                                .output_dtype = DType::kF32},
                               lengths));
  }

  int64_t page_of(int64_t sequence, int64_t token) const {
    return page_table[static_cast<size_t>(sequence * page_table_stride + token / kPageTokens)];
  }
  int64_t chunks_of(int64_t sequence) const {
    return chunk_count(lengths[static_cast<size_t>(sequence)], kChunkTokens);
  }
  int64_t partial_of(const AttentionItem& item) const {
    return plan.first_partial[static_cast<size_t>(item.sequence)] +
           item.kv_head * chunks_of(item.sequence) + item.chunk;
  }

  AttentionArgs args(const float* of_q, std::byte* of_pages, float* partials, float* to) const {
    return {.pages = {.shape = kKvShape, .data = of_pages, .page_count = page_count},
            .q_heads = kQHeads,
            .chunk_tokens = kChunkTokens,
            .batch = static_cast<int64_t>(lengths.size()),
            .scale = 0.125f,
            .q = of_q,
            .lengths = lengths.data(),
            .page_table = page_table.data(),
            .page_table_stride = page_table_stride,
            .first_partial = plan.first_partial.data(),
            .partials = partials,
            .output = to};
  }

  void write_newest(std::byte* of_pages, const float* of_new_kv, int64_t sequence) const {
    const int32_t length = lengths[static_cast<size_t>(sequence)];
    if (length == 0) return;
    const KvPages to = {.shape = kKvShape, .data = of_pages, .page_count = page_count};
    const int64_t half = kKvShape.kv_heads * kKvShape.head_dim;
    for (int head = 0; head < kKvShape.kv_heads; ++head) {
      const float* key = of_new_kv + sequence * 2 * half + head * kKvShape.head_dim;
      write_kv(to, page_of(sequence, length - 1), (length - 1) % kPageTokens, head, key,
               key + half);
    }
  }

 private:
  void fill_pages() {
    const KvPages to = {.shape = kKvShape, .data = pages->data(), .page_count = page_count};
    uint32_t seed = 1000;
    for (int64_t page = 0; page < page_count; ++page)
      for (int token = 0; token < kPageTokens; ++token)
        for (int head = 0; head < kKvShape.kv_heads; ++head) {
          const std::vector<float> values = normal_values(2 * kKvShape.head_dim, ++seed);
          write_kv(to, page, token, head, values.data(), values.data() + kKvShape.head_dim);
        }
  }
};

// What the buffers of the graph are; a task gets all that it touches as views and finds the begin
// of each buffer from the first of them.
template <typename T>
T* buffer_begin(const TaskContext& context, int argument) {
  return context.data<T>(argument) - context.argument(argument).view.offset;
}

// Arguments: new K and V of the sequence, the page that they go to. Scalars: step, sequence.
void write_kv_task(TaskContext& context) {
  const AttentionStep& step = object_at<const AttentionStep>(context, 0);
  step.write_newest(buffer_begin<std::byte>(context, 1), buffer_begin<float>(context, 0),
                    context.scalar(1));
}

// Arguments: q, the sequence's output or a partial, pages. Scalars: step, sequence, head, chunk.
void attention_item_task(TaskContext& context) {
  const AttentionStep& step = object_at<const AttentionStep>(context, 0);
  const AttentionItem item = {.sequence = static_cast<int32_t>(context.scalar(1)),
                              .kv_head = static_cast<int32_t>(context.scalar(2)),
                              .chunk = static_cast<int32_t>(context.scalar(3))};
  const bool is_whole = step.chunks_of(item.sequence) == 1;
  float* const to = buffer_begin<float>(context, 1);
  attention_item(step.level,
                 step.args(buffer_begin<float>(context, 0), buffer_begin<std::byte>(context, 2),
                           is_whole ? nullptr : to, is_whole ? to : nullptr),
                 item);
}

// Arguments: partials (none for a sequence without tokens), output. Scalars: step, sequence, head.
void attention_combine_task(TaskContext& context) {
  const AttentionStep& step = object_at<const AttentionStep>(context, 0);
  const int last = context.argument_count() - 1;
  float* const partials = last == 0 ? nullptr : buffer_begin<float>(context, 0);
  attention_combine(step.level,
                    step.args(nullptr, nullptr, partials, buffer_begin<float>(context, last)),
                    context.scalar(1), static_cast<int>(context.scalar(2)));
}

class AttentionGraph {
 public:
  explicit AttentionGraph(AttentionStep& step) : step_(step) {
    const int64_t batch = static_cast<int64_t>(step.lengths.size());
    q_ = dense_view(add_floats("q", step.q), DType::kF32, {batch, kQHeads, kKvShape.head_dim});
    new_kv_ = dense_view(add_floats("new kv", step.new_kv), DType::kF32,
                         {batch, 2 * kKvShape.kv_heads * kKvShape.head_dim});
    output_ = dense_view(add_floats("output", step.output), DType::kF32,
                         {batch, kQHeads, kKvShape.head_dim});
    const BufferId pages = graph_.add_buffer({.name = "pages",
                                              .kind = BufferKind::kExternal,
                                              .bytes = step.pages->size(),
                                              .data = step.pages->data()});
    pages_ = dense_view(pages, DType::kU8, {step.page_count, kv_page_bytes(kKvShape)});
    const int64_t floats = partial_floats(kQHeads, kKvShape);
    const BufferId partials = graph_.add_buffer({.bytes = step.plan.workspace_bytes});
    partials_ = dense_view(partials, DType::kF32, {step.plan.partial_count, floats});
    for (int64_t sequence = 0; sequence < batch; ++sequence) add_write(sequence);
    for (const AttentionItem& item : step.plan.items) add_item(item);
    for (int64_t sequence = 0; sequence < batch; ++sequence)
      for (int head = 0; head < kKvShape.kv_heads; ++head) add_combine(sequence, head);
  }
  Graph finish() { return graph_.finish(); }

 private:
  BufferId add_floats(std::string_view name, std::vector<float>& values) {
    return graph_.add_buffer({.name = name,
                              .kind = BufferKind::kExternal,
                              .bytes = static_cast<int64_t>(values.size()) * 4,
                              .data = values.data()});
  }
  View heads(const View& view, int64_t sequence, int kv_head) const {
    constexpr int kGroup = kQHeads / kKvShape.kv_heads;
    return slice(slice(view, 0, sequence, 1), 1, kv_head * kGroup, kGroup);
  }
  void add_write(int64_t sequence) {
    const int32_t length = step_.lengths[static_cast<size_t>(sequence)];
    if (length == 0) return;
    graph_.add({.name = "write_kv",
                .run = write_kv_task,
                .scalars = {pointer_to(step_), Scalar::fixed(sequence)},
                .arguments = {in(slice(new_kv_, 0, sequence, 1)),
                              inout(slice(pages_, 0, step_.page_of(sequence, length - 1), 1))}});
  }
  void add_item(const AttentionItem& item) {
    const bool is_whole = step_.chunks_of(item.sequence) == 1;
    const View to = is_whole ? heads(output_, item.sequence, item.kv_head)
                             : slice(partials_, 0, step_.partial_of(item), 1);
    std::vector<Argument> arguments = {in(heads(q_, item.sequence, item.kv_head)), out(to)};
    const int64_t end = std::min<int64_t>((item.chunk + 1) * kChunkTokens,
                                          step_.lengths[static_cast<size_t>(item.sequence)]);
    for (int64_t token = item.chunk * kChunkTokens; token < end; token += kPageTokens)
      arguments.push_back(in(slice(pages_, 0, step_.page_of(item.sequence, token), 1)));
    graph_.add({.name = "attention_item",
                .run = attention_item_task,
                .scalars = {pointer_to(step_), Scalar::fixed(item.sequence),
                            Scalar::fixed(item.kv_head), Scalar::fixed(item.chunk)},
                .arguments = arguments});
  }
  void add_combine(int64_t sequence, int kv_head) {
    const int64_t chunks = step_.chunks_of(sequence);
    if (chunks == 1) return;
    std::vector<Argument> arguments;
    const AttentionItem first = {
        .sequence = static_cast<int32_t>(sequence), .kv_head = kv_head, .chunk = 0};
    if (chunks > 0) arguments.push_back(in(slice(partials_, 0, step_.partial_of(first), chunks)));
    arguments.push_back(out(heads(output_, sequence, kv_head)));
    graph_.add({.name = "attention_combine",
                .run = attention_combine_task,
                .scalars = {pointer_to(step_), Scalar::fixed(sequence), Scalar::fixed(kv_head)},
                .arguments = arguments});
  }

  AttentionStep& step_;
  TestGraph graph_;
  View q_, new_kv_, output_, pages_, partials_;
};

std::vector<float> attend_directly(const AttentionStep& step) {
  const GuardedArray<std::byte> pages{std::span<const std::byte>(step.pages->span())};
  const GuardedArray<float> partials(step.plan.workspace_bytes / 4);
  std::vector<float> output(step.output.size(), -1.0f);
  const int64_t batch = static_cast<int64_t>(step.lengths.size());
  const AttentionArgs args = step.args(step.q.data(), pages.data(), partials.data(), output.data());
  must(check_attention(args));
  for (int64_t sequence = 0; sequence < batch; ++sequence)
    step.write_newest(pages.data(), step.new_kv.data(), sequence);
  for (const AttentionItem& item : step.plan.items) attention_item(step.level, args, item);
  for (int64_t sequence = 0; sequence < batch; ++sequence)
    for (int head = 0; head < kKvShape.kv_heads; ++head)
      if (step.chunks_of(sequence) != 1) attention_combine(step.level, args, sequence, head);
  return output;
}

TEST(Tasks, AttentionItemsAreCombinedInTheirOrder) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    AttentionStep step;
    step.level = level;
    const std::vector<float> expected = attend_directly(step);
    expect_in_any_order(AttentionGraph(step).finish(), step.output, expected);
  }
}

// Otherwise an item that ran before its newest key and value were written would go unnoticed.
TEST(Tasks, EveryHeadDependsOnTheNewestToken) {
  AttentionStep step;
  const std::vector<float> expected = attend_directly(step);
  std::fill(step.new_kv.begin(), step.new_kv.end(), 0.0f);
  const std::vector<float> without = attend_directly(step);
  for (size_t i = 0; i < expected.size(); i += kKvShape.head_dim) {
    const size_t sequence = i / (kQHeads * kKvShape.head_dim);
    const bool is_same = std::equal(expected.begin() + static_cast<int64_t>(i),
                                    expected.begin() + static_cast<int64_t>(i) + kKvShape.head_dim,
                                    without.begin() + static_cast<int64_t>(i));
    EXPECT_EQ(is_same, step.lengths[sequence] == 0) << "sequence " << sequence;
  }
}

}  // namespace
}  // namespace gapless
