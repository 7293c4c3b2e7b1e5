// SPDX-License-Identifier: Apache-2.0
//
// The bf16 layer of June 2026 (pypto-lib 37234733). Matmuls are split over K and add into results
// that were set to zero before; 1/rms is applied after the projections, so that these need not wait
// for it.

#include <algorithm>

#include "sim/layer_tasks.h"

namespace gapless {
namespace {

constexpr int64_t kSliceK = 1024;
constexpr int64_t kNarrowTile = 512;  // q, k, v and out
constexpr int64_t kWideTile = 1024;   // gate, up and down
constexpr uint32_t kRopeBlocks = 32;
constexpr uint32_t kEndBlocks = 5;

// A matmul in tiles of N and slices of K: the tasks of tile n are [n * slices, (n + 1) * slices).
struct SplitMatmul {
  ColumnTiles tiles;
  ColumnTiles slices;
  TaskList tasks;

  // All slices of the tiles that have columns of [begin, end).
  TaskList of_columns(int64_t begin, int64_t end) const {
    TaskList list;
    for (int64_t n = 0; n < tiles.count(); ++n) {
      if (tiles.end(n) <= begin || tiles.begin(n) >= end) continue;
      const auto first = tasks.begin() + n * slices.count();
      list.insert(list.end(), first, first + slices.count());
    }
    return list;
  }
};

// `inputs`: by slice of K, what it waits for; one list is for all slices.
SplitMatmul add_split(LayerTasks& tasks, std::string_view name, ColumnTiles tiles,
                      ColumnTiles slices, const std::vector<TaskList>& inputs, uint32_t seed) {
  SplitMatmul matmul{tiles, slices, {}};
  TaskList last;
  for (int64_t n = 0; n < tiles.count(); ++n) {
    TaskList these;
    for (int64_t k = 0; k < slices.count(); ++k) {
      const TaskList& input = inputs[inputs.size() == 1 ? 0 : static_cast<size_t>(k)];
      const MatmulTile tile = {.k = slices.width(k), .n = tiles.width(n), .adds = true};
      these.push_back(tasks.add_matmul(name, tile, 1, joined({input, {seed}, last})));
    }
    matmul.tasks.insert(matmul.tasks.end(), these.begin(), these.end());
    if (tasks.args().has_serial_tiles) last = these;
  }
  return matmul;
}

uint32_t add_seed(LayerTasks& tasks, std::string_view name, int64_t columns,
                  const TaskList& producers) {
  return tasks.add_vector(name, tasks.row_work(columns, 4, 0), producers);
}

// Norm and rotation of queries and keys; returns the task that attention waits for.
uint32_t add_projections(LayerTasks& tasks, const TaskList& previous) {
  const LayerGraphArgs& args = tasks.args();
  const ColumnTiles slices = {args.hidden, kSliceK};
  const uint32_t rms = tasks.add_vector("rms_recip", tasks.row_work(args.hidden, 4, 2), previous);
  const uint32_t q_seed = add_seed(tasks, "q_seed", tasks.q_columns(), {});
  const uint32_t k_seed = add_seed(tasks, "k_seed", tasks.kv_columns(), previous);
  const uint32_t v_seed = add_seed(tasks, "v_seed", tasks.kv_columns(), previous);
  const ColumnTiles q_tiles = {tasks.q_columns(), kNarrowTile};
  const ColumnTiles kv_tiles = {tasks.kv_columns(), kNarrowTile};
  const SplitMatmul q = add_split(tasks, "q_proj", q_tiles, slices, {previous}, q_seed);
  const SplitMatmul k = add_split(tasks, "k_proj", kv_tiles, slices, {previous}, k_seed);
  const SplitMatmul v = add_split(tasks, "v_proj", kv_tiles, slices, {previous}, v_seed);
  const int64_t group = tasks.q_columns() / args.kv_heads;
  TaskList norms;
  for (int64_t head = 0; head < args.kv_heads; ++head) {
    const TaskList columns = joined({q.of_columns(head * group, (head + 1) * group),
                                     k.of_columns(head * args.head_dim, (head + 1) * args.head_dim),
                                     {rms}});
    norms.push_back(
        tasks.add_vector("qk_norm", tasks.row_work(group + args.head_dim, 8, 6), columns));
  }
  const VectorWork rope =
      tasks.row_work(tasks.q_columns() + 2 * tasks.kv_columns(), 6, 6, kRopeBlocks);
  return tasks.add_vector("rope_qkv", rope, joined({norms, v.tasks, {rms}}), true);
}

}  // namespace

TaskList add_bf16_layer(LayerTasks& tasks, const TaskList& previous) {
  const LayerGraphArgs& args = tasks.args();
  const ColumnTiles hidden_slices = {args.hidden, kSliceK};
  const uint32_t table =
      tasks.add_vector("fa_work_build", {tasks.page_count() * 8, tasks.page_count() * 8, 1}, {});
  const uint32_t rope = add_projections(tasks, previous);
  const uint32_t down_seed = add_seed(tasks, "down_seed", args.hidden, previous);
  const uint32_t gate_seed = add_seed(tasks, "gate_seed", args.intermediate, previous);
  const uint32_t up_seed = add_seed(tasks, "up_seed", args.intermediate, previous);
  const uint32_t out_seed = add_seed(tasks, "out_seed", args.hidden, previous);
  const uint32_t attention = tasks.add_attention("fa_fused", 2, {table, rope});
  const uint32_t merge = tasks.add_merge("online_softmax", {attention});
  const SplitMatmul out = add_split(tasks, "out_proj", {args.hidden, kNarrowTile},
                                    {tasks.q_columns(), kSliceK}, {{merge}}, out_seed);

  std::vector<TaskList> casts;
  for (int64_t slab = 0; slab < hidden_slices.count(); ++slab) {
    const TaskList columns = out.of_columns(hidden_slices.begin(slab), hidden_slices.end(slab));
    const VectorWork work = tasks.row_work(hidden_slices.width(slab), 14, 4);
    casts.push_back({tasks.add_vector("residual_rms_cast", work, columns)});
  }
  const uint32_t reduce =
      tasks.add_vector("post_rms_reduce", tasks.row_work(args.hidden, 8, 3), out.tasks);

  const ColumnTiles wide = {args.intermediate, kWideTile};
  const SplitMatmul gate = add_split(tasks, "gate_proj", wide, hidden_slices, casts, gate_seed);
  const SplitMatmul up = add_split(tasks, "up_proj", wide, hidden_slices, casts, up_seed);
  std::vector<TaskList> silus;
  for (int64_t n = 0; n < wide.count(); ++n) {
    const TaskList inputs = joined({gate.of_columns(wide.begin(n), wide.end(n)),
                                    up.of_columns(wide.begin(n), wide.end(n)),
                                    {reduce}});
    silus.push_back({tasks.add_vector("silu", tasks.row_work(wide.width(n), 10, 12), inputs)});
  }
  const SplitMatmul down =
      add_split(tasks, "down_proj", {args.hidden, kWideTile}, wide, silus, down_seed);
  const VectorWork end = tasks.row_work(args.hidden, 14, 4, kEndBlocks);
  return {tasks.add_vector("dcr_xgamma", end, down.tasks)};
}

}  // namespace gapless
