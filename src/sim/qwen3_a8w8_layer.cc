// SPDX-License-Identifier: Apache-2.0
//
// The A8W8 layers: activations and the weights of q, k, v and o are int8, down is bf16; gate and up
// are bf16 in what pypto-lib #642 merged, and int8 since #810. The layer that #665 reports is the
// one before #642 was merged: there a task is one tile, on a whole cluster, and its order follows
// from the buffers it names.

#include <algorithm>

#include "sim/layer_tasks.h"

namespace gapless {
namespace {

constexpr int64_t kProjectionTile = 256;
constexpr int64_t kOutTile = 128;
constexpr int64_t kInt8OutTile = 256;  // since #810
constexpr int64_t kMlpTile = 256;
constexpr int64_t kMlpSlices = 5;
constexpr int64_t kDownTile = 512;       // a pair of 256
constexpr int64_t kFirstDownTile = 256;  // before #642
constexpr int64_t kInt8DownSlices = 2;   // since #810
constexpr uint32_t kGammaBlocks = 5;
constexpr uint32_t kRopeBlocks = 32;
constexpr uint32_t kDequantBlocks = 24;
constexpr uint32_t kEndBlocks = 20;

uint32_t count_of(const ColumnTiles& tiles) { return static_cast<uint32_t>(tiles.count()); }

// int8 tiles of all K, one block each.
uint32_t add_int8(LayerTasks& tasks, std::string_view name, ColumnTiles tiles, int64_t k,
                  const TaskList& producers) {
  const MatmulTile tile = {.k = k, .n = std::min(tiles.tile, tiles.total), .dtype = DType::kS8};
  return tasks.add_matmul(name, tile, count_of(tiles), producers);
}

struct Projections {
  TaskList q;
  TaskList k;
  TaskList v;
};

// A task a tile, over all of K. With a chain of two, each second tile follows the first: a loop
// that goes on with the buffer of the tile before.
TaskList add_tiles(LayerTasks& tasks, std::string_view name, ColumnTiles tiles, MatmulTile tile,
                   const TaskList& producers, int64_t chain = 1) {
  TaskList list;
  for (int64_t n = 0; n < tiles.count(); ++n) {
    tile.n = tiles.width(n);
    const TaskList last = n % chain == 0 ? TaskList{} : TaskList{list.back()};
    list.push_back(tasks.add_matmul(name, tile, 1, joined({producers, last})));
  }
  return list;
}

Projections add_qkv(LayerTasks& tasks, uint32_t quantized) {
  const int64_t k = tasks.args().hidden;
  const ColumnTiles q_tiles = {tasks.q_columns(), kProjectionTile};
  const ColumnTiles kv_tiles = {tasks.kv_columns(), kProjectionTile};
  if (tasks.args().tiling == LayerTiling::kA8W8First) {
    const MatmulTile tile = {.k = k, .dtype = DType::kS8};
    return {add_tiles(tasks, "q_proj", q_tiles, tile, {quantized}, 2),
            add_tiles(tasks, "k_proj", kv_tiles, tile, {quantized}, 2),
            add_tiles(tasks, "v_proj", kv_tiles, tile, {quantized}, 2)};
  }
  return {{add_int8(tasks, "q_proj", q_tiles, k, {quantized})},
          {add_int8(tasks, "k_proj", kv_tiles, k, {quantized})},
          {add_int8(tasks, "v_proj", kv_tiles, k, {quantized})}};
}

// Returns the task that attention waits for.
uint32_t add_projections(LayerTasks& tasks, const TaskList& previous) {
  const LayerGraphArgs& args = tasks.args();
  const uint32_t gamma =
      tasks.add_vector("x_gamma", tasks.row_work(args.hidden, 6, 1, kGammaBlocks), previous);
  const uint32_t rms = tasks.add_vector("rms_recip", tasks.row_work(args.hidden, 4, 2), previous);
  const uint32_t quantized =
      tasks.add_vector("act_quant", tasks.row_work(args.hidden, 3, 4), {gamma});
  const Projections projections = add_qkv(tasks, quantized);
  const TaskList qk_producers = joined({projections.q, projections.k, {rms}});
  const TaskList v_producers = joined({projections.v, {rms}});
  const int64_t group = tasks.q_columns() / args.kv_heads;
  TaskList norms;
  for (int64_t head = 0; head < args.kv_heads; ++head) {
    norms.push_back(
        tasks.add_vector("qk_norm", tasks.row_work(group + args.head_dim, 8, 6), qk_producers));
  }
  for (int64_t head = 0; head < args.kv_heads; ++head) {
    norms.push_back(tasks.add_vector("v_norm", tasks.row_work(args.head_dim, 8, 2), v_producers));
  }
  const VectorWork rope =
      tasks.row_work(tasks.q_columns() + 2 * tasks.kv_columns(), 6, 6, kRopeBlocks);
  return tasks.add_vector("rope_qkv", rope, norms, true);
}

// Gate and up of one tile, in int8 and over all of K.
TaskList add_int8_gate_up(LayerTasks& tasks, int64_t columns, const TaskList& inputs,
                          const TaskList& last) {
  const MatmulTile tile = {
      .k = tasks.args().hidden, .n = columns, .right_count = 2, .dtype = DType::kS8};
  return {tasks.add_matmul("gate_up_proj", tile, 1, joined({inputs, last}))};
}

// The same in bf16: a task of K slices that add into results set to zero before.
TaskList add_gate_up(LayerTasks& tasks, int64_t columns, const TaskList& inputs,
                     const TaskList& last) {
  const LayerGraphArgs& args = tasks.args();
  const bool is_split = args.tiling == LayerTiling::kA8W8Split;
  const uint32_t seed = tasks.add_vector("gate_up_seed", tasks.row_work(2 * columns, 4, 0), {});
  const MatmulTile tile = {.k = (args.hidden + kMlpSlices - 1) / kMlpSlices,
                           .n = columns,
                           .right_count = is_split ? 1 : 2,
                           .adds = true};
  const uint32_t blocks = static_cast<uint32_t>(kMlpSlices);
  const TaskList producers = joined({inputs, {seed}, last});
  if (!is_split) return {tasks.add_matmul("gate_up_proj", tile, blocks, producers)};
  const uint32_t gate = tasks.add_matmul("gate_proj", tile, blocks, producers);
  const bool is_serial = args.has_serial_tiles;
  const TaskList after = is_serial ? joined({producers, {gate}}) : producers;
  const uint32_t up = tasks.add_matmul("up_proj", tile, blocks, after);
  return is_serial ? TaskList{up} : TaskList{gate, up};
}

// Returns the barrier after all tiles of the MLP's inner values.
uint32_t add_mlp(LayerTasks& tasks, const TaskList& inputs, uint32_t reduce) {
  const LayerGraphArgs& args = tasks.args();
  const ColumnTiles tiles = {args.intermediate, kMlpTile};
  const bool is_int8 = args.tiling == LayerTiling::kA8W8Int8;
  TaskList silus;
  TaskList last;
  for (int64_t n = 0; n < tiles.count(); ++n) {
    const TaskList both = is_int8 ? add_int8_gate_up(tasks, tiles.width(n), inputs, last)
                                  : add_gate_up(tasks, tiles.width(n), inputs, last);
    if (args.has_serial_tiles) last = both;
    const VectorWork work = tasks.row_work(tiles.width(n), 10, 12);
    silus.push_back(tasks.add_vector("silu", work, joined({both, {reduce}})));
  }
  return tasks.add_barrier("mlp_barrier", silus);
}

// What gate and up wait for: the residual with its norm's factors, cast or quantized.
TaskList add_residual(LayerTasks& tasks, const TaskList& out) {
  const LayerGraphArgs& args = tasks.args();
  const bool is_int8 = args.tiling == LayerTiling::kA8W8Int8;
  const int64_t slab_count = is_int8 ? 1 : kMlpSlices;
  const ColumnTiles slabs = {args.hidden, (args.hidden + slab_count - 1) / slab_count};
  TaskList casts;
  for (int64_t slab = 0; slab < slabs.count(); ++slab) {
    const VectorWork work = tasks.row_work(slabs.width(slab), 14, 4);
    casts.push_back(tasks.add_vector("residual_rms_cast", work, out));
  }
  if (!is_int8) return casts;
  return {tasks.add_vector("mlp_act_quant", tasks.row_work(args.hidden, 3, 4), casts)};
}

// Gate, up and silu before #642. Gate and up are independent of each other; silu is a loop over one
// buffer, so its tasks are a chain, and each reads the whole results of gate and up.
TaskList add_first_mlp(LayerTasks& tasks, const TaskList& inputs, uint32_t reduce) {
  const LayerGraphArgs& args = tasks.args();
  const ColumnTiles tiles = {args.intermediate, kMlpTile};
  const int64_t chain = args.has_serial_tiles ? tiles.count() : 1;
  const MatmulTile tile = {.k = args.hidden};
  const TaskList gates = add_tiles(tasks, "gate_proj", tiles, tile, inputs, chain);
  const TaskList ups = add_tiles(tasks, "up_proj", tiles, tile, inputs, chain);
  TaskList silus;
  for (int64_t n = 0; n < tiles.count(); ++n) {
    const TaskList last = n == 0 ? joined({gates, ups, {reduce}}) : TaskList{silus.back()};
    silus.push_back(tasks.add_vector("silu", tasks.row_work(tiles.width(n), 10, 12), last));
  }
  return silus;
}

// The layer that pypto-lib #665 reports.
TaskList add_first_layer(LayerTasks& tasks, const TaskList& previous) {
  const LayerGraphArgs& args = tasks.args();
  const uint32_t table =
      tasks.add_vector("fa_work_build", {tasks.page_count() * 8, tasks.page_count() * 8, 1}, {});
  const uint32_t rope = add_projections(tasks, previous);
  const int64_t keys = tasks.page_count() * kPageTokens * tasks.kv_columns();
  const uint32_t dequantized =
      tasks.add_vector("qk_dequant", {keys * 3, keys * 4, kDequantBlocks}, {table, rope});
  const uint32_t attention = tasks.add_attention("fa_fused", 2, {dequantized});
  const uint32_t merge = tasks.add_merge("online_softmax", {attention});
  const uint32_t quantized =
      tasks.add_vector("out_act_quant", tasks.row_work(tasks.q_columns(), 3, 4), {merge});
  const MatmulTile out_tile = {.k = tasks.q_columns(), .dtype = DType::kS8};
  const TaskList out = add_tiles(tasks, "out_proj", {args.hidden, kOutTile}, out_tile, {quantized});
  const TaskList inputs = add_residual(tasks, out);
  const uint32_t reduce =
      tasks.add_vector("post_rms_reduce", tasks.row_work(args.hidden, 8, 3), out);
  const TaskList silus = add_first_mlp(tasks, inputs, reduce);
  const MatmulTile down_tile = {.k = args.intermediate};
  const TaskList down =
      add_tiles(tasks, "down_proj", {args.hidden, kFirstDownTile}, down_tile, {silus.back()});
  return {
      tasks.add_vector("down_cast_residual", tasks.row_work(args.hidden, 14, 4, kEndBlocks), down)};
}

}  // namespace

TaskList add_a8w8_layer(LayerTasks& tasks, const TaskList& previous) {
  const LayerGraphArgs& args = tasks.args();
  if (args.tiling == LayerTiling::kA8W8First) return add_first_layer(tasks, previous);
  const bool is_int8 = args.tiling == LayerTiling::kA8W8Int8;
  const uint32_t table =
      tasks.add_vector("fa_work_build", {tasks.page_count() * 8, tasks.page_count() * 8, 1}, {});
  const uint32_t rope = add_projections(tasks, previous);
  const uint32_t attention = tasks.add_attention("fa_fused", is_int8 ? 2 : 1, {table, rope});
  const uint32_t merge = tasks.add_merge("online_softmax", {attention});
  const uint32_t quantized =
      tasks.add_vector("out_act_quant", tasks.row_work(tasks.q_columns(), 3, 4), {merge});
  const ColumnTiles out_tiles = {args.hidden, is_int8 ? kInt8OutTile : kOutTile};
  const uint32_t out = add_int8(tasks, "out_proj", out_tiles, tasks.q_columns(), {quantized});
  const TaskList inputs = add_residual(tasks, {out});
  const uint32_t reduce =
      tasks.add_vector("post_rms_reduce", tasks.row_work(args.hidden, 8, 3), {out});
  const uint32_t mlp = add_mlp(tasks, inputs, reduce);
  const ColumnTiles down_tiles = {args.hidden, kDownTile};
  const int64_t down_slices = is_int8 ? kInt8DownSlices : 1;
  const MatmulTile down = {
      .k = args.intermediate / down_slices, .n = std::min(kDownTile, args.hidden), .adds = is_int8};
  const uint32_t down_blocks = count_of(down_tiles) * static_cast<uint32_t>(down_slices);
  const uint32_t down_task = tasks.add_matmul("down_proj", down, down_blocks, {mlp});
  const VectorWork end = tasks.row_work(args.hidden, 14, 4, kEndBlocks);
  return {tasks.add_vector("down_cast_residual", end, {down_task})};
}

}  // namespace gapless
