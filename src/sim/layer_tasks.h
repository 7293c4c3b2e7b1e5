// SPDX-License-Identifier: Apache-2.0
//
// What the layers of qwen3_layer.h are built of: matrix tiles, rows of vector work, attention.
//
// A matmul tile costs its weights, its activations and its results in bytes: weights are the rest
// of the layer's traffic by far. Vector work costs the bytes it reads and writes and a few
// operations an element.

#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_graph.h"

namespace gapless {

inline constexpr int64_t kRowPad = 16;       // rows of an activation tile: the batch is padded
inline constexpr int64_t kPageTokens = 128;  // of a page, and of an attention block

using TaskList = std::vector<uint32_t>;

struct MatmulTile {
  int64_t k = 0;
  int64_t n = 0;               // columns of one right-hand side
  int64_t right_count = 1;     // right-hand sides that share the activations
  DType dtype = DType::kBf16;  // of both operands
  bool adds = false;           // to what is there: results are read too
};

struct VectorWork {
  int64_t bytes = 0;       // read and written, by all blocks
  int64_t operations = 0;  // by all blocks
  uint32_t blocks = 1;
};

// Tiles of `tile` columns that cover `total`: [begin, end) of number i.
struct ColumnTiles {
  int64_t total = 0;
  int64_t tile = 1;
  int64_t count() const { return (total + tile - 1) / tile; }
  int64_t begin(int64_t i) const { return i * tile; }
  int64_t end(int64_t i) const { return std::min(total, (i + 1) * tile); }
  int64_t width(int64_t i) const { return end(i) - begin(i); }
};

class LayerTasks {
 public:
  explicit LayerTasks(const LayerGraphArgs& args);

  const LayerGraphArgs& args() const { return args_; }
  int64_t rows() const { return rows_; }  // of activations, padded
  int64_t q_columns() const { return args_.q_heads * args_.head_dim; }
  int64_t kv_columns() const { return args_.kv_heads * args_.head_dim; }
  int64_t page_count() const { return page_count_; }  // of all sequences

  uint32_t add_matmul(std::string_view name, const MatmulTile& tile, uint32_t blocks,
                      const TaskList& producers);
  uint32_t add_vector(std::string_view name, const VectorWork& work, const TaskList& producers,
                      bool early_resolve = false);
  // All pages of all sequences over 24 clusters; `kv_bytes` of an element of the cache.
  uint32_t add_attention(std::string_view name, int64_t kv_bytes, const TaskList& producers);
  // Merges the partial results that the pages left.
  uint32_t add_merge(std::string_view name, const TaskList& producers);
  uint32_t add_barrier(std::string_view name, const TaskList& producers);
  // Work on `columns` of all rows: bytes an element and operations an element.
  VectorWork row_work(int64_t columns, int64_t element_bytes, int64_t operations,
                      uint32_t blocks = 1) const;

  Result<SimGraph> finish() { return builder_.finish(); }

 private:
  LayerGraphArgs args_;
  int64_t rows_ = 0;
  int64_t page_count_ = 0;
  SimGraphBuilder builder_;
};

// Joins lists of tasks.
TaskList joined(std::initializer_list<TaskList> lists);

// Each adds one layer after what `previous` gave, and returns what the next one waits for.
TaskList add_bf16_layer(LayerTasks& tasks, const TaskList& previous);
TaskList add_a8w8_layer(LayerTasks& tasks, const TaskList& previous);

}  // namespace gapless
